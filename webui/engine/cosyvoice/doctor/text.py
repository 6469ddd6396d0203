"""Item B: does the tokenizer give a text the ids that the model has learnt?

They are compared with those of the published vocabularies, which scripts/make_text_ids.py has
written down.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from ....messages import message
from .result import WARNED, Result, failed, passed

if TYPE_CHECKING:
    from ..model import Model

VOCAB, MERGES = "CosyVoice-BlankEN/vocab.json", "CosyVoice-BlankEN/merges.txt"
IDS = Path(__file__).with_name("text_ids.json")  # engine -> size of its tokenizer, ids of each text
SENTENCES = (
    "你好，今天天气不错。", "我们明天上午九点在车站见面。", "他说：「这本书真好看！」",
    "请把音量调大一点，谢谢。", "红楼梦是一部长篇小说。",
    "Hello, how are you today?", "The quick brown fox jumps over the lazy dog.",
    "It costs twelve dollars and fifty cents.",
    "开口 reads 中文 and English.", "Wait… what did you say?",
)  # fmt: skip
MOST_DISORDER = 0.01  # share of merges whose token does not come behind the one before


def text(root: Path, model: Model) -> Result:
    """Item B.

    Qwen2's vocabulary is numbered in the order of its merges: a table in another order belongs to
    other weights.
    """
    tokenizer = model.tokenizer
    torn = [line for line in SENTENCES if tokenizer.decode(tokenizer.encode(line)) != line]
    figures: dict = {"size": tokenizer.size, "torn": torn}
    wrong = [f"“{line}” does not come back" for line in torn]
    if (root / MERGES).is_file():
        order = _merge_ids(root)
        jumps = sum(late <= early for early, late in pairwise(order))
        figures |= {"merges": len(order), "disorder": jumps / max(1, len(order) - 1)}
        if figures["disorder"] > MOST_DISORDER:
            wrong.append(f"{jumps} of {len(order)} merges are out of order")
    published = published_ids().get(model.model_spec.engine, {"size": 0, "ids": {}})
    figures["is_published"] = is_published = tokenizer.size == published["size"]
    if is_published:
        ids_by_line = {line: list(tokenizer.encode(line)) for line in published["ids"]}
        differing = [line for line, ids in published["ids"].items() if ids_by_line[line] != ids]
        figures |= {"ids": ids_by_line, "differing": differing}
        wrong += [f"“{line}” has other ids" for line in differing]
    if wrong:
        sentences = message("doctor.tokenizer_wrong", wrong=wrong[:3])
        way_out = message("doctor.tokenizer_fetch")
        return failed("B", "text", sentences, way_out, figures)
    if not is_published:
        size, n_published = tokenizer.size, published["size"]
        sentences = message("doctor.tokenizer_other", size=size, known=n_published)
        return failed("B", "text", sentences, ("", ""), figures, WARNED)
    count = len(SENTENCES)
    sentences = message("doctor.tokenizer_good", count=count)
    return passed("B", "text", sentences, figures)


def published_ids() -> Mapping[str, Mapping]:
    return json.loads(IDS.read_text("utf-8"))


def _merge_ids(root: Path) -> list[int]:
    """The id of what each merge gives, in the order of the merges."""
    vocab = json.loads((root / VOCAB).read_text("utf-8"))
    lines = (root / MERGES).read_text("utf-8").split("\n")
    pairs = (line.split(" ") for line in lines if line.strip() and not line.startswith("#version"))
    return [vocab["".join(pair)] for pair in pairs]
