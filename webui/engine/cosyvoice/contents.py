"""What one directory of a generation has and lacks: networks that hear a clip, a language model
beside the usual one, what ends a description. Reads names and sizes only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from . import files
from .faults import model_fault
from .prompt import Hearing, NoMaker, PromptMaker, Typed, VoicePrompt
from .speakers import SPEAKERS
from .weights import DTYPES

if TYPE_CHECKING:
    from .family import Family

NEEDED = "a file of the model", "模型的文件"


def deaf(family: Family, root: Path) -> str:
    """The first network for hearing a clip that is not there, in a directory with ready speakers:
    that one only cannot clone. "" otherwise.
    """
    if not (root / SPEAKERS).is_file():
        return ""
    return next((name for name in family.listening if not (root / name).exists()), "")


def prompt_maker(
    family: Family, root: Path, tokenizer: Typed, hearing: Hearing, ready: Mapping[str, VoicePrompt]
) -> PromptMaker | NoMaker:
    """ready: the ready speakers. Raises NotReady."""
    missing = deaf(family, root)
    if missing and not ready:
        files.head(root, missing, NEEDED)  # says what of it is there
    return NoMaker(hearing, missing) if missing else PromptMaker(root, tokenizer, hearing)


def with_reinforced(family: Family, root: Path) -> Family:
    """Speaking with its language model after reinforcement learning; where none was published, as
    it is. Raises NotReady when the directory has no such file.
    """
    part = family.reinforced
    if part is None:
        return family
    if not (root / part.file).exists() and not any(
        (root / part.converted(dtype)).is_file() for dtype in DTYPES
    ):
        found = (
            "none, though the setting engine.reinforced asks for it",
            "没有，但设置 engine.reinforced 要用它",
        )
        way_out = (
            f"Put {part.file} of {family.title} beside llm.pt, or set engine.reinforced to false.",
            (
                f"请把 {family.title} 的 {part.file} 放到 llm.pt 旁边，或把 engine.reinforced 设为"
                " false。"
            ),
        )
        raise model_fault(
            part.file,
            ("the language model after reinforcement learning", "强化学习后的语言模型"),
            found,
            way_out,
        )
    parts = {**family.components, "llm": part}
    return replace(family, components=parts, load=partial(family.load, parts=parts))


def with_end_of_prompt(family: Family, end: str) -> Family:
    """Ending descriptions with `end`; as it is where the generation has no such end, or it is the
    usual one.
    """
    if end not in family.ends_of_prompt[1:]:
        return family
    return replace(family, load=partial(family.load, end_of_prompt=end))
