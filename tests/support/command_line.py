"""Running the `lakestate` command in this process, and comparing what it prints with what it printed before.

A golden file holds commands, what they print and how they end:

    $ lakestate tags shop
    …
    => 3

`LAKESTATE_UPDATE_GOLDEN=1` writes what is printed now; review the difference.
"""

from __future__ import annotations

import csv
import os
import re
import shlex
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

from lakestate.cli.app import run

UPDATE = "LAKESTATE_UPDATE_GOLDEN"
NORMAL = (
    (re.compile(r"20(?:2[4-9]|[3-9]\d)-\d\d-\d\d[ T](?!12:0[012])\d\d:\d\d:\d\d(?:\.\d+)?Z"), "<time>"),
    (re.compile(r"(\w+_bytes\": )\d+"), r"\1<size>"),
    (re.compile(r" +[\d.,]+ k?B\b"), "  <size>"),
    (re.compile(r"─+"), "───"),
    (re.compile(r"-(?:shop|clicks)-\d+\.parquet"), "-<id>.parquet"),
    (re.compile(r"\b[\d,]+ bytes\b"), "<size>"),
)
"""What differs from run to run, such as names that threads give, and sizes, which every change of a stored
format changes.

The jobs of the tests are made at fixed times, years ago.
"""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command printed, and how it ended."""

    code: int
    out: str
    err: str


def run_command(*arguments: str) -> Answer:
    """Run the command with these arguments."""
    out, err = StringIO(), StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = run(list(arguments))
    return Answer(int(code), out.getvalue(), err.getvalue())


def transcript(line: str, names: Mapping[str, str]) -> str:
    """A command and its answer, as golden files hold them. `names` are written for what they stand for."""
    shown = line
    for value, name in names.items():
        line = line.replace(name, value)
    answer = run_command(*shlex.split(line)[1:])
    text = (_hide_sizes(answer.out) if line.endswith(" csv") else answer.out) + answer.err
    for value, name in names.items():
        text = text.replace(value, name)
    for pattern, name in NORMAL:
        text = pattern.sub(name, text)
    return f"$ {shown}\n{text}=> {answer.code}\n"


def _hide_sizes(text: str) -> str:
    """CSV without the values of columns of bytes."""
    header, *rows = csv.reader(StringIO(text))
    out = StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(header)
    for row in rows:
        named = zip(header, row, strict=True)
        writer.writerow(["<size>" if name.endswith("_bytes") and cell else cell for name, cell in named])
    return out.getvalue()


def check_golden(file: Path, names: Mapping[str, str]) -> None:
    """Run the commands of a golden file, and compare."""
    before = file.read_text()
    lines = [line[2:] for line in before.splitlines() if line.startswith("$ ")]
    after = "\n".join(transcript(line, names) for line in lines)
    if os.environ.get(UPDATE):
        file.write_text(after)
    assert after == before
