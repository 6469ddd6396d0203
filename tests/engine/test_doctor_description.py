"""A -Instruct model of the first generation is heard with both ends of a description, and the one
that is not read aloud is used from then on.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from scripts.make_small_model import make
from tests.engine import doctor_small
from webui import app, settings
from webui.engine.cosyvoice.config_v1 import MARKER
from webui.engine.cosyvoice.doctor import description
from webui.engine.cosyvoice.doctor.examination import Options, _networks, _Run
from webui.engine.cosyvoice.doctor.result import FAILED, PASSED, WARNED
from webui.engine.cosyvoice.engine import CosyVoiceEngine
from webui.engine.cosyvoice.frontend.whisper_tokenizer import END_OF_PROMPT, MARK_END
from webui.engine.cosyvoice.llm.decode import HostDecoding
from webui.store import doctor_reports

ENDS = (END_OF_PROMPT, MARK_END)
SENTENCE = 120  # speech ids of the fake


@dataclass
class Told:
    """What a fake past remembers: how many ids are still to come."""

    left: int
    length: int = 0

    def fork(self, room: int) -> Told:
        return replace(self)


class Talker(HostDecoding):
    """A language model that says the sentence, and before it what it was told, where the end of
    that is one of `reads`.
    """

    def __init__(self, model, reads=(), never_ends=False):
        self.dims, self._model = model.lm.dims, model
        self._reads, self._never_ends = reads, never_ends

    def prefix(self, prompt_text, speaker=None):
        words = self._model.tokenizer.decode(list(prompt_text))
        reads = any(words.endswith(end) for end in self._reads)
        if self._never_ends:
            return Told(10**6)
        return Told(SENTENCE * (5 if reads else 1))

    def prefill_embeddings(self, text, prompt_speech=()):
        return torch.zeros(1, len(text) + 1, 1)

    def speech(self, ids):
        return torch.zeros(1, 1, 1)

    def step(self, x, past):
        scores = torch.full((1, self.dims.rows), -30.0)
        scores[0, past.left % 30 if past.left else self.dims.end] = 0
        past.left -= 1
        return scores

    def step_many(self, ids, pasts):
        return torch.cat([self.step(None, past) for past in pasts])


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    torch.set_num_threads(1)
    root = make(tmp_path_factory.mktemp("instruct") / "model", family="cosyvoice1")
    (root / MARKER).write_text("instruct")
    return root


@pytest.fixture(scope="module")
def plain(small):
    return doctor_small.load(small)


@pytest.fixture(scope="module")
def prompt(plain):
    return plain.warm_prompt()


@pytest.mark.parametrize(
    ("reads", "status", "expected_ends"),
    [
        ((), PASSED, END_OF_PROMPT),
        ((END_OF_PROMPT,), PASSED, MARK_END),
        ((MARK_END,), PASSED, END_OF_PROMPT),
        (ENDS, FAILED, END_OF_PROMPT),
    ],
    ids=["neither", "the plain words", "the mark", "both"],
)
def test_by_length(plain, prompt, reads, status, expected_ends):
    result = description.description(replace(plain, lm=Talker(plain, reads)), prompt)
    assert (result.status, result.figures["end_of_prompt"]) == (status, expected_ends)
    is_read = {end: figures["is_read"] for end, figures in result.figures["with"].items()}
    assert is_read == {end: end in reads for end in ENDS}
    json.dumps(result.to_dict(), allow_nan=False)


def test_what_never_ends_tells_nothing_and_that_is_said(plain, prompt, monkeypatch):
    monkeypatch.setattr(description, "MAX_IDS_PER_TEXT_ID", 3)
    result = description.description(replace(plain, lm=Talker(plain, never_ends=True)), prompt)
    assert (result.status, result.figures["end_of_prompt"]) == (WARNED, END_OF_PROMPT)
    assert "cannot be told" in result.en and "无法判断" in result.zh


@pytest.mark.parametrize("errors", [(3.4, 0.1), (0.2, 3.0), (2.8, 2.9)])
def test_words_decide_where_they_can_be_told(plain, prompt, monkeypatch, errors):
    """Whatever the lengths say."""
    monkeypatch.setattr(description, "mel_of", lambda *args: torch.zeros(4, 80))
    monkeypatch.setattr(description, "sound_of", lambda *args: np.zeros(100, np.float32))
    error_iter = iter(errors)
    result = description.description(
        replace(plain, lm=Talker(plain)), prompt, lambda *args: next(error_iter)
    )
    assert [f["is_read"] for f in result.figures["with"].values()] == [e > 1.5 for e in errors]
    assert result.figures["end_of_prompt"] == (
        MARK_END if errors[1] < 1 < errors[0] else END_OF_PROMPT
    )


def test_it_is_part_of_the_examination_where_a_model_has_two_ends(plain, prompt, monkeypatch):
    clip = SimpleNamespace(samples=None, rate=0)
    run = _Run(lambda result: None)
    monkeypatch.setattr(run, "speak", lambda *args: None)
    monkeypatch.setattr(type(plain.prompt_encoder), "voice", lambda *args: prompt)
    monkeypatch.setattr("webui.engine.cosyvoice.doctor.language.transcript", lambda *args: None)
    for name, is_present in (("instruct", True), ("base", False)):
        calls = []
        monkeypatch.setattr(run, "add", lambda item, name, work, to=calls: to.append((item, name)))
        model = replace(plain, spec=replace(plain.spec, release=name))
        _networks(run, None, model.model_spec, model, [clip, clip], Options({}, is_quick=True))
        assert (("G", "description") in calls) == is_present


def test_the_studio_speaks_with_the_end_that_was_kept(small, tmp_path):
    read = settings.load([], {"KAIKOU_DATA_DIR": str(tmp_path)})
    assert app.cosyvoice_arguments(read, small)["end_of_prompt"] == ""
    message = {"item": "G", "name": "description", "figures": {"end_of_prompt": MARK_END}}
    doctor_reports.save(small, read.paths.data_dir, {"results": [message]}, {})
    used = app.cosyvoice_arguments(read, small)
    assert used["end_of_prompt"] == MARK_END
    versions = []
    for end in ("", used["end_of_prompt"]):
        engine = CosyVoiceEngine(small, device="cpu", precision="fp32", end_of_prompt=end)
        engine.start()
        ids = engine._model.tokenizer.instruction("A calm voice.")
        assert engine._model.tokenizer.decode(ids).endswith(end or END_OF_PROMPT)
        versions.append((engine.version, engine.prompt_version))
        engine.close()
    assert versions[0][0] != versions[1][0], "what is heard is another thing"
    assert versions[0][1] == versions[1][1], "voices stay as they are"
