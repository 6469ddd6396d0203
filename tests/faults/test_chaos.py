"""The engine's process killed twice and frozen once under a running studio: scripts/chaos.py in
short. Its clock is for a quiet machine.
"""

from __future__ import annotations

from scripts import chaos
from scripts.make_small_model import make


def test_the_page_stays_up_and_listeners_are_told(tmp_path):
    make(tmp_path / "CosyVoice2-0.5B")
    report = chaos.run(tmp_path, rounds=3, freeze_every=3, frozen_s=2.0, say=lambda line: None)
    assert report.broken() == []
    assert [r.codes for r in report.rounds] == [{"engine_lost"}] * 2 + [{"stalled"}]
    assert all(r.sounding for r in report.rounds) and report.page.n_requests > 20
