"""What to tell a creator about a clip: one sentence and one remedy for each warning, in both languages. Measures nothing."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Advice:
    """code: the `w.*` string of the page; v: the measured value in it; k: a second one; tone: "warn" or "bad"."""

    code: str
    tone: str
    v: float
    k: float | None = None

    def to_json(self) -> dict:
        en, zh, fix, fix_zh = SENTENCES[self.code]
        values = {"v": _plain(self.v), "k": _plain(self.k)}
        out = {"code": self.code, "tone": self.tone, "v": self.v, "fix": fix, "fix_zh": fix_zh}
        out |= {"message": en.format(**values), "message_zh": zh.format(**values)}
        return out | ({} if self.k is None else {"k": self.k})


def _plain(value: float | None) -> str:
    return "" if value is None else f"{value:g}"


def worst_first(warnings: list[Advice]) -> tuple[Advice, ...]:
    order = list(SENTENCES)
    return tuple(sorted(warnings, key=lambda w: (w.tone != "bad", order.index(w.code))))


# in the order of harm to a clone
SENTENCES = {
    "too_short": (
        "Only {v} s of speech; at least 3 s are needed.",
        "只有 {v} 秒人声，至少需要 3 秒。",
        "Record more",
        "接着录",
    ),
    "clipped": (
        "{v}% of samples are clipped and will sound broken. Record again, further from the microphone.",
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
        "The transcript does not match the clip ({v} characters per second); words may drop or leak.",
        "参考文本与音频长度不符（每秒 {v} 字），容易漏字或把参考读出来。",
        "Check transcript",
        "核对文本",
    ),
    "quiet": ("The clip is quiet ({v} LUFS).", "声音偏小（{v} LUFS）。", "Raise level", "提升响度"),
    "too_long": (
        "{v} s long; the best {k} s were chosen for you.",
        "共 {v} 秒，已自动选出最佳的 {k} 秒。",
        "Other part",
        "换一段",
    ),
}
