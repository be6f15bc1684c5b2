"""`Session`: what all commands of one invocation share, such as where to look and how to print."""

from __future__ import annotations

import sys
from functools import cached_property

from lakestate.cli.config import Place, Settings, read_settings
from lakestate.cli.output import Form, Listing, Output, Report, make_output
from lakestate.cli.waiting import waiting
from lakestate.coordinator.parquet_backend import ParquetBackend
from lakestate.errors import InvalidInputError
from lakestate.inspection import Checkpoint, EpochState
from lakestate.inspection.job_names import job_not_found
from lakestate.job.named_epochs import NEWEST, find_epoch
from lakestate.job.objects import JobObjects
from lakestate.protocol.values import Epoch


class ReaderGoneError(Exception):
    """Whoever reads the output, such as `head`, has seen enough."""


class Session:
    """Where to look, and the form of the answer. Options of a command override those before it."""

    def __init__(self) -> None:
        self.at: str | None = None
        self.form_name: str | None = None
        self.exit_code = 0
        """What a command ends with that found what it looks for."""

    @cached_property
    def settings(self) -> Settings:
        """The config file."""
        return read_settings()

    @property
    def place(self) -> Place:
        """The place that was named, or the default one."""
        return self.settings.place(self.at)

    @cached_property
    def backend(self) -> ParquetBackend:
        """The checkpoints there. Nothing is cached on this host: a look must leave no trace."""
        return ParquetBackend(self.place.store, cache_bytes=0)

    @cached_property
    def checkpoint(self) -> Checkpoint:
        """The jobs there, for reading."""
        return Checkpoint(self.backend)

    @property
    def output(self) -> Output:
        """Where results go."""
        name = self.form_name or self.settings.output or Form.TABLE.value
        try:
            return make_output(Form(name))
        except ValueError as unknown:
            known = ", ".join(form.value for form in Form)
            raise InvalidInputError("not a form of output", found=repr(name), expected=known) from unknown

    def show(self, result: Listing | Report) -> None:
        """Print a result."""
        output = self.output
        try:
            if isinstance(result, Listing):
                output.show_listing(result)
            else:
                output.show_report(result)
            sys.stdout.flush()
        except BrokenPipeError as gone:
            raise ReaderGoneError from gone

    def job(self, job_id: str) -> JobObjects:
        """The objects of a job that exists."""
        with waiting(f"looking for job {job_id}"):
            job = self.backend.objects(job_id)
            unknown = job_not_found(job)
        if unknown is not None:
            raise unknown
        return job

    def code(self, named: str | None) -> str | None:
        """`module:name` of the code of the jobs there: what was named, or what the config file says."""
        return named or self.place.pipeline

    def epoch_state(self, job_id: str, named: str | None) -> EpochState:
        """The tables of an epoch, for reading."""
        return self.checkpoint.job(job_id).epoch(self.epoch(self.job(job_id), named))

    def epoch(self, job: JobObjects, named: str | None) -> Epoch:
        """The epoch of a number, of a tag, at a time, or the newest."""
        with waiting(f"looking for epoch {named or NEWEST}"):
            return find_epoch(job, named or NEWEST)
