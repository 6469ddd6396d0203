"""What this generation is fed: every prompt begins with the prefix and the mark it was trained
with, and long pauses are not heard.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..cosyvoice.script import Script as SharedScript
from ..cosyvoice.tokenizer import END_OF_PROMPT
from .recipes import trained
from .silence import ShortPauses
from .tokenizer import asked

TOLD = ("instruct", "zero_shot")  # modes that follow an instruction


class Script(SharedScript):
    def prompt(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """An instruction stands in front of the mark, in zero_shot the clip's words behind it; both
        may be there.
        """
        request = self.request
        told = request.instruction if request.mode in TOLD else ""
        text, speech = self.said()
        return (*self.model.tokenizer.encode(asked(trained(told))), *text), speech

    def transcript(self) -> str:
        """As it was typed: the public code rewrites no prompt text that holds a mark, and here each
        one does.
        """
        return self.request.transcript

    def head(self) -> Sequence[int]:
        mark = self.model.tokenizer.specials[END_OF_PROMPT]
        return self.prompt_text[: self.prompt_text.index(mark) + 1]

    def hears(self) -> ShortPauses:
        return ShortPauses()
