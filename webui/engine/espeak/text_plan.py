"""Which voice says which letters: cuts a segment by script into utterances eSpeak can speak.

Pure text; blind to sound.

Han is read by `cmn` (or `yue`), which also reads Latin inside it; other scripts by their own voice.
The Japanese voice reads kana only: Han beside kana is turned into kana first where a converter is
given, else the Chinese voice reads it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass

from ...messages import message

PAUSE_SENTENCE_S, PAUSE_COMMA_S, PAUSE_SWITCH_S = 0.24, 0.12, 0.03
MAX_WIDE, MAX_NARROW = 36, 110  # letters in one utterance: bounds the work before the next block
LATIN_VOICES = ("en", "de", "es", "fr", "it")
_END = re.compile(
    r"(?<=[。！？!?；;…\n])(?=[^。！？!?；;…”’」』）)])|(?<=[。！？!?…][”’」』）)])(?=.)|(?<=[.])\s+(?=[^a-zа-я])"
)
_COMMA = re.compile(r"(?<=[，、：:])(?=.)|(?<=,)\s+")
_SPOKEN_SYMBOLS = "°℃℉№™®©"


@dataclass(frozen=True)
class Utterance:
    """One call to eSpeak. pause_s is the silence after it at normal speed."""

    tag: str
    text: str
    pause_s: float


def clean(text: str) -> str:
    """Without emoji and control characters (eSpeak would read their names), and with nothing eSpeak
    takes for a command.
    """
    text = unicodedata.normalize("NFC", text)
    chars = []
    for c in text:
        category = unicodedata.category(c)
        if c in "\n\t\r\u3000" or category == "Zs":
            chars.append("\n" if c == "\n" else " ")
        elif c in _SPOKEN_SYMBOLS or (
            category[0] in "LNMPS"
            and category not in ("So", "Sk")
            and c not in "\ufe0f\ufe0e\u20e3"
        ):
            chars.append(c)
        elif category == "So":
            chars.append(" ")
    return re.sub(r"\[(?=\[)", "[ ", "".join(chars))


def speakable(text: str) -> bool:
    return any(unicodedata.category(c)[0] in "LN" for c in text)


def script_of(c: str) -> str:
    """ "han", "kana", "hangul", "cyrillic", "latin", or "" for what belongs to its neighbours."""
    n = ord(c)
    if 0x3040 <= n <= 0x30FF or 0x31F0 <= n <= 0x31FF or 0xFF66 <= n <= 0xFF9D:
        return "kana"
    if 0x3400 <= n <= 0x9FFF or 0xF900 <= n <= 0xFAFF or 0x20000 <= n <= 0x323AF or c == "々":
        return "han"
    if 0xAC00 <= n <= 0xD7AF or 0x1100 <= n <= 0x11FF or 0x3130 <= n <= 0x318F:
        return "hangul"
    if 0x0400 <= n <= 0x052F:
        return "cyrillic"
    if unicodedata.category(c)[0] == "L":
        return "latin"
    return ""


def runs(text: str, language: str) -> list[tuple[str, str]]:
    """[(voice tag, text)] in order.

    A language picked by the user decides where a script is shared by several.
    """
    scripts = [script_of(c) for c in text]
    present = set(scripts)
    han = "yue" if language == "yue" else "zh"
    latin = language if language in LATIN_VOICES else "en"
    voice = {"han": han, "kana": "ja", "hangul": "ko", "cyrillic": "ru", "latin": latin}
    if "han" in present and latin == "en" and language != "en" and not is_japanese(text, language):
        voice["latin"] = han
    default = {"zh": "zh", "yue": "yue", "ja": "ja", "ko": "ko", "ru": "ru"}.get(language, latin)
    out: list[tuple[str, str]] = []
    tag = next((voice[s] for s in scripts if s), default)
    start = 0
    for i, s in enumerate(scripts):
        if s and voice[s] != tag:
            out.append((tag, text[start:i]))
            tag, start = voice[s], i
    out.append((tag, text[start:]))
    return out


def _shorter(piece: str, limit: int) -> list[tuple[str, float]]:
    """Pieces of at most `limit` letters with the pause after each: at commas first, else at blanks,
    else anywhere.
    """
    if len(piece) <= limit:
        return [(piece, PAUSE_SENTENCE_S)]
    out: list[tuple[str, float]] = []
    buffer = ""
    for part in _COMMA.split(piece):
        if buffer and len(buffer) + len(part) > limit:
            out.append((buffer, PAUSE_COMMA_S))
            buffer = ""
        buffer += part if not buffer or buffer[-1] in "，、：" else " " + part
        while len(buffer) > limit:
            cut = buffer.rfind(" ", limit // 2, limit)
            cut = cut if cut > 0 else limit
            out.append((buffer[:cut], 0.0))
            buffer = buffer[cut:].lstrip()
    if buffer:
        out.append((buffer, PAUSE_SENTENCE_S))
    return out


def is_japanese(text: str, language: str) -> bool:
    return language == "ja" or (
        language not in ("zh", "yue") and any(script_of(c) == "kana" for c in text)
    )


def cannot_read(text: str, language: str = "auto", to_kana: bool = False) -> list[tuple[str, str]]:
    """Sentences (en, zh) about what will not be read as it should be."""
    if not to_kana and is_japanese(text, language) and any(script_of(c) == "han" for c in text):
        return [message("note.kanji_builtin")]
    return []


def plan(
    segment: str, language: str = "auto", to_kana: Callable[[str], str] | None = None
) -> list[Utterance]:
    """What to say, in order; empty when the segment holds nothing that can be said. to_kana:
    Japanese text -> kana, where installed.
    """
    out: list[Utterance] = []
    for sentence in _END.split(clean(segment)):
        if not sentence or not speakable(sentence):
            continue
        if to_kana and is_japanese(sentence, language):
            sentence = to_kana(sentence)
        voiced = [(tag, text) for tag, text in runs(sentence, language) if speakable(text)]
        for i, (tag, text) in enumerate(voiced):
            for piece, pause in _shorter(
                text.strip(), MAX_NARROW if tag in (*LATIN_VOICES, "ru") else MAX_WIDE
            ):
                if not speakable(piece):
                    continue
                switching = pause == PAUSE_SENTENCE_S and i + 1 < len(voiced)
                out.append(Utterance(tag, piece, PAUSE_SWITCH_S if switching else pause))
    return out
