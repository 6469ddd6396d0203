"""Several models on one disk: which are found, which one begins, and the change from one to another
while streams sound.
"""

from __future__ import annotations

import json
import threading
from dataclasses import replace

import pytest

from tests.engine.fake import FakeEngine
from webui import app
from webui.engine.manager import EngineManager
from webui.errors import BadInput, Busy, NotFound, NotReady
from webui.messages import Message
from webui.settings import EngineChoice, Paths, Settings, load
from webui.store.model_dirs import Installed
from webui.studio import ModelLibrary, Studio

YAML = {
    "cosyvoice1": "cosyvoice.yaml",
    "cosyvoice2": "cosyvoice2.yaml",
    "cosyvoice3": "cosyvoice3.yaml",
}


def model(folder, engine="cosyvoice2", networks=("llm.pt", "flow.pt", "hift.pt")):
    folder.mkdir(parents=True)
    for name in (YAML[engine], *networks):
        (folder / name).write_text("x")
    return folder


def settings(tmp_path, **choice) -> Settings:
    return Settings(
        engine=EngineChoice(**choice),
        paths=replace(Paths(), data_dir=tmp_path / "data", model_dir=tmp_path / "models"),
    )


def first_model_name(tmp_path, **choice) -> str:
    return app.first_model(settings(tmp_path, **choice)).name


# ---- what is found -------------------------------------------------------------------------------
def test_models_are_found_whatever_their_folders_are_called(tmp_path):
    root = tmp_path / "models"
    model(root / "CosyVoice3-mine", "cosyvoice1")
    model(
        root / "b",
        "cosyvoice3",
        ("kaikou-llm-int8.safetensors", "kaikou-flow-bf16.safetensors", "hift.pt"),
    )
    model(root / "c", "cosyvoice3", ("llm.rl.pt", "flow.pt", "hift.pt"))
    model(root / "half", "cosyvoice2", ("llm.pt",))
    (root / "notes").mkdir()
    (root / "README.md").write_text("x")
    model(root / ".trash" / "old")
    models = [(m.name, m.engine, m.is_whole) for m in app.models_here(settings(tmp_path))]
    assert models == [
        ("CosyVoice3-mine", "cosyvoice1", True),
        ("b", "cosyvoice3", True),
        ("c", "cosyvoice3", True),
        ("half", "cosyvoice2", False),
    ]


def test_a_model_that_is_pointed_at_is_the_only_one(tmp_path):
    model(tmp_path / "models", "cosyvoice3")
    model(tmp_path / "models" / "inner")
    assert [m.path for m in app.models_here(settings(tmp_path))] == [tmp_path / "models"]
    assert (
        app.first_model(settings(tmp_path)).engine
        == app.first_model(settings(tmp_path, name="cosyvoice2")).engine
        == "cosyvoice3"
    )


def test_a_folder_that_is_not_there_or_may_not_be_read_holds_nothing(tmp_path):
    assert app.models_here(settings(tmp_path)) == []
    (tmp_path / "models").write_text("a file")
    assert app.models_here(settings(tmp_path)) == []


# ---- which one begins ----------------------------------------------------------------------------
def test_the_usual_one_begins_unless_somebody_said_or_chose_another(tmp_path):
    root = tmp_path / "models"
    assert first_model_name(tmp_path) == "CosyVoice2-0.5B", (
        "none is there: its name says what is missing"
    )
    model(root / "CosyVoice-300M-SFT", "cosyvoice1")
    model(root / "CosyVoice-300M", "cosyvoice1")
    assert first_model_name(tmp_path) == "CosyVoice-300M"
    model(root / "Fun", "cosyvoice3")
    model(root / "Another")
    assert first_model_name(tmp_path) == "Another"
    model(root / "CosyVoice2-0.5B")
    assert first_model_name(tmp_path) == "CosyVoice2-0.5B"
    assert (
        first_model_name(tmp_path, name="cosyvoice3") == "Fun"
        and first_model_name(tmp_path, name="cosyvoice1") == "CosyVoice-300M"
    )
    assert first_model_name(tmp_path, model="CosyVoice-300M-SFT") == "CosyVoice-300M-SFT"
    app.remember(tmp_path / "data", "Fun")
    assert (
        first_model_name(tmp_path) == "Fun"
        and first_model_name(tmp_path, model="Another") == "Another"
        and first_model_name(tmp_path, name="cosyvoice1") == "CosyVoice-300M"
    )
    app.remember(tmp_path / "data", "long gone")
    assert first_model_name(tmp_path) == "CosyVoice2-0.5B"
    assert first_model_name(tmp_path, model="no such") == "no such", (
        "what was asked for by name is not replaced: its start tells what is missing"
    )


def test_an_unfinished_model_begins_only_where_no_other_is(tmp_path):
    model(tmp_path / "models" / "CosyVoice2-0.5B", networks=())
    assert first_model_name(tmp_path) == "CosyVoice2-0.5B"
    model(tmp_path / "models" / "Fun", "cosyvoice3")
    assert first_model_name(tmp_path) == "Fun"


def test_lite_takes_a_300m_on_a_cpu_and_computes_as_usual(tmp_path):
    model(tmp_path / "models" / "CosyVoice2-0.5B")
    assert first_model_name(tmp_path, profile="lite", device="cpu") == "CosyVoice2-0.5B"
    model(tmp_path / "models" / "CosyVoice-300M-Instruct", "cosyvoice1")
    app.remember(tmp_path / "data", "CosyVoice2-0.5B")
    assert first_model_name(tmp_path, profile="lite", device="cpu") == "CosyVoice-300M-Instruct"
    assert (
        first_model_name(tmp_path, profile="lite", device="cuda")
        == first_model_name(tmp_path, device="cpu")
        == "CosyVoice2-0.5B"
    )
    lite_settings = settings(tmp_path, profile="lite", device="cpu")
    assert app.cosyvoice_arguments(lite_settings, tmp_path)["profile"] == "balanced"
    assert load(
        ["--profile", "lite", "--model", "x", "--engine", "cosyvoice3"], {}
    ).engine == EngineChoice("cosyvoice3", model="x", profile="lite")


# ---- the change ----------------------------------------------------------------------------------
class Held(FakeEngine):
    """Its start waits."""

    def __init__(self, gate: threading.Event, error: NotReady | None = None):
        super().__init__()
        self.gate, self.error, self.is_closed = gate, error, False

    def start(self):
        assert self.gate.wait(10)
        if self.error is not None:
            raise self.error
        super().start()

    def close(self):
        self.is_closed = True
        super().close()


@pytest.fixture
def shelf():
    """Two models, a and b; `engines` has the engines as they come, `open` lets them start."""
    resident = EngineManager()
    engines: list[Held] = []
    shelf = ModelLibrary(
        resident,
        lambda: [
            Installed("a", None, "cosyvoice2", True),
            Installed("b", None, "cosyvoice1", True),
            Installed("half", None, "cosyvoice3", False),
        ],
        lambda model: lambda: engines.append(Held(shelf.open, shelf.error)) or engines[-1],
        {},
        chosen=lambda name: shelf.chose.append(name),
    )
    shelf.open, shelf.error, shelf.chose, shelf.engines, shelf.engine_manager = (
        threading.Event(),
        None,
        [],
        engines,
        resident,
    )
    shelf.open.set()
    resident.start(shelf.maker(shelf.installed()[0])).join()
    yield shelf
    resident.close()


def settled(shelf) -> None:
    """Until nothing is on its way."""
    for thread in [t for t in threading.enumerate() if t.name == "engine-start"]:
        thread.join(10)


def states(shelf) -> dict[str, str]:
    return {row["name"]: row["state"] for row in shelf.list()}


def test_a_stream_ends_with_the_engine_it_began_with_and_the_next_has_the_new_one(shelf):
    assert states(shelf) == {"a": "speaks", "b": "here"}, "half a model is none"
    lease = shelf.engine_manager.lease()
    shelf.open.clear()
    shelf.use("b")
    assert states(shelf) == {"a": "speaks", "b": "loads"}
    meanwhile = shelf.engine_manager.lease()
    assert meanwhile.engine is lease.engine, "until the new one is ready the old one speaks"
    meanwhile.release()
    shelf.open.set()
    settled(shelf)
    assert states(shelf) == {"a": "here", "b": "speaks"} and shelf.chose == ["b"]
    old, new = shelf.engines
    assert not old.is_closed, "somebody still listens to it"
    fresh = shelf.engine_manager.lease()
    assert fresh.engine is new
    fresh.release()
    lease.release()
    assert old.is_closed and not new.is_closed


def test_one_change_at_a_time(shelf):
    shelf.open.clear()
    shelf.use("b")
    with pytest.raises(Busy) as refused:
        shelf.use("b")
    assert refused.value.retry_after_s
    shelf.use("a")  # it speaks: nothing to do
    assert len(shelf.chose) == 2
    shelf.open.set()
    settled(shelf)
    shelf.use("a")
    settled(shelf)
    assert states(shelf) == {"a": "speaks", "b": "here"} and len(shelf.engines) == 3


def test_a_model_that_cannot_be_used_leaves_the_one_in_charge_and_may_be_tried_again(shelf):
    shelf.error = NotReady(Message("flow.pt is cut off.", "flow.pt 不完整。"))
    shelf.use("b")
    settled(shelf)
    assert (
        states(shelf) == {"a": "speaks", "b": "failed"}
        and shelf.failed == "b"
        and shelf.engine_manager.failure().en == "flow.pt is cut off."
    )
    assert shelf.engines[-1].is_closed and shelf.engine_manager.lease().engine is shelf.engines[0]
    shelf.error = None
    shelf.use("b")
    settled(shelf)
    assert states(shelf) == {"a": "here", "b": "speaks"} and shelf.engine_manager.failure() is None


@pytest.mark.parametrize("name", ["half", "c", "", "../a"])
def test_only_whole_models_of_this_disk_can_be_chosen(shelf, name):
    with pytest.raises(NotFound):
        shelf.use(name)
    assert shelf.chose == []


def test_a_program_may_name_the_model_that_speaks_and_is_told_of_the_others(tmp_path, shelf):
    studio = Studio(settings(tmp_path))
    studio.engine_manager.close()
    studio.engine_manager = studio.voice_resolver._engine_manager = shelf.engine_manager
    studio.set_models(shelf)
    shelf.engine_manager.lease()
    assert studio.voice_resolver.check_model("a") == studio.voice_resolver.check_model("auto")
    with pytest.raises(BadInput) as idle:
        studio.voice_resolver.check_model("b")
    assert idle.value.code == "model_idle"
    with pytest.raises(NotFound):
        studio.voice_resolver.check_model("half")
    shelf.error = NotReady(Message("No.", "不行。"))
    shelf.use("b")
    settled(shelf)
    status = studio.status()
    assert (
        status["title"],
        status["next"],
        status["failed"],
        status["failure"],
        "model" in status,
    ) == (
        "a",
        "",
        "b",
        "No.",
        False,
    )
    studio.close()


# ---- what may be fetched -------------------------------------------------------------------------
def test_the_page_may_fetch_all_that_are_not_here(tmp_path):
    manifest = app.read_manifest(app.MANIFEST)
    assert set(manifest) == {
        "CosyVoice2-0.5B",
        "Fun-CosyVoice3-0.5B-2512",
        "CosyVoice-300M",
        "CosyVoice-300M-SFT",
        "CosyVoice-300M-Instruct",
    }
    own_settings = settings(tmp_path)
    for spec in manifest["CosyVoice-300M"].files:
        path = tmp_path / "models" / "CosyVoice-300M" / spec.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    studio = Studio(own_settings)
    app.set_models(studio, own_settings)
    model_states = {row["name"]: row["state"] for row in studio.status()["models"]}
    assert (
        model_states == dict.fromkeys(manifest, "none") | {"CosyVoice-300M": "here"}
        and studio.status()["model"]["name"] == "CosyVoice2-0.5B"
    )
    with pytest.raises(NotFound):
        studio.model_library.fetch("", "CosyVoice-300M")
    with pytest.raises(BadInput):
        studio.model_library.fetch("ftp-somewhere", "CosyVoice-300M-SFT")
    json.dumps(studio.status())
    studio.close()
