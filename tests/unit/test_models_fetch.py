"""Fetching a model from a local server that breaks off, lies, refuses or knows no ranges; and file names that try to leave the folder."""

from __future__ import annotations

import hashlib
import json
import re
import signal
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest

from tests.conftest import ROOT
from webui.errors import BadInput, Busy, Cancelled, NotReady, StorageFull
from webui.store import models as store
from webui.store.models import Model, ModelFetcher, read_manifest

BIG = bytes(range(256)) * 12000  # 3 MB: several blocks
SMALL = b"sizes: 1\n"
CONTENT = {"model.yaml": SMALL, "part/big.pt": BIG}


class Origin(ThreadingHTTPServer):
    """Serves `content`; `behave` may take over an answer. `asked` are (path, Range) of all requests."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Answer)
        self.content, self.asked, self.tag, self.ranges, self.length = dict(CONTENT), [], '"v1"', True, True
        self.cuts: list[int] = []  # the next answers of big.pt end after so many bytes
        self.status: list[int] = []  # the next answers are these
        self.hang: threading.Event | None = None  # big files stop half-way until this is set
        self.half_way = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/models/some"

    def ranges_asked(self, name: str) -> list[str | None]:
        return [r for p, r in self.asked if p.endswith(name)]


class Answer(BaseHTTPRequestHandler):
    def log_message(self, *args):
        pass

    def do_GET(self):
        server = self.server
        wanted = self.headers.get("Range")
        server.asked.append((self.path, wanted))
        data = server.content.get(self.path.removeprefix("/models/some/"))
        if server.status or data is None:
            self.send_error(server.status.pop(0) if server.status else 404)
            return
        start = int(re.match(r"bytes=(\d+)-", wanted)[1]) if wanted and server.ranges and self.headers.get("If-Range", server.tag) == server.tag else 0
        if start and start >= len(data):
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        if server.length:
            self.send_header("Content-Length", str(len(data) - start))
        if server.tag:
            self.send_header("ETag", server.tag)
        self.end_headers()
        body = data[start:]
        if server.hang and len(body) > 100_000:
            self.wfile.write(body[: len(body) // 2])
            server.half_way.set()
            server.hang.wait(30)
            return
        self.wfile.write(body[: server.cuts.pop(0)] if server.cuts and self.path.endswith("big.pt") else body)


class NoWait(threading.Event):
    """Never waits; remembers how long it was asked to."""

    def __init__(self):
        super().__init__()
        self.waits: list[float] = []

    def wait(self, timeout=None):
        self.waits.append(timeout)
        return self.is_set()


@pytest.fixture
def origin():
    server = Origin()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


def model(exact: bool = False, sha256: str | None = None, size: int = len(BIG)) -> Model:
    return Model("Some", {"modelscope": "us/Some"}, (store.FileSpec("model.yaml", len(SMALL)), store.FileSpec("part/big.pt", size, exact, sha256)))


def fetcher(origin: Origin, root: Path, *args, free: int = 10**12, **kw) -> ModelFetcher:
    return ModelFetcher(root, origin.url, model(*args, **kw), free_bytes=lambda path: free)


def files(root: Path) -> set[str]:
    return {str(p.relative_to(root)) for p in root.rglob("*") if p.is_file() and not p.name.startswith(".")}


def is_whole(root: Path) -> bool:
    return files(root) == set(CONTENT) and all((root / name).read_bytes() == data for name, data in CONTENT.items())


def test_brings_what_is_missing_and_only_that(origin, tmp_path):
    seen = []
    fetcher(origin, tmp_path).fetch(seen.append)
    assert is_whole(tmp_path) and fetcher(origin, tmp_path).plan().is_complete
    done = [p.done for p in seen]
    assert done == sorted(done) and done[-1] == seen[-1].total == len(BIG) + len(SMALL)
    asked = len(origin.asked)
    fetcher(origin, tmp_path).fetch()
    assert len(origin.asked) == asked
    (tmp_path / "model.yaml").unlink()
    assert [s.path for s in fetcher(origin, tmp_path).plan().missing] == ["model.yaml"]
    fetcher(origin, tmp_path).fetch()
    assert len(origin.asked) == asked + 1 and is_whole(tmp_path)


def test_a_broken_connection_is_taken_up_where_it_ended(origin, tmp_path):
    origin.cuts = [1_500_000, 1_000_000]
    waits = NoWait()
    fetcher(origin, tmp_path).fetch(cancelled=waits)
    assert is_whole(tmp_path)
    assert origin.ranges_asked("big.pt") == [None, "bytes=1500000-", "bytes=2500000-"]
    assert waits.waits == [1.0, 2.0], "a try that brought a megabyte starts the count again, one that brought less does not"


def test_gives_up_after_bounded_tries_and_a_later_run_resumes(origin, tmp_path):
    origin.cuts = [2_000_000] + [0] * 20
    waits = NoWait()
    with pytest.raises(NotReady) as fault:
        fetcher(origin, tmp_path).fetch(cancelled=waits)
    assert "part/big.pt" in fault.value.en and fault.value.code == "model_fetch"
    assert len(origin.ranges_asked("big.pt")) == 6 and waits.waits == [1.0, 2.0, 4.0, 8.0, 16.0]
    assert (tmp_path / "part/big.pt.part").stat().st_size == 2_000_000 and not (tmp_path / "part/big.pt").exists()
    assert fetcher(origin, tmp_path).plan().bytes == len(BIG) - 2_000_000
    origin.cuts = []
    fetcher(origin, tmp_path).fetch()
    assert is_whole(tmp_path) and origin.ranges_asked("big.pt")[-1] == "bytes=2000000-"


def test_a_server_without_ranges_sends_it_all_again(origin, tmp_path):
    origin.cuts, origin.ranges = [1_500_000], False
    fetcher(origin, tmp_path).fetch(cancelled=NoWait())
    assert is_whole(tmp_path)


def test_a_file_that_changed_meanwhile_is_not_glued_together(origin, tmp_path):
    origin.cuts = [1_500_000] + [0] * 5
    with pytest.raises(NotReady):
        fetcher(origin, tmp_path).fetch(cancelled=NoWait())
    origin.cuts, origin.tag, origin.content["part/big.pt"] = [], '"v2"', BIG[::-1]
    fetcher(origin, tmp_path).fetch(cancelled=NoWait())
    assert (tmp_path / "part/big.pt").read_bytes() == BIG[::-1]


def test_another_size_without_a_validator_starts_anew(origin, tmp_path):
    origin.tag, origin.cuts = "", [1_500_000] + [0] * 5
    with pytest.raises(NotReady):
        fetcher(origin, tmp_path).fetch(cancelled=NoWait())
    origin.cuts, origin.content["part/big.pt"] = [], BIG[::-1] + b"more"
    fetcher(origin, tmp_path).fetch(cancelled=NoWait())
    assert (tmp_path / "part/big.pt").read_bytes() == BIG[::-1] + b"more"


def test_a_part_longer_than_the_file_is_dropped(origin, tmp_path):
    (tmp_path / "part").mkdir()
    (tmp_path / "part/big.pt.part").write_bytes(BIG + b"x")
    fetcher(origin, tmp_path).fetch(cancelled=NoWait())
    assert is_whole(tmp_path)


def test_a_finished_part_needs_no_request(origin, tmp_path):
    (tmp_path / "part").mkdir()
    (tmp_path / "part/big.pt.part").write_bytes(BIG)
    (tmp_path / "part/big.pt.part.json").write_text(json.dumps({"size": len(BIG), "tag": "", "url": ""}))
    fetcher(origin, tmp_path).fetch()
    assert is_whole(tmp_path) and origin.ranges_asked("big.pt") == []


@pytest.mark.parametrize("exact", [True, False])
def test_a_wrong_size_is_refused_before_its_bytes_are_fetched(origin, tmp_path, exact):
    origin.content["part/big.pt"] = BIG[:-1] if exact else b"<html>Please log in</html>"
    with pytest.raises(NotReady) as fault:
        fetcher(origin, tmp_path, exact=exact).fetch(cancelled=NoWait())
    assert "part/big.pt" in fault.value.en and f"{len(origin.content['part/big.pt']):,}" in fault.value.en and fault.value.zh
    assert files(tmp_path) == {"model.yaml"}


def test_without_a_stated_length_too_much_is_refused_too(origin, tmp_path):
    origin.length, origin.content["part/big.pt"] = False, BIG * 3
    with pytest.raises(NotReady):
        fetcher(origin, tmp_path).fetch(cancelled=NoWait())
    assert files(tmp_path) == {"model.yaml"}


def test_a_rounded_size_is_learnt_from_the_server(origin, tmp_path):
    fetcher(origin, tmp_path, size=len(BIG) + 70_000).fetch()
    assert is_whole(tmp_path)
    (tmp_path / "part/big.pt").write_bytes(BIG[:-1])  # within the rounding, but not what came
    assert [s.path for s in fetcher(origin, tmp_path, size=len(BIG) + 70_000).plan().missing] == ["part/big.pt"]


def test_a_wrong_checksum_is_refused_and_leaves_nothing(origin, tmp_path):
    with pytest.raises(NotReady) as fault:
        fetcher(origin, tmp_path, sha256="0" * 64).fetch(cancelled=NoWait())
    assert "checksum" in fault.value.en and files(tmp_path) == {"model.yaml"}
    fetcher(origin, tmp_path, sha256=hashlib.sha256(BIG).hexdigest()).fetch()
    assert is_whole(tmp_path)


def test_a_spoilt_part_is_fetched_once_more_in_one_piece(origin, tmp_path):
    (tmp_path / "part").mkdir()
    (tmp_path / "part/big.pt.part").write_bytes(b"spoilt" * 1000)
    fetcher(origin, tmp_path, sha256=hashlib.sha256(BIG).hexdigest()).fetch(cancelled=NoWait())
    assert is_whole(tmp_path) and origin.ranges_asked("big.pt") == ["bytes=6000-", None]


def test_a_part_spoilt_again_is_given_up(origin, tmp_path):
    origin.cuts = [1_500_000, 2_000_000, 1_500_000]
    with pytest.raises(NotReady):
        fetcher(origin, tmp_path, sha256="0" * 64).fetch(cancelled=NoWait())
    assert len(origin.ranges_asked("big.pt")) <= 5


def test_the_disk_is_looked_at_before_the_first_request(origin, tmp_path):
    with pytest.raises(StorageFull) as fault:
        fetcher(origin, tmp_path, free=store.ROOM_BYTES + 1000).fetch()
    assert fault.value.code == "no_disk" and "GB" in fault.value.en and "GB" in fault.value.zh and origin.asked == []
    fetcher(origin, tmp_path, free=store.ROOM_BYTES + len(BIG) + len(SMALL)).fetch()
    assert is_whole(tmp_path)


def test_a_disk_that_fills_up_on_the_way(origin, tmp_path):
    code = ("import resource, signal, sys; from pathlib import Path; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
            "from tests.unit.test_models_fetch import *\n"
            "resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))\n"
            "try: ModelFetcher(Path(sys.argv[1]), sys.argv[2], model()).fetch()\n"
            "except StorageFull as fault: print(fault.en)")
    told = subprocess.run([sys.executable, "-c", code, str(tmp_path), origin.url], capture_output=True, text=True, cwd=ROOT)
    assert told.stdout.startswith("The disk is full: part/big.pt"), told.stderr
    assert 0 < (tmp_path / "part/big.pt.part").stat().st_size <= 1_000_000, "what is there stays for the next time"


def test_cancelled_in_a_file_and_taken_up_again(origin, tmp_path):
    stop = threading.Event()
    with pytest.raises(Cancelled):
        fetcher(origin, tmp_path).fetch(lambda p: stop.set() if p.done > 1_000_000 else None, stop)
    kept = (tmp_path / "part/big.pt.part").stat().st_size
    assert 0 < kept < len(BIG)
    fetcher(origin, tmp_path).fetch()
    assert is_whole(tmp_path) and origin.ranges_asked("big.pt") == [None, f"bytes={kept}-"]


def test_cancelled_while_it_waits_for_the_server(origin, tmp_path):
    stop = threading.Event()

    class Stopping(NoWait):
        def wait(self, timeout=None):
            self.set()
            return True
    origin.status = [503] * 9
    with pytest.raises(Cancelled):
        fetcher(origin, tmp_path).fetch(cancelled=Stopping())
    assert len(origin.asked) == 1 and not stop.is_set()


@pytest.mark.parametrize(("status", "requests"), [(404, 1), (403, 1), (500, 6), (429, 6)])
def test_refusals_are_told_and_passing_ones_tried_again(origin, tmp_path, status, requests):
    origin.status = [status] * 20
    with pytest.raises(NotReady) as fault:
        fetcher(origin, tmp_path).fetch(cancelled=NoWait())
    assert str(status) in fault.value.en and str(status) in fault.value.zh and len(origin.asked) == requests and files(tmp_path) == set()


def test_nobody_at_the_address(tmp_path):
    with pytest.raises(NotReady):
        ModelFetcher(tmp_path, "http://127.0.0.1:9/x", model(), free_bytes=lambda p: 10**12).fetch(cancelled=NoWait())


def test_one_fetch_at_a_time(origin, tmp_path):
    faults = []

    def second(progress):
        if not faults:
            try:
                fetcher(origin, tmp_path).fetch()
            except Busy as fault:
                faults.append(fault)
    fetcher(origin, tmp_path).fetch(second)
    assert len(faults) == 1 and is_whole(tmp_path)


def test_verify_reads_every_byte(origin, tmp_path):
    fetcher(origin, tmp_path).fetch()
    assert fetcher(origin, tmp_path).verify() == []
    spoilt = bytearray(BIG)
    spoilt[1000] ^= 1
    (tmp_path / "part/big.pt").write_bytes(spoilt)
    (tmp_path / "model.yaml").write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    assert [path for path, *_ in fetcher(origin, tmp_path).verify()] == ["model.yaml", "part/big.pt"]
    fetcher(origin, tmp_path).discard("part/big.pt")
    fetcher(origin, tmp_path).discard("../outside")
    fetcher(origin, tmp_path).fetch()
    assert is_whole(tmp_path)


@pytest.mark.parametrize("path", ["../x", "/etc/x", "a/../../x", "a//x", "", ".", "..", "a\\..\\x", ".hidden", "a/", "C:x", "x\n", "x\0", "~/x", "模型"])
def test_a_name_that_leaves_the_folder_is_refused(tmp_path, path):
    (tmp_path / "m.json").write_text(json.dumps({"models": {"M": {"repositories": {}, "files": [{"path": path, "size": 1}]}}}))
    with pytest.raises(BadInput):
        read_manifest(tmp_path / "m.json")
    with pytest.raises(BadInput):
        ModelFetcher(tmp_path / "m", "http://127.0.0.1:9", Model("M", {}, (store.FileSpec(path, 1),)))._place(store.FileSpec(path, 1))


def test_a_link_that_leads_out_is_refused(origin, tmp_path):
    (tmp_path / "outside").mkdir()
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "part").symlink_to(tmp_path / "outside")
    with pytest.raises(BadInput):
        fetcher(origin, tmp_path / "m").fetch()
    assert list((tmp_path / "outside").iterdir()) == []


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"models": 3}', '{"models": {"../M": {"repositories": {}, "files": []}}}',
                                  '{"models": {"M": {"repositories": {}, "files": [{"path": "x", "size": "1"}]}}}',
                                  '{"models": {"M": {"repositories": {}, "files": [{"path": "x", "size": 1, "sha256": "zz"}]}}}'])
def test_a_broken_manifest_is_named(tmp_path, text):
    (tmp_path / "m.json").write_text(text)
    with pytest.raises(BadInput) as fault:
        read_manifest(tmp_path / "m.json")
    assert fault.value.code == "bad_manifest"


def test_the_manifest_names_just_the_files_that_the_engine_reads():
    from webui.engine.cosyvoice.spec import REQUIRED
    from webui.engine.cosyvoice.weights import COMPONENTS

    made = read_manifest(ROOT / "pretrained_models" / "MANIFEST.json")["CosyVoice2-0.5B"]
    assert {s.path for s in made.files} == {*REQUIRED, *(c.file for c in COMPONENTS.values())}


def test_addresses():
    spec = store.FileSpec("CosyVoice-BlankEN/vocab.json", 1)
    made = read_manifest(ROOT / "pretrained_models" / "MANIFEST.json")["CosyVoice2-0.5B"]
    urls = [ModelFetcher(Path("x"), source, made).url(spec) for source in ("modelscope", "hf-mirror", "https://own.example/m/")]
    assert urls == ["https://modelscope.cn/api/v1/models/iic/CosyVoice2-0.5B/repo?Revision=master&FilePath=CosyVoice-BlankEN%2Fvocab.json",
                    "https://hf-mirror.com/FunAudioLLM/CosyVoice2-0.5B/resolve/main/CosyVoice-BlankEN/vocab.json",
                    "https://own.example/m/CosyVoice-BlankEN/vocab.json"]
    with pytest.raises(BadInput):
        ModelFetcher(Path("x"), "ftp://x", made)


def listed(sha256: str, size: int = len(BIG)) -> dict[str, object]:
    rows = [("model.yaml", len(SMALL), hashlib.sha256(SMALL).hexdigest()), ("part/big.pt", size, sha256), ("part", 0, None), ("other.bin", 5, None)]
    return {"modelscope": {"Code": 200, "Data": {"Files": [{"Path": p, "Size": n, "Sha256": s} for p, n, s in rows]}},
            "hf-mirror": [{"type": "file", "path": p, "size": n, **({"lfs": {"oid": s, "size": n}} if s else {})} for p, n, s in rows]}


def through(origin: Origin, listing: object, source: str, root: Path) -> tuple[ModelFetcher, list[str]]:
    """A fetcher whose addresses lead to the local server, and the addresses that it asked for."""
    asked: list[str] = []

    def opener(url, headers):
        asked.append(url)
        name = next((n for n in CONTENT if url.endswith((n, n.replace("/", "%2F")))), "listing")
        return httpx.stream("GET", f"{origin.url}/{name}", headers=dict(headers))
    origin.content["listing"] = json.dumps(listing).encode()
    repositories = {"modelscope": "us/Some", "hf-mirror": "US/Some"}
    made = Model("Some", repositories, (store.FileSpec("model.yaml", len(SMALL)), store.FileSpec("part/big.pt", len(BIG) + 9)))
    return ModelFetcher(root, source, made, opener, lambda path: 10**12), asked


@pytest.mark.parametrize("source", ["modelscope", "hf-mirror"])
def test_the_source_names_sizes_and_checksums(origin, tmp_path, source):
    right, wrong = hashlib.sha256(BIG).hexdigest(), "0" * 64
    made, asked = through(origin, listed(wrong)[source], source, tmp_path)
    with pytest.raises(NotReady) as fault:
        made.fetch(cancelled=NoWait())
    assert "checksum" in fault.value.en and files(tmp_path) == {"model.yaml"}
    made, asked = through(origin, listed(right)[source], source, tmp_path)
    seen = []
    made.fetch(seen.append)
    assert is_whole(tmp_path) and len(asked) == 2 and seen[0].total == len(BIG) + len(SMALL), "exact from the first byte on"
    made, asked = through(origin, listed(right)[source], source, tmp_path)
    made.fetch()
    assert asked == [], "nobody is asked when everything is here"


@pytest.mark.parametrize("listing", [{}, [], {"Data": None}, {"Data": {"Files": [3, None]}}, "x", {"Data": {"Files": [{"Path": "part/big.pt", "Size": 7, "Sha256": "zz"}]}},
                                     [{"path": "part/big.pt", "size": True}], [{"path": "../x", "size": 5}], [{"path": "part/big.pt", "size": "5"}]])
def test_a_listing_that_makes_no_sense_changes_nothing(origin, tmp_path, listing):
    made, _ = through(origin, listing, "modelscope", tmp_path)
    made.fetch()
    assert is_whole(tmp_path)


def test_without_a_listing_the_files_come_all_the_same(origin, tmp_path):
    made, asked = through(origin, {}, "modelscope", tmp_path)
    del origin.content["listing"]
    made.fetch()
    assert is_whole(tmp_path) and len(asked) == 3


def script(*args: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "scripts/fetch_models.py", *args], cwd=ROOT, capture_output=True, text=True, timeout=60)


def test_the_script_offline_and_with_a_server_that_has_nothing(origin, tmp_path):
    told = script("--offline", "--dir", str(tmp_path))
    assert told.returncode == 1 and "llm.pt" in told.stderr and origin.asked == []
    told = script("--source", origin.url, "--dir", str(tmp_path))
    assert told.returncode == 1 and "HTTP 404" in told.stderr and "404" in told.stderr.splitlines()[-1]
    assert script("Nothing", "--dir", str(tmp_path)).returncode == 2


def test_the_script_interrupted_keeps_what_came_and_goes_on(origin, tmp_path):
    sizes = {s.path: s.size for s in read_manifest(ROOT / "pretrained_models" / "MANIFEST.json")["CosyVoice2-0.5B"].files}
    origin.content |= {path: bytes([7]) * size for path, size in sizes.items() if size < 2_000_000}
    origin.hang = threading.Event()
    command = [sys.executable, "scripts/fetch_models.py", "--source", origin.url, "--dir", str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert origin.half_way.wait(30)
        process.send_signal(signal.SIGINT)
        origin.hang.set()
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130 and "run this again" in err
    part = tmp_path / "CosyVoice2-0.5B" / "CosyVoice-BlankEN" / "merges.txt.part"
    assert 0 < part.stat().st_size < sizes["CosyVoice-BlankEN/merges.txt"] and (part.parent / "config.json").stat().st_size == 659
    origin.hang = None
    told = script("--source", origin.url, "--dir", str(tmp_path))
    assert "HTTP 404" in told.stderr and "vocab.json" in told.stderr, "the server has no more than that"
    assert (part.parent / "merges.txt").stat().st_size == sizes["CosyVoice-BlankEN/merges.txt"]
    assert "of 6 files no checksum" in script("--check", "--dir", str(tmp_path)).stdout
