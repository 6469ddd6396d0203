"""What each mode of the first generation feeds to the language model (specification, section 4)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from ....errors import BadInput
from ....text import detect, marked_language
from ..llm.interface import KVCache
from ..llm.token_sources import StreamingTextTokens
from .prompt_builder import PromptBuilder
from .speaker_descriptions import described
from .whisper_tokenizer import mark_of


class PromptBuilderV1(PromptBuilder):
    """A description takes the place of the speaker in the language model: both at once, and the
    voice would not follow it. The flow has the voice in every mode.
    """

    @property
    def _is_described(self) -> bool:
        return self.request.mode == "instruct" and bool(self.request.instruction.strip())

    def prompt(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return (
            (tuple(self.model.tokenizer.instruction(described(self.request.instruction))), ())
            if self._is_described
            else super().prompt()
        )

    def text(self, segment: str) -> list[int]:
        """In front of every segment is the mark of the language that the text itself begins with,
        in any mode; else, in cross_lingual, that of its language.
        """
        ids, request = super().text(segment), self.request
        language = marked_language(segment) or marked_language(request.text)
        if not language and request.mode == "cross_lingual":
            language = detect(segment) if request.language == "auto" else request.language
        return [*self.model.tokenizer.encode(mark_of(language)), *ids] if ids else ids

    def prefix(self) -> KVCache:
        speaker = None if self._is_described else self.voice.prompt.vector
        return self.voice.past(
            (self.prompt_text, speaker is None),
            lambda: self.model.lm.prefix(self.prompt_text, speaker),
        )

    def arriving(
        self, pieces: Iterable[str], lock: threading.Lock, on_text: Callable[[], None]
    ) -> StreamingTextTokens:
        title = self.model.model_spec.title
        raise BadInput("no_text_in", title=title, param="input")
