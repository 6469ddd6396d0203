"""Mandarin as eSpeak reads it: the syllables it cannot read, and the tones of a text for a
dialect's accent. Pure text and numbers.

eSpeak 1.52 has no reading for jiong, qiong and xiong (熊, 穷, 胸...) and says "Chinese letter"
instead; they are given as phonemes.
"""

from __future__ import annotations

import re

import numpy as np

_IONG = {
    "S;j'ong55": "兄兇凶匈哅忷恟汹洶胷胸訩詾讻賯", "S;j'ong35": "熊雄", "S;j'ong51": "夐敻詗诇",
    "tS;j'ong55": "冂冋坰埛扃絅蘏蘔駉駫", "tS;j'ong214": "侰僒冏囧泂澃炯烱煚煛熲窘綗褧迥逈颎顈",
    "tS;hj'ong55": "芎", "tS;hj'ong35": "儝卭宆惸桏橩焪焭煢琼瓊睘瞏穷穹窮竆笻筇茕藑藭蛩赹跫邛銎",
}  # fmt: skip
_ALIKE = dict(zip("兒匔輁幜棾赨皛", "儿工巩景情同晓", strict=True))
_SPELLED = {ord(c): f" [[{phonemes}]] " for phonemes, letters in _IONG.items() for c in letters} | {
    ord(a): b for a, b in _ALIKE.items()
}
# for listing tones, where phonemes cannot be given: a letter with the same final and tone
_SAME_TONE = {"55": "庸", "35": "颙", "214": "永", "51": "用"}
_STANDING_IN = {
    ord(c): _SAME_TONE[re.sub(r"\D", "", phonemes)]
    for phonemes, letters in _IONG.items()
    for c in letters
}
_STANDING_IN |= {ord(a): b for a, b in _ALIKE.items()}

# tone contours in five levels (5 = top) for the four tones of Mandarin, then the light tone
_CONTOURS = {
    "sichuan": ("55", "21", "53", "213", "2"), "tianjin": ("21", "45", "213", "53", "2"),
    "shaanxi": ("21", "24", "53", "44", "2"),
    "shandong": ("213", "42", "55", "21", "3"), "henan": ("24", "42", "53", "312", "3"),
    "dongbei": ("33", "24", "213", "53", "2"),
}  # fmt: skip
_TONES = {"55": 0, "35": 1, "214": 2, "21": 2, "51": 3, "11": 4}
_TONE = re.compile("55|35|214|21|51|11")


def spell(text: str) -> str:
    """Han text for the Mandarin voice, with phonemes for what it cannot read."""
    return text.translate(_SPELLED)


def stand_in(text: str) -> str:
    """Text whose tones are those of `text`, all of it readable."""
    return text.translate(_STANDING_IN)


def contours(
    spelled: str, phonemes: tuple[tuple[str, int], ...], dialect: str
) -> list[tuple[int, int, np.ndarray]]:
    """spelled: eSpeak's own phoneme text; phonemes: (name, sample) as they were spoken -> [(first
    sample, end sample, levels)] per syllable.
    """
    out = []
    at = 0
    names = [(name.lstrip("',%=_|:"), sample) for name, sample in phonemes]
    for i, (name, start) in enumerate(names):
        if not name or name.startswith("("):
            continue
        index = spelled.find(name, at, at + 14)
        if index < 0:
            continue
        at = index + len(name)
        tone = _TONE.match(spelled, at)
        if tone and i + 1 < len(names):
            coda = i + 2 < len(names) and names[i + 1][0] in ("n", "N")
            end = names[i + 2 if coda else i + 1][1]
            levels = _CONTOURS[dialect][_TONES[tone.group()]]
            out.append((start, end, np.array([int(c) for c in levels], np.float32)))
    return out


def recolour(
    f0: np.ndarray,
    times: np.ndarray,
    syllables: list[tuple[int, int, np.ndarray]],
    log_middle: float,
    log_sd: float,
) -> np.ndarray:
    """f0 (m,) Hz, 0 = unvoiced, at `times` (source samples) -> the same with each syllable's tone
    replaced.
    """
    log = np.where(f0 > 0, np.log(np.maximum(f0, 1.0)), np.nan)
    for start, end, levels in syllables:
        inside = (times >= start) & (times < end)
        if inside.any():
            place = (times[inside] - start) / max(end - start, 1) * (len(levels) - 1)
            log[inside] = log_middle + 0.8 * log_sd * (
                np.interp(place, np.arange(len(levels)), levels) - 3.0
            )
    voiced = np.flatnonzero(f0 > 0)
    if not len(voiced):
        return f0
    filled = np.interp(np.arange(len(f0)), voiced, log[voiced])
    smooth = np.convolve(np.pad(filled, 2, "edge"), np.full(5, 0.2), "valid")
    return np.where(f0 > 0, np.exp(smooth), 0.0).astype(np.float32)
