"""Reads a style instruction in Chinese or English into numbers, and says honestly what the built-in
voice cannot follow. Pure text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from ...messages import message

DIALECTS = ("sichuan", "yue", "dongbei", "tianjin", "henan", "shaanxi", "shandong")
EMOTIONS = ("happy", "sad", "angry", "calm", "surprise", "fear")
PACES = ("gentle", "whisper", "fast", "slow", "news", "story")
STYLES = DIALECTS + EMOTIONS + PACES


@dataclass(frozen=True)
class Style:
    """rate, widen: factors; pitch_st semitones; energy_db; tilt_db per octave; breath 0..1; jitter
    share of a period.
    """

    rate: float = 1.0
    pitch_st: float = 0.0
    widen: float = 1.0
    energy_db: float = 0.0
    tilt_db: float = 0.0
    breath: float = 0.0
    jitter: float = 0.006
    whisper: bool = False
    dialect: str = ""


#            rate  pitch widen energy tilt breath
_NUMBERS = {
    "happy": (1.08, 2.0, 1.35, 2.0, 1.0, 0.0), "sad": (0.85, -1.5, 0.6, -3.0, -1.5, 0.12),
    "angry": (1.12, 1.0, 1.4, 4.0, 2.0, 0.0),
    "calm": (0.92, -0.5, 0.75, -1.0, -0.5, 0.05), "gentle": (0.92, -0.5, 0.75, -1.0, -0.5, 0.05),
    "surprise": (1.05, 3.0, 1.5, 1.0, 0.5, 0.0), "fear": (1.15, 2.5, 0.9, -1.0, 0.0, 0.15),
    "whisper": (0.92, 0.0, 1.0, -8.0, 2.0, 0.0),
    "fast": (1.25, 0.0, 1.0, 0.0, 0.0, 0.0), "slow": (0.8, 0.0, 1.0, 0.0, 0.0, 0.0),
    "news": (1.06, 0.0, 0.85, 1.0, 0.5, 0.0),
    "story": (0.92, -0.3, 1.2, 0.0, 0.0, 0.03), "loud": (1.0, 0.0, 1.0, 6.0, 0.0, 0.0),
    "quiet": (1.0, 0.0, 1.0, -6.0, 0.0, 0.0),
    "high": (1.0, 3.0, 1.0, 0.0, 0.0, 0.0), "low": (1.0, -3.0, 1.0, 0.0, 0.0, 0.0),
}  # fmt: skip
_WORDS = {
    "sichuan": r"四川|成都|川话|川普|sichuan\w*", "yue": r"粤语|广东话|白话|粵語|廣東話|cantonese",
    "dongbei": r"东北|東北|dongbei|northeast\w*",
    "tianjin": r"天津|tianjin\w*", "henan": r"河南|中原话|henan\w*",
    "shaanxi": r"陕西|陝西|西安话|关中话|shaanxi\w*",
    "shandong": r"山东|山東|济南话|青岛话|shandong\w*",
    "happy": r"高兴|开心|快乐|欢快|喜悦|兴奋|愉快|happy|happily|joy\w*|cheer\w*|excited\w*|"
             r"delighted", "sad": r"悲伤|伤心|难过|忧伤|悲痛|沮丧|sad\w*|sorrow\w*|gloomy|"
                                  r"depress\w*",
    "angry": r"生气|愤怒|恼火|气愤|怒气|angr\w+|furious\w*|anger",
    "calm": r"平静|冷静|沉稳|淡定|从容|calm\w*|peaceful\w*|steady|steadily",
    "surprise": r"惊讶|吃惊|惊喜|惊奇|surpris\w+|astonish\w*|amaz\w+",
    "fear": r"害怕|恐惧|惊恐|恐慌|fear\w*|afraid|scared|terrified|frighten\w*",
    "gentle": r"温柔|轻柔|柔和|柔声|gentl\w+|soft(?:ly)?|tender\w*",
    "whisper": r"耳语|悄悄|悄声|低语|轻声细语|窃窃私语|气声|whisper\w*",
    "fast": r"快速|快一?点|快一些|语速快|加快|很快|较快|急促|fast\w*|quick\w*|rapid\w*|hurr\w+",
    "slow": r"慢慢|慢速|慢一?点|慢一些|语速慢|放慢|很慢|较慢|缓慢|slow\w*",
    "news": r"新闻|播报|播音|主播|news\w*|anchor|broadcast\w*",
    "story": r"讲故事|故事|story\w*|storytell\w*|narrat\w+|fairy tale",
    "loud": r"大声|响亮|洪亮|loud\w*|shout\w*", "quiet": r"小声|轻声|quiet\w*",
    "high": r"高音|音调高|尖声|高亢|high[- ]pitch\w*|higher (?:voice|pitch)",
    "low": r"低沉|低音|音调低|浑厚|low[- ]pitch\w*|deep(?:er)? voice|lower (?:voice|pitch)",
}  # fmt: skip
# A Latin word begins where no letter stands before it ("enjoy" is no joy); Chinese has no such
# place, so \b would not do.
_PATTERNS = {
    key: re.compile(re.sub(r"(^|\|)(?=[a-z])", r"\1(?<![a-z])", words), re.I)
    for key, words in _WORDS.items()
}
_NOT = re.compile(
    r"(?:不要|别|不用|不太|并不|不|not|don'?t|never|without)\s*(?:be\s+|speak\s+|too\s+|so\s+|太|"
    r"那么|这么)?$",
    re.I,
)
_WEAK = re.compile(
    r"(?:有点儿?|有一点儿?|稍微?|略微?|一丝|轻微|微微|a little|a"
    r" bit|slightly|somewhat)\s*(?:地|的)?\s*(?:more\s+)?$",
    re.I,
)
_STRONG = re.compile(
    r"(?:非常|特别|十分|极其?|很|超级?|最|very|really|extremely|so|super|quite)\s*(?:地|的)?\s*$",
    re.I,
)
_CANNOT = (
    (r"唱|歌声|哼|\bsing|\bsong|\bhum\b", message("note.cannot_sing")),
    (r"笑声|大笑|哈哈|笑着|咳嗽|叹气|叹息|哭|laugh|giggl|cough|sigh|sob|cry",
        message("note.cannot_laugh")),
    (r"上海|闽南|客家|湖南|长沙|武汉|湖北|云南|贵州|江西|宁夏|甘肃|台湾|杭州|苏州|温州|shanghai|"
     r"hokkien|minnan|hakka|hunan|wuhan|yunnan",
     message("note.unknown_dialect")),
    (r"口音|腔调|accent", message("note.no_accent")),
    (r"机器人|佩奇|卡通|动漫|老人|老爷爷|老奶奶|小孩|孩子|童声|机械音|robot|cartoon|child|old "
     r"(?:man|woman)|elderly|character|role",
     message("note.no_character")),
)  # fmt: skip


def _find_styles(instruction: str) -> list[tuple[str, float]]:
    """(key, intensity) in order of the table, without what is negated."""
    out = []
    for key, pattern in _PATTERNS.items():
        for match in pattern.finditer(instruction):
            before = instruction[max(0, match.start() - 16) : match.start()]
            if _NOT.search(before):
                continue
            intensity = 0.5 if _WEAK.search(before) else 1.4 if _STRONG.search(before) else 1.0
            if re.search(r"一点|一些", match.group()):
                intensity = min(intensity, 0.5) if key not in ("fast", "slow") else 0.7
            out.append((key, intensity))
            break
    return out


def read(instruction: str) -> Style:
    """Instruction -> Style. Several words add up, within what the engine can speak."""
    style = Style()
    for key, x in _find_styles(instruction):
        if key in DIALECTS:
            style = replace(style, dialect=key)
            continue
        rate, pitch, widen, energy, tilt, breath = _NUMBERS[key]
        style = replace(
            style, rate=style.rate * rate**x, pitch_st=style.pitch_st + pitch * x,
            widen=style.widen * widen**x, energy_db=style.energy_db + energy * x,
            tilt_db=style.tilt_db + tilt * x, breath=style.breath + breath * x,
            jitter=0.006 + 0.014 * x if key == "fear" else style.jitter,
            whisper=style.whisper or key == "whisper",
        )  # fmt: skip
    return replace(
        style, rate=min(max(style.rate, 0.6), 1.6), pitch_st=min(max(style.pitch_st, -6.0), 6.0),
        widen=min(max(style.widen, 0.4), 1.9),
        energy_db=min(max(style.energy_db, -12.0), 8.0), tilt_db=min(max(style.tilt_db, -3.0), 3.0),
        breath=min(style.breath, 0.5),
    )  # fmt: skip


def understood(instruction: str) -> tuple[list[str], list[tuple[str, str]]]:
    """(style keys it follows, sentences (en, zh) about what it cannot).

    Empty instruction: ([], []).
    """
    if not instruction.strip():
        return [], []
    keys = [key for key, _ in _find_styles(instruction)]
    sentences = [sentence for words, sentence in _CANNOT if re.search(words, instruction, re.I)]
    if any(k in DIALECTS and k != "yue" for k in keys):
        sentences.append(message("note.dialect_is_accent"))
    if not keys and not sentences:
        sentences.append(message("note.nothing_understood"))
    return keys, sentences
