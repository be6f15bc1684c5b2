"""What a command has to say, and the three forms in which it is said: a table, JSON or CSV.

A command makes a `Listing` or a `Report` and knows no form. Only standard output carries results; hints,
notes and progress go to standard error, so that what is piped stays clean.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import islice
from typing import Protocol, TextIO

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

from lakestate.cli.cells import csv_value, is_number, plain_value, printable, text_for_people, text_of_data

WIDTH_WITHOUT_TERMINAL = 1000
"""What is piped is not folded: a line of a table stays a line."""

COLUMN_GAP = 3
"""The spaces between two columns."""

FOLDED_WIDTH_MIN = 24
"""A column that is folded into less than this cannot be read."""

ROWS_OF_A_TABLE = 1000
"""A table is laid out as a whole; more rows than this follow as another one."""


class Form(Enum):
    """The form of what a command prints."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


@dataclass(frozen=True, slots=True)
class Listing:
    """Rows with named columns. Rows may come from an iterator, and are then shown as they come."""

    columns: Sequence[str]
    rows: Iterable[Sequence[object]]
    is_data: bool = False
    """Rows of state: names and numbers are shown as they are, so that a key can be copied."""


@dataclass(frozen=True, slots=True)
class Report:
    """Facts about one thing, and listings that belong to it; the first listing is what CSV shows."""

    facts: Mapping[str, object]
    listings: Mapping[str, Listing] = field(default_factory=dict)


class Output(Protocol):
    """Shows listings and reports in one form."""

    def show_listing(self, listing: Listing) -> None:
        """Print rows."""
        ...

    def show_report(self, report: Report) -> None:
        """Print facts and the listings that belong to them."""
        ...


def make_output(form: Form, stream: TextIO | None = None) -> Output:
    """The output of a form, to standard output if nothing else is given."""
    to = sys.stdout if stream is None else stream
    match form:
        case Form.TABLE:
            return TableOutput(_console(to))
        case Form.JSON:
            return JsonOutput(to)
        case Form.CSV:
            return CsvOutput(to)


def _console(stream: TextIO) -> Console:
    # Rich colours terminals only, and respects NO_COLOR.
    width = None if stream.isatty() else WIDTH_WITHOUT_TERMINAL
    return Console(file=stream, width=width, highlight=False, soft_wrap=False)


@dataclass(frozen=True, slots=True)
class TableOutput:
    """For people: aligned columns, colour on a terminal."""

    console: Console

    def show_listing(self, listing: Listing) -> None:
        """Print a table, or several if there are very many rows."""
        rows = iter(listing.rows)
        first = True
        while (part := list(islice(rows, ROWS_OF_A_TABLE))) or first:
            self._print_table(listing, part)
            first = False

    def show_report(self, report: Report) -> None:
        """Print facts line by line, then a table for each listing that has rows."""
        shown = {
            _title(name): text for name, value in report.facts.items() if (text := text_for_people(value))
        }
        self._print_facts(shown)
        for name, listing in report.listings.items():
            rows = list(listing.rows)
            if rows:
                self.console.print(Text(f"\n{_title(name)}", style="bold"))
                self._print_table(listing, rows)

    def _print_table(self, listing: Listing, rows: Sequence[Sequence[object]]) -> None:
        show, title = (text_of_data, printable) if listing.is_data else (text_for_people, _title)
        titles = [title(name) for name in listing.columns]
        cells = [[show(cell) for cell in row] for row in rows]
        folded = _column_to_fold(titles, cells, self.console.width)
        if folded is None and self.console.is_terminal:
            self._print_records(titles, cells)
            return
        table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold")
        for index, name in enumerate(titles):
            values = [row[index] for row in rows if row[index] is not None]
            right = bool(values) and all(is_number(value) for value in values)
            justify: JustifyMethod = "right" if right else "left"
            table.add_column(
                Text(name), justify=justify, overflow="fold", no_wrap=folded not in (None, index)
            )
        for texts in cells:
            table.add_row(*map(Text, texts))
        self._print_without_trailing_spaces(table)

    def _print_records(self, titles: Sequence[str], cells: Sequence[Sequence[str]]) -> None:
        """Rows that the terminal is too narrow for, one below the other: a column is a line."""
        for number, texts in enumerate(cells):
            if number:
                self.console.print()
            self._print_facts(dict(zip(titles, texts, strict=True)))

    def _print_facts(self, shown: Mapping[str, str]) -> None:
        width = max(map(cell_len, shown), default=0)
        for name, text in shown.items():
            line = Text(f"{name}{' ' * (width - cell_len(name))}  ", style="dim").append(
                text, style="not dim"
            )
            self.console.print(line)

    def _print_without_trailing_spaces(self, table: Table) -> None:
        if self.console.is_terminal:
            self.console.print(table)
            return
        with self.console.capture() as captured:
            self.console.print(table)
        for line in captured.get().splitlines():
            self.console.out(line.rstrip(), highlight=False)


@dataclass(frozen=True, slots=True)
class JsonOutput:
    """For programs: a listing is an array of objects, a report is an object."""

    stream: TextIO

    def show_listing(self, listing: Listing) -> None:
        """Print an array, an element to a line, as the rows come."""
        separator = "["
        for row in _objects(listing):
            self.stream.write(f"{separator}\n  {json.dumps(row, ensure_ascii=False)}")
            separator = ","
        self.stream.write("[]\n" if separator == "[" else "\n]\n")

    def show_report(self, report: Report) -> None:
        """Print one object, with an array for each listing."""
        content = {name: plain_value(value) for name, value in report.facts.items()}
        content |= {name: list(_objects(listing)) for name, listing in report.listings.items()}
        self.stream.write(json.dumps(content, ensure_ascii=False, indent=2) + "\n")


@dataclass(frozen=True, slots=True)
class CsvOutput:
    """For spreadsheets: a header and rows. Of a report only the first listing, or else its facts."""

    stream: TextIO

    def show_listing(self, listing: Listing) -> None:
        """Print a header and rows."""
        self.stream.write(_csv_line(listing.columns) + "\n")
        for row in listing.rows:
            self.stream.write(_csv_line([csv_value(cell) for cell in row]) + "\n")

    def show_report(self, report: Report) -> None:
        """Print the first listing. If there is none, each fact is a row."""
        facts = Listing(("name", "value"), list(report.facts.items()))
        self.show_listing(next(iter(report.listings.values()), facts))


def _objects(listing: Listing) -> Iterator[dict[str, object]]:
    for row in listing.rows:
        yield {name: plain_value(cell) for name, cell in zip(listing.columns, row, strict=True)}


def _column_to_fold(titles: Sequence[str], cells: Sequence[Sequence[str]], width: int) -> int | None:
    """The widest column, if the others fit into a line beside some of it; None if they do not."""
    widths = [max(map(cell_len, column)) for column in zip(titles, *cells, strict=True)]
    widest = max(range(len(widths)), key=lambda index: widths[index], default=0)
    between = COLUMN_GAP * (len(widths) - 1)
    others = sum(widths) - (widths[widest] if widths else 0)
    return widest if others + between + min(widths[widest], FOLDED_WIDTH_MIN) <= width else None


def _csv_line(fields: Sequence[object]) -> str:
    """A line of CSV. Null is nothing, an empty text is a pair of quotes: DuckDB and PostgreSQL read it so."""
    texts = [_csv_field(each) for each in fields]
    return ",".join(texts) if texts != [""] else '""'


def _csv_field(value: object) -> str:
    if value is None:
        return ""
    text = str(value)
    if text and not any(each in text for each in ',"\r\n'):
        return text
    return '"' + text.replace('"', '""') + '"'


def _title(name: str) -> str:
    """A column as people read it: units are in the cells."""
    for unit in ("_bytes", "_ms"):
        name = name.removesuffix(unit)
    return name.replace("_", " ")
