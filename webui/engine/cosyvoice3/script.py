"""What this generation is fed: every prompt begins with the prefix and the mark it was trained with, and long pauses are not heard."""

from __future__ import annotations

from collections.abc import Sequence

from ..cosyvoice.script import Script as SharedScript
from ..cosyvoice.tokenizer import END_OF_PROMPT
from .recipes import trained
from .silence import ShortPauses
from .tokenizer import asked


class Script(SharedScript):
    def prompt(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """With an instruction: the instruction in front of the mark. Else: nothing in front of it, and in zero_shot the clip's words behind it."""
        request, encode = self.request, self.model.tokenizer.encode
        if request.mode == "instruct" and request.instruction.strip():
            return tuple(encode(asked(trained(request.instruction)))), ()
        text, speech = self.said()
        return (*encode(asked("")), *text), speech

    def head(self) -> Sequence[int]:
        mark = self.model.tokenizer.specials[END_OF_PROMPT]
        return self.prompt_text[: self.prompt_text.index(mark) + 1]

    def hears(self) -> ShortPauses:
        return ShortPauses()
