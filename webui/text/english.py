"""Reads numbers, dates, money, units, abbreviations and symbols out as English words.

One sentence in, one out.
"""

from __future__ import annotations

import re

from .numerals import MAX_DIGITS, en_cardinal, en_digits, en_number, en_ordinal, en_year
from .rewrite_rules import Rule, apply_rules
from .urls import ADDRESSES, IP_ADDRESS, spell

_N = rf"\d{{1,{MAX_DIGITS}}}(?:\.\d{{1,20}})?"
_PART = rf"(?:{_N}|\.\d{{1,20}})"  # also .5
_START = r"(?<![\d.])"
_MONTHS = (
    "January February March April May June July August September October November December".split()
)
_VERBS = ("March", "May")  # in small letters these are verbs: may 5 people come in?
_MONTH = (
    "(?i:" + "|".join([*(m for m in _MONTHS if m not in _VERBS),
        *(rf"{m[:3]}\.?" for m in _MONTHS if m not in _VERBS), r"Sept\.?"])
    + r")|March|MARCH|Mar\.?|MAR\.?|May|MAY"
)  # fmt: skip
_DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
_DAY = r"(?:Mon|Tues?|Wed|Thu(?:rs?)?|Fri|Sat|Sun)"
_MONEY = {
    "$": ("dollar", "cent"), "€": ("euro", "cent"), "£": ("pound", "penny"), "¥": ("yen", ""),
    "₩": ("won", ""), "₹": ("rupee", "paisa"),
    "US$": ("U S dollar", "cent"), "A$": ("Australian dollar", "cent"),
    "C$": ("Canadian dollar", "cent"), "NZ$": ("New Zealand dollar", "cent"),
    "S$": ("Singapore dollar", "cent"), "HK$": ("Hong Kong dollar", "cent"),
    "NT$": ("New Taiwan dollar", "cent"), "HKD": ("Hong Kong dollar", "cent"),
    "USD": ("U S dollar", "cent"), "AUD": ("Australian dollar", "cent"), "EUR": ("euro", "cent"),
    "GBP": ("pound", "penny"), "CNY": ("yuan", ""), "JPY": ("yen", ""),
}  # fmt: skip
_CURRENCY = rf"(?<![A-Za-z])(?:{'|'.join(re.escape(c) for c in _MONEY if len(c) > 1)})|[$€£¥₩₹]"
_SCALES = {
    "k": "thousand",
    "m": "million",
    "mn": "million",
    "b": "billion",
    "bn": "billion",
    "t": "trillion",
}
_UNITS = {
    "km/h": "kilometer per hour", "mph": "mile per hour", "mi": "mile", "yd": "yard",
    "m/s": "meter per second", "km^2": "square kilometer", "m^2": "square meter",
    "m^3": "cubic meter",
    "cm^2": "square centimeter", "mm^2": "square millimeter", "ft^2": "square foot",
    "km^3": "cubic kilometer", "cm^3": "cubic centimeter", "m2": "square meter",
    "m3": "cubic meter",
    "km2": "square kilometer", "cm2": "square centimeter", "cm3": "cubic centimeter",
    "KG": "kilogram", "kgs": "kilogram", "mins": "minute", "secs": "second", "sec": "second",
    "wks": "week", "wk": "week", "mos": "month", "yrs": "year", "yr": "year",
    "kbps": "kilobit per second", "Mbps": "megabit per second", "mbps": "megabit per second",
    "Gbps": "gigabit per second",
    "km": "kilometer", "cm": "centimeter", "mm": "millimeter", "μm": "micrometer",
    "nm": "nanometer", "kg": "kilogram", "mg": "milligram",
    "ml": "milliliter", "mL": "milliliter", "lbs": "pound", "lb": "pound", "oz": "ounce",
    "ft": "foot", "kWh": "kilowatt hour", "kW": "kilowatt",
    "kHz": "kilohertz", "MHz": "megahertz", "GHz": "gigahertz", "Hz": "hertz", "dB": "decibel",
    "KB": "kilobyte", "kB": "kilobyte", "MB": "megabyte",
    "GB": "gigabyte", "TB": "terabyte", "ms": "millisecond", "min": "minute", "hrs": "hour",
    "hr": "hour", "m": "meter", "g": "gram", "L": "liter",
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
    "Hon": "Honorable",
    "Rev": "Reverend",
    "Maj": "Major",
    "Col": "Colonel",
    "Gov": "Governor",
    "Sen": "Senator",
}
_NAMES = {"Co": "Company", "Corp": "Corporation", "Inc": "Incorporated", "Ltd": "Limited"}
_STREETS = {"St": "Street", "Ave": "Avenue", "Rd": "Road", "Blvd": "Boulevard"}
_ROMAN = ("", "I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX")  # ones; tens are as many X
_KINGS = (
    "Alexander|Benedict|Catherine|Charles|Edward|Elizabeth|Frederick|George|Henry|James|Louis|"
    "Napoleon|Nicholas|Paul|Philip|Pius|Richard|William"
)
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


def _with_stop(m: re.Match[str], words: str) -> str:
    """The full stop of an abbreviation at the end also ends the sentence."""
    return words + "." * (m[0].endswith(".") and m.end() == len(m.string))


def _street(m: re.Match[str]) -> str:
    """A capital behind the full stop of a street begins a sentence."""
    is_end = m[0].endswith(".") and re.match(r"$| [A-Z]", m.string[m.end() :][:2]) is not None
    return f"{m[1]} {_STREETS[m[2]]}" + "." * is_end


def _weekday(m: re.Match[str]) -> str:
    words = " to ".join(
        next(d for d in _DAYS if d.startswith(name[:3])) for name in re.findall(_DAY, m[0])
    )
    return _with_stop(m, words)


def _roman(m: re.Match[str]) -> str:
    """ "World War II" -> two, "Henry VIII" -> the eighth; a lone letter is a number only after
    words that always take one.
    """
    tens = len(m[2]) - len(m[2].lstrip("X"))
    number = str(10 * tens + _ROMAN.index(m[2][tens:]))
    is_king = re.fullmatch(_KINGS, m[1]) is not None
    if m[1] in ("The", "An", "This", "His", "Her", "My") or (
        len(m[2]) == 1 and (m[2] == "I" or not is_king) and m[1] not in ("War", "Chapter", "Act")
    ):
        return m[0]
    return f"{m[1]} the {en_ordinal(number)}" if is_king else f"{m[1]} {en_cardinal(number)}"


def _web(m: re.Match[str]) -> str:
    return re.sub(" +", " ", spell(m[0], _WEB, lambda digit: f" {en_digits(digit)} ")).strip()


def _day(month: str, day: str, year: str | None) -> str:
    words = f"{month} {en_ordinal(str(int(day)))}"
    return f"{words} {en_year(year)}" if year else words


def _slash_date(m: re.Match[str]) -> str:
    """Month first, as the voice is American, unless only the day can stand there.

    A year of two digits is the nearest one.
    """
    month, day, year = int(m[1]), int(m[3]), m[4]
    if len(year) == 2:
        year = ("20" if year < "50" else "19") + year
    if month > 12 >= day:
        month, day = day, month
    if not (1 <= month <= 12 and 1 <= day <= 31):
        return m[0]
    return _day(_MONTHS[month - 1], str(day), year)


def _month_name(text: str) -> str:
    return next(m for m in _MONTHS if m.startswith(text[:3].capitalize()))


def _time(m: re.Match[str]) -> str:
    hour, minute, half = int(m[1]), int(m[2]), (m[4] or "").lower().replace(".", "")
    words = en_cardinal(str(hour))
    if m[3]:
        words = (
            f"{_count(str(hour), 'hour')} {_count(str(minute), 'minute')} and"
            f" {_count(str(int(m[3])), 'second')}"
        )
    elif minute:
        words += (" oh " if minute < 10 else " ") + en_cardinal(str(minute))
    elif not half:
        words += " o'clock" if hour <= 12 else " hundred"
    return words + (f" {half[0].upper()} M" if half else "")


def _count(number: str, name: str) -> str:
    return f"{en_number(number)} {_plural(number, name)}"


def _money(m: re.Match[str]) -> str:
    sign, (name, cents), amount, scale = "minus " if m[1] else "", _MONEY[m[2]], m[3], m[4]
    if scale:
        return (
            f"{sign}{en_number(amount)} {_SCALES.get(scale.lower(), scale.lower())}"
            f" {_plural('2', name)}"
        )
    whole, _, part = amount.partition(".")
    part = part.rstrip("0")
    if len(part) > 2:
        return sign + _count(f"{whole}.{part}", name)
    if not cents or not part:
        return sign + _count(whole, name)
    small = _count(str(int(part.ljust(2, "0"))), cents)
    return sign + (small if not whole.strip("0") else f"{_count(whole, name)} and {small}")


def _money_range(m: re.Match[str]) -> str:
    """The first amount without its currency, unless it has cents of its own."""
    first = re.fullmatch(_AMOUNT, m[1] + m[2]) if "." in m[2] else None
    return f"{_money(first) if first else en_number(m[2])} to {m[1]}"


def _fraction(m: re.Match[str]) -> str:
    top, bottom = int(m[2]), int(m[3])
    name = {2: "half", 4: "quarter"}.get(bottom) or (en_ordinal(m[3]) if 2 < bottom <= 100 else "")
    unit = _UNITS.get(m[4] or "")
    if not name or top >= bottom:
        words = f"{m[1] + ' ' if m[1] else ''}{en_cardinal(m[2])} over {en_cardinal(m[3])}"
        return f"{words} {_plural('2', unit)}" if unit else words
    name = name if top == 1 else "halves" if name == "half" else name + "s"
    if m[1]:
        words = f"{en_cardinal(m[1])} and {'a' if top == 1 else en_cardinal(m[2])} {name}"
        return f"{words} {_plural('2', unit)}" if unit else words
    of = f" of {'an' if unit in ('hour', 'ounce') else 'a'} {unit}" if unit else ""
    return f"{en_cardinal(m[2])} {name}{of}"


def _phone(m: re.Match[str]) -> str:
    groups = re.findall(r"\d+", m[0])
    return ("plus " if m[0].startswith("+") else "") + ", ".join(map(en_digits, groups))


def _decade(m: re.Match[str]) -> str:
    if m[1][1:] == "0" == m[2]:  # 1000s, 2000s
        return "thousands" if m[1] == "10" else f"{en_cardinal(m[1][0])} thousands"
    tens = en_cardinal(m[2] + "0")
    tens = "hundreds" if m[2] == "0" else tens[:-1] + "ies" if tens.endswith("y") else tens + "s"
    return f"{en_cardinal(m[1])} {tens}" if m[1] else tens


def _degrees(m: re.Match[str]) -> str:
    first = f"{en_number(m[1])} to " if m[1] else ""
    return (
        f"{first}{'minus ' if m[2] == '-' else ''}{en_number(m[3])}"
        f" {_plural(m[3], 'degree')}{ {'C': ' Celsius', 'F': ' Fahrenheit'}.get(m[4], '') }"
    )


def _power(m: re.Match[str]) -> str:
    return {"2": " squared", "3": " cubed"}.get(m[1], f" to the power of {en_number(m[1])}")


def _measure(m: re.Match[str]) -> str:
    sign, scale = "minus " if m[1] == "-" else "", f" {m[3]}" if m[3] else ""
    return f"{sign}{en_number(m[2])}{scale} {_plural('2' if scale else m[2], _UNITS[m[4]])}"


def _plain(m: re.Match[str]) -> str:
    digits = m[0]
    is_year = (
        len(digits) == 4
        and digits.isdecimal()  # 12.5 and 2.30 have four characters too
        and ("1100" < digits < "2000" or "2010" <= digits < "2100")
    )
    return en_year(digits) if is_year else en_number(digits)


_AMOUNT = (
    rf"(?:(?<![\w)\]])(-))?({_CURRENCY})\s?({_PART})(?:\s?(thousand|million|billion|trillion|"
    rf"bn|mn|[kKmMbBtT])(?![A-Za-z]))?"
)

_RULES: tuple[Rule, ...] = (
    *((address, _web, "./:") for address in ADDRESSES),
    (re.compile(IP_ADDRESS), lambda m: " dot ".join(map(en_digits, m[0].split("."))), "."),
    (re.compile(rf"\b(?=[ADFJMNOSadfjmnos])({_MONTH})-(\d{{1,2}})(?:-([12]\d{{3}}))?(?![\d-])",
        re.A), lambda m: _day(_month_name(m[1]), m[2], m[3]), "-"),
    (re.compile(rf"\b{_DAY}\.?\s?[-~–—]\s?{_DAY}\b\.?|\b(?:Mon|Tues?|Wed|Thu(?:rs?)?|"
                rf"Fri)\.(?=[\s,;]|$)|\b(?:Sat|Sun)\.(?=,|\s\d)", re.A), _weekday, "-~–—."),
    (re.compile(r"(?<=\d )([A-Z][a-z]{1,30}) (St|Ave|Rd|Blvd)\b\.?", re.A), _street, "SARB"),
    (re.compile(r"(?<=[A-Za-z&] )(Co|Corp|Inc|Ltd)\.", re.A), lambda m: _with_stop(m, _NAMES[m[1]]),
        "."),
    (re.compile(r"\b([A-Z][a-z]{1,20}) (?=[IVX])(X{0,3}(?:IX|IV|V?I{0,3}))(?![\w'.-]\w)(?!\w)",
        re.A), _roman, "IVX"),
    (re.compile(r"(?<![\w.])([12])H(\d\d)(?!\w)", re.A),
        lambda m: f"the {en_ordinal(m[1])} half of {en_cardinal(m[2])}", "H"),
    (re.compile(r"(?<![\w.])([1-4])Q(\d\d)(?!\w)", re.A),
        lambda m: f"the {en_ordinal(m[1])} quarter of {en_cardinal(m[2])}", "Q"),
    (re.compile(r"(?<![\d:.])([01]?\d|2[0-4])\.([0-5]\d)(?=\s?[ap]\.?m\b)", re.I | re.A),
        lambda m: f"{m[1]}:{m[2]}", "."),
    (re.compile(r"(?<=:\d\d)\s?[-~–—]\s?(?=\d{1,2}:\d\d(?!\d))|(?<=[ap]\.m\.)\s?[-~–—]\s?(?=\d)|"
                r"(?<=\d[ap]m)\s?[-~–—]\s?(?=\d)|(?<=\d [ap]m)\s?[-~–—]\s?(?=\d)|"
                r"(?<=\d0s)\s?[-~–—]\s?(?=['’]?\d{1,3}0s)", re.I), lambda m: " to ", "-~–—"),
    (re.compile(rf"([$€£¥])({_N})\s?[-~–—]\s?[$€£¥]?(?={_N})"), _money_range, "$€£¥"),
    (re.compile(r"(?<![\w.])24/7(?![\d/])", re.A), lambda m: "twenty four seven", "/"),
    (re.compile(rf"\b({'|'.join(_TITLES)})\.(?= ?[A-Z])"), lambda m: _TITLES[m[1]], "."),
    (re.compile(r"(?<![\w.])(?:e\.g\.|i\.e\.|etc\.|vs\.?(?!\w)|approx\.|w/o?(?=\s|\w)|Jr\.|Sr\.|"
                r"pp\.)"), lambda m: _WORDS[m[0]], "./v"),
    (re.compile(r"\bNo\.\s?(?=\d)", re.A), lambda m: "number ", "."),
    (re.compile(r"\b(?:[A-Z]\.){2,6}"), lambda m: m[0].replace(".",
        " ").strip() + ("." if m.end() == len(m.string) else ""), "."),
    (re.compile(r"(?<![\d/.-])([12]\d{3})(?:([-.])(0[1-9]|1[0-2])\2(0[1-9]|[12]\d|3[01])|"
                r"/(0?[1-9]|1[0-2])/(0?[1-9]|[12]\d|3[01]))(?![\d/-]|\.\d)"),
     lambda m: _day(_MONTHS[int(m[3] or m[5]) - 1], m[4] or m[6], m[1]), "-./"),
    (re.compile(r"(?<![\w/.-])(\d{1,2})([/.-])(\d{1,2})\2([12]\d{3})(?![\d/-]|\.\d)", re.A),
        _slash_date, "-./"),
    (re.compile(r"(?<![\w/.-])(\d{1,2})(/)(\d{1,2})/(\d\d)(?![\d/-])", re.A), _slash_date, "/"),
    (re.compile(r"(?<![\d.])\d{1,4}(?:\.\d{1,4}){2,3}(?![\d.]*\d)"),
        lambda m: " " * (m.start() > 0 and m.string[m.start() - 1].isalpha())
        + " point ".join(en_cardinal(p) for p in m[0].split(".")), "."),
    (re.compile(r"(?<![\w.])(\d)'(\d{1,2})(?:\"|''|(?=[\s,.]|$))"),
        lambda m: f"{en_cardinal(m[1])} foot {en_cardinal(m[2])}", "'"),
    (re.compile(rf"(?<!\d)\d{{{MAX_DIGITS + 1},}}"), lambda m: en_digits(m[0]), ""),
    (re.compile(r"(?<![\d,.])\d{1,3}(?:,\d{3}){1,4}(?![\d,]*\d)"),
        lambda m: m[0].replace(",", "\u2063"), ","),
    (re.compile("(?<=\\d)\u2063(?=\\d)"), lambda m: "", "\u2063"),
    (re.compile(r"(?<![\d/.-])(0[1-9]|1[0-2])/(0[1-9]|[12]\d|3[01])(?![\d/])()"),
        lambda m: _day(_MONTHS[int(m[1]) - 1], m[2], None), "/"),
    (re.compile(rf"\b(?=[ADFJMNOSadfjmnos])({_MONTH}) (?![12]\d{{3}}\b)(\d{{1,2}})"
                rf"(?:st|nd|rd|th)?(?:,? ([12]\d{{3}}))?(?![\d:%])", re.A),
     lambda m: _day(_month_name(m[1]), m[2], m[3]), ""),
    (re.compile(rf"(?<!\d)(\d{{1,2}})(?:st|nd|rd|th)? ({_MONTH})"
                rf"(?:,? ([12]\d{{3}}))?(?![A-Za-z\d])", re.A),
     lambda m: f"{en_ordinal(str(int(m[1])))} "
               f"of {_month_name(m[2])}" + (f" {en_year(m[3])}" if m[3] else ""), ""),
    (re.compile(r"(?<!\d)(\d{1,2})(\d)0['’]?s\b(?!\d)|(?<![\d'])['’]?()([2-9])0s\b", re.A),
        lambda m: _decade(re.match(r"\D?(\d{0,2})(\d)0", m[0])), "s"),
    (re.compile(r"(?<![\d.])\+\d{1,3}(?:[- ]\(?\d{2,4}\)?){2,4}(?!\d)"), _phone, "+"),
    (re.compile(r"(?<![\d.-])(?:1[- ])?(?:\(\d{3}\) ?|\d{3}[-. ])\d{3}[-. ]\d{4}(?!\d)"), _phone,
        ""),
    (re.compile(r"(?<![\d.-])\d{3}-\d{4}(?![\d-])"), _phone, "-"),
    (re.compile(r"(?<![\d:.])([01]?\d|2[0-4]):([0-5]\d)(?::([0-5]\d))?(?![\d:])"
                r"(?:\s?([ap]\.?m\b\.?))?", re.I | re.A), _time, ":"),
    (re.compile(r"(?<![\d:.])(1[0-2]|[1-9])\s?([ap])\.?m\b(?:\.(?=\s[a-z]))?", re.I | re.A),
        lambda m: f"{en_cardinal(m[1])} {m[2].upper()} M", ""),
    (re.compile(r"(?<![\d:.])(\d{1,6}):(\d{1,6})(?![\d:])"),
        lambda m: f"{en_cardinal(m[1])} to {en_cardinal(m[2])}", ":"),
    (re.compile(_AMOUNT), _money, "$€£¥₩₹DRPY"),
    (re.compile(r"±\s?(?=\.?\d)"), lambda m: " plus or minus ", "±"),
    (re.compile(r"(?<![\w)\]°%])([<>≤≥≈≠])\s?(?=[-+$€£¥]?\.?\d)"),
    lambda m: f" {_OPERATORS[m[1]]} ", "<>≤≥≈≠"),
    (re.compile(rf"(?<![\w.])(?:({_N})\s?(?:°\s?[CF]?\s?)?[-~–—]\s?(?=\d))?([-+]?)({_N})\s?°\s?"
                rf"([CF]?)(?![A-Za-z])"), _degrees, "°"),
    (re.compile(rf"{_START}({_N})\s?%?\s?[-~–—]\s?({_N})\s?%"),
        lambda m: f"{en_number(m[1])} to {en_number(m[2])} percent", "%"),
    (re.compile(rf"(?:(?<![\w)\]])(-))?{_START}({_N})\s?(%|‰)"),
    lambda m: ("minus " if m[1] else "") + en_number(m[2])
    + (" percent" if m[3] == "%" else " per mille"), "%‰"),
    (re.compile(rf"(?<![\d/.])(?:(\d{{1,4}})\s)?([1-9]\d{{0,5}})/([1-9]\d{{0,5}})(?![\d/])(?:(?:th|"
                rf"rd|nd)s?\b|\s?({_UNIT})(?![\w/^]))?", re.A), _fraction, "/"),
    (re.compile(r"(?<![\d.])(\d{1,9})(?:st|nd|rd|th)\b", re.A), lambda m: en_ordinal(m[1]), ""),
    (re.compile(rf"{_START}({_N})e([+-]?\d{{1,3}})(?!\w)", re.I),
        lambda m: f"{en_number(m[1])} times ten to the power of {en_number(m[2])}", "eE"),
    (re.compile(rf"{_START}({_N})-({_N})(?==)"), lambda m: f"{en_number(m[1])} minus {m[2]}", "="),
    (re.compile(r"(?<![\w.-])([12]\d{3})\s?[-~–—]\s?([12]\d{3})(?![\w-])", re.A),
        lambda m: f"{en_year(m[1])} to {en_year(m[2])}", "-~–—"),
    (re.compile(r"(?<![\w.-])(1[1-9]|20)(\d\d)\s?[-~–—]\s?(\d\d)(?![\w.%-])", re.A),
        lambda m: f"{en_year(m[1] + m[2])} to {en_cardinal(m[3])}" if m[2] < m[3] else m[0],
        "-~–—"),
    (re.compile(rf"(?<![\w.-])({_N})\s?[-~–—]\s?({_N})(?![\d-])", re.A),
        lambda m: f"{en_number(m[1])} to {m[2]}", "-~–—"),
    (re.compile(rf"(?:(?<![\w.)\]])(-)|(?<![\w.]))({_PART})(?: (thousand|million|billion|"
                rf"trillion))?[ -]?({_UNIT})(?![\w/^])", re.A), _measure, ""),
    (re.compile(rf"(?<![\w.])({_N})k(?!\w)", re.A), lambda m: en_number(m[1]) + " thousand", "k"),
    (re.compile(r"(?<=[\dA-Za-z)])\s?\^\s?(-?\d{1,3})(?!\d)"), _power, "^"),
    (re.compile(r"(?<=[\dA-Za-z)])\s?([+×*÷=<>≤≥≈≠])\s?(?=[\dA-Za-z(])"),
        lambda m: f" {_OPERATORS[m[1]]} ", "+×*÷=<>≤≥≈≠"),
    (re.compile(r"(?<=\d)\s?x\s?(?=\d)"), lambda m: " by ", "x"),
    (re.compile(r"\b([CFcf])#(?!\w)"), lambda m: m[1] + " sharp", "#"),
    (re.compile(r"#(?=\d)"), lambda m: "number ", "#"),
    (re.compile(r"(?<=[A-Za-z])(\d{3,15})(?![\d.])"), lambda m: f" {en_digits(m[1])} ", ""),
    (re.compile(r"(?<![\w)\]])-(?=\.?\d)"), lambda m: "minus ", "-"),
    (re.compile(rf"(?<=[A-Za-z])({_N})"),
        lambda m: " " + en_number(m[1]) + " " * m.string[m.end() : m.end() + 1].isalpha(), ""),
    (re.compile(rf"({_N})(?=[A-Za-z])"), lambda m: en_number(m[1]) + " ", ""),
    (re.compile(rf"{_START}{_N}"), _plain, ""),
    (re.compile(r"(?<!\d)\.(\d{1,15})"), lambda m: " point " + en_digits(m[1]), "."),
    (re.compile(r"\d{1,15}"), lambda m: en_number(m[0]), ""),
    (re.compile(r"(?<=[A-Za-z])/(?=[A-Za-z])"), lambda m: " ", "/"),
    (re.compile(r"[&@%°#*_^~|\\=+<>]"), lambda m: _LEFT[m[0]], "&@%°#*_^~|\\=+<>"),
    (re.compile(r" {2,}"), lambda m: " ", ""),
    (re.compile(r" (?=[,.!?;:](?:\s|$))"), lambda m: "", ""),
)  # fmt: skip


def read_english(sentence: str) -> str:
    """`sentence` as words, nothing left that is not said as written. Linear in its length."""
    return apply_rules(_RULES, sentence).strip()
