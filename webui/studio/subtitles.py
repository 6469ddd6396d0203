"""Subtitles of an alignment: SubRip and WebVTT, one cue for each segment."""

from __future__ import annotations

from collections.abc import Callable

from .alignment import Alignment


def srt(alignment: Alignment) -> str:
    return "".join(
        f"{i}\n{start} --> {end}\n{text}\n\n"
        for i, (start, end, text) in enumerate(_cues(alignment, ","), 1)
    )


def vtt(alignment: Alignment) -> str:
    escaped = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
    return "WEBVTT\n\n" + "".join(
        f"{start} --> {end}\n{text.translate(escaped)}\n\n"
        for start, end, text in _cues(alignment, ".")
    )


def _cues(alignment: Alignment, point: str) -> list[tuple[str, str, str]]:
    """(start, end, text): an empty line would end the cue, and an arrow begin its times anew."""
    stamp: Callable[[int], str] = lambda n: _stamp(n, alignment.rate, point)  # noqa: E731
    return [
        (
            stamp(segment.start),
            stamp(segment.end),
            "\n".join(filter(None, map(str.strip, segment.text.splitlines()))).replace("-->", "→"),
        )
        for segment in alignment.segments
    ]


def _stamp(sample: int, rate: int, point: str) -> str:
    ms = round(1000 * sample / rate)
    return (
        f"{ms // 3_600_000:02d}:{ms // 60_000 % 60:02d}:{ms // 1000 % 60:02d}{point}{ms % 1000:03d}"
    )


FORMATS: dict[str, tuple[str, Callable[[Alignment], str]]] = {
    "srt": ("application/x-subrip", srt),
    "vtt": ("text/vtt", vtt),
}
