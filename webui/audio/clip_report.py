"""The health card of a reference clip: figures, the best windows, what is wrong and what helps.

Changes nothing, decodes nothing.
"""

from __future__ import annotations

import unicodedata
from dataclasses import asdict, dataclass

import numpy as np

from ..errors import BadInput
from .clip import Clip
from .loudness import SILENT_LUFS, loudness_of
from .music_detector import SHARE as MUSIC_SHARE
from .music_detector import music_share
from .reference_windows import MIN_S, Window, best_windows, clipped_ratio, whole_window
from .report_messages import Advice, worst_first
from .speaker_changes import speaker_changes
from .spectrum import HOP_S, Spectrum, analyse
from .speech_detector import lacks_speech
from .wav import peaks
from .word_edges import broken_edges

MIN_CLIP_S = 0.5  # below this nothing can be measured
MIN_VOICED_S = 0.25
STRIP_BARS = 240
SNR_WARN_DB, SNR_BAD_DB, QUIET_LUFS, NARROW_HZ = 20.0, 12.0, -30.0, 5000
CLIPPED_WARN, CLIPPED_BAD = 0.0005, 0.005
ECHO_DB_S, ECHO_MIN_SNR_DB = (
    110.0,
    8.0,
)  # a room of 0.7 s or more for 60 dB lets nothing fall faster; nor does strong noise


@dataclass(frozen=True)
class ClipReport:
    """What the studio says about a clip. peaks: 240 values 0..1 over the whole clip; sample_rate_hz
    and channels are the file's own. whole: the clip without its outer silence, the part that is
    used unless another is chosen; None where that is too long. Then, and where more than one
    speaker is heard, the best of `windows` is used. speaker_changes_s: where another speaker takes
    over; no window goes across.
    """

    duration_s: float
    sample_rate_hz: int
    channels: int
    speech_ratio: float
    snr_db: float
    clipping_ratio: float
    loudness_lufs: float
    bandwidth_hz: int
    windows: tuple[Window, ...]
    warnings: tuple[Advice, ...]
    peaks: tuple[float, ...]
    whole: Window | None = None
    speaker_changes_s: tuple[float, ...] = ()

    @property
    def uses_part(self) -> bool:
        """Not all of the clip is used unless another part is chosen."""
        return self.whole is None or bool(self.speaker_changes_s and self.windows)

    @property
    def used(self) -> Window:
        """The part that is used unless another is chosen."""
        return self.windows[0] if self.uses_part else self.whole

    def to_json(self) -> dict:
        plain = {
            k: getattr(self, k)
            for k in self.__dataclass_fields__
            if k not in ("windows", "warnings", "peaks", "whole", "speaker_changes_s")
        }
        return plain | {
            "windows": [asdict(w) for w in self.windows],
            "warnings": [w.to_json() for w in self.warnings],
            "peaks": list(self.peaks),
            "speaker_changes_s": list(self.speaker_changes_s),
            "whole": asdict(self.whole) if self.whole is not None else None,
        }


def inspect(clip: Clip) -> ClipReport:
    """Measure `clip`.

    Raises BadInput: "silent" when there is no voice in it, "too_short" below half a second.
    """
    if clip.duration_s < MIN_CLIP_S:
        v = round(clip.duration_s, 1)
        raise BadInput("too_short.clip", v=v, param="audio_sample")
    spectrum = analyse(clip)
    lufs = loudness_of(spectrum.power, spectrum.hz)
    if lufs <= SILENT_LUFS or not _has_voice(spectrum):
        raise BadInput("silent.no_voice", param="audio_sample")
    changes = speaker_changes(spectrum)
    windows = best_windows(clip, spectrum, changes)
    report = ClipReport(
        duration_s=round(clip.duration_s, 2),
        sample_rate_hz=clip.source_hz or clip.rate,
        channels=clip.channels,
        speech_ratio=round(float(spectrum.speech.mean()), 3),
        snr_db=round(_snr_db(spectrum), 1),
        clipping_ratio=round(clipped_ratio(clip.samples), 5),
        loudness_lufs=round(lufs, 1),
        bandwidth_hz=_bandwidth_hz(spectrum),
        windows=windows,
        warnings=(),
        peaks=tuple(peaks(clip.samples, STRIP_BARS)),
        whole=whole_window(clip, spectrum),
        speaker_changes_s=changes,
    )
    return ClipReport(
        **{**_fields(report), "warnings": worst_first(_warnings(clip, spectrum, report))}
    )


def measure(clip: Clip) -> dict[str, float]:
    """Return the figures of a part of a clip that its cures move, to be compared before and
    after.
    """
    spectrum = analyse(clip)
    return {
        "snr_db": round(_snr_db(spectrum), 1),
        "loudness_lufs": round(loudness_of(spectrum.power, spectrum.hz), 1),
    }


def _fields(report: ClipReport) -> dict:
    return {k: getattr(report, k) for k in report.__dataclass_fields__}


def _has_voice(spectrum: Spectrum) -> bool:
    """Periodic for long enough, and going up and down as syllables do: hum and test tones are
    periodic too, noise is neither.
    """
    low, high = np.percentile(spectrum.level_db, [5, 97])
    loud = spectrum.level_db > high - 25
    return high - low > 3.0 and int(((spectrum.voiced > 0.45) & loud).sum()) * HOP_S >= MIN_VOICED_S


def _snr_db(spectrum: Spectrum) -> float:
    """Speech without its noise over the noise, both as mean power; held to -10..80."""
    noise = float(spectrum.noise.sum())
    speech = (
        float(spectrum.power[spectrum.speech].sum(axis=1).mean()) if spectrum.speech.any() else 0.0
    )
    return float(np.clip(10 * np.log10(max(speech - noise, 1e-12) / max(noise, 1e-12)), -10, 80))


def _bandwidth_hz(spectrum: Spectrum) -> int:
    """Where the loudest moments of each bin last come within 55 dB of the loudest bin.

    Noise counts: it masks, it does not muffle.
    """
    rows = spectrum.power[spectrum.speech] if spectrum.speech.any() else spectrum.power
    rows = rows[:: 1 + len(rows) // 1500]  # enough to know the tops, at a quarter of the cost
    tops = np.percentile(rows, 97, axis=0)
    wide = max(1, int(np.searchsorted(spectrum.hz, 150)))
    level = 10 * np.log10(np.convolve(tops, np.ones(wide) / wide, "same") + 1e-14)
    return int(spectrum.hz[np.flatnonzero(level > level.max() - 55)[-1]])


def _warnings(clip: Clip, spectrum: Spectrum, r: ClipReport) -> list[Advice]:
    music = music_share(clip)
    if lacks_speech(spectrum, music):
        return [
            Advice("no_speech", "bad", 0)
        ]  # nothing else matters, and other figures are of no voice
    out = []
    spoken_s = float(spectrum.speech.sum()) * HOP_S
    if spoken_s < MIN_S - 0.25:  # the mask leaves out soft beginnings and ends
        out.append(Advice("too_short", "bad" if spoken_s < 1.5 else "warn", round(spoken_s, 1)))
    if r.whole is None and r.windows:
        used_s = r.windows[0].end_s - r.windows[0].start_s
        out.append(Advice("too_long", "warn", round(r.duration_s, 1), round(used_s, 1)))
    if r.speaker_changes_s:
        out.append(Advice("speakers", "warn", len(r.speaker_changes_s)))
    echoes = r.snr_db > ECHO_MIN_SNR_DB and _steepest_fall_db_s(spectrum) < ECHO_DB_S
    if (
        r.snr_db < SNR_WARN_DB
    ):  # the tail of a room fills the pauses too, and is then no reason to refuse
        out.append(
            Advice(
                "noisy", "bad" if r.snr_db < SNR_BAD_DB and not echoes else "warn", round(r.snr_db)
            )
        )
    if r.clipping_ratio > CLIPPED_WARN:
        out.append(
            Advice(
                "clipped",
                "bad" if r.clipping_ratio > CLIPPED_BAD else "warn",
                round(100 * r.clipping_ratio, 2),
            )
        )
    if r.loudness_lufs < QUIET_LUFS:
        out.append(Advice("quiet", "warn", round(r.loudness_lufs)))
    if r.bandwidth_hz < NARROW_HZ:
        out.append(
            Advice(
                "narrow",
                "bad" if r.bandwidth_hz < 3000 else "warn",
                round(r.bandwidth_hz / 1000, 1),
            )
        )
    if echoes:
        out.append(Advice("echo", "warn", 0))
    if clip.is_first_track:
        out.append(Advice("first_track", "warn", 0))
    if music > MUSIC_SHARE:
        out.append(Advice("music", "warn", 0))
    broken = broken_edges(clip.samples, clip.rate, float(np.percentile(spectrum.level_db, 97)))
    out += [
        Advice(code, "warn", 0)
        for code, is_broken in zip(("cut_start", "cut_end"), broken)
        if is_broken
    ]
    return out


def _steepest_fall_db_s(spectrum: Spectrum) -> float:
    """How fast the steepest twentieth of all falls over 80 ms is: closures in speech are abrupt
    unless the room fills them.
    """
    band = (spectrum.hz > 400) & (spectrum.hz < 4000)
    level = np.convolve(
        10 * np.log10(spectrum.power[:, band].sum(axis=1) + 1e-10), np.ones(3) / 3, "same"
    )
    falls = (level[:-8] - level[8:])[level[:-8] > np.percentile(level, 95) - 20]
    return float(np.percentile(falls, 95)) / 0.08 if len(falls) > 20 else np.inf


def check_transcript(report: ClipReport, window_s: float, transcript: str) -> Advice | None:
    """A warning when nobody speaks that many ("transcript"), or that few ("transcript_less"),
    characters in `window_s` seconds. Latin words count by the letter.
    """
    n_letters = sum(unicodedata.category(c)[0] in "LN" for c in transcript)
    if not n_letters:
        return None
    whole = report.whole
    outer = report.duration_s / (whole.end_s - whole.start_s) if whole is not None else 1.0
    per_s = n_letters / max(window_s * min(1.0, report.speech_ratio * outer + 0.1), 0.1)
    han = (
        sum("\u3040" <= c <= "\u9fff" or "\uac00" <= c <= "\ud7a3" for c in transcript) / n_letters
    )
    # 1.5-9 characters a second in Chinese, 5-26 letters in alphabets; texts that mix lie between
    low, high = 5 - 3.5 * han, 26 - 17 * han
    if low <= per_s <= high:
        return None
    return Advice("transcript" if per_s > high else "transcript_less", "warn", round(per_s, 1))
