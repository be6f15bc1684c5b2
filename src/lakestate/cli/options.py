"""Options and arguments that commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from lakestate.cli import config
from lakestate.cli.completion import complete_epoch, complete_job, complete_operator, complete_table
from lakestate.cli.config import read_settings
from lakestate.cli.output import Form
from lakestate.errors import LakestateError
from lakestate.job.named_epochs import NEWEST

ROWS_SHOWN = 100

F = TypeVar("F", bound=Callable[..., Any])


class AtPlace(click.ParamType[str]):
    """A URL, a path, or a place of the config file, whose names are completed."""

    name = "place"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """The places that begin so."""
        try:
            places = read_settings().places
        except LakestateError:
            return []
        return [CompletionItem(name) for name in sorted(places) if name.startswith(incomplete)]


def set_at(context: click.Context, option: click.Parameter, value: str | None) -> None:
    """Remember the place. What stands after the command counts more than what stands before it."""
    if value is not None:
        context.obj.at = value


def set_form(context: click.Context, option: click.Parameter, value: str | None) -> None:
    """Remember the form of output."""
    if value is not None:
        context.obj.form_name = value


class LakestateCommand(click.Command):
    """A command that also takes `--at` and `--output`, so that they may stand after its name."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.params += [
            click.Option(
                ["--at"],
                type=AtPlace(),
                expose_value=False,
                callback=set_at,
                help="Where the checkpoints are.",
            ),
            click.Option(
                ["-o", "--output"],
                type=click.Choice([form.value for form in Form]),
                expose_value=False,
                callback=set_form,
                help="How results are printed.",
            ),
        ]


def command(name: str) -> Callable[[Callable[..., None]], click.Command]:
    """Make a function a command. It is given the session first."""

    def decorate(function: Callable[..., None]) -> click.Command:
        return click.command(name, cls=LakestateCommand)(click.pass_obj(function))

    return decorate


def job_argument(function: F) -> F:
    """The id of a job."""
    return click.argument("job_id", metavar="JOB", shell_complete=complete_job)(function)


def epoch_argument(function: F) -> F:
    """An epoch that may be left out."""
    return click.argument("epoch", default=NEWEST, metavar="[EPOCH]", shell_complete=complete_epoch)(function)


def epoch_option(function: F) -> F:
    """An epoch other than the newest."""
    return click.option(
        "--epoch",
        default=NEWEST,
        metavar="EPOCH",
        shell_complete=complete_epoch,
        help="A number, a tag, a time, or newest (the default).",
    )(function)


def dry_run_option(function: F) -> F:
    """Say what would be done, and do nothing."""
    return click.option("--dry-run", is_flag=True, help="Say what would be done, and change nothing.")(
        function
    )


def pipeline_option(function: F) -> F:
    """The code of the job, for what stored state does not say."""
    return click.option(
        "--pipeline",
        metavar="MODULE:NAME",
        envvar=config.PIPELINE,
        help="The code of the job: a Pipeline, a function that makes one, or a dict of sinks by id.",
    )(function)


def table_arguments(function: F) -> F:
    """A job, an operator and a table."""
    function = click.argument("table", shell_complete=complete_table)(function)
    return job_argument(click.argument("operator", shell_complete=complete_operator)(function))


def limit_option(function: F) -> F:
    """No more rows than this."""
    return click.option(
        "--limit",
        type=click.IntRange(min=0),
        default=ROWS_SHOWN,
        show_default=True,
        metavar="N",
        help="How many rows; 0 for all.",
    )(function)
