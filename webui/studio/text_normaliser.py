"""What is said of a text: its sentences, normalised, with the pronunciations of whoever asks.

Knows no voices.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from .. import text
from ..errors import BadInput
from ..types import Abilities, SpeechRequest
from .pronunciations import Pronunciations
from .request_builder import requested_language
from .share_links import ShareLinks, is_guest
from .text_source import TextSource
from .timings import Timings


@dataclass(frozen=True)
class Preview:
    """What will be spoken of a text. segments: (text, BCP 47 tag) in order. characters, sentences:
    of what was typed. seconds: at normal speed.
    """

    segments: tuple[tuple[str, str], ...]
    characters: int
    sentences: int
    seconds: float


class TextNormaliser:
    """A guest's text is read with the dictionary of who made the link."""

    def __init__(self, pronunciations: Pronunciations, share_links: ShareLinks):
        self._pronunciations, self._share_links = pronunciations, share_links

    def normalise(
        self, owner: str, request: SpeechRequest, about: Abilities, trace: Timings
    ) -> tuple[SpeechRequest, list[tuple[str, str]]]:
        """With the sentences to speak, and what a listener must know of them.

        Raises BadInput when there is nothing to say.
        """
        began = time.perf_counter()
        readings, notes = self._readings(owner)
        segments = tuple(
            text.prepare(
                text.strip_tags(request.text, about.tags),
                request.language,
                readings,
                about.segmentation,
            )
        )
        trace.add("text", time.perf_counter() - began)
        if not segments:
            raise BadInput("no_text", param="input")
        return replace(request, segments=segments), notes

    def preview(self, owner: str, text_in: str, language: str, about: Abilities) -> Preview:
        """Raises BadInput for what speaking would refuse of the text."""
        raw_request = SpeechRequest("", text_in, "", language=requested_language(text_in, language))
        request, _ = self.normalise(owner, raw_request, about, Timings())
        languages = text.segment_languages(request.segments, text_in, request.language)
        return Preview(
            tuple(zip(request.segments, languages, strict=True)),
            *text.measure(text_in),
            text.duration(request.segments),
        )

    def _readings(self, owner: str) -> tuple:
        return self._pronunciations.as_read(
            self._share_links.host(owner) if is_guest(owner) else owner
        )

    def arriving(self, owner: str, language: str, about: Abilities) -> TextSource:
        """For a text that is still to be written."""
        readings, notes = self._readings(owner)
        return TextSource(
            lambda clause, own: text.prepare(text.strip_tags(clause, about.tags), own, readings),
            language,
            notes,
            about.segmentation,
            about.text_in,
        )
