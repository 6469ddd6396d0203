"""Which part of a clip to clone from: all of it without its outer silence, or 3-10 s between
pauses, scored. Blind to words.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .clip import Clip
from .spectrum import HOP_S, Spectrum, runs
from .word_edges import broken_edges

MIN_S, MAX_S, WANTED_S = 3.0, 10.0, 6.0
MAX_PROMPT_S = 30.0  # more than that no speech tokenizer was trained on
KEEP_S = 0.10  # of the pause, on both sides
PAUSE_FRAMES = 10


@dataclass(frozen=True)
class Window:
    start_s: float
    end_s: float
    score: int  # 0-100


def whole_window(clip: Clip, spectrum: Spectrum) -> Window | None:
    """The clip without the silence before its first and behind its last word; None where that is
    longer than MAX_PROMPT_S or holds no speech.
    """
    speech_frames = np.flatnonzero(spectrum.speech)
    if not len(speech_frames):
        return None
    left = max(0.0, float(speech_frames[0]) * HOP_S - KEEP_S)
    right = min(float(speech_frames[-1] + 1) * HOP_S + KEEP_S, clip.duration_s)
    if right - left > MAX_PROMPT_S:
        return None
    return Window(round(left, 2), round(right, 2), _score(clip, spectrum, left, right))


def best_windows(
    clip: Clip, spectrum: Spectrum, changes_s: tuple[float, ...] = (), most: int = 3
) -> tuple[Window, ...]:
    """Up to `most` windows, best first, 3-10 s each and apart where the clip allows; a shorter one
    where there is less speech.

    changes_s: where another speaker takes over, which no window goes across.
    """
    phrases = _phrases(spectrum)
    if not phrases:
        return ()
    windows, short = [], []
    for i, (start, _) in enumerate(phrases):
        for j in range(i, len(phrases)):
            left = max(start - _room(phrases, i), 0) * HOP_S
            right = min((phrases[j][1] + _room(phrases, j + 1)) * HOP_S, clip.duration_s)
            if right - left > MAX_S or any(left < s < right for s in changes_s):
                break
            if right - left >= MIN_S or len(phrases) == j - i + 1:
                windows.append((left, right))
            elif changes_s:
                short.append((left, right))
    scored = [
        Window(round(left, 2), round(right, 2), _score(clip, spectrum, left, right))
        for left, right in windows or short
    ]
    return _apart(sorted(scored or [_all_there_is(clip, spectrum, phrases)], key=_rank), most)


def _rank(w: Window) -> float:
    """Of two windows about as good, the one with more to learn from."""
    return -w.score - 2 * min(w.end_s - w.start_s, 8.0)


def _all_there_is(clip: Clip, spectrum: Spectrum, phrases) -> Window:
    left, right = (
        phrases[0][0] * HOP_S,
        min(phrases[-1][1] * HOP_S, phrases[0][0] * HOP_S + MAX_S, clip.duration_s),
    )
    return Window(round(left, 2), round(right, 2), _score(clip, spectrum, left, right))


def _phrases(spectrum: Spectrum) -> list[tuple[int, int]]:
    """[(start, end)] in frames, between pauses; one that is too long for a window is parted at its
    quietest places.
    """
    phrases: list[tuple[int, int]] = []
    for start, end, is_on in runs(spectrum.speech):
        if is_on and phrases and start - phrases[-1][1] < PAUSE_FRAMES:
            phrases[-1] = (phrases[-1][0], end)
        elif is_on:
            phrases.append((start, end))
    out = []
    for start, end in phrases:
        while (end - start) * HOP_S > MAX_S - 2 * KEEP_S:
            low, high = start + round(MIN_S / HOP_S), start + round((MAX_S - 1) / HOP_S)
            middle = low + int(np.argmin(spectrum.level_db[low:high]))
            out.append((start, middle))
            start = middle
        out.append((start, end))
    return out


def _room(phrases: list[tuple[int, int]], i: int) -> int:
    """Frames of pause to keep at the edge between phrase i - 1 and phrase i."""
    most = round(KEEP_S / HOP_S)
    return most if i in (0, len(phrases)) else min(most, (phrases[i][0] - phrases[i - 1][1]) // 2)


def _score(clip: Clip, spectrum: Spectrum, left: float, right: float) -> int:
    a, b = round(left / HOP_S), max(round(right / HOP_S), round(left / HOP_S) + 1)
    speech, level = spectrum.speech[a:b], spectrum.level_db[a:b]
    points = 100.0
    length = right - left
    points -= 9 * max(0.0, WANTED_S - 1 - length) + 2 * max(0.0, length - WANTED_S - 3)
    points -= 60 * max(0.0, 0.75 - float(speech.mean()))
    if speech.any():
        points -= 2.5 * max(0.0, 14 - float(np.mean(level[speech])) + _worst_floor_db(level))
        points -= 1.5 * max(0.0, float(np.std(level[speech])) - 8)
    sound = clip.samples[int(left * clip.rate) : int(right * clip.rate)]
    points -= 40 * min(1.0, 50 * clipped_ratio(sound))
    points -= 12 * sum(broken_edges(sound, clip.rate, float(np.percentile(spectrum.level_db, 97))))
    return int(np.clip(round(points), 0, 100))


def _worst_floor_db(level_db: np.ndarray) -> float:
    """The background where it is loudest: noise comes and goes within a clip.

    The quiet moments of each three seconds.
    """
    size = round(3.0 / HOP_S)
    starts = range(0, max(len(level_db) - size // 2, 1), size)
    return max(float(np.percentile(level_db[i : i + size], 4)) for i in starts)


def clipped_ratio(x: np.ndarray) -> float:
    """Share of samples in flat tops: three neighbours or more within half a per cent of the same
    extreme, several times over.
    """
    if len(x) < 3:
        return 0.0
    total, tops = 0, 0
    for extreme in (float(x.max()), float(x.min())):
        if abs(extreme) < 0.05:  # too quiet to have met the rails
            continue
        near = np.concatenate([[0], np.abs(x - extreme) <= 0.005 * abs(extreme), [0]]).astype(
            np.int8
        )
        step = np.diff(near)
        starts, ends = np.flatnonzero(step == 1), np.flatnonzero(step == -1)
        long = ends - starts >= 3
        starts, ends = starts[long], ends[long]
        # the round top of a low tone stays near its extreme as long, but its neighbours differ
        same = np.abs(np.diff(x)) <= 2e-5 if len(starts) else x
        for start, end in zip(starts.tolist(), ends.tolist()):
            if np.count_nonzero(same[start : end - 1]) >= (end - start) // 2:
                total, tops = total + end - start, tops + 1
    return total / len(x) if tops >= 3 else 0.0


def _apart(ranked: list[Window], most: int) -> tuple[Window, ...]:
    chosen: list[Window] = []
    for allowed in (0.05, 0.5):  # share of the shorter window that may lie inside another
        for w in ranked:
            if (
                len(chosen) < most
                and w not in chosen
                and all(_overlap(w, c) <= allowed for c in chosen)
            ):
                chosen.append(w)
    return tuple(chosen)


def _overlap(a: Window, b: Window) -> float:
    shared = min(a.end_s, b.end_s) - max(a.start_s, b.start_s)
    return max(0.0, shared) / max(min(a.end_s - a.start_s, b.end_s - b.start_s), 1e-6)
