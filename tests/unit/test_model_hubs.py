"""The five published models from servers that speak both hubs' routes: whole lists of files,
optional ones that are not there, redirects to hosts that may not be asked; and what the hubs'
libraries must not do on the way.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.unit.model_origin import HUBS, NoWait, Origin, fetcher, files, is_whole
from webui.errors import Cancelled, NotReady
from webui.store.model_files import Model, ModelFetcher, read_manifest

MODELS = read_manifest(ROOT / "pretrained_models" / "MANIFEST.json")
SPEAKERS = "spk2info.pt"


@pytest.fixture(params=MODELS)
def published(request, origin) -> Model:
    """A model of the manifest whose files have a few bytes each, and the server has them."""
    model = MODELS[request.param]
    origin.content = {spec.path: f"{spec.path} of {model.name}\n".encode() for spec in model.files}
    return replace(
        model,
        files=tuple(
            replace(
                spec,
                size=len(origin.content[spec.path]),
                sha256=hashlib.sha256(origin.content[spec.path]).hexdigest(),
            )
            for spec in model.files
        ),
    )


@pytest.fixture(params=HUBS)
def hub(request) -> str:
    return request.param


def build_fetcher(root: Path, hub: str, model: Model) -> ModelFetcher:
    return ModelFetcher(root, hub, model, lambda path: 10**12)


def test_all_files_of_each_model_come_from_each_hub(origin, tmp_path, hub, published):
    origin.redirect = origin.base + "/cdn/{path}"
    fetch, progress = build_fetcher(tmp_path, hub, published), []
    fetch.fetch(progress.append, NoWait())
    assert files(tmp_path) == set(origin.content) and fetch.plan().missing == ()
    assert fetch.verify() == fetch.unknown() == fetch.unexpected() == []
    assert progress[-1].done == progress[-1].total == sum(map(len, origin.content.values()))
    names = published.repositories[hub]
    assert all(path.split("?")[0].startswith("/cdn/") or names in path for path in origin.paths)


@pytest.mark.parametrize("status", [404, 410])
def test_a_missing_optional_file_ends_neither_fetch_nor_plan_nor_verification(
    origin, tmp_path, hub, published, status
):
    is_optional = any(s.path == SPEAKERS and s.optional for s in published.files)
    origin.statuses = {SPEAKERS: status}
    fetch = build_fetcher(tmp_path, hub, published)
    if is_optional or SPEAKERS not in origin.content:
        progress = []
        fetch.fetch(progress.append, NoWait())
        assert fetch.plan().is_complete and fetch.verify() == []
        assert files(tmp_path) == set(origin.content) - {SPEAKERS}
        assert progress[-1].done == progress[-1].total
        n_requests = len(origin.paths)
        fetch.fetch(cancelled=NoWait())
        assert len(origin.paths) == n_requests, "complete without it"
    else:
        with pytest.raises(NotReady) as fault:
            fetch.fetch(cancelled=NoWait())
        assert fault.value.param == SPEAKERS and f"HTTP {status}" in fault.value.zh
        assert not fetch.plan().is_complete and fetch.verify()[0][0] == SPEAKERS


def test_an_optional_file_that_is_there_is_verified(origin, tmp_path, hub):
    model = MODELS["CosyVoice2-0.5B"]
    spec = next(s for s in model.files if s.optional)
    origin.content[spec.path] = bytes(spec.size)
    fetch = build_fetcher(tmp_path, hub, replace(model, files=(spec,)))
    assert fetch.plan().is_complete and fetch.verify() == [], "nothing that is needed"
    (tmp_path / spec.path).write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    assert [path for path, *_ in fetch.verify()] == [spec.path]


@pytest.mark.parametrize("deep", [False, True], ids=["at once", "behind an allowed hop"])
def test_a_redirect_to_another_host_is_not_followed(origin, tmp_path, source, deep):
    other = Origin()
    thread = threading.Thread(target=other.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    foreign = f"http://localhost:{other.server_address[1]}/cdn/{{path}}"
    origin.redirect = origin.base + "/cdn/{path}" if deep else foreign
    origin.second_redirect = foreign if deep else ""
    with pytest.raises(NotReady) as fault:
        fetcher(origin, tmp_path, source=source).fetch(cancelled=NoWait())
    other.shutdown()
    other.server_close()
    assert other.paths == [], "checked before it is requested"
    assert fault.value.code == "model_redirect" and "localhost" in fault.value.en
    assert "localhost" in fault.value.zh and files(tmp_path) == set()


def test_paused_while_the_server_is_silent_and_taken_up_again(origin, tmp_path, source):
    origin.hang, stop, arrived = threading.Event(), threading.Event(), threading.Event()

    def pause() -> None:
        assert origin.half_way.wait(30) and arrived.wait(30)
        stop.set()
        origin.hang.set()

    threading.Thread(target=pause, daemon=True).start()
    with pytest.raises(Cancelled):
        fetcher(origin, tmp_path, source=source).fetch(
            lambda p: arrived.set() if p.done > 1_000_000 else None, stop
        )
    origin.hang = None
    fetcher(origin, tmp_path, source=source).fetch()
    assert is_whole(tmp_path) and origin.ranges_asked("big.pt")[-1].startswith("bytes=")


def test_nothing_of_the_user_is_sent_or_left(origin, tmp_path, hub, monkeypatch):
    home = tmp_path / "home"
    home.mkdir()
    for name, value in {
        "HOME": home,
        "MODELSCOPE_API_TOKEN": "ms-secret",
        "HF_TOKEN": "hf-secret",
    }.items():
        monkeypatch.setenv(name, str(value))
    fetcher(origin, tmp_path / "model", source=hub).fetch(cancelled=NoWait())
    assert origin.headers and not any("secret" in text for text in origin.headers)
    assert list(home.iterdir()) == [] and is_whole(tmp_path / "model")
    assert not any("torch/" in text or "agent/" in text for text in origin.headers)


def test_the_libraries_load_when_something_is_fetched_and_not_before():
    code = (
        "import sys, webui.app, webui.store.model_files as m; from pathlib import Path\n"
        "table = m.read_manifest(Path('pretrained_models/MANIFEST.json'))\n"
        "m.ModelFetcher(Path('/nowhere'), 'modelscope', table['CosyVoice2-0.5B']).plan()\n"
        "print([n for n in ('modelscope_hub', 'modelscope', 'torch') if n in sys.modules])"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert run.stdout.strip().splitlines()[-1] == "[]"


def test_fetching_loads_no_torch(origin, tmp_path):
    code = (
        "import sys; from tests.unit.model_origin import *\n"
        "store.SOURCES['modelscope'] = ModelScope(sys.argv[2], ('127.0.0.1',))\n"
        "store.SOURCES['hf-mirror'] = HuggingFace(sys.argv[2], ('127.0.0.1',))\n"
        "for hub in HUBS: ModelFetcher(Path(sys.argv[1]) / hub, hub, model()).fetch()\n"
        "print([n for n in ('modelscope', 'torch', 'transformers') if n in sys.modules])"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path), origin.base],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.strip() == "[]" and run.stderr == "", "no bars, no warnings"
