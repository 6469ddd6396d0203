"""Reads numbers, dates, times, money and units out as Russian.

One sentence in, one out; knows no other language.

Numbers stand in the nominative: which case the words around a number ask for is not looked at.
"""

from __future__ import annotations

import re

from .cldr_numbers import LONGEST, spelled
from .rewrite_rules import Rule, apply_rules

_N = rf"\d{{1,{LONGEST}}}(?:[.,]\d{{1,20}})?"
_MONTHS = (
    "января февраля марта апреля мая июня июля августа сентября октября ноября декабря".split()
)
_MONTH = "|".join(_MONTHS)
# one, two to four, five and more
_MONEY = {
    "₽": ("рубль", "рубля", "рублей"), "руб.": ("рубль", "рубля", "рублей"),
    "$": ("доллар", "доллара", "долларов"), "€": ("евро",) * 3,
    "£": ("фунт", "фунта", "фунтов"), "¥": ("иена", "иены", "иен"),
}  # fmt: skip
_UNITS = {
    "км/ч": ("километр в час", "километра в час", "километров в час"),
    "км": ("километр", "километра", "километров"), "см": ("сантиметр", "сантиметра", "сантиметров"),
    "мм": ("миллиметр", "миллиметра", "миллиметров"), "м": ("метр", "метра", "метров"),
    "кг": ("килограмм", "килограмма", "килограммов"), "г": ("грамм", "грамма", "граммов"),
    "мл": ("миллилитр", "миллилитра", "миллилитров"), "л": ("литр", "литра", "литров"),
    "ГБ": ("гигабайт", "гигабайта", "гигабайт"), "МБ": ("мегабайт", "мегабайта", "мегабайт"),
    "мин": ("минута", "минуты", "минут"), "сек": ("секунда", "секунды", "секунд"),
    "%": ("процент", "процента", "процентов"),
}  # fmt: skip
_UNITS |= {"km": _UNITS["км"], "kg": _UNITS["кг"], "cm": _UNITS["см"], "GB": _UNITS["ГБ"]}
_UNIT = "|".join(map(re.escape, sorted(_UNITS, key=len, reverse=True)))
_HOURS, _DEGREES = ("час", "часа", "часов"), ("градус", "градуса", "градусов")
_PARTS = {1: ("десятая", "десятых"), 2: ("сотая", "сотых"), 3: ("тысячная", "тысячных")}
_SCALES = {"тыс": ("тысяча", "тысячи", "тысяч"), "млн": ("миллион", "миллиона", "миллионов"),
    "млрд": ("миллиард", "миллиарда", "миллиардов")}  # fmt: skip


def _index(digits: str) -> int:
    """Which of the three forms goes with a whole number."""
    n = int(digits)
    if n % 10 == 1 and n % 100 != 11:
        return 0
    return 1 if n % 10 in (2, 3, 4) and n % 100 not in (12, 13, 14) else 2


def _spell(digits: str, form: str) -> str:
    words = spelled(digits, "ru", form).replace("четверт", "четвёрт")
    return words.removeprefix("одна ") if words.startswith("одна тысяча") else words


def _number(text: str, gender: str = "masculine") -> str:
    """Up to three decimals as tenths, hundredths, thousandths; more, codes and leading zeros digit
    by digit.
    """
    whole, _, decimals = text.replace(",", ".").partition(".")
    if len(whole) > LONGEST or (len(whole) > 1 and whole[0] == "0"):
        return " ".join(_spell(d, "cardinal-masculine") for d in whole + decimals)
    if not decimals:
        return _spell(whole, f"cardinal-{gender}")
    if len(decimals) > 3:
        return f"{_number(whole)} запятая " + " ".join(_number(d) for d in decimals)
    whole_name = "целая" if _index(whole) == 0 else "целых"
    part = _PARTS[len(decimals)][_index(decimals) != 0]
    parts = _spell(str(int(decimals)), "cardinal-feminine")
    return f"{_spell(whole, 'cardinal-feminine')} {whole_name} {parts} {part}"


def _read_counted(text: str, forms: tuple[str, str, str]) -> str:
    if re.search("[.,]", text):
        return f"{_number(text)} {forms[1]}"
    gender = "feminine" if forms[0][-1] in "ая" else "masculine"
    return f"{_number(text, gender)} {forms[_index(text)]}"


def _date(day: str, month: str, year: str | None) -> str:
    words = f"{_spell(str(int(day)), 'ordinal-neuter-genitive')} {month}"
    return f"{words} {_spell(year, 'ordinal-masculine-genitive')} года" if year else words


def _year(m: re.Match[str]) -> str:
    case = {"год": "", "году": "-locative"}.get(m[2], "-genitive")
    if m[2] == "годом":
        case = "-ablative"
    return f"{_spell(m[1], 'ordinal-masculine' + case)} {'года' if m[2] == 'г.' else m[2]}"


def _time(m: re.Match[str]) -> str:
    hour, minute = str(int(m[1])), int(m[2])
    if not minute:
        return _read_counted(hour, _HOURS)
    return f"{_number(hour)} {'ноль ' if minute < 10 else ''}{_number(str(minute))}"


def _money(amount: str, scale: str | None, currency: str) -> str:
    if scale:
        return f"{_read_counted(amount, _SCALES[scale.rstrip('.')])} {_MONEY[currency][2]}"
    return _read_counted(amount, _MONEY[currency])


def _degrees(m: re.Match[str]) -> str:
    scale = {"C": " Цельсия", "F": " Фаренгейта", "": ""}[m[3].replace("С", "C")]
    return f"{'минус ' if m[1] else ''}{_read_counted(m[2], _DEGREES)}{scale}"


_SIGN = r"(?<![\w)\]])-"
_RULES: tuple[Rule, ...] = (
    (re.compile(r"(?<![\d.,])\d{1,3}(?: \d{3}){1,3}(?![\d]| \d)"), lambda m: m[0].replace(" ", ""),
        " "),
    (re.compile(rf"\d{{{LONGEST + 1},}}"), lambda m: _number(m[0]), ""),
    (re.compile(r"(?<![\d.])(0?[1-9]|[12]\d|3[01])\.(0[1-9]|"
                r"1[0-2])\.([12]\d{3})(?![\d.]*\d)(?:\s?г(?:ода|"
                r"\.))?"), lambda m: _date(m[1], _MONTHS[int(m[2]) - 1], m[3]), "."),
    (re.compile(r"(?<![\d-])([12]\d{3})-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])(?![\d-])"),
        lambda m: _date(m[3], _MONTHS[int(m[2]) - 1], m[1]), "-"),
    (re.compile(rf"(?<![\d.,])(0?[1-9]|[12]\d|3[01])\s(?i:({_MONTH}))\b(?:\s([12]\d{{3}})\s?"
                rf"(?:года\b|г\.))?"), lambda m: _date(m[1], m[2], m[3]), "авгдейлмнопрстьюя"),
    (re.compile(r"(?<![\d.,-])([12]\d{3})\s?(год[ауе]?|годом|г\.)(?![а-яё])"), _year, "г"),
    (re.compile(r"(?<![\d:.])([01]?\d|2[0-4]):([0-5]\d)(?![\d:])"), _time, ":"),
    (re.compile(r"(?:\+7|(?<![\d-])8)[ -]?\(?\d{3}\)?[ -]?\d{3}[- ]\d{2}[- ]\d{2}(?!\d)"),
        lambda m: "плюс " * m[0].startswith("+") + ", ".join(_number(g) for g in re.findall(r"\d+",
            m[0])), "-"),
    (re.compile(rf"([₽$€£¥])\s?({_N})(?:\s?(тыс\.?|млн|млрд)(?![а-яё]))?"),
        lambda m: _money(m[2], m[3], m[1]), "₽$€£¥"),
    (re.compile(rf"(?<![\d.,])({_N})\s?(?:(тыс\.?|млн|млрд)\s?)?(руб\.|[₽$€£¥])"),
        lambda m: _money(m[1], m[2], m[3]), "₽$€£¥р"),
    (re.compile(rf"(?<![\d.,])({_N})\s?(тыс\.|млн|млрд)(?![а-яё])"),
        lambda m: _read_counted(m[1], _SCALES[m[2].rstrip(".")]), "тм"),
    (re.compile(rf"({_SIGN})?(?<![\d.,])({_N})\s?°\s?([CСF]?)(?![A-Za-zА-я])"), _degrees, "°"),
    (re.compile(rf"({_SIGN})?(?<![\w.,])({_N})\s?({_UNIT})(?![\w/^])"),
        lambda m: "минус " * bool(m[1]) + _read_counted(m[2], _UNITS[m[3]]), ""),
    (re.compile(r"№\s?|No\.\s?(?=\d)"), lambda m: "номер ", "№."),
    (re.compile(rf"(?<![\w.,-])({_N})\s?[-~]\s?(?={_N}(?![\d-]))"), lambda m: f"{_number(m[1])} - ",
        "-~"),
    (re.compile(rf"{_SIGN}(?=\d)"), lambda m: "минус ", "-"),
    (re.compile(_N), lambda m: _number(m[0]), ""),
)  # fmt: skip


def read_russian(sentence: str) -> str:
    """`sentence` with its numbers as words. Linear in its length."""
    return apply_rules(_RULES, sentence)
