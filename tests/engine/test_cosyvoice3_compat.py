"""The published way from ids to wave: golden data, and where it differs from ours."""

from __future__ import annotations

import pytest
import torch

from scripts.golden_checks import token2wav3 as golden_token2wav
from scripts.published.v3 import Token2Wav
from tests.engine.cosyvoice3_small import GOLDEN, small_flow, small_vocoder
from tests.engine.cosyvoice_small import ids_of, voice_of
from tests.engine.test_cosyvoice_flow import exceeded
from webui.engine.cosyvoice.flow import Blocks, VoiceState
from webui.engine.cosyvoice.vocoder.causal_stream import WaveStream

torch.set_num_threads(1)


def test_golden_subset():
    assert exceeded(golden_token2wav.check, GOLDEN / "token2wav") == []


@pytest.mark.shared
def test_golden_in_full(shared_dir):
    assert exceeded(golden_token2wav.check, shared_dir / "golden3" / "token2wav") == []


def test_ours_is_the_published_one_up_to_its_last_call_and_comes_earlier():
    """Which sees the whole utterance at once, so that its frames follow another past than the one
    that was played.
    """
    flow, vocoder, ids, voice = small_flow(torch.float32), small_vocoder(), ids_of(70), voice_of(0)
    published_waves = [wave for _, wave in Token2Wav(flow, vocoder, *voice).stream(ids)]
    state, wave = VoiceState.of(flow, *voice, Blocks(25)).begin(), WaveStream(vocoder, None)
    first = wave.push(state.step(ids[:28]))
    assert len(published_waves[0]) == 42 * 480 and len(first) == 46 * 480 - 8
    assert torch.allclose(first[: len(published_waves[0])], published_waves[0], atol=1e-4)
    own_waves, published = (
        torch.cat([first, wave.push(state.step(ids, final=True), final=True)]),
        torch.cat(published_waves),
    )
    assert (
        own_waves.shape == published.shape
        and (own_waves - published)[52 * 480 :].abs().max() > 0.01
    )
