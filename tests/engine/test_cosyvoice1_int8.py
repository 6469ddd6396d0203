"""The int8 language model of the first generation: near the exact one, rows of a batch to the bit
alone, kept on disk, and past 1024 positions.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from scripts.make_small_model import make
from tests.engine.contract import ask, whole
from tests.engine.cosyvoice1_small import LM_DIMS
from tests.engine.cosyvoice_small import random_state
from tests.engine.test_cosyvoice1_lm import PROMPT_SPEECH, PROMPT_TEXT, SPEAKER, TEXT, speak
from webui.engine.cosyvoice.device import DeviceConfig
from webui.engine.cosyvoice.dims_v1 import StackDims
from webui.engine.cosyvoice.engine import CosyVoiceEngine
from webui.engine.cosyvoice.int8 import converted
from webui.engine.cosyvoice.int8.converted import RELATIVE, fits
from webui.engine.cosyvoice.int8.runtime import Int8TextLm
from webui.engine.cosyvoice.int8.weights import relative
from webui.engine.cosyvoice.llm.text_lm import RelativeLM
from webui.engine.cosyvoice.v1 import SPEC, language_model
from webui.errors import NotReady

torch.set_num_threads(1)
DIMS = replace(LM_DIMS, body=StackDims(64, 4, 96, 3))


def published() -> dict[str, torch.Tensor]:
    """Random values under which the place of a key counts for something."""
    state = random_state(RelativeLM, DIMS, 3)
    return {key: 4 * value if "linear_pos" in key else value for key, value in state.items()}


def build_lm(state) -> Int8TextLm:
    return Int8TextLm.create(DIMS, relative(DIMS, state))


@pytest.fixture(scope="module")
def lm_pair() -> tuple[Int8TextLm, RelativeLM]:
    state = published()
    return build_lm(state), RelativeLM.of(DIMS, dict(state), torch.float32)


@pytest.fixture(scope="module")
def lm(lm_pair):
    return lm_pair[0]


@pytest.mark.parametrize("speech", [[], PROMPT_SPEECH])
@pytest.mark.parametrize("speaker", [None, SPEAKER])
def test_scores_are_near_the_exact_ones_at_every_step(lm_pair, speech, speaker):
    pasts = [lm.prefix(PROMPT_TEXT, speaker).fork(60) for lm in lm_pair]
    scores = [
        lm.step(lm.prefill_embeddings(TEXT, speech), past)
        for lm, past in zip(lm_pair, pasts, strict=True)
    ]
    for chosen in [None, 4, 17, 39, 0, 25, 12, 4, 8]:
        if chosen is not None:
            scores = [
                lm.step_many([chosen], [past]) for lm, past in zip(lm_pair, pasts, strict=True)
            ]
        assert (scores[0] - scores[1]).abs().max() < 0.08 and scores[1].std() > 0.5
        assert pasts[0].length == pasts[1].length


def test_the_place_of_a_key_is_heard(lm_pair):
    """With its tables of distances at zero the model says something else: what is near is near
    because of them.
    """
    _, exact = lm_pair
    scores = exact.step(
        exact.prefill_embeddings(TEXT, PROMPT_SPEECH), exact.prefix(PROMPT_TEXT, SPEAKER)
    )
    deaf = build_lm(published())
    deaf.body._weights = [0 * weight for weight in deaf.body._weights]
    deaf.body._distances = [0 * rows for rows in deaf.body._distances]
    assert (
        deaf.step(deaf.prefill_embeddings(TEXT, PROMPT_SPEECH), deaf.prefix(PROMPT_TEXT, SPEAKER))
        - scores
    ).abs().max() > 0.3


def test_rows_of_a_batch_are_each_alone_to_the_bit(lm):
    pasts, twins = [], []
    for text, speech in ((TEXT, PROMPT_SPEECH), (TEXT[:2], []), (TEXT * 3, PROMPT_SPEECH[:3])):
        for addresses in (pasts, twins):
            past = lm.prefix(PROMPT_TEXT, SPEAKER).fork()
            lm.step(lm.prefill_embeddings(text, speech), past)
            addresses.append(past)
    assert len({past.length for past in pasts}) == 3
    for ids in ([1, 2, 3], [39, 0, 5], [7, 7, 7]):
        assert torch.equal(
            lm.step_many(ids, pasts),
            torch.cat(
                [lm.step_many([first], [past]) for first, past in zip(ids, twins, strict=True)]
            ),
        )


def test_an_idle_slot_between_busy_ones_keeps_its_content(lm):
    pasts = [lm.prefix(PROMPT_TEXT, SPEAKER).fork() for _ in range(3)]
    for past in pasts:
        lm.step(lm.prefill_embeddings(TEXT, PROMPT_SPEECH), past)
    expected = lm.step_many([9], [pasts[1].fork()])
    for chosen in range(5):
        lm.step_many([chosen, chosen], [pasts[0], pasts[2]])
    assert torch.equal(lm.step_many([9], [pasts[1]]), expected)


def test_request_1_equals_request_20_and_the_prefix_stays(lm):
    prefix = lm.prefix(PROMPT_TEXT, SPEAKER)
    first = speak(lm, 7, prefix)
    for seed in range(18):
        speak(lm, seed, prefix, TEXT[:1])
    assert speak(lm, 7, prefix) == first != speak(lm, 8, prefix) and prefix.length == 2 + len(
        PROMPT_TEXT
    )


def test_tables_grow_with_the_longest_request(lm_pair):
    pasts = [lm.prefix([], SPEAKER) for lm in lm_pair]
    for lm, past in zip(lm_pair, pasts, strict=True):
        lm.step(lm.prefill_embeddings(TEXT, [7] * 1010), past)
    for chosen in range(30):
        scores = [lm.step_many([chosen], [past]) for lm, past in zip(lm_pair, pasts, strict=True)]
    assert pasts[0].length > 1024 and (scores[0] - scores[1]).abs().max() < 0.08


# ---- a directory ---------------------------------------------------------------------------------
@pytest.fixture
def root(tmp_path) -> Path:
    return make(tmp_path / "model", family="cosyvoice1")


def test_it_is_converted_once_and_loads_the_same(root):
    place, expected = DeviceConfig("cpu", "fp32", "test", lm="int8"), []
    spec = SPEC.read_spec(root, 10)
    assert fits(spec.lm.body) and not converted.is_there(root, spec.lm, form=RELATIVE)
    first = language_model(root, spec.lm, place, lambda share, *words: expected.append(share))
    (root / "llm.pt").unlink()
    again = language_model(root, spec.lm, place, lambda *expected: pytest.fail("converted again"))
    assert (
        isinstance(again, Int8TextLm)
        and expected[-1] == 0.6
        and converted.is_there(root, spec.lm, form=RELATIVE)
    )
    vector = torch.ones(192)
    scores = [
        lm.step(lm.prefill_embeddings([3, 4], [5]), lm.prefix([6], vector)) for lm in (first, again)
    ]
    assert torch.equal(*scores) and scores[0].shape == (1, spec.lm.rows)


def test_a_file_of_another_generation_is_not_taken(root):
    """The same name in a directory of the second generation holds another network."""
    spec = SPEC.read_spec(root, 10)
    converted.load(root, spec.lm, form=RELATIVE)
    assert not converted.is_there(root, spec.lm), "its mark names the form"


def test_a_missing_tensor_is_named():
    state = published()
    del state["llm.encoders.1.self_attn.linear_pos.weight"]
    with pytest.raises(NotReady, match=r"llm\.pt.*linear_pos"):
        relative(DIMS, state)


def test_heads_that_do_not_fit_are_computed_by_torch():
    assert not fits(StackDims(40, 5, 32, 2))


def test_an_engine_speaks_with_it_and_beside_others_the_same(root):
    engine = CosyVoiceEngine(root, precision="int8", threads=1)
    engine.start()
    try:
        torch.set_num_threads(1)
        assert isinstance(engine._model.lm, Int8TextLm) and converted.is_there(
            root, engine._model.spec.lm, form=RELATIVE
        )
        voice = engine.preset("中文女")
        alone = whole(engine.stream(ask(mode="preset"), voice))
        streams = [
            engine.stream(ask(id=f"s{seed}", mode="preset", seed=seed), voice) for seed in (7, 8, 9)
        ]
        together = [[] for _ in streams]
        for chunks in itertools.zip_longest(*streams):
            for addresses, chunk in zip(together, chunks, strict=True):
                addresses += [chunk] if chunk is not None else []
        assert np.array_equal(whole(together[0]), alone) and not np.array_equal(
            whole(together[1])[:9000], alone[:9000]
        )
    finally:
        engine.close()
