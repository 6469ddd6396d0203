"""No text may fail on its way to speech: 100,000 generated texts, in every language, through all
that is pure Python.

The texts are seeded, so a run always sees the same ones. Each is made of parts that some rule looks
for (numbers in every shape, units, dates, words of many scripts, brackets, marks) with parts that
break such shapes apart (joiners, combining marks, other digits, controls, half characters).
"""

from __future__ import annotations

import json
import random
import unicodedata

import pytest

from webui.engine.espeak.mandarin import spell, stand_in
from webui.engine.espeak.text_plan import cannot_read, plan
from webui.text import (
    EVENTS,
    ClauseStream,
    measure,
    prepare,
    strip_tags,
    unknown_tags,
    weight,
    without_marks,
)
from webui.text.sentences import MAX_WEIGHT
from webui.types import LANGUAGES

N_TEXTS = 100_000
ASKED = ("auto", "", *LANGUAGES)

# "d" stands for a digit, "|" stands between shapes
SHAPES = (
    "d|dd|ddd|dddd|ddddd|dddddddddddddddd|d.dd|dd.d|d.d.d|ddd.d|2.dd|1d.d|20.d|.d|d;d|d.d.d.d|"
    "vd.d.d|d.d.d:dd:|d,ddd,ddd|d，ddd|adddb|"
    "d.dd a.m.|dd.dd pm|dd:dd|d:dd:dd|dd:dd p.m.|d a.m. - d p.m.|dddd-dd-dd|dddd/d/d|"
    "dd/dd/dddd|1d/3d|Jan d, dddd|d May dddd|Sept. dth|"
    "dddd年d月d日|dddd-dddd年|dd年代|ddd0s|'d0s|dddd-dddd|24/7|"
    "dst|dnd|No. d|#d|第d|d个|d/d|d d/d|d^d|d^-d|ded|d×d=d|d-d=|dx d|"
    "$d.dd|US$d|¥ddd万|€d~€d|£d.d bn|₹d|$dM|d%|d-d%|d‰|"
    "-d°C|d°F|d℃|d㎡|d km/h|dm^d|dGB|d kWh|d ft|d'd\"|"
    "+dd ddd dddd|ddd-dddd|1dd dddd dddd|(ddd) ddd-dddd|电话ddddddddddd|QQ d|"
    "比分d:d|http://a.d/d?d=d|a.d@b.com|www.d.cn|d.com"
).split("|")  # fmt: skip
DIGITS = ("٠١٢٣٤٥٦٧٨٩", "०१२३४५६७८९", "０１２３４５６７８９", "𝟎𝟏𝟐𝟑𝟒", "๑๒๓", "²³¹⁰⁴", "₀₁₂",
    "①②⑩⑳", "½¼⅓⅞↉", "ⅠⅣⅫ", "〇一二十百万亿壹", "㉈㊿", "⒈⒛⑴")  # fmt: skip
WORDS = """
hello at I A U.S. e.g. i.e. etc. vs Dr. Mr. w/ w/o C# AT&T it's o’clock Ph.D. GPU
你好 我们走吧 两 的 年 月 日 号 点 分 到 之后 元
ひらがな カタカナ の 東京 한국어 Привет größe ß é
Ελλάδα שלום مرحبا नमस्ते สวัสดี ﬁ ﷺ ㍿ ǅ İ ı ſ K
熊 穷 兒 𠀀 々 龘 क्षि 🇨🇳 😀 👩‍👩‍👧 1️⃣ ★ ℃ ™ №
[laughter] [breath] <strong> </strong> [laugh [zh] [uàng] [AH1] [[ ]] <|endofprompt|> <| |> <b>
""".split()  # fmt: skip
MARKS = [
    *".,:;!?-–—_/\\'\"“”‘’()（）[]【】《》<>{}|~^*+=×÷≤≈≠%‰°$€£¥₩฿#&@",
    *"。，、；：！？…·「」\n\t\r",
    "...", "……", "——", " - ", "''", "\r\n", "\u2028", "\u3000", "\xa0", "::", "//"]  # fmt: skip
BREAKERS = [
    # joiners and the like
    *"\u200d\u200c\u200b\ufeff\u2060\u200e\u202e\ufe0f\u20e3\u00ad\u2063\u034f\u115f\u3164",
    *"\u0301\u0308\u0338\u3099\u0e31\u093f\u064b",  # combining marks
    *"\ud800\udbff\udc00\udfff\x00\x01\x07\x1b\x7f\x85\x9f"
    "\ufffe\uffff\ue000\U000e0001\U000e0100\U0010ffff",
]


def digit(rng: random.Random) -> str:
    return rng.choice("0123456789" if rng.random() < 0.8 else rng.choice(DIGITS))


def part(rng: random.Random) -> str:
    kind = rng.random()
    if kind < 0.45:
        return "".join(digit(rng) if c == "d" else c for c in rng.choice(SHAPES))
    if kind < 0.62:
        return rng.choice(WORDS)
    if kind < 0.8:
        return rng.choice(MARKS)
    if kind < 0.9:
        return rng.choice(BREAKERS)
    return chr(rng.randrange(0x3400 if kind < 0.96 else 0x110000))


def generate(rng: random.Random) -> str:
    text = "".join(part(rng) + rng.choice(("", "", " ")) for _ in range(rng.randint(1, 5)))
    if rng.random() < 0.4:  # a shape broken apart: something goes, something comes
        at = rng.randrange(len(text) + 1)
        breaker = rng.choice((rng.choice(BREAKERS), rng.choice(MARKS), digit(rng)))
        text = text[:at] + breaker + text[at + rng.randint(0, 2) :]
    return text


def is_speakable(text: str) -> bool:
    """It surely holds something to say; there are more such texts."""
    return any((c.isascii() and c.isalnum()) or "\u4e00" <= c <= "\u9fff" for c in text)


def check(text: str, language: str) -> None:
    """Everything that Python does with a text before a voice speaks it, as the studio does it."""
    known_tags = EVENTS if len(text) % 2 else ()
    typed = strip_tags(text, known_tags)
    pieces = prepare(typed, language)
    utterances = []
    for piece in pieces:
        assert piece and piece == piece.strip() and weight(piece) <= MAX_WEIGHT + 3
        piece.encode()
        utterances += plan(piece, language or "auto")
    for utterance in utterances:
        assert "\0" not in utterance.text
        spell(utterance.text).encode(), stand_in(utterance.text).encode()
    assert (pieces and utterances) or not is_speakable(without_marks(typed)), (
        "nothing is said of it"
    )
    unknown_tags(text, known_tags), cannot_read(text, language), measure(text)


def clauses_of(text: str) -> list[str]:
    """As it is cut when it arrives a few characters at a time."""
    clauses, clause_list = ClauseStream(), []
    for at in range(0, len(text), 3):
        clause_list += clauses.push(text[at : at + 3])
    return [c.text for c in clause_list + clauses.flush()]


@pytest.mark.parametrize("language", ASKED)
def test_no_generated_text_fails_or_is_lost(language):
    rng = random.Random(f"any text {language}")
    for n in range(-(-N_TEXTS // len(ASKED))):
        text = generate(rng)
        try:
            check(text, language)
            if n % 4 == 0:
                for clause in clauses_of(text):
                    check(clause, language)
        except Exception as error:
            pytest.fail(f"{text!a} in {language!r}: {error!r}")


def test_reading_what_was_read_once_more_fails_nowhere_and_loses_nothing():
    rng = random.Random("read again")
    for _ in range(2000):
        first_pass = prepare(generate(rng))
        assert bool(prepare("\n".join(first_pass))) == bool(first_pass), first_pass


def test_the_generator_makes_what_it_should():
    rng = random.Random("kinds")
    texts = [generate(rng) for _ in range(20_000)]
    everything = "".join(texts)
    kinds = {unicodedata.category(c) for c in everything}
    assert {"Nd", "No", "Nl", "Cf", "Cs", "Cc", "Cn", "Co", "Mn", "Me", "Mc", "Sc", "So",
        "Lo"} <= kinds  # fmt: skip
    assert len(set(texts)) > 0.9 * len(texts)
    assert sum(json.loads(json.dumps(t)) == t for t in texts) > 0.99 * len(texts), (
        "JSON can bring them, save where two halves make a character"
    )


@pytest.mark.parametrize(
    "text",
    [
        "Meet me at 2.30 a.m. tomorrow.",
        "1.\u200d²1.1:30:",
        "12.5",
        "It was 19.8 today.",
        "2.50 年",
    ],
)
@pytest.mark.parametrize("language", ASKED)
def test_decimals_of_four_characters_are_no_years(text, language):
    check(text, language)
