"""Whole numbers and decimals as Chinese and English words.

Takes digit strings, so that leading zeros and length are not lost.
"""

from __future__ import annotations

_ZH = "零一二三四五六七八九"
_EN = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen"
    " sixteen seventeen eighteen nineteen"
).split()
_TENS = "_ _ twenty thirty forty fifty sixty seventy eighty ninety".split()
_SCALES = (
    (10**12, "trillion"),
    (10**9, "billion"),
    (10**6, "million"),
    (1000, "thousand"),
    (100, "hundred"),
)
_ORDINALS = {
    "one": "first",
    "two": "second",
    "three": "third",
    "five": "fifth",
    "eight": "eighth",
    "nine": "ninth",
    "twelve": "twelfth",
}
MAX_DIGITS = 15  # longer ones are codes, not quantities


def zh_digits(text: str, phone: bool = False) -> str:
    """Digit by digit; on the telephone 1 is said 幺."""
    return "".join("幺" if phone and d == "1" else _ZH[int(d)] if d.isdigit() else d for d in text)


def _zh_group(n: int) -> str:
    """0 < n < 10000, with inner zeros said once."""
    out, gap = "", False
    for unit, name in ((1000, "千"), (100, "百"), (10, "十"), (1, "")):
        digit, n = divmod(n, unit)
        if digit:
            out += ("零" if gap and out else "") + _ZH[digit] + name
            gap = False
        else:
            gap = True
    return out


def zh_cardinal(digits: str) -> str:
    """ "2026" -> 二千零二十六 (两 at the head of 百千万亿); more than 15 digits or a leading zero:
    digit by digit.
    """
    if len(digits) > MAX_DIGITS or (len(digits) > 1 and digits[0] == "0"):
        return zh_digits(digits)
    n = int(digits)
    if n == 0:
        return "零"
    out, gap = "", False
    for unit, name in ((10**12, "万亿"), (10**8, "亿"), (10**4, "万"), (1, "")):
        group, n = divmod(n, unit)
        if not group:
            gap = bool(out)
            continue
        out += ("零" if out and (gap or group < 1000) else "") + _zh_group(group) + name
        gap = False
    if out.startswith("一十"):
        out = out[1:]
    return "两" + out[1:] if len(out) > 1 and out[0] == "二" and out[1] in "百千万亿" else out


def zh_number(text: str, trim: bool = False) -> str:
    """ "-3.50" -> 负三点五零; `trim` drops the zeros at the end (money)."""
    sign = "负" if text.startswith("-") else ""
    whole, _, decimals = text.lstrip("+-").partition(".")
    if trim:
        decimals = decimals.rstrip("0")
    return sign + zh_cardinal(whole or "0") + ("点" + zh_digits(decimals) if decimals else "")


def en_digits(text: str) -> str:
    return " ".join(_EN[int(d)] for d in text if d.isdigit())


def en_cardinal(digits: str) -> str:
    """ "1234" -> one thousand two hundred thirty four; more than 15 digits or a leading zero: digit
    by digit.
    """
    if len(digits) > MAX_DIGITS or (len(digits) > 1 and digits[0] == "0"):
        return en_digits(digits)
    n = int(digits)
    if n < 20:
        return _EN[n]
    if n < 100:
        return _TENS[n // 10] + (" " + _EN[n % 10] if n % 10 else "")
    unit, name = next((u, s) for u, s in _SCALES if n >= u)
    head, rest = divmod(n, unit)
    return f"{en_cardinal(str(head))} {name}" + (" " + en_cardinal(str(rest)) if rest else "")


def en_ordinal(digits: str) -> str:
    *head, last = en_cardinal(digits).split()
    last = _ORDINALS.get(last) or (last[:-1] + "ieth" if last.endswith("y") else last + "th")
    return " ".join([*head, last])


def en_number(text: str) -> str:
    sign = "minus " if text.startswith("-") else ""
    whole, _, decimals = text.lstrip("+-").partition(".")
    return " ".join(
        filter(
            None,
            (
                sign.strip(),
                whole and en_cardinal(whole),
                decimals and "point " + en_digits(decimals),
            ),
        )
    )


def en_year(digits: str) -> str:
    """ "1999" -> nineteen ninety nine, "2005" -> two thousand five, "1900" -> nineteen hundred."""
    high, low = divmod(int(digits), 100)
    if high % 10 == 0 and low < 10:
        return en_cardinal(str(int(digits)))
    tail = "hundred" if low == 0 else f"oh {_EN[low]}" if low < 10 else en_cardinal(str(low))
    return f"{en_cardinal(str(high))} {tail}"
