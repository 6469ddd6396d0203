"""Reads numbers, dates, times, money and units out as Korean.

One sentence in, one out; knows no other language.
"""

from __future__ import annotations

import re

from .cldr_numbers import LONGEST, NUMBER, spelled
from .rewrite_rules import Rule, apply_rules

_DIGITS = "공일이삼사오육칠팔구"  # one by one, as on the telephone; after the point zero is 영
_MONEY = {"₩": "원", "$": "달러", "€": "유로", "£": "파운드", "¥": "엔"}
_UNITS = {
    "km/h": "킬로미터", "km": "킬로미터", "cm": "센티미터", "mm": "밀리미터", "m": "미터",
    "kg": "킬로그램", "mg": "밀리그램", "g": "그램", "ml": "밀리리터",
    "mL": "밀리리터", "L": "리터", "m^2": "제곱미터", "km^2": "제곱킬로미터", "m^3": "세제곱미터",
    "GB": "기가바이트", "MB": "메가바이트", "TB": "테라바이트",
    "Hz": "헤르츠", "kHz": "킬로헤르츠", "MHz": "메가헤르츠", "GHz": "기가헤르츠", "W": "와트",
    "kW": "킬로와트", "V": "볼트", "ms": "밀리초",
}  # fmt: skip
_UNIT = "|".join(map(re.escape, sorted(_UNITS, key=len, reverse=True)))
# Counted with the native numbers: 세 명, not 삼 명.
_COUNTED = (
    "시간|개(?!월)|명|살|마리|권|잔|병|달|사람|가지|벌|켤레|그루|송이|번째|군데|채|자루|쌍|곳|끼"
)


def _one_by_one(digits: str) -> str:
    return "".join(_DIGITS[int(d)] for d in digits if d.isdigit())


def _number(text: str) -> str:
    whole, _, decimals = text.partition(".")
    if len(whole) > LONGEST or (len(whole) > 1 and whole[0] == "0"):
        return _one_by_one(text)
    words = spelled(whole, "ko", "cardinal-sinokorean")
    return words + ("점" + _one_by_one(decimals).replace("공", "영") if decimals else "")


def _native(digits: str) -> str:
    return spelled(digits, "ko", "cardinal-native-attributive") if digits != "0" else "영"


def _month(digits: str) -> str:
    return {6: "유", 10: "시"}.get(int(digits)) or _number(str(int(digits)))


def _date(m: re.Match[str]) -> str:
    return f"{_number(m[1])}년 {_month(m[3])}월 {_number(str(int(m[4])))}일"


def _hour(digits: str) -> str:
    hour = str(int(digits))
    return _native(hour) if 1 <= int(hour) <= 12 else _number(hour)


def _time(m: re.Match[str]) -> str:
    words = f"{_hour(m[1])} 시"
    if int(m[2]) or m[3]:
        words += f" {_number(str(int(m[2])))} 분"
    return words + (f" {_number(str(int(m[3])))} 초" if m[3] else "")


def _degrees(m: re.Match[str]) -> str:
    scale = {"C": "섭씨 ", "F": "화씨 ", "": ""}[m[3]]
    return f"{scale}{'영하 ' if m[1] else ''}{_number(m[2])}도"


def _measure(m: re.Match[str]) -> str:
    head = ("시속 " if m[3] == "km/h" else "") + ("마이너스 " if m[1] else "")
    return f"{head}{_number(m[2])} {_UNITS[m[3]]}"


_SIGN = r"(?<![\w)\]])-"
_RULES: tuple[Rule, ...] = (
    (re.compile(rf"\d{{{LONGEST + 1},}}"), lambda m: _one_by_one(m[0]), ""),
    (re.compile(r"(?<![\d,.])\d{1,3}(?:,\d{3}){1,3}(?!\d|,\d)"), lambda m: m[0].replace(",", ""),
        ","),
    (re.compile(r"(?<![\d-])(?:0\d{1,2}-\d{3,4}|1[568]\d\d)-\d{4}(?![\d-])"),
        lambda m: " ".join(map(_one_by_one, m[0].split("-"))), "-"),
    (re.compile(r"(?<![\d.-])([12]\d{3})([-/.]) ?(0?[1-9]|1[0-2])\2 ?(0?[1-9]|[12]\d|"
                r"3[01])(?:\.(?!\d)|(?![\d.-]))"), _date, "-/."),
    (re.compile(r"(?<!\d)(0?[1-9]|1[0-2])(?=\s?월)"), lambda m: _month(m[1]), "월"),
    (re.compile(r"(?<![\d:.])([01]?\d|2[0-4]):([0-5]\d)(?::([0-5]\d))?(?![\d:])"), _time, ":"),
    (re.compile(r"(?<![\d.:])([01]?\d|2[0-4])(?=\s?시(?!간))"), lambda m: _hour(m[1]), "시"),
    (re.compile(rf"([₩$€£¥])\s?({NUMBER})\s?([천백]?[만억조])?"),
        lambda m: f"{_number(m[2])}{m[3] or ''} {_MONEY[m[1]]}", "₩$€£¥"),
    (re.compile(rf"({_SIGN})?({NUMBER})\s?%"),
        lambda m: f"{'마이너스 ' if m[1] else ''}{_number(m[2])} 퍼센트", "%"),
    (re.compile(rf"({_SIGN})?({NUMBER})\s?°\s?([CF]?)(?![A-Za-z])"), _degrees, "°"),
    (re.compile(rf"({_SIGN})?(?<![A-Za-z\d.])({NUMBER})\s?({_UNIT})(?![A-Za-z\d/^])"), _measure,
        ""),
    (re.compile(r"(?<![\d/.])([1-9]\d{0,3})/([1-9]\d{0,3})(?![\d/])"),
        lambda m: f"{_number(m[2])}분의 {_number(m[1])}", "/"),
    (re.compile(rf"(?<![\d.])(?:(\d{{1,2}})\s?[-~]\s?)?(\d{{1,2}})(?=\s?(?:{_COUNTED}))"),
        lambda m: (f"{_native(m[1])}에서 " if m[1] else "") + _native(m[2]), ""),
    (re.compile(rf"(?<![\w.-])({NUMBER})\s?[-~]\s?(?={NUMBER}(?![\d-]))"),
        lambda m: f"{_number(m[1])}에서 ", "-~"),
    (re.compile(rf"{_SIGN}(?=\d)"), lambda m: "마이너스 ", "-"),
    (re.compile(NUMBER), lambda m: _number(m[0]), ""),
)  # fmt: skip


def read_korean(sentence: str) -> str:
    """`sentence` with its numbers as words. Linear in its length."""
    return apply_rules(_RULES, sentence)
