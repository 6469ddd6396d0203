"""What to tell a creator about a clip: one sentence and one remedy for each warning, in both
languages. Measures nothing.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Advice:
    """code: the `w.*` string of the page; v: the measured value in it; k: a second one; tone:
    "warn" or "bad".
    """

    code: str
    tone: str
    v: float
    k: float | None = None

    @property
    def sentences(self) -> tuple[str, str]:
        """What is wrong, in English and in Chinese."""
        en, zh, _, _ = SENTENCES[self.code]
        values = {"v": _plain(self.v), "k": _plain(self.k)}
        return en.format(**values), zh.format(**values)

    def to_json(self) -> dict:
        en, zh = self.sentences
        _, _, fix, fix_zh = SENTENCES[self.code]
        out = {"code": self.code, "tone": self.tone, "v": self.v, "fix": fix, "fix_zh": fix_zh}
        out |= {"message": en, "message_zh": zh}
        return out | ({} if self.k is None else {"k": self.k})


def _plain(value: float | None) -> str:
    return "" if value is None else f"{value:g}"


def worst_first(warnings: list[Advice]) -> tuple[Advice, ...]:
    order = list(SENTENCES)
    return tuple(sorted(warnings, key=lambda w: (w.tone != "bad", order.index(w.code))))


# in the order of harm to a clone
SENTENCES = {
    "no_speech": (
        "No speech was found: this sounds like tones, music or noise.",
        "没有听到人说话：听起来像纯音、音乐或噪声。",
        "Other clip",
        "换音频",
    ),
    "too_short": (
        "Only {v} s of speech; at least 3 s are needed.",
        "只有 {v} 秒人声，至少需要 3 秒。",
        "Record more",
        "接着录",
    ),
    "clipped": (
        (
            "{v}% of samples are clipped and will sound broken. Record again, further from the"
            " microphone."
        ),
        "有 {v}% 的样本削波，声音会发破。请离麦克风远一点重录。",
        "Record again",
        "重录",
    ),
    "noisy": (
        "Noticeable background noise (signal to noise {v} dB).",
        "背景噪声偏大（信噪比 {v} dB）。",
        "Try denoise",
        "降噪试听",
    ),
    "speakers": (
        "More than one speaker was heard; the parts proposed hold one each.",
        "听到不止一个人说话；推荐的片段里各只有一个人。",
        "Pick one speaker",
        "选单人片段",
    ),
    "narrow": (
        "Only {v} kHz of bandwidth, like a phone call; the result will sound dull.",
        "带宽只有 {v} kHz，像电话录音，合成会发闷。",
        "Other clip",
        "换音频",
    ),
    "echo": (
        "Strong room echo, which the clone will copy.",
        "房间回声明显，克隆会带上回声。",
        "Recording tips",
        "看录音建议",
    ),
    "music": ("There is music behind the voice.", "有背景音乐。", "Try denoise", "降噪试听"),
    "cut_end": (
        "The last word is cut off and may leak into the result.",
        "结尾的字被切掉了，可能会把它读出来。",
        "Trim to sentence",
        "裁到整句",
    ),
    "cut_start": ("The first word is cut off.", "开头的字被切掉了。", "Skip it", "跳过残字"),
    "transcript": (
        (
            "The transcript probably says more than the part in use ({v} characters per second);"
            " words may be repeated or swallowed."
        ),
        "参考文本可能比所用片段说的多（每秒 {v} 字），容易重复或吞字。",
        "Check transcript",
        "核对文本",
    ),
    "transcript_less": (
        (
            "The transcript probably leaves out words of the part in use, or that part has long"
            " pauses ({v} characters per second); words of the clip may be heard."
        ),
        "参考文本可能漏写了所用片段里的话，或片段里停顿很长（每秒 {v} 字），可能会读出参考音频里"
        "的字。",
        "Check transcript",
        "核对文本",
    ),
    "first_track": (
        "This video has several sound tracks; the first one is used.",
        "这个视频有多条音轨，已使用第一条。",
        "Other clip",
        "换音频",
    ),
    "quiet": ("The clip is quiet ({v} LUFS).", "声音偏小（{v} LUFS）。", "Raise level", "提升响度"),
    "too_long": (
        (
            "{v} s long; at most 30 s can be used, so a part of {k} s was chosen. A transcript must"
            " be of exactly the part in use."
        ),
        "共 {v} 秒，最多可用 30 秒，先选了其中 {k} 秒。参考文本须与所用片段一字不差。",
        "Other part",
        "换一段",
    ),
}
