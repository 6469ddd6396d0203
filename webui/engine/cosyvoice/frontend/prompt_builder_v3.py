"""What this generation is fed: every prompt begins with the prefix and the mark it was trained
with, and long pauses are not heard.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..llm.silence_filter import SilenceFilter
from .instruction_formats import trained
from .prompt_builder import PromptBuilder as SharedScript
from .tokenizer import END_OF_PROMPT
from .tokenizer_v3 import instruction_prompt

TOLD = ("instruct", "zero_shot")  # modes that follow an instruction


class PromptBuilderV3(SharedScript):
    def prompt(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """An instruction stands in front of the mark, in zero_shot the clip's words behind it; both
        may be there.
        """
        request = self.request
        instruction = request.instruction if request.mode in TOLD else ""
        text, speech = self.clip_ids()
        return (
            *self.model.tokenizer.encode(instruction_prompt(trained(instruction))),
            *text,
        ), speech

    def transcript(self) -> str:
        """As it was typed: the public code rewrites no prompt text that holds a mark, and here each
        one does.
        """
        return self.request.transcript

    def head(self) -> Sequence[int]:
        mark = self.model.tokenizer.specials[END_OF_PROMPT]
        return self.prompt_text[: self.prompt_text.index(mark) + 1]

    def token_filter(self) -> SilenceFilter:
        return SilenceFilter()
