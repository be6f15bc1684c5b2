"""The page about the command, made from its own help: `python -m lakestate.cli.reference > docs/cli.md`."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import click

from lakestate.cli.app import app
from lakestate.cli.commands.registry import COMMANDS
from lakestate.cli.config import DEFAULT_FILE
from lakestate.cli.failures import MEANINGS

WIDTH = 100

_HEAD = f"""# The `lakestate` command

After this page you can see from a terminal what is in the state of a job, what changed, how large it is and
whether it is sound, and you can tag, roll back and clean up. It is in the extra `cli`:

```
pip install "lakestate[cli]"
lakestate --at s3://bucket/checkpoints jobs
```

`python -m lakestate.cli` is the same command. Give places names, and commands stay short
(`lakestate --at prod epochs totals`). In `{DEFAULT_FILE}`, or in the file that `LAKESTATE_CONFIG` names:

```toml
default = "prod"                      # used without --at
output = "table"                      # or json, csv

[places.prod]
url = "s3://bucket/checkpoints"
options = {{ region = "eu-west-1" }}    # those of StoreConfig; credentials belong in the environment
pipeline = "shop.jobs:pipeline"       # for the commands that need the code of a job

[places.laptop]
url = "/data/checkpoints"
```

An epoch is named by its number, by a tag, by a time (`2026-01-31T12:00`, in UTC unless it says otherwise:
the newest epoch that had been published by then), or by the word `newest`. Every command prints a table for
people, or with `--output json` or `--output csv` what programs read; notes, hints and progress go to standard
error. A command that changes something has `--dry-run`. A command that only looks writes nothing, not even to
the run cache of the host, and does not disturb a running job.

A key is written as it is shown: times with their offset (`2026-01-31T12:00:00Z`), bytes in hexadecimal.
A JSON object (`{{"user": null}}`) writes null, and texts that would be taken for `column=value`.

An error is one line and a hint. The exit code says what kind it is:

| code | meaning |
|---|---|
"""

_TAIL = """
The [runbook](runbook.md) shows which commands help when something is wrong. This page is
made from the help of the command; do not edit it, run `python -m lakestate.cli.reference > docs/cli.md`.
"""


def reference() -> str:
    """The whole page."""
    codes = "".join(f"| {code.value} | {text} |\n" for code, text in MEANINGS.items())
    return f"{_HEAD}{codes}{_TAIL}\n" + "\n".join(_sections())


def _sections() -> Iterator[str]:
    with _context(app, "lakestate") as top:
        yield f"## lakestate\n\n```\n{app.get_help(top).rstrip()}\n```\n"
        for command in COMMANDS:
            with _context(command, command.name, parent=top) as context:
                yield f"## lakestate {command.name}\n\n```\n{command.get_help(context).rstrip()}\n```\n"


def _context(command: click.Command, name: str | None, parent: click.Context | None = None) -> click.Context:
    return click.Context(
        command, info_name=name, parent=parent, terminal_width=WIDTH, help_option_names=["-h", "--help"]
    )


if __name__ == "__main__":
    sys.stdout.write(reference())
