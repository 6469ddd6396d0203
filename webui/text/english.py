"""Reads numbers, dates, money, units, abbreviations and symbols out as English words. One sentence in, one out."""

from __future__ import annotations

import re
from collections.abc import Callable

from .addresses import ADDRESSES, spell
from .numerals import MAX_DIGITS, en_cardinal, en_digits, en_number, en_ordinal, en_year

Rule = tuple[re.Pattern[str], Callable[[re.Match[str]], str]]

_N = rf"\d{{1,{MAX_DIGITS}}}(?:\.\d{{1,20}})?"
_START = r"(?<![\d.])"
_MONTHS = (
    "January February March April May June July August September October November December".split()
)
_MONTH = "|".join([*_MONTHS, *(rf"{m[:3]}\.?" for m in _MONTHS if m != "May"), r"Sept\.?"])
_MONEY = {
    "$": ("dollar", "cent"),
    "US$": ("dollar", "cent"),
    "€": ("euro", "cent"),
    "£": ("pound", "penny"),
    "¥": ("yen", ""),
    "₩": ("won", ""),
    "₹": ("rupee", "paisa"),
}
_SCALES = {
    "k": "thousand",
    "m": "million",
    "mn": "million",
    "b": "billion",
    "bn": "billion",
    "t": "trillion",
}
_UNITS = {
    "km/h": "kilometer per hour", "mph": "mile per hour", "mi": "mile", "yd": "yard", "m/s": "meter per second", "km^2": "square kilometer", "m^2": "square meter", "m^3": "cubic meter",
    "km": "kilometer", "cm": "centimeter", "mm": "millimeter", "μm": "micrometer", "nm": "nanometer", "kg": "kilogram", "mg": "milligram",
    "ml": "milliliter", "mL": "milliliter", "lbs": "pound", "lb": "pound", "oz": "ounce", "ft": "foot", "kWh": "kilowatt hour", "kW": "kilowatt",
    "kHz": "kilohertz", "MHz": "megahertz", "GHz": "gigahertz", "Hz": "hertz", "dB": "decibel", "KB": "kilobyte", "kB": "kilobyte", "MB": "megabyte",
    "GB": "gigabyte", "TB": "terabyte", "ms": "millisecond", "min": "minute", "hrs": "hour", "hr": "hour", "m": "meter", "g": "gram", "L": "liter",
    "h": "hour", "s": "second", "W": "watt", "V": "volt",
}  # fmt: skip
_UNIT = "|".join(map(re.escape, sorted(_UNITS, key=len, reverse=True)))
_TITLES = {
    "Mr": "Mister",
    "Mrs": "Missus",
    "Dr": "Doctor",
    "Prof": "Professor",
    "St": "Saint",
    "Gen": "General",
    "Sgt": "Sergeant",
    "Capt": "Captain",
    "Lt": "Lieutenant",
    "Mt": "Mount",
}
_WORDS = {
    "e.g.": "for example",
    "i.e.": "that is",
    "etc.": "et cetera",
    "vs.": "versus",
    "vs": "versus",
    "approx.": "approximately",
    "w/o": "without",
    "w/": "with ",
    "Jr.": "Junior",
    "Sr.": "Senior",
    "pp.": "pages",
}
_WEB = {
    ".": " dot ",
    "/": " slash ",
    "@": " at ",
    ":": " colon ",
    "-": " dash ",
    "_": " underscore ",
    "?": " question mark ",
    "=": " equals ",
    "&": " and ",
    "#": " hash ",
    "%": " percent ",
    "+": " plus ",
    "~": " tilde ",
}
_OPERATORS = {
    "+": "plus",
    "×": "times",
    "*": "times",
    "÷": "divided by",
    "=": "equals",
    "<": "less than",
    ">": "greater than",
    "≤": "at most",
    "≥": "at least",
    "≈": "about",
    "≠": "is not",
}
_LEFT = {
    "&": " and ",
    "@": " at ",
    "%": " percent ",
    "°": " degrees ",
    "#": " ",
    "*": " ",
    "_": " ",
    "^": " ",
    "~": " ",
    "|": " ",
    "\\": " ",
    "=": " equals ",
    "+": " plus ",
    "<": " ",
    ">": " ",
}


def _plural(number: str, name: str) -> str:
    if number in ("1", "-1"):
        return name
    head, _, tail = name.partition(" per ")
    head = {
        "foot": "feet",
        "penny": "pence",
        "hertz": "hertz",
        "kilohertz": "kilohertz",
        "megahertz": "megahertz",
        "gigahertz": "gigahertz",
        "yen": "yen",
        "won": "won",
        "paisa": "paise",
    }.get(head, head + "s")
    return head + (f" per {tail}" if tail else "")


def _web(m: re.Match[str]) -> str:
    return re.sub(" +", " ", spell(m[0], _WEB, lambda digit: f" {en_digits(digit)} ")).strip()


def _day(month: str, day: str, year: str | None) -> str:
    said = f"{month} {en_ordinal(str(int(day)))}"
    return f"{said} {en_year(year)}" if year else said


def _slashed(m: re.Match[str]) -> str:
    """Month first, as the voice is American, unless only the day can stand there."""
    month, day = int(m[1]), int(m[2])
    if month > 12 >= day:
        month, day = day, month
    if not (1 <= month <= 12 and 1 <= day <= 31):
        return m[0]
    return _day(_MONTHS[month - 1], str(day), m[3])


def _month_name(text: str) -> str:
    return next(m for m in _MONTHS if m.startswith(text[:3]))


def _time(m: re.Match[str]) -> str:
    hour, minute, half = int(m[1]), int(m[2]), (m[4] or "").lower().replace(".", "")
    said = en_cardinal(str(hour))
    if minute:
        said += (" oh " if minute < 10 else " ") + en_cardinal(str(minute))
    elif not half and not m[3]:
        said += " o'clock" if hour <= 12 else " hundred"
    if m[3]:
        said += f" and {_count(str(int(m[3])), 'second')}"
    return said + (f" {half[0].upper()} M" if half else "")


def _count(number: str, name: str) -> str:
    return f"{en_number(number)} {_plural(number, name)}"


def _money(m: re.Match[str]) -> str:
    (name, cents), amount, scale = _MONEY[m[1]], m[2], m[3]
    if scale:
        return (
            f"{en_number(amount)} {_SCALES.get(scale.lower(), scale.lower())} {_plural('2', name)}"
        )
    whole, _, part = amount.partition(".")
    part = part.ljust(2, "0")[:2] if len(part) <= 2 else ""
    if not cents or not part or part == "00":
        return _count(amount if cents and len(amount.partition(".")[2]) > 2 else whole, name)
    small = _count(str(int(part)), cents)
    return small if int(whole) == 0 else f"{_count(whole, name)} and {small}"


def _fraction(m: re.Match[str]) -> str:
    top, bottom = int(m[2]), int(m[3])
    name = {2: "half", 4: "quarter"}.get(bottom) or (en_ordinal(m[3]) if 2 < bottom <= 20 else "")
    if not name or top >= bottom:
        return f"{m[1] + ' ' if m[1] else ''}{en_cardinal(m[2])} over {en_cardinal(m[3])}"
    name = name if top == 1 else "halves" if name == "half" else name + "s"
    return (
        f"{en_cardinal(m[1])} and {'a' if top == 1 else en_cardinal(m[2])} "
        if m[1]
        else f"{en_cardinal(m[2])} "
    ) + name


def _phone(m: re.Match[str]) -> str:
    groups = re.findall(r"\d+", m[0])
    return ("plus " if m[0].startswith("+") else "") + ", ".join(map(en_digits, groups))


def _decade(m: re.Match[str]) -> str:
    tens = en_cardinal(m[2] + "0")
    tens = (
        tens[:-1] + "ies"
        if tens.endswith("y")
        else {"ten": "tens", "zero": "hundreds"}.get(tens, tens)
    )
    return f"{en_cardinal(m[1])} {tens}" if m[1] else tens


def _degrees(m: re.Match[str]) -> str:
    return f"{'minus ' if m[1] == '-' else ''}{en_number(m[2])} {_plural(m[2], 'degree')}{dict(C=' Celsius', F=' Fahrenheit').get(m[3], '')}"


def _power(m: re.Match[str]) -> str:
    return {"2": " squared", "3": " cubed"}.get(m[1], f" to the power of {en_number(m[1])}")


def _plain(m: re.Match[str]) -> str:
    digits = m[0]
    is_year = (
        len(digits) == 4
        and digits.isdecimal()  # 12.5 and 2.30 have four characters too
        and ("1100" < digits < "2000" or "2010" <= digits < "2100")
    )
    return en_year(digits) if is_year else en_number(digits)


_RULES: tuple[Rule, ...] = (
    *((address, _web) for address in ADDRESSES),
    (re.compile(r"(?<![\d:.])([01]?\d|2[0-4])\.([0-5]\d)(?=\s?[ap]\.?m\b)", re.I | re.A), lambda m: f"{m[1]}:{m[2]}"),
    (re.compile(r"(?<=:\d\d)\s?[-~–—]\s?(?=\d{1,2}:\d\d(?!\d))|(?<=[ap]\.m\.)\s?[-~–—]\s?(?=\d)|(?<=\d[ap]m)\s?[-~–—]\s?(?=\d)", re.I), lambda m: " to "),
    (re.compile(rf"([$€£¥])({_N})\s?[-~–—]\s?[$€£¥]?(?={_N})"), lambda m: f"{en_number(m[2])} to {m[1]}"),
    (re.compile(r"(?<![\w.])24/7(?![\d/])", re.A), lambda m: "twenty four seven"),
    (re.compile(r"\b(Mr|Mrs|Dr|Prof|St|Gen|Sgt|Capt|Lt|Mt)\.(?= ?[A-Z])"), lambda m: _TITLES[m[1]]),
    (re.compile(r"(?<![\w.])(?:e\.g\.|i\.e\.|etc\.|vs\.?(?!\w)|approx\.|w/o?(?=\s|\w)|Jr\.|Sr\.|pp\.)"), lambda m: _WORDS[m[0]]),
    (re.compile(r"\bNo\.\s?(?=\d)", re.A), lambda m: "number "),
    (re.compile(r"\b(?:[A-Z]\.){2,6}"), lambda m: m[0].replace(".", " ").strip() + ("." if m.end() == len(m.string) else "")),
    (re.compile(r"(?<![\d.])\d{1,4}(?:\.\d{1,4}){2,3}(?![\d.]*\d)"), lambda m: " " * (m.start() > 0 and m.string[m.start() - 1].isalpha()) + " point ".join(en_cardinal(p) for p in m[0].split("."))),
    (re.compile(r"(?<![\w.])(\d)'(\d{1,2})(?:\"|''|(?=[\s,.]|$))"), lambda m: f"{en_cardinal(m[1])} foot {en_cardinal(m[2])}"),
    (re.compile(rf"(?<!\d)\d{{{MAX_DIGITS + 1},}}"), lambda m: en_digits(m[0])),
    (re.compile(r"(?<![\d,.])\d{1,3}(?:,\d{3}){1,4}(?![\d,]*\d)"), lambda m: m[0].replace(",", "\u2063")),
    (re.compile("(?<=\\d)\u2063(?=\\d)"), lambda m: ""),
    (re.compile(r"(?<!\d)([12]\d{3})-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])(?!\d)"), lambda m: _day(_MONTHS[int(m[2]) - 1], m[3], m[1])),
    (re.compile(r"(?<![\d/.-])(\d{1,2})/(\d{1,2})/([12]\d{3})(?![\d/])"), _slashed),
    (re.compile(r"(?<![\d/.-])(0[1-9]|1[0-2])/(0[1-9]|[12]\d|3[01])(?![\d/])()"), lambda m: _day(_MONTHS[int(m[1]) - 1], m[2], None)),
    (re.compile(rf"\b({_MONTH}) (\d{{1,2}})(?:st|nd|rd|th)?(?:,? ([12]\d{{3}}))?(?![\d:%])", re.A), lambda m: _day(_month_name(m[1]), m[2], m[3])),
    (re.compile(rf"(?<!\d)(\d{{1,2}}) ({_MONTH})(?:,? ([12]\d{{3}}))?(?![A-Za-z\d])", re.A),
     lambda m: f"{en_ordinal(str(int(m[1])))} of {_month_name(m[2])}" + (f" {en_year(m[3])}" if m[3] else "")),
    (re.compile(r"(?<!\d)(\d{1,2})(\d)0['’]?s\b(?!\d)|(?<![\d'])['’]?()([2-9])0s\b", re.A), lambda m: _decade(re.match(r"\D?(\d{0,2})(\d)0", m[0]))),
    (re.compile(r"(?<![\d.])\+\d{1,3}(?:[- ]\(?\d{2,4}\)?){2,4}(?!\d)"), _phone),
    (re.compile(r"(?<![\d.-])(?:1[- ])?(?:\(\d{3}\) ?|\d{3}[-. ])\d{3}[-. ]\d{4}(?!\d)"), _phone),
    (re.compile(r"(?<![\d.-])\d{3}-\d{4}(?![\d-])"), _phone),
    (re.compile(r"(?<![\d:.])([01]?\d|2[0-4]):([0-5]\d)(?::([0-5]\d))?(?![\d:])(?:\s?([ap]\.?m\b\.?))?", re.I | re.A), _time),
    (re.compile(r"(?<![\d:.])(1[0-2]|[1-9])\s?([ap])\.?m\b(?:\.(?=\s[a-z]))?", re.I | re.A), lambda m: f"{en_cardinal(m[1])} {m[2].upper()} M"),
    (re.compile(r"(?<![\d:.])(\d{1,6}):(\d{1,6})(?![\d:])"), lambda m: f"{en_cardinal(m[1])} to {en_cardinal(m[2])}"),
    (re.compile(rf"(US\$|[$€£¥₩₹])\s?({_N})(?:\s?(thousand|million|billion|trillion|bn|mn|[kKmMbBtT])(?![A-Za-z]))?"), _money),
    (re.compile(rf"(?<![\w.])([-+]?)({_N})\s?°\s?([CF]?)(?![A-Za-z])"), _degrees),
    (re.compile(rf"{_START}({_N})\s?%?\s?[-~–—]\s?({_N})\s?%"), lambda m: f"{en_number(m[1])} to {en_number(m[2])} percent"),
    (re.compile(rf"(?:(?<![\w)\]])(-))?{_START}({_N})\s?(%|‰)"), lambda m: ("minus " if m[1] else "") + en_number(m[2]) + (" percent" if m[3] == "%" else " per mille")),
    (re.compile(r"(?<![\d/.])(?:(\d{1,4})\s)?([1-9]\d{0,5})/([1-9]\d{0,5})(?![\d/])"), _fraction),
    (re.compile(r"(?<![\d.])(\d{1,9})(?:st|nd|rd|th)\b", re.A), lambda m: en_ordinal(m[1])),
    (re.compile(rf"{_START}({_N})e([+-]?\d{{1,3}})(?!\w)", re.I), lambda m: f"{en_number(m[1])} times ten to the power of {en_number(m[2])}"),
    (re.compile(rf"{_START}({_N})-({_N})(?==)"), lambda m: f"{en_number(m[1])} minus {m[2]}"),
    (re.compile(r"(?<![\w.-])([12]\d{3})\s?[-~–—]\s?([12]\d{3})(?![\w-])", re.A), lambda m: f"{en_year(m[1])} to {en_year(m[2])}"),
    (re.compile(rf"(?<![\w.-])({_N})\s?[-~–—]\s?({_N})(?![\d-])", re.A), lambda m: f"{en_number(m[1])} to {m[2]}"),
    (re.compile(rf"(?<![\w.])({_N})[ -]?({_UNIT})(?![\w/^])", re.A), lambda m: _count(m[1], _UNITS[m[2]])),
    (re.compile(r"(?<=[\dA-Za-z)])\s?\^\s?(-?\d{1,3})(?!\d)"), _power),
    (re.compile(r"(?<=[\dA-Za-z)])\s?([+×*÷=<>≤≥≈≠])\s?(?=[\dA-Za-z(])"), lambda m: f" {_OPERATORS[m[1]]} "),
    (re.compile(r"(?<=\d)\s?x\s?(?=\d)"), lambda m: " by "),
    (re.compile(r"\b([CFcf])#(?!\w)"), lambda m: m[1] + " sharp"),
    (re.compile(r"#(?=\d)"), lambda m: "number "),
    (re.compile(r"(?<=[A-Za-z])(\d{3,15})(?![\d.])"), lambda m: f" {en_digits(m[1])} "),
    (re.compile(r"(?<![\w)\]])-(?=\d)"), lambda m: "minus "),
    (re.compile(rf"(?<=[A-Za-z])({_N})"), lambda m: " " + en_number(m[1]) + " " * m.string[m.end() : m.end() + 1].isalpha()),
    (re.compile(rf"({_N})(?=[A-Za-z])"), lambda m: en_number(m[1]) + " "),
    (re.compile(rf"{_START}{_N}"), _plain),
    (re.compile(r"(?<!\d)\.(\d{1,15})"), lambda m: " point " + en_digits(m[1])),
    (re.compile(r"\d{1,15}"), lambda m: en_number(m[0])),
    (re.compile(r"(?<=[A-Za-z])/(?=[A-Za-z])"), lambda m: " "),
    (re.compile(r"[&@%°#*_^~|\\=+<>]"), lambda m: _LEFT[m[0]]),
    (re.compile(r" {2,}"), lambda m: " "),
    (re.compile(r" (?=[,.!?;:](?:\s|$))"), lambda m: ""),
)  # fmt: skip


def read_english(sentence: str) -> str:
    """`sentence` as words, nothing left that is not said as written. Linear in its length."""
    for pattern, say in _RULES:
        sentence = pattern.sub(say, sentence)
    return sentence.strip()
