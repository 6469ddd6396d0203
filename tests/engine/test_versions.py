"""What an engine's version names, and what it leaves to the version of its prompts; and that no two
parts of speech share random numbers.
"""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from scripts.make_small_model import make
from tests.engine import builtin_setup
from tests.engine.contract import ask, whole
from tests.engine.test_cosyvoice_engine import reference  # noqa: F401
from webui.engine.cosyvoice.device import INT8, DeviceConfig
from webui.engine.cosyvoice.engine import CosyVoiceEngine
from webui.engine.remote.protocol import record_of, words_of
from webui.types import Abilities, part_seed

FAMILIES = ("cosyvoice1", "cosyvoice2", "cosyvoice3")


class Unwarmed(CosyVoiceEngine):
    def _warm_up(self, model):
        """Speaks for seconds, and nothing here is measured."""


@pytest.fixture(scope="module", params=FAMILIES)
def pair(request, tmp_path_factory):
    """One directory in two precisions."""
    torch.set_num_threads(1)
    root = make(tmp_path_factory.mktemp(request.param), family=request.param)
    engines = [Unwarmed(root, "cpu", precision, threads=1) for precision in ("fp32", "bf16")]
    for engine in engines:
        engine.start()
    torch.set_num_threads(1)
    yield engines
    for engine in engines:
        engine.close()


def test_a_version_names_precision_and_device_and_prompts_keep_theirs(
    pair,
    reference,  # noqa: F811
):
    exact, narrow = (engine.describe() for engine in pair)
    assert exact.version.endswith("+fp32.cpu") and narrow.version.endswith("+bf16.cpu")
    assert exact.version.partition("+")[0] == narrow.version.partition("+")[0]
    assert exact.prompt_version == narrow.prompt_version
    prompts = [engine.encode(*reference) for engine in pair]
    assert {prompt.version for prompt in prompts} == {exact.prompt_version}
    assert prompts[0] == prompts[1], "what listens computes alike whatever speaks"
    sounds = [whole(engine.stream(ask(), prompts[0])) for engine in pair]
    assert not np.array_equal(*sounds) if len(sounds[0]) == len(sounds[1]) else True
    presets = [engine.preset(exact.presets[0]).version for engine in pair if exact.presets]
    assert set(presets) <= {exact.prompt_version}


def test_prompts_that_were_saved_without_silence_behind_the_clip_are_made_again(pair):
    """Their version was "1" or "2": a prompt of another version is not read from the disk."""
    about, model = pair[0].describe(), pair[0]._require_model()
    usual = {"cosyvoice1": "2", "cosyvoice2": "3", "cosyvoice3": "2"}[about.name]
    assert about.prompt_version == f"{usual}-{model.mark}"
    assert about.version.startswith(f"{int(usual) + 1}-{model.mark}")


@pytest.mark.parametrize(
    ("place", "mark"),
    [
        (DeviceConfig("cpu", "fp32", ""), "fp32.cpu"),
        (DeviceConfig("cpu", "fp32", "", INT8), "int8-fp32.cpu"),
        (DeviceConfig("cpu", "bf16", "", INT8, threads=7, lm_threads=2), "int8-bf16.cpu"),
        (DeviceConfig("cuda", "bf16", ""), "bf16.cuda"),
        (DeviceConfig("cuda", "fp16", ""), "fp16.cuda"),
        (DeviceConfig("mps", "fp32", ""), "fp32.mps"),
    ],
)
def test_what_computes_has_a_mark_of_its_own(place, mark):
    assert place.fingerprint == mark


def test_the_built_in_voice_names_them_too():
    engine = builtin_setup.engine()
    about, prompt = engine.describe(), builtin_setup.prompt()
    assert about.version.endswith("+fp32.cpu") and about.prompt_version == prompt.version == "7"
    assert len(whole(engine.stream(builtin_setup.ask("Hello."), prompt)))


def test_both_versions_cross_to_the_studio():
    about = Abilities("e", "2+int8-fp32.cpu", 24000, (), (), prompt_version="1")
    assert record_of(Abilities, json.loads(json.dumps(words_of(about)))) == about
    assert Abilities("e", "2", 24000, (), ()).prompt_version == "2", "the same unless it is told"


def parted(engine, prompt, seed: int) -> list[np.ndarray]:
    """The samples of a text said twice in one request, by segment."""
    chunks = list(engine.stream(ask(seed=seed, segments=("Hello, you.",) * 2), prompt))
    return [whole([c for c in chunks if c.segment == n]) for n in range(2)]


def test_no_segment_shares_its_random_numbers_with_one_of_the_next_seed(
    pair,
    reference,  # noqa: F811
):
    engine, voice = pair[0], pair[0].encode(*reference)
    first, second = parted(engine, voice, 7), parted(engine, voice, 8)
    sounds = {sound.tobytes() for sound in (*first, *second)}
    assert len(sounds) == 4
    assert [s.tobytes() for s in first] == [s.tobytes() for s in parted(engine, voice, 7)]


def test_seeds_that_differ_above_32_bits_are_different(pair, reference):  # noqa: F811
    engine, voice = pair[0], pair[0].encode(*reference)

    def ids(seed: int) -> list[list[int]]:
        stream = engine.stream(ask(id="r", seed=seed, segments=("Hello, you. " * 12,)), voice)
        next(stream)
        sources = [segment.source for segment in engine._running["r"].segments]
        list(stream)
        assert sources
        return [list(source.ids) for source in sources]

    assert ids(7) != ids(7 + 2**32)


def test_the_built_in_voice_shares_none_either():
    engine, prompt = builtin_setup.engine(), builtin_setup.prompt()
    sounds = {s.tobytes() for seed in (7, 8) for s in parted(engine, prompt, seed)}
    assert len(sounds) == 4


def test_seeds_of_parts_are_within_bounds_and_all_different():
    seeds = [part_seed(seed, part) for seed in (0, 1, 2, 2**62, 2**63 - 1) for part in range(50)]
    assert len(set(seeds)) == len(seeds) and all(0 <= seed < 2**63 for seed in seeds)
    assert part_seed(7, 1) == part_seed(7, 1)
