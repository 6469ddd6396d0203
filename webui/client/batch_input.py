"""The lines of a batch: from TXT, CSV or JSONL, one at a time, and what each of them is known by.

A line that cannot be read is a line with a problem.
"""

from __future__ import annotations

import codecs
import csv
import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from ..errors import BadInput
from ..messages import Message
from .request import SpeechParams

NAMES = {
    "text": "text",
    "input": "text",
    "文本": "text",
    "voice": "voice",
    "音色": "voice",
    "seed": "seed",
    "种子": "seed",
    "mode": "mode",
    "模式": "mode",
    "instruction": "instructions",
    "instructions": "instructions",
    "指令": "instructions",
    "language": "language",
    "speed": "speed",
    "model": "model",
}
BARE = ("text", "voice", "seed", "mode", "instructions")  # columns of a table without names


@dataclass(frozen=True)
class Line:
    """n: where it stands in its file, counted from 1. problem: why it cannot be asked for."""

    n: int
    ask: SpeechParams
    problem: BadInput | None = None


def lines_of(rows: Iterable, usual: SpeechParams) -> Iterator[Line]:
    """Of strings, mappings, Asks or Lines. `usual` has what they leave out."""
    for n, row in enumerate(rows, 1):
        yield (
            row
            if isinstance(row, Line)
            else Line(n, row)
            if isinstance(row, SpeechParams)
            else line_of(n, row, usual)
        )


def line_of(n: int, row: object, usual: SpeechParams) -> Line:
    """Line `n` of a batch from what a file or a program gives; `usual` fills the rest."""
    if isinstance(row, str):
        row = {"text": row}
    if not isinstance(row, Mapping):
        return _bad(n, "", usual, BadInput("bad_line.not_line"))
    fields = {
        NAMES[k.strip().lower()]: v
        for k, v in row.items()
        if isinstance(k, str) and k.strip().lower() in NAMES and v not in (None, "")
    }
    text = str(fields.get("text", ""))
    params = {}
    for name, value in fields.items():
        try:
            if isinstance(value, Mapping):
                value = value.get("id", "")
            params[name] = KINDS.get(name, str)(value)
        except (ValueError, TypeError, OverflowError):
            error = BadInput("bad_line.value", value=str(value)[:40], param=name)
            return _bad(n, text, usual, error)
    if not text.strip():
        return _bad(n, text, usual, BadInput("bad_line.no_text", param="text"))
    try:
        return Line(n, replace(usual, **params))
    except BadInput as error:
        return _bad(
            n,
            text,
            usual,
            BadInput(Message(error.en, error.zh), code="bad_line", param=error.param),
        )


def _whole(value: object) -> int:
    """No 7.9 and no True: a seed that is not the one that was written would go unnoticed."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    return int(str(value).strip())


KINDS = {"speed": float, "seed": _whole}


def _bad(n: int, text: str, usual: SpeechParams, error: BadInput) -> Line:
    return Line(n, replace(usual, text=text.encode("utf-8", "replace").decode()), error)


# ---- files ---------------------------------------------------------------------------------------
def read(path: str | Path, usual: SpeechParams) -> Iterator[Line]:
    """By its ending: .jsonl and .ndjson, .csv and .tsv, else one text per line.

    Raises BadInput when it cannot be read at all.

    UTF-8 with or without a mark, UTF-16 with one, else GB18030.
    """
    path = Path(path)
    try:
        with path.open(encoding=_encoding(path), newline="") as f:
            kind = path.suffix.lower()
            yield from (
                _json
                if kind in (".jsonl", ".ndjson")
                else _table
                if kind in (".csv", ".tsv")
                else _texts
            )(f, usual)
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput("no_file.batch", path=path, error=error) from error


def _encoding(path: Path) -> str:
    decoder = codecs.getincrementaldecoder("utf-8")()
    with path.open("rb") as f:
        if (mark := f.read(2)) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            return "utf-16"
        try:
            decoder.decode(mark)
            while piece := f.read(1 << 20):
                decoder.decode(piece)
            decoder.decode(b"", True)
        except UnicodeDecodeError:
            return "gb18030"
    return "utf-8-sig"


def _split(f) -> Iterator[tuple[int, str]]:
    for n, raw in enumerate(f, 1):
        if raw.strip():
            yield n, raw.strip()


def _texts(f, usual: SpeechParams) -> Iterator[Line]:
    return (line_of(n, text, usual) for n, text in _split(f))


def _json(f, usual: SpeechParams) -> Iterator[Line]:
    for n, raw in _split(f):
        try:
            row = json.loads(raw)
        except (ValueError, RecursionError):
            yield _bad(n, raw[:200], usual, BadInput("bad_line.not_json"))
        else:
            yield line_of(n, row, usual)


def _table(f, usual: SpeechParams) -> Iterator[Line]:
    first = f.readline()
    f.seek(0)
    comma = next(
        (
            c
            for c in ",\t;"
            if c in first and "text" in _heads(next(csv.reader([first], delimiter=c)))
        ),
        "\t" if f.name.endswith(".tsv") else ",",
    )
    rows, start_line, names = csv.reader(f, delimiter=comma), 1, None
    while True:
        try:
            cells = next(rows)
        except StopIteration:
            return
        except csv.Error as error:  # a field over the reader's limit, a NUL: that row only
            yield _bad(start_line, "", usual, BadInput("bad_line.row", error=error))
            start_line = rows.line_num + 1
            continue
        heads = _heads(cells) if names is None else ()
        if names is None:
            names = heads if "text" in heads else BARE
        if names is not heads and any(c.strip() for c in cells):
            yield line_of(start_line, {k: v.strip() for k, v in zip(names, cells) if k}, usual)
        start_line = rows.line_num + 1


def _heads(cells: list[str]) -> tuple[str, ...]:
    return tuple(NAMES.get(c.strip().lower(), "") for c in cells)


# ---- what a line is known by ---------------------------------------------------------------------
class Known:
    """Keys and seeds by content: a line that is moved keeps both, one that is changed gets new
    ones, the same line twice is two lines.
    """

    def __init__(self, seed: int):
        self._seed, self._counts = seed, Counter()

    def key(self, ask: SpeechParams) -> bytes:
        """A mark of the request that is the same in every run, with a count of equal ones."""
        canonical_json = json.dumps(
            [self._seed, vars(ask)], ensure_ascii=False, sort_keys=True
        ).encode("utf-8", "surrogatepass")
        digest = hashlib.sha256(canonical_json).digest()[:16]
        self._counts[digest[:8]] += 1
        nth = self._counts[digest[:8]]
        return digest if nth == 1 else hashlib.sha256(digest + nth.to_bytes(4, "big")).digest()[:16]


def with_seed(ask: SpeechParams, key: bytes) -> SpeechParams:
    """An own seed that is the same in every try and every run."""
    return ask if ask.seed >= 0 else replace(ask, seed=int.from_bytes(key[:4]) >> 1)


def file_name(n: int, key: bytes, text: str) -> str:
    """000007_first-words_1a2b3c4d.wav: in order, safe on every file system, never another
    line's.
    """
    words = re.sub(r"[^\w-]+", "-", text)[:24].strip("-_") or "line"
    return f"{n:06d}_{words}_{key.hex()[:8]}.wav"
