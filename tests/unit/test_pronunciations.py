"""The dictionary on disk: kept through kills, shared by threads and processes, set aside when
damaged; and as a file.
"""

from __future__ import annotations

import csv
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from webui import text
from webui.errors import BadInput, KaikouError, NotFound, StorageDamaged, StorageFull, TooLarge
from webui.store import PronunciationStore
from webui.store.pronunciations import MAX_ROWS
from webui.studio.pronunciations import Pronunciations

ROOT = Path(__file__).parents[2]


@pytest.fixture
def words(tmp_path):
    dictionary = Pronunciations(PronunciationStore(tmp_path))
    yield dictionary
    dictionary.close()


def terms(words, owner="local/a") -> dict[str, str]:
    return {e.term: e.reading for e in words.list(owner)}


def again(words, folder) -> Pronunciations:
    words.close()
    return Pronunciations(PronunciationStore(folder))


def test_entries_are_kept_by_account(words, tmp_path):
    words.put("local/a", "GPU", "G P U")
    words.put("local/b", "gpu", "jee pee you")
    words.put("user-bob/a", "GPU", "bob's")
    words.put("local/a", "GPU", "吉皮优", "zh-CN")
    words = again(words, tmp_path)
    assert [(e.term, e.reading, e.language) for e in words.list("local/x")] == [
        ("gpu", "jee pee you", ""),
        ("GPU", "吉皮优", "zh"),
    ]
    assert terms(words, "user-bob/z") == {"GPU": "bob's"}
    words.put("local/a", "CPU", "C P U", was=("Gpu", "zh"))
    assert terms(words) == {"gpu": "jee pee you", "CPU": "C P U"}
    words.delete("local/c", "ＣＰＵ")
    with pytest.raises(NotFound):
        words.delete("local/c", "CPU")
    assert (
        words.clear("local/a") == 1
        and terms(words) == {}
        and terms(words, "user-bob/") == {"GPU": "bob's"}
    )
    words.close()


def test_reading_makes_no_file_and_compiles_once(words, tmp_path, monkeypatch):
    assert (
        words.as_read("local/a")[0].entries == ()
        and words.list("local/a") == []
        and list(tmp_path.iterdir()) == []
    )
    compiled = []
    monkeypatch.setattr(
        "webui.studio.pronunciations.text.Readings",
        lambda entries: (compiled.append(1), text.pronunciation_dict.Readings(entries))[1],
    )
    words.put("local/a", "GPU", "G P U")
    for _ in range(5):
        assert words.as_read("local/b")[0].apply("GPU", "en") == "G P U"
    assert len(compiled) == 1
    words.put("local/a", "GPU", "jee")
    assert words.as_read("local/b")[0].apply("GPU", "en") == "jee" and len(compiled) == 2


def test_another_process_is_heard(words, tmp_path):
    words.put("local/a", "GPU", "one")
    assert words.as_read("local/a")[0].apply("GPU", "en") == "one"
    other = Pronunciations(PronunciationStore(tmp_path))
    other.put("local/a", "GPU", "two")
    other.close()
    assert words.as_read("local/a")[0].apply("GPU", "en") == "two"


def test_threads_that_write_and_speak_at_once(words):
    wrong = []

    def work(n: int) -> None:
        try:
            for i in range(20):
                words.put(f"user-{n % 3}/x", f"term{n}x{i}", "a b")
                if f"term{n}x{i}" not in {
                    e.term for e in words.as_read(f"user-{n % 3}/y")[0].entries
                }:
                    wrong.append((n, i))
        except KaikouError as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not wrong and [len(words.list(f"user-{n}/x")) for n in range(3)] == [40, 40, 40]


def test_a_dictionary_is_bounded_and_a_refused_change_changes_nothing(words):
    rows = "\n".join(f"t{n}\tx" for n in range(MAX_ROWS))
    assert words.take_in("local/a", rows.encode(), "tsv") == (MAX_ROWS, 0)
    for refused in (
        lambda: words.put("local/a", "more", "x"),
        lambda: words.take_in("local/a", b"t1\tchanged\nmore\tx", "tsv"),
    ):
        with pytest.raises(BadInput) as exc_info:
            refused()
        assert exc_info.value.code == "too_many_terms"
    assert terms(words)["t1"] == "x" and len(terms(words)) == MAX_ROWS
    words.put("local/a", "instead", "x", was=("t1", ""))
    assert len(terms(words)) == MAX_ROWS
    whole = words.file("local/a", "csv")
    assert words.take_in("local/a", whole, "csv", replace=True) == (0, 0)


WRITER = """
import sys
from pathlib import Path
from webui.store import PronunciationStore
from webui.studio.pronunciations import Pronunciations
words = Pronunciations(PronunciationStore(Path(sys.argv[1])))
for n in range(int(sys.argv[2]), 10**6):
    words.put("local/a", f"t{n % 900}", f"r{n}")
    print(n, flush=True)
"""


def test_what_was_acknowledged_survives_kill_9(tmp_path):
    rng, last = random.Random(5), -1
    for _ in range(5):
        child = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path), str(last + 1)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(rng.randrange(1, 40)):
            last = int(child.stdout.readline())
        os.kill(child.pid, signal.SIGKILL)
        last = max([last, *map(int, child.stdout.read().split())])
        child.wait()
        child.stdout.close()
        words = Pronunciations(PronunciationStore(tmp_path))
        readings = terms(words)
        assert words.notice() is None and int(readings[f"t{last % 900}"][1:]) >= last
        assert all(f"t{n % 900}" in readings for n in range(max(0, last - 800), last + 1))
        words.close()


def test_every_change_is_synced_through_the_log(words, tmp_path):
    words.put("local/a", "GPU", "x")
    db = words._store._db._links[True]
    assert (
        db.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
        and db.execute("PRAGMA synchronous").fetchone()[0] == 2
    )


# ---- damage --------------------------------------------------------------------------------------
def fill(words, n: int = 600) -> None:
    words.take_in(
        "local/a", "\n".join(f"term{i:04}\t{'reading ' * 8}{i}" for i in range(n)).encode(), "tsv"
    )
    words.close()


@pytest.mark.parametrize(
    "harm", ["not a database", "a page of noise", "cut in half", "another table", "no text"]
)
def test_a_damaged_file_is_set_aside_and_told(words, tmp_path, harm):
    fill(words)
    file = tmp_path / "pronunciations.sqlite"
    whole = file.read_bytes()
    if harm == "not a database":
        file.write_bytes(b"hello " * 5000)
    elif harm == "a page of noise":
        at = len(whole) // 8192 * 4096
        file.write_bytes(whole[:at] + random.Random(1).randbytes(4096) + whole[at + 4096 :])
    elif harm == "cut in half":
        file.write_bytes(whole[: len(whole) // 2])
    elif harm == "another table":
        file.unlink()
        db = sqlite3.connect(file)
        db.executescript(
            "PRAGMA journal_mode=WAL; CREATE TABLE pronunciations (x); PRAGMA user_version=1"
        )
        db.close()
    else:
        file.write_bytes(whole.replace(b"term0300", b"term\xff\xfe00"))
    before = file.read_bytes()
    words = Pronunciations(PronunciationStore(tmp_path))
    with pytest.raises(StorageDamaged) as exc_info:
        words.list("local/a")
    assert exc_info.value.code == "dictionary_damaged" and "损坏" in exc_info.value.zh
    aside = list(tmp_path.glob("pronunciations.damaged-*.sqlite"))
    assert (
        len(aside) == 1 and aside[0].read_bytes() == before and aside[0].name in exc_info.value.en
    ), "nothing of it is lost"
    assert words.notice()["file"] == aside[0].name and words.notice()["saved"] == len(terms(words))
    words.put("local/a", "GPU", "G P U")
    words = again(words, tmp_path)
    assert terms(words)["GPU"] == "G P U" and words.notice() is None
    words.close()


def test_what_can_still_be_read_is_brought_over(words, tmp_path):
    fill(words)
    file = tmp_path / "pronunciations.sqlite"
    file.write_bytes(file.read_bytes().replace(b"term0300", b"term\xff\xfe00"))
    words = Pronunciations(PronunciationStore(tmp_path))
    readings, notes = words.as_read("local/a")
    assert readings.apply("term0007", "en").endswith(" 7") and 250 <= len(readings.entries) <= 599
    assert "damaged" in notes[0][0] and "损坏" in notes[0][1] and words.as_read("user-bob/a")[1], (
        "everybody is told"
    )
    words.list("local/a")
    assert words.as_read("local/b")[1] == [] and words.as_read("user-bob/a")[1], (
        "until they have looked"
    )
    words.close()


def test_damage_that_comes_while_it_runs(words, tmp_path):
    words.take_in(
        "local/a", "\n".join(f"term{i:04}\t{'reading ' * 8}{i}" for i in range(900)).encode(), "tsv"
    )
    words._store._db._links[True].execute("PRAGMA wal_checkpoint(TRUNCATE)")
    words._store._db._drop(False)
    file = tmp_path / "pronunciations.sqlite"
    file.write_bytes(file.read_bytes()[:4096] + os.urandom(file.stat().st_size - 4096))
    notes = words.as_read("local/a")[1]
    assert notes and list(tmp_path.glob("pronunciations.damaged-*.sqlite"))
    words.put("local/a", "GPU", "G P U")
    assert words.as_read("local/a")[0].apply("GPU", "en") == "G P U"


def test_the_log_of_a_damaged_file_goes_with_it(words, tmp_path):
    """Killed with changes still in the log, and the file broken: the log must neither be lost nor
    be read into the file that is begun.
    """
    words.put("local/a", "old", "x")
    words._store._db._links[True].execute("PRAGMA wal_checkpoint(TRUNCATE)")
    words.put("local/a", "older", "x")
    killed = tmp_path / "killed"
    killed.mkdir()
    for file in tmp_path.glob("pronunciations.sqlite*"):
        (killed / file.name).write_bytes(file.read_bytes())
    log = (killed / "pronunciations.sqlite-wal").read_bytes()
    (killed / "pronunciations.sqlite").write_bytes(b"broken " * 1000)
    after = Pronunciations(PronunciationStore(killed))
    assert after.as_read("local/a")[1] and len(log) >= 4096
    assert [p.read_bytes() for p in killed.glob("pronunciations.damaged-*.sqlite-wal")] == [log]
    after.put("local/a", "new", "y")
    assert set(terms(again(after, killed))) == {"new"}


def test_a_newer_file_is_left_alone(words, tmp_path):
    fill(words, 3)
    db = sqlite3.connect(tmp_path / "pronunciations.sqlite")
    db.execute("PRAGMA user_version=9")
    db.close()
    words = Pronunciations(PronunciationStore(tmp_path))
    with pytest.raises(KaikouError) as exc_info:
        words.put("local/a", "GPU", "x")
    assert exc_info.value.code == "dictionary_newer" and not list(tmp_path.glob("*damaged*"))
    readings, notes = words.as_read("local/a")
    assert readings.entries == () and "as it is written" in notes[0][0]


def test_a_disk_that_takes_nothing_refuses_by_name(tmp_path):
    code = """import resource, signal, sys
from pathlib import Path
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
from tests.unit.test_pronunciations import *
words = Pronunciations(PronunciationStore(Path(sys.argv[1])))
words.put('local/a', 'GPU', 'G P U')
resource.setrlimit(resource.RLIMIT_FSIZE, (40000, 40000))
try:
    for n in range(400):
        words.put('local/a', f't{n}', 'x' * 150)
except StorageFull as e:
    print('full', e.code, terms(words)['GPU'])"""
    process = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, cwd=ROOT
    )
    assert process.stdout.startswith("full storage") and process.stdout.strip().endswith("G P U"), (
        process.stderr
    )
    words = Pronunciations(PronunciationStore(tmp_path))
    assert terms(words)["GPU"] == "G P U" and words.notice() is None
    words.close()


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("x")
    words = Pronunciations(PronunciationStore(tmp_path / "file" / "data"))
    with pytest.raises(StorageFull):
        words.put("local/a", "GPU", "x")
    assert (
        words.as_read("local/a") == (text.NO_READINGS, [])
        or words.as_read("local/a")[0].entries == ()
    )


# ---- as a file -----------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", ["tsv", "csv"])
def test_out_and_in_again_is_the_same(words, kind):
    words.put("local/a", 'a "quoted", term', "x, y")
    words.put("local/a", "重庆", "崇庆", "zh")
    words.put("local/a", "=SUM(1)", "sum")
    data, before = words.file("local/a", kind), words.list("local/a")
    words.clear("local/a")
    assert words.take_in("local/a", data, kind) == (3, 0) and words.list("local/a") == before
    assert words.take_in("local/a", data, kind) == (0, 0)


FORMULAS = [
    "=cmd|'/C calc'!A0", "=1+1", "+1", "-1", "@SUM(A1)", '"=1+1"', "'=1", "''=1", "'-", "＝1",
    "＋7", "－8", "＠x",
    "'tis", "''", "a=b", "rock 'n' roll", "a;=1+1", "a,=1+1", '"', "'", "'\"x",
]  # fmt: skip
RUN = (
    "=",
    "+",
    "-",
    "@",
    "＝",
    "＋",
    "－",
    "＠",
    "\t",
    "\r",
)  # what a spreadsheet takes for a formula


def cells_as_a_spreadsheet_reads_them(data: bytes, kind: str) -> list[str]:
    """With " as the mark around a cell in both kinds."""
    rows = csv.reader(
        data.decode("utf-8-sig").splitlines(), delimiter="\t" if kind == "tsv" else ","
    )
    return [c for row in rows for c in row]


@pytest.mark.parametrize("kind", ["tsv", "csv"])
def test_no_cell_of_a_file_is_a_formula_and_each_comes_back_as_it_was(words, kind):
    for n, formula in enumerate(FORMULAS):
        words.put("local/a", formula, f"{formula} x{n}", "en" if n % 2 else "")
    data, before = words.file("local/a", kind), words.list("local/a")
    assert len(before) == len(FORMULAS)
    assert not [c for c in cells_as_a_spreadsheet_reads_them(data, kind) if c.startswith(RUN)]
    words.clear("local/a")
    assert words.take_in("local/a", data, kind) == (len(before), 0)
    assert words.list("local/a") == before and words.file("local/a", kind) == data


def test_a_file_that_no_spreadsheet_was_feared_for_is_read_as_it_is(words):
    words.take_in("local/a", b"=1\tone\n-x\tminus x\n'tis\tit is\n", "tsv")
    assert terms(words) == {"=1": "one", "-x": "minus x", "'tis": "it is"}


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "gb18030"])
def test_files_of_spreadsheets(words, encoding):
    words.take_in(
        "local/a", "Term\tReading\r\n重庆\t崇庆\tzh\r\n\r\nGPU\tG P U\r\n".encode(encoding), "tsv"
    )
    assert terms(words) == {"重庆": "崇庆", "GPU": "G P U"}


@pytest.mark.parametrize(
    ("data", "kind", "code", "says"),
    [
        (b"GPU\tG P U\nCPU\n", "tsv", "bad_reading", "Line 2"),
        (b"a,b\n" + b"x" * 70 + b",y", "csv", "too_long_term", "Line 2"),
        (b"", "csv", "bad_file", "no entry"), (b"\xff\xfe\xff", "tsv", "bad_file", ""),
        (b"\x81\xff\xff\t\xff", "tsv", "bad_file", "UTF-8"), (b'a,"b', "csv", "bad_file", "CSV"),
        (b"a,b,zz-zz-zz-zz-zz-zz-zz", "csv", "bad_language", "Line 1"),
        (b"a\x00\tb", "tsv", "bad_term", "Line 1"),
        (b"a\tb\n" * 5000, "tsv", "too_many_terms", "lines"),
        (b'"' + b"x" * 200000 + b'",y', "csv", "bad_file", "CSV"),
        (b"a,b", "xlsx", "bad_format", "tsv"),
    ],
)  # fmt: skip
def test_a_file_with_a_fault_changes_nothing(words, data, kind, code, says):
    words.put("local/a", "GPU", "before")
    with pytest.raises(BadInput) as exc_info:
        words.take_in("local/a", data, kind, replace=True)
    assert (
        exc_info.value.code == code
        and says in exc_info.value.en
        and terms(words) == {"GPU": "before"}
    )


def test_a_file_too_large(words):
    with pytest.raises(TooLarge):
        words.take_in("local/a", b"a\tb\n" * 300000, "tsv")
