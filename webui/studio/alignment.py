"""Which part of a text sounds from which sample to which: of takes, of requests under way, and of
lines of batches.
"""

from __future__ import annotations

import wave
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from .. import text
from ..errors import BadInput, Conflict
from ..store import Line
from ..types import CONVERT, SpeechRequest
from .pronunciations import Pronunciations
from .request_builder import requested_language
from .speech_job import SpeechJob
from .takes import Takes


@dataclass(frozen=True)
class AlignedSegment:
    """text: as it was typed where that can be told, else as it is read. spoken_text: as it is read,
    figures in words. characters: (first, end) in the typed text, None where that cannot be told.
    start, end: samples; the silence behind a segment is its own. is_whole: nothing of it is
    missing.
    """

    index: int
    text: str
    spoken_text: str
    characters: tuple[int, int] | None
    language: str
    start: int
    end: int
    is_whole: bool


@dataclass(frozen=True)
class Alignment:
    """id: of the take or request; "" of a line. n_samples: that there are so far. pcm(start, end):
    s16le of these samples.
    """

    id: str
    state: str
    rate: int
    n_samples: int
    pcm: Callable[[int, int], bytes]
    segments: tuple[AlignedSegment, ...] = ()


class Alignments:
    """Raises Conflict for converted recordings, of which nobody knows what is said when."""

    def __init__(self, takes: Takes, pronunciations: Pronunciations):
        self._takes, self._pronunciations = takes, pronunciations

    def of_take(self, owner: str, take_id: str) -> Alignment:
        """Raises NotFound. One that was made before marks were kept is one segment."""
        take = self._takes.get_visible(owner, take_id)
        request, marks = take.request, take.marks
        spoken_texts = request.segments or (request.text,)
        if not marks:
            spoken_texts, marks = (text.glue(spoken_texts),), ((0, 0),)
        pcm = partial(_pcm, self._takes.wav_path(owner, take_id))
        bare = Alignment(take.id, take.state, take.sample_rate, take.n_samples, pcm)
        return self._aligned(owner, bare, request, spoken_texts, marks, take.state == "done")

    def of_job(self, job: SpeechJob) -> Alignment:
        """As far as it has come."""
        now, request = job.snapshot(), job.request
        if job.text_source is not None:  # what has come of its text so far
            request = job.text_source.settled(request)
        bare = Alignment(job.id, now.state, job.rate, now.n_samples, job.pcm)
        marks, is_whole = job.segment_marks(now.marks), now.state in ("saving", "done")
        return self._aligned(job.owner, bare, request, request.segments, marks, is_whole)

    def of_line(self, owner: str, line: Line, sound: Path) -> Alignment:
        """Of a line that is done."""
        spoken_texts = tuple(segment for segment, _ in line.segments) or (line.text,)
        marks = [(i, start) for i, (_, start) in enumerate(line.segments)] or [(0, 0)]
        language = requested_language(line.text, line.language)
        request = SpeechRequest("line", line.text, line.voice, language=language)
        bare = Alignment("", "done", line.rate, line.samples, partial(_pcm, sound))
        return self._aligned(owner, bare, request, spoken_texts, marks, True)

    def _aligned(
        self,
        owner: str,
        bare: Alignment,
        request: SpeechRequest,
        spoken_texts: Sequence[str],
        marks: Sequence[tuple[int, int]],
        is_whole: bool,
    ) -> Alignment:
        """`bare` with its segments."""
        if request.mode == CONVERT:
            raise Conflict("not_aligned")
        typed = request.text
        spans = self._spans(owner, typed, spoken_texts, request.language)
        languages = text.segment_languages(spoken_texts, typed, request.language)
        ends = [*(start for _, start in marks), bare.n_samples][1:]  # none where nothing sounds yet
        segments = (
            AlignedSegment(
                index,
                typed[slice(*spans[index])] if spans[index] else spoken_texts[index],
                spoken_texts[index],
                spans[index],
                languages[index],
                start,
                end,
                is_whole or end < bare.n_samples,
            )
            for (index, start), end in zip(marks, ends, strict=True)
        )
        return replace(bare, segments=tuple(segments))

    def _spans(
        self, owner: str, typed: str, spoken_texts: Sequence[str], language: str
    ) -> list[tuple[int, int] | None]:
        """By the dictionary as it is now: where it has changed since, less can be told."""
        readings, _ = self._pronunciations.as_read(owner)
        try:
            return text.source_spans(typed, spoken_texts, language, readings)
        except BadInput:  # readings that came since make it too long
            return text.source_spans(typed, spoken_texts, language)


def _pcm(path: Path, start: int, end: int) -> bytes:
    with wave.open(str(path)) as wav:
        wav.setpos(start)
        return wav.readframes(end - start)
