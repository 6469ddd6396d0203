"""What each mode of the first generation feeds to the language model (specification, section 4)."""

from __future__ import annotations

from collections.abc import Iterable

from ...errors import BadInput
from ...text import detect
from ..cosyvoice.board import Board
from ..cosyvoice.lm_seam import Past
from ..cosyvoice.script import Script
from ..cosyvoice.sources import Arriving
from .tokenizer import mark_of


class FirstScript(Script):
    """A description takes the place of the speaker in the language model: both at once, and the voice would not follow it. The flow has
    the voice in every mode."""

    @property
    def _is_described(self) -> bool:
        return self.request.mode == "instruct" and bool(self.request.instruction.strip())

    def prompt(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return (
            (tuple(self.model.tokenizer.instruction(self.request.instruction)), ())
            if self._is_described
            else super().prompt()
        )

    def text(self, segment: str) -> list[int]:
        """In cross_lingual the language's mark is in front of every segment; one that the text itself begins with counts."""
        ids = super().text(segment)
        if self.request.mode != "cross_lingual" or segment.lstrip().startswith("<|") or not ids:
            return ids
        language = detect(segment) if self.request.language == "auto" else self.request.language
        return super().text(mark_of(language) + segment.strip())

    def prefix(self) -> Past:
        speaker = None if self._is_described else self.voice.prompt.vector
        return self.voice.past(
            (self.prompt_text, speaker is None),
            lambda: self.model.lm.prefix(self.prompt_text, speaker),
        )

    def arriving(self, pieces: Iterable[str], board: Board) -> Arriving:
        title = self.model.family.title
        raise BadInput(
            f"{title} needs the whole text before it speaks.",
            f"{title} 要先有完整的文本才能朗读。",
            param="input",
            code="no_text_in",
        )
