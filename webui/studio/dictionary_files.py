"""A dictionary as a file: TSV or CSV with the columns term, reading, language.

Bytes to entries and back; blind to where they are kept.
"""

from __future__ import annotations

import codecs
import csv
import io
import re

from .. import text
from ..errors import BadInput, TooLarge

MAX_FILE = 1 << 20
MAX_LINES = 4000
COLUMNS = ("term", "reading", "language")
KINDS = {"tsv": "text/tab-separated-values", "csv": "text/csv"}
# A spreadsheet takes a cell that begins with one of these for a formula and runs it (OWASP, "CSV
# injection"); in a TSV it takes " off first. An apostrophe in front makes it text. A cell that has
# apostrophes of its own in front of such a sign gets one more, so that reading takes away exactly
# what writing put there.
_FORMULA = re.compile("'*[=+\\-@\t\r\n\"＝＋－＠]")
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


def read(data: bytes, kind: str) -> list[text.Pronunciation]:
    """Every entry of the file, or none: a line that is wrong is named.

    A first line of column names is passed over. Raises BadInput, TooLarge.
    """
    if len(data) > MAX_FILE:
        raise TooLarge("too_large_file")
    entries: list[text.Pronunciation] = []
    try:
        for number, line in enumerate(_lines(_decode(data), kind), 1):
            cells = [*map(_unescape, map(str.strip, line)), "", ""]
            if not any(cells) or (
                number == 1 and cells[0].lower() == COLUMNS[0] and cells[1].lower() == COLUMNS[1]
            ):
                continue
            if number > MAX_LINES:
                raise BadInput("too_many_terms.file", max_lines=MAX_LINES)
            entries.append(_entry(number, cells))
    except csv.Error as error:
        raise BadInput("bad_file.csv", error=error) from error
    if not entries:
        raise BadInput("bad_file.no_entry")
    return entries


def write(entries: list[text.Pronunciation], kind: str) -> bytes:
    """UTF-8 with its mark, which spreadsheets ask for; no cell is a formula."""
    out = io.StringIO(newline="")
    rows = [COLUMNS, *((*map(_escape, (e.term, e.reading)), e.language) for e in entries)]
    if kind == "csv":
        csv.writer(out).writerows(rows)
    else:
        out.write(
            "".join("\t".join(row) + "\n" for row in rows)
        )  # neither a term nor a reading can hold a tab or an end of line
    return out.getvalue().encode("utf-8-sig")


def _escape(cell: str) -> str:
    return "'" + cell if _FORMULA.match(cell) else cell


def _unescape(cell: str) -> str:
    return cell[1:] if cell[:1] == "'" and _FORMULA.match(cell) else cell


def _decode(data: bytes) -> str:
    for mark, name in _MARKS:
        if data.startswith(mark):
            return _as(data, name)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return _as(data, "gb18030")  # what spreadsheets write in China


def _as(data: bytes, name: str) -> str:
    try:
        return data.decode(name)
    except UnicodeDecodeError as error:
        raise BadInput("bad_file.encoding") from error


def _lines(content: str, kind: str):
    if kind == "tsv":
        return (
            line.split("\t")
            for line in content.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        )
    return csv.reader(io.StringIO(content, newline=""), strict=True)


def _entry(number: int, cells: list[str]) -> text.Pronunciation:
    try:
        return text.check(cells[0], cells[1], cells[2])
    except BadInput as error:
        raise BadInput("line", n=number, error=error, code=error.code, param=error.param) from error
