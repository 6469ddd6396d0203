"""A folder of lines and the command line: what is there is whole, a killed run continues, nothing
is made twice.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import signal
import subprocess
import sys
import threading
import wave

import pytest

from tests.client.fire import burning, pcm_of
from tests.conftest import ROOT
from webui.client import AsyncBatchClient, Retry, SpeechParams, read
from webui.client.atomic_files import MARKS
from webui.errors import BadInput, NotAllowed, StorageFull

QUICK = Retry(tries=3, first_s=0.01, longest_s=0.03, patience_s=20)


@pytest.fixture
def fire():
    with burning() as (url, fire):
        fire.url = url
        yield fire


def run_folder(fire, lines, folder, size: int = 1, **kw):
    async def run():
        async with AsyncBatchClient(
            fire.url, in_flight=4, batch=size, retry=QUICK, timeout_s=0.5
        ) as client:
            return await client.to_folder(lines, folder, voice="v", **kw)

    return asyncio.run(run())


def manifest(folder) -> list[dict]:
    return json.loads((folder / "manifest.json").read_text("utf-8"))["lines"]


def check(folder, lines: list[str]) -> None:
    """The manifest in the order of the input, every file whole and right, and no file besides."""
    rows = manifest(folder)
    assert [r["text"] for r in rows] == lines
    for row in rows:
        assert (row["state"] == "done") == (row["file"] is not None) == (row["error"] is None)
        if row["file"]:
            with wave.open(str(folder / row["file"])) as w:
                assert w.readframes(1 << 20) == pcm_of(row["text"], row["seed"])
    files = {p.name for p in folder.iterdir()}
    assert files == {r["file"] for r in rows if r["file"]} | {
        "manifest.json",
        MARKS,
    }, "something half visible or left over"


@pytest.mark.parametrize("size", [1, 4])
def test_a_folder_holds_every_line_and_says_which_failed(fire, tmp_path, size):
    lines, order = (
        ["ok a", "half ok 你好，世界", "bad c", "ok a", "reset ok d/../e", "short ok f"],
        [],
    )
    report = run_folder(
        fire, lines, tmp_path / "out", size, on_result=lambda r: order.append(r.line.n)
    )
    check(tmp_path / "out", lines)
    assert (report.done, report.failed, report.kept, report.total) == (5, 1, 0, 6) and order == [
        1,
        2,
        3,
        4,
        5,
        6,
    ]
    rows = manifest(tmp_path / "out")
    assert (
        rows[2]["error"]["code"] == "bad_field"
        and rows[0]["seed"] != rows[3]["seed"]
        and rows[0]["file"] < rows[1]["file"] < rows[3]["file"]
    )


def test_only_what_changed_is_made_again(fire, tmp_path):
    lines = [f"ok line {i}" for i in range(8)]
    run_folder(fire, lines, tmp_path)
    first = {r["text"]: r["seed"] for r in manifest(tmp_path)}
    fire.n_asked.clear()
    assert run_folder(fire, lines, tmp_path).kept == 8 and not fire.n_asked
    moved = ["ok new", *lines[:3], "ok line 3 in other words", *lines[4:]]
    report = run_folder(fire, moved, tmp_path)
    assert set(fire.n_asked) == {"ok new", "ok line 3 in other words"} and report.kept == 7
    rows = manifest(tmp_path)
    (
        tmp_path
        / next(
            p.name
            for p in tmp_path.iterdir()
            if "line-3" in p.name and p.name not in {r["file"] for r in rows}
        )
    ).unlink()  # the old third, kept on purpose
    check(tmp_path, moved)
    assert all(first[r["text"]] == r["seed"] for r in rows if r["text"] in first) and [
        int(r["file"][:6]) for r in rows
    ] == list(range(1, 10))
    fire.n_asked.clear()
    run_folder(fire, moved, tmp_path, speed=1.5)
    assert len(fire.n_asked) == 9, "another speed is another sound"


def test_what_was_taken_away_or_damaged_is_made_again(fire, tmp_path):
    lines = [f"ok line {i}" for i in range(6)]
    run_folder(fire, lines, tmp_path)
    files = [tmp_path / r["file"] for r in manifest(tmp_path)]
    files[1].unlink()
    files[2].write_bytes(files[2].read_bytes()[:-100])
    marks = sorted(
        (tmp_path / MARKS).read_bytes().splitlines(True), key=lambda raw: json.loads(raw)["file"]
    )
    marks[3] = b"not a mark\n"
    (tmp_path / MARKS).write_bytes(b"".join(marks)[:-9])  # and the last one is torn
    fire.n_asked.clear()
    run_folder(fire, lines, tmp_path)
    assert fire.n_asked == {lines[i]: 1 for i in (1, 2, 3, 5)}
    check(tmp_path, lines)
    fire.n_asked.clear()
    assert run_folder(fire, lines, tmp_path).kept == 6 and not fire.n_asked


def test_a_torn_mark_does_not_swallow_the_next(fire, tmp_path):
    run_folder(fire, ["ok a"], tmp_path)
    (tmp_path / MARKS).write_bytes((tmp_path / MARKS).read_bytes()[:-9])
    run_folder(fire, ["ok b", "ok a"], tmp_path)
    fire.n_asked.clear()
    assert run_folder(fire, ["ok b", "ok a"], tmp_path).kept == 2 and not fire.n_asked


def test_failed_lines_are_tried_again_by_the_next_run(fire, tmp_path):
    lines = ["ok a", "error error error ok b"]
    assert run_folder(fire, lines, tmp_path).failed == 1
    report = run_folder(fire, lines, tmp_path)
    assert (report.failed, report.kept) == (0, 1)
    check(tmp_path, lines)


def test_two_clients_do_not_share_a_folder(fire, tmp_path):
    entered, reports = threading.Event(), []

    def slow():
        entered.set()
        for i in range(3):
            yield f"ok {i}"
            go_on.wait(5)

    go_on = threading.Event()
    first = threading.Thread(target=lambda: reports.append(run_folder(fire, slow(), tmp_path)))
    first.start()
    entered.wait(5)
    with pytest.raises(NotAllowed):
        run_folder(fire, ["ok other"], tmp_path)
    go_on.set()
    first.join(10)
    assert reports[0].done == 3
    check(tmp_path, ["ok 0", "ok 1", "ok 2"])


@pytest.mark.parametrize("nth", [1, 2, 5])
def test_a_disk_that_fills_up_leaves_nothing_half_and_is_continued(
    fire, tmp_path, monkeypatch, nth
):
    """nth sync fails: of a sound, of a mark, later on."""
    n, real = 0, os.fsync

    def full(fd):
        nonlocal n
        n += 1
        if n >= nth:
            raise OSError(errno.ENOSPC, "full")
        real(fd)

    monkeypatch.setattr(os, "fsync", full)
    lines = [f"ok {i}" for i in range(30)]
    with pytest.raises(StorageFull):
        run_folder(fire, lines, tmp_path)
    assert len(fire.n_asked) < 20, "the next line would fare no better"
    monkeypatch.undo()
    assert run_folder(fire, lines, tmp_path).done == 30
    check(tmp_path, lines)


# ---- killed --------------------------------------------------------------------------------------
def client(*argv, **kw) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "webui.client", *map(str, argv)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **kw,
    )


@pytest.mark.parametrize("size", [1, 3])
def test_killed_in_the_middle_and_continued(fire, tmp_path, size):
    """Four kills.

    What was marked at a kill is never asked for again; redone is at most what was in flight.
    """
    texts = [f"ok line {i}" for i in range(150)]
    (tmp_path / "in.txt").write_text("\n".join(texts), "utf-8")
    folder, in_flight, kills, asked_twice = tmp_path / "out", 4, 4, []
    fire.slow_s = 0.005
    for kill in range(kills + 1):
        done = (
            {
                json.loads(x)["file"]
                for x in (folder / MARKS).read_bytes().splitlines()
                if x.endswith(b"}")
            }
            if kill
            else set()
        )
        before, enough = dict(fire.n_asked), threading.Event()
        target = sum(fire.n_asked.values()) + 25
        fire.on_ask = lambda target=target, enough=enough: (
            enough.set() if sum(fire.n_asked.values()) >= target else None
        )
        run = client(
            "batch",
            tmp_path / "in.txt",
            folder,
            "--url",
            fire.url,
            "--voice",
            "v",
            "--in-flight",
            in_flight,
            "--batch",
            size,
        )
        if kill < kills:
            assert enough.wait(30)
            run.send_signal(signal.SIGKILL)
        out, err = run.communicate(timeout=60)
        for path in folder.glob("0*.wav"):
            with wave.open(str(path)) as w:
                assert w.getnframes() == 400 and len(w.readframes(400)) == 800, (
                    "half a file under its own name"
                )
        repeats = [
            t
            for i, t in enumerate(texts)
            if fire.n_asked[t] > before.get(t, 0)
            and any(name.startswith(f"{i + 1:06d}_") for name in done)
        ]
        asked_twice += repeats
    assert run.returncode == 0 and "150 done" in out, err
    assert asked_twice == []
    assert sum(fire.n_asked.values()) - 150 <= kills * in_flight * size
    check(folder, texts)


# ---- the command line ----------------------------------------------------------------------------
def test_say_clone_and_exit_codes(fire, tmp_path):
    key = {"env": {**os.environ, "KAIKOU_API_KEY": "secret"}}
    out, err = client(
        "say",
        "ok hello",
        "--voice",
        "v",
        "--seed",
        4,
        "--url",
        fire.url,
        "--out",
        tmp_path / "a.wav",
        **key,
    ).communicate(timeout=60)
    with wave.open(str(tmp_path / "a.wav")) as w:
        assert w.readframes(9999) == pcm_of("ok hello", 4)
    assert fire.keys == ["Bearer secret"] and not err
    raw = subprocess.run(
        [
            sys.executable,
            "-m",
            "webui.client",
            "say",
            "-",
            "--voice",
            "v",
            "--seed",
            "4",
            "--url",
            fire.url,
        ],
        cwd=ROOT,
        capture_output=True,
        input="ok 你好".encode(),
        timeout=60,
    )
    assert raw.stdout == pcm_of("ok 你好", 4)
    refused = client(
        "say", "login x", "--voice", "v", "--url", fire.url, "--out", tmp_path / "b.wav"
    )
    out, err = refused.communicate(timeout=60)
    assert refused.returncode == 2 and err == "no: login\n" and not (tmp_path / "b.wav").exists()
    (tmp_path / "in.jsonl").write_text(
        '{"text": "ok a"}\nnonsense\n\n"ok b"\n{"text": "bad c"}\n', "utf-8"
    )
    result = client(
        "batch", tmp_path / "in.jsonl", tmp_path / "out", "--voice", "v", "--url", fire.url
    )
    out, err = result.communicate(timeout=60)
    assert (
        result.returncode == 1
        and "in.jsonl:2: This line is not JSON." in err
        and "in.jsonl:5: no: bad" in err
        and "2 done (0 kept), 2 failed" in out
    )
    assert [(r["line"], r["state"]) for r in manifest(tmp_path / "out")] == [
        (1, "done"),
        (2, "failed"),
        (4, "done"),
        (5, "failed"),
    ]


def test_interrupted_with_the_keyboard_leaves_nothing_half(fire, tmp_path):
    (tmp_path / "in.txt").write_text("\n".join(f"ok line {i}" for i in range(200)), "utf-8")
    enough, fire.slow_s = threading.Event(), 0.01

    def many_are_asked_for():
        if sum(fire.n_asked.values()) > 20:
            fire.slow_s = 5  # or it could be done before the signal comes
            enough.set()

    fire.on_ask = many_are_asked_for
    run = client("batch", tmp_path / "in.txt", tmp_path / "out", "--url", fire.url, "--voice", "v")
    assert enough.wait(30)
    run.send_signal(signal.SIGINT)
    _, err = run.communicate(timeout=60)
    assert run.returncode == 130 and "Traceback" not in err
    assert not [
        p.name
        for p in (tmp_path / "out").iterdir()
        if p.name.startswith(".") or p.name == "manifest.json"
    ]


# ---- what is read --------------------------------------------------------------------------------
def rows(path, data: bytes) -> list[tuple]:
    path.write_bytes(data)
    return [
        (x.n, x.ask.text, x.ask.voice, x.ask.seed, x.problem is None)
        for x in read(path, SpeechParams("", "v"))
    ]


def test_tables_texts_and_json_in_the_encodings_people_have(tmp_path):
    assert rows(tmp_path / "a.txt", "\ufeff一\r\n\r\n 二 \n".encode()) == [
        (1, "一", "v", -1, True),
        (3, "二", "v", -1, True),
    ]
    assert rows(tmp_path / "a.txt", "你好，世界\n再见".encode("gb18030")) == [
        (1, "你好，世界", "v", -1, True),
        (2, "再见", "v", -1, True),
    ]
    assert rows(
        tmp_path / "a.csv", 'Text;voice;seed\n"a;b\nc";w;7\nd;;\n;w;1\ne;;x\n'.encode("utf-16")
    ) == [
        (2, "a;b\nc", "w", 7, True),
        (4, "d", "v", -1, True),
        (5, "", "v", -1, False),
        (6, "e", "v", -1, False),
    ]
    assert rows(tmp_path / "a.csv", b'one,w,3\n"t""wo"\n') == [
        (1, "one", "w", 3, True),
        (2, 't"wo', "v", -1, True),
    ]
    assert rows(tmp_path / "a.tsv", "文本\t音色\n早\tw\n".encode()) == [(2, "早", "w", -1, True)]
    assert rows(tmp_path / "a.csv", b"text\na\n" + b"x" * 200_000 + b"\nb\n") == [
        (2, "a", "v", -1, True),
        (3, "", "v", -1, False),
        (4, "b", "v", -1, True),
    ]
    assert rows(
        tmp_path / "a.jsonl",
        b'{"input":"a","voice":{"id":"w"},"colour":1}\n"b"\n[1]\n{"text":"\\ud800'
        b' c"}\n{"text":"d","speed":1e999}\n{"text":"e","seed":true}\n',
    ) == [
        (1, "a", "w", -1, True),
        (2, "b", "v", -1, True),
        (3, "", "v", -1, False),
        (4, "? c", "v", -1, False),
        (5, "d", "v", -1, False),
        (6, "e", "v", -1, False),
    ]
    assert rows(tmp_path / "empty.csv", b"") == rows(tmp_path / "empty.txt", b"\n \n") == []
    with pytest.raises(BadInput):
        list(read(tmp_path / "none.txt", SpeechParams("", "v")))
