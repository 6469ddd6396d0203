"""A clip that goes on: joined where it stopped, only to what is the visitor's own, and bounded as
every clip is.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.voice_like import voice_like
from webui.audio import Clip, joined
from webui.errors import TooLarge
from webui.store import VoiceStore
from webui.studio.drafts import Drafts, wav


@pytest.fixture
def drafts(tmp_path):
    return Drafts(VoiceStore(tmp_path, tmp_path / "none"), lambda voice, clip: None, 1 << 26)


SHORT = voice_like(2.2)


def test_more_is_put_after_what_was_there(drafts):
    first = drafts.make("a/1", wav(SHORT))
    assert "too_short" in [w.code for w in first.report.warnings]
    joined_clip = drafts.make("a/1", wav(voice_like(2.6, seed=7)), first.id)
    assert joined_clip.clip.duration_s == pytest.approx(4.78, abs=0.01) and "too_short" not in [
        w.code for w in joined_clip.report.warnings
    ]
    assert np.array_equal(joined_clip.clip.samples[:52000], first.clip.samples[:52000])
    assert drafts.get("a/1", first.id) is first, "the clip before stays as it was"


def test_anothers_clip_and_one_that_is_gone_are_nothing_to_go_on_from(drafts):
    first = drafts.make("a/1", wav(SHORT))
    for owner, after in (("b/1", first.id), ("a/2", first.id), ("a/1", "draft-gone")):
        assert drafts.make(owner, wav(SHORT), after).clip.duration_s == pytest.approx(2.2, abs=0.05)


def test_the_joint_neither_clicks_nor_is_silent():
    x = 0.3 * np.sin(2 * np.pi * 200 * np.arange(24000) / 24000).astype(np.float32)
    first, other = Clip(x[:-30], 24000), Clip(x, 24000)  # 90 degrees apart where they meet
    joined_clip = joined(first, other)
    assert len(joined_clip.samples) == len(first.samples) + len(other.samples) - 480
    assert np.abs(np.diff(joined_clip.samples)).max() < 1.3 * np.abs(np.diff(x)).max()
    assert np.abs(joined_clip.samples[23400:24100]).max() > 0.15


def test_of_two_rates_the_higher_one_is_kept():
    low, high = Clip(np.zeros(8000, np.float32), 8000), Clip(np.zeros(44100, np.float32), 44100)
    assert [joined(*pair).rate for pair in ((low, high), (high, low))] == [44100, 44100]
    assert joined(low, high).duration_s == pytest.approx(1.98, abs=0.001)


def test_both_together_are_no_longer_than_one_may_be():
    half = Clip(np.zeros(31 * 8000, np.float32), 8000)
    with pytest.raises(TooLarge):
        joined(half, half)
