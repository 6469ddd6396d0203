"""What is said of a text: its sentences, normalised, with the pronunciations of whoever asks. Knows no voices."""

from __future__ import annotations

import time
from dataclasses import replace

from .. import text
from ..errors import BadInput
from ..types import Abilities, SpeechRequest
from .arriving import Written
from .demos import Demos, is_guest
from .pronunciations import Pronunciations
from .trace import Trace


class Wording:
    """A guest's text is read with the dictionary of who made the link."""

    def __init__(self, pronunciations: Pronunciations, demos: Demos):
        self._pronunciations, self._demos = pronunciations, demos

    def put(
        self, owner: str, request: SpeechRequest, about: Abilities, trace: Trace
    ) -> tuple[SpeechRequest, list[tuple[str, str]]]:
        """With the sentences to speak, and what a listener must know of them. Raises BadInput when there is nothing to say."""
        began = time.perf_counter()
        readings, notes = self._readings(owner)
        segments = tuple(
            text.prepare(text.strip_tags(request.text, about.tags), request.language, readings)
        )
        trace.add("text", time.perf_counter() - began)
        if not segments:
            raise BadInput(
                "Write something to say first: the text has no letters or digits.",
                "先写点要说的话：文本里没有可读的字。",
                param="input",
                code="no_text",
            )
        return replace(request, segments=segments), notes

    def _readings(self, owner: str) -> tuple:
        return self._pronunciations.spoken(self._demos.host(owner) if is_guest(owner) else owner)

    def arriving(self, owner: str, language: str, about: Abilities) -> Written:
        """For a text that is still to be written."""
        readings, notes = self._readings(owner)
        return Written(
            lambda clause, own: text.prepare(text.strip_tags(clause, about.tags), own, readings),
            language,
            notes,
        )
