"""A model directory with small random weights, made once per run, and the golden data: the part
kept here, and the whole where it is.
"""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def small_model(tmp_path_factory) -> Path:
    """Read only: tests that damage files copy it first."""
    import torch

    from scripts.make_small_model import make

    torch.set_num_threads(1)
    return make(tmp_path_factory.mktemp("small_model"))


@pytest.fixture
def quick(monkeypatch):
    """Engines start without a warm-up, which speaks for seconds: for tests that let them speak
    themselves, or not at all.
    """
    monkeypatch.setattr(
        "webui.engine.cosyvoice.engine.CosyVoiceEngine._warm_up", lambda self, model: None
    )


@pytest.fixture(params=["kept", pytest.param("whole", marks=pytest.mark.shared)])
def golden(request) -> Path:
    if request.param == "kept":
        return HERE / "data" / "golden"
    return request.getfixturevalue("shared_dir") / "golden"


@pytest.fixture
def within():
    """A reporter that collects what exceeds its tolerance; `.checked` counts."""
    return Within()


class Within:
    def __init__(self):
        self.checked, self.exceeded = 0, []

    def __call__(self, case: str, tensor: str, error: float, tolerance: float) -> None:
        self.checked += 1
        if not float(error) <= tolerance:
            self.exceeded.append(f"{case} {tensor}: {error:.3g} > {tolerance:.3g}")
