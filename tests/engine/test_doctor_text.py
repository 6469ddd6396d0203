"""Item B compares ids with those of the published tokenizers: one that is wrong by a rule or a rank
is found, though all it cuts comes back. The published files themselves are tested where somebody
has the vocabulary that they are made of.
"""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from scripts import make_text_ids
from scripts.small_model.words import byte_letters, ranks, tiktoken
from webui.engine.cosyvoice.doctor import text
from webui.engine.cosyvoice.doctor.result import FAILED, PASSED, WARNED
from webui.engine.cosyvoice.frontend import whisper_tokenizer as first
from webui.engine.cosyvoice.frontend.tokenizer import TextTokenizer
from webui.engine.cosyvoice.frontend.tokenizer_v3 import TokenizerV3

KINDS = {
    "cosyvoice1": first.WhisperTokenizer,
    "cosyvoice2": TextTokenizer,
    "cosyvoice3": TokenizerV3,
}


def judged(root: Path, engine: str):
    family = SimpleNamespace(engine=engine)
    return text.text(root, SimpleNamespace(tokenizer=KINDS[engine](root), model_spec=family))


def small(folder: Path, small_model: Path) -> Path:
    shutil.copytree(small_model / "CosyVoice-BlankEN", folder / "CosyVoice-BlankEN")
    return folder


@pytest.mark.parametrize("engine", ["cosyvoice2", "cosyvoice3"])
def test_a_missing_merge_is_found(small_model, tmp_path, monkeypatch, engine):
    root = small(tmp_path, small_model)
    assert judged(root, engine).status == WARNED, "it is not the published one"
    right = KINDS[engine](root)
    reference = {"size": right.size, "ids": {"你好": right.encode("你好")}}
    monkeypatch.setattr(text, "published_ids", lambda: {engine: reference})
    assert judged(root, engine).status == PASSED
    lines = (root / text.MERGES).read_text("utf-8").split("\n")
    other_lines = [
        line
        for line in lines
        if line.replace(" ", "") != right._bpe.id_to_token(reference["ids"]["你好"][0])
    ]
    assert len(other_lines) == len(lines) - 1
    (root / text.MERGES).write_text("\n".join(other_lines), "utf-8")
    finding = judged(root, engine)
    assert (finding.status, finding.figures["differing"]) == (FAILED, ["你好"])
    assert finding.figures["torn"] == [] and finding.remedy_zh


def test_the_first_generations_vocabulary_is_the_published_one_and_two_ranks_of_it_matter(tmp_path):
    assert judged(tmp_path, "cosyvoice1").status == PASSED
    own = Path(first.__file__).with_name(first.VOCABULARY).read_text("ascii")
    hello, quick = "SGVsbG8= 15947", "IHF1aWNr 1702"  # “Hello”, “ quick”
    swapped = own.replace(hello, "SGVsbG8= 1702").replace(quick, "IHF1aWNr 15947")
    assert swapped != own
    (tmp_path / first.VOCABULARY).write_text(swapped, "ascii")
    finding = judged(tmp_path, "cosyvoice1")
    assert finding.status == FAILED
    assert "Hello, how are you today?" in finding.figures["differing"]
    (tmp_path / first.VOCABULARY).write_text(tiktoken(ranks(400)), "ascii")
    assert judged(tmp_path, "cosyvoice1").status == WARNED, "another one, and whole"


def test_other_ranks_give_no_files():
    with pytest.raises(ValueError, match="not the published"):
        make_text_ids.files_of({token: rank for rank, token in enumerate(ranks())})


def test_what_is_cut_apart():
    masked = ["你好", " 你", " 你好", "生命周期"]
    assert all(make_text_ids.is_masked(words.encode()) for words in masked)
    whole_words = ["你", "，你", "お客様", "Hello", " the"]
    assert not any(make_text_ids.is_masked(words.encode()) for words in whole_words)
    assert not make_text_ids.is_masked("你好".encode()[:5])


@pytest.fixture(scope="module")
def qwen() -> Path:
    spec = importlib.util.find_spec("dashscope")
    if spec is None:
        pytest.skip("the vocabulary is in the package dashscope, which is not installed")
    return Path(spec.origin).parent / "resources" / "qwen.tiktoken"


def test_the_published_files_are_made_again_and_give_the_written_ids(qwen, tmp_path):
    own = make_text_ids.ranks_of(qwen)
    for name, data in make_text_ids.files_of(own).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(data)
    assert make_text_ids.table(tmp_path) == text.published_ids()
    for engine in ("cosyvoice2", "cosyvoice3"):
        finding = judged(tmp_path, engine)
        assert finding.status == PASSED and finding.figures["merges"] == 134_935
    you, good = ("".join(byte_letters()[b] for b in word.encode()) for word in "你好")
    with (tmp_path / text.MERGES).open("a", encoding="utf-8") as file:
        file.write(f"{you} {good}\n")  # as Qwen2 has it
    finding = judged(tmp_path, "cosyvoice2")
    assert finding.status == FAILED and finding.figures["differing"][0] == "你好"
