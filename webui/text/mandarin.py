"""Reads numbers, dates, money, units and symbols out as Chinese characters.

One sentence in, one out; knows no other language.
"""

from __future__ import annotations

import re

from .language_detect import HAN
from .numerals import MAX_DIGITS, zh_cardinal, zh_digits, zh_number
from .rewrite_rules import Rule, apply_rules
from .urls import ADDRESSES, spell

_N = rf"\d{{1,{MAX_DIGITS}}}(?:\.\d{{1,20}})?"
# a number begins here, not in the middle of one: also what keeps every rule linear
_START = r"(?<![\d.])"
_SIGN = r"(?<![A-Za-z\d)\]])[-+]"  # a minus after a letter or a digit is a hyphen or a range
_MONEY = {
    "¥": "元", "$": "美元", "€": "欧元", "£": "英镑", "₩": "韩元", "₽": "卢布", "₹": "卢比",
    "฿": "泰铢",
    "US$": "美元", "HK$": "港元", "NT$": "新台币", "A$": "澳元", "C$": "加元", "NZ$": "新西兰元",
    "S$": "新加坡元", "MOP$": "澳门元",
    "RMB": "元", "CNY": "元", "USD": "美元", "EUR": "欧元", "JPY": "日元", "HKD": "港元",
    "TWD": "新台币", "AUD": "澳元", "CAD": "加元", "NZD": "新西兰元",
    "SGD": "新加坡元", "GBP": "英镑", "KRW": "韩元", "RUB": "卢布", "CHF": "瑞士法郎",
    "THB": "泰铢", "INR": "卢比",
}  # fmt: skip
_CODES = "|".join(code for code in _MONEY if code.isalpha())
_CURRENCY = "|".join(
    [
        rf"(?<![A-Za-z])(?:{'|'.join(re.escape(c) for c in _MONEY if len(c) > 1)})",
        f"[{''.join(c for c in _MONEY if len(c) == 1)}]",
    ]
)
_UNITS = {
    "km^2": "平方公里", "m^2": "平方米", "cm^2": "平方厘米", "mm^2": "平方毫米", "m^3": "立方米",
    "cm^3": "立方厘米", "km2": "平方公里", "m2": "平方米", "m3": "立方米",
    "km": "公里", "dm": "分米", "cm": "厘米", "mm": "毫米", "μm": "微米", "nm": "纳米",
    "kg": "千克", "mg": "毫克", "ml": "毫升", "mL": "毫升",
    "kWh": "千瓦时", "kW": "千瓦", "kHz": "千赫兹", "MHz": "兆赫兹", "GHz": "吉赫兹", "Hz": "赫兹",
    "mAh": "毫安时", "dB": "分贝", "ms": "毫秒",
    "min": "分钟", "m": "米", "g": "克", "L": "升", "h": "小时", "s": "秒", "W": "瓦", "V": "伏",
}  # fmt: skip
_UNIT = "|".join(map(re.escape, sorted(_UNITS, key=len, reverse=True)))
_SPEEDS = {"km/h": ("每小时", "公里"), "m/s": ("每秒", "米")}
_COUNTED = (
    "个|只|本|张|条|位|名|次|天|年(?!级)|周|小时|分钟|秒|岁|块|元|人|家|种|点|倍|层|辆|架|艘|棵|朵|"
    "双|对|杯|瓶|碗|斤|公斤|吨|米|公里|千米|厘米|千克|克|升|"
    "项|台|部|座|匹|句|段|篇|门|扇|顶|份|万|亿|千|百|美元|英镑|欧元|港元|度|"
    # as written in traditional characters
    "個|隻|張|條|週|小時|分鐘|歲|塊|種|點|層|輛|艘|雙|對|項|臺|門|頂|萬|億|噸|釐米"
)
_TEAM = (
    "中国|日本|韩国|朝鲜|伊朗|澳大利亚|沙特|卡塔尔|美国|墨西哥|巴西|阿根廷|乌拉圭|德国|法国|英格兰|"
    "西班牙|意大利|葡萄牙|荷兰|比利时|克罗地亚|俄罗斯|摩洛哥|"
    "中國|韓國|德國|法國|英格蘭|國足|皇马|巴萨|马竞|曼联|曼城|切尔西|利物浦|阿森纳|热刺|拜仁|多特|"
    "尤文|国米|AC米兰|米兰|罗马|拉齐奥|那不勒斯|巴黎|国足|女足|男足|"
    "国安|申花|海港|泰山|恒大|队|隊"
)
_MATCH = (
    "比分|爆冷|输给|逼平|輸給|战胜|击败|完胜|大胜|小胜|险胜|负于|不敌|战平|憾负|惨败|横扫|"
    "逆转|领先|落后|主场|客场|局分|戰勝|擊敗|領先|落後"
)
_MATCH_BEFORE = re.compile(rf"(?:{_TEAM})\s?以?\s?$|(?:{_MATCH})[^\d，。！？、；]{{0,6}}$")
_MATCH_AFTER = re.compile(rf"\s?(?:{_MATCH})")
_CLAUSE_END = re.compile(rf"\s?(?:$|[，。！？、；,)）“”]|{_TEAM})")
_WEB = {
    ".": "点",
    "/": "斜杠",
    "@": "艾特",
    ":": "冒号",
    "-": "杠",
    "_": "下划线",
    "?": "问号",
    "=": "等于",
    "&": "和",
    "#": "井号",
    "%": "百分号",
    "+": "加",
    "~": "波浪号",
}
_PHONE_WORD = (
    "电话|手机|热线|拨打|致电|拨|客服|QQ|微信|验证码|密码|尾号|卡号|账号|单号|编号|邮编|工号|学号|"
    "号码|房间|航班|车次|"
    "電話|手機|熱線|撥打|致電|撥|驗證碼|密碼|尾號|卡號|帳號|單號|編號|郵編|學號|號碼|房間|車次"
)
_YEAR = r"(?:19|20)\d\d"
_MONTH, _DAY = "0?[1-9]|1[0-2]", r"0?[1-9]|[12]\d|3[01]"
_NO_DECIMAL = rf"(?![\d./·-]|\s?(?:{_COUNTED}|{_UNIT}|[%‰°万亿元块集章回期号课倍]))"


def _two(number: str) -> str:
    return "两" if number == "2" else zh_number(number)


def _date(year: str, month: str, day: str = "") -> str:
    words = f"{zh_digits(year)}年" * bool(year) + f"{zh_cardinal(str(int(month)))}月"
    return words + (f"{zh_cardinal(str(int(day)))}日" if day else "")


def _day_first(m: re.Match[str]) -> str:
    """08-05-2008 is the eighth of May, unless only the other way makes a date."""
    day, month = (m[1], m[3]) if int(m[3]) <= 12 else (m[3], m[1])
    return _date(m[4], month, day) if int(month) <= 12 else m[0]


def _time(m: re.Match[str]) -> str:
    hour, minute, second, half = int(m[1]), int(m[2]), m[3], (m[4] or "").lower().replace(".", "")
    words = (
        ("下午" if half == "pm" else "上午" if half == "am" else "")
        + ("两" if hour == 2 else zh_cardinal(str(hour)))
        + "点"
    )
    if minute or second:
        words += ("零" if 0 < minute < 10 else "") + zh_cardinal(str(minute)) + "分"
    return words + (f"{zh_cardinal(str(int(second)))}秒" if second else "")


def _money(m: re.Match[str]) -> str:
    amount = _two(m[3]) if "." not in m[3] else zh_number(m[3], trim=True)
    return ("负" if m[1] else "") + amount + (m[4] or "") + _MONEY[m[2]]


def _web(m: re.Match[str]) -> str:
    return spell(m[0], _WEB, zh_digits)


def _phone(m: re.Match[str]) -> str:
    plus = "加" if m[0].startswith("+") else ""
    return plus + zh_digits("".join(c for c in m[0] if "0" <= c <= "9"), phone=True)


def _fraction(m: re.Match[str]) -> str:
    whole = f"{zh_cardinal(m[2])}又" if m[2] else ""
    words = f"{whole}{zh_cardinal(m[4])}分之{zh_cardinal(m[3])}{_UNITS.get(m[5] or '', '')}"
    return ("负" if m[1] else "") + words


def _score(m: re.Match[str]) -> str:
    """1-2 beside a word of a match, or between a team and the end of a clause; else a range, and
    left.
    """
    before, after = m.string[max(0, m.start() - 12) : m.start()], m.string[m.end() : m.end() + 6]
    if _MATCH_AFTER.match(after) or (_MATCH_BEFORE.search(before) and _CLAUSE_END.match(after)):
        return f"{zh_cardinal(m[1])}比{zh_cardinal(m[2])}"
    return m[0]


def _ten_thousands(m: re.Match[str]) -> str:
    more = ("多万" if m[1].endswith("0") and "." not in m[1] else "万多") if m[2] else "万"
    return m[1] + more


def _speed(m: re.Match[str]) -> str:
    per, name = _SPEEDS[m[5]]
    first = f"{zh_number(m[3])}到" if m[3] else ""
    return (f"{m[1]}{m[2]}" if m[1] else per) + first + _two(m[4]) + name


def _range(m: re.Match[str]) -> str:
    after = m.string[m.end() : m.end() + 2].lstrip()
    two = _two if re.match(_COUNTED + "|" + _UNIT, after) else zh_number
    return f"{two(m[1])}到{m[2]}"


def _sign_word(m: re.Match[str]) -> str:
    return "负" if m[1] == "-" else "正" if m[1] == "+" else ""


def _degrees(m: re.Match[str]) -> str:
    return (
        ("零下" if m[1] == "-" else "")
        + zh_number(m[2])
        + {"C": "摄氏度", "F": "华氏度", "": "度"}[m[3]]
    )


def _power(m: re.Match[str]) -> str:
    return {"2": "的平方", "3": "的立方"}.get(m[1], f"的{zh_number(m[1])}次方")


_OPERATORS = {
    "+": "加",
    "×": "乘",
    "*": "乘",
    "÷": "除以",
    "=": "等于",
    "<": "小于",
    ">": "大于",
    "≤": "小于等于",
    "≥": "大于等于",
    "≈": "约等于",
    "≠": "不等于",
}
_LEFT = {
    "&": "和",
    "@": "艾特",
    "%": "百分号",
    "°": "度",
    "#": " ",
    "*": " ",
    "_": " ",
    "^": " ",
    "~": " ",
    "|": " ",
    "\\": " ",
    "=": " ",
    "+": "加",
    "<": " ",
    ">": " ",
}

_RULES: tuple[Rule, ...] = (
    *((address, _web, "./:") for address in ADDRESSES),
    (re.compile(r"(?<=[年月日号点分])\s?[-~—]{1,2}\s?(?=\d)|"
                r"(?<=:\d\d)\s?[-~—]{1,2}\s?(?=\d{1,2}:\d\d(?!\d))|"
                r"(?<=[°C])\s?[-~—]\s?(?=\d{1,3}(?:\.\d)?\s?°)"), lambda m: "到", "-~—"),
    (re.compile(rf"([¥$€£₩])\s?({_N})\s?[-~—至到]\s?[¥$€£₩]?\s?(?={_N})"),
        lambda m: f"{_two(m[2])}到{m[1]}", "¥$€£₩"),
    (re.compile(r"(?<![\w.])24/7(?![\d/])", re.A), lambda m: "七乘二十四", "/"),
    (re.compile(r"['‘’]([4-9]\d)(?=年)"), lambda m: zh_digits(m[1]), "'‘’"),
    (re.compile(rf"(?<=\d)\+(?=[{HAN}])"), lambda m: "多", "+"),
    (re.compile(r"(?<![\d.-])(1[5-9]\d\d|20\d\d)[-~—](1[5-9]\d\d|20\d\d)(?![\d.-]|年)"),
        lambda m: f"{zh_digits(m[1])}到{zh_digits(m[2])}" if m[1] < m[2] else m[0], "-~—"),
    (re.compile(r"(?<![\d.])\d{1,3}(?:\.\d{1,3}){3}(?![\d.])"),
        lambda m: zh_digits(m[0]).replace(".", "点"), "."),
    (re.compile(rf"(?<![A-Za-z\d.])([12]\d{{3}})([-/.·])({_MONTH})\2({_DAY})(?!\d)"),
        lambda m: _date(m[1], m[3], m[4]), "-/.·"),
    (re.compile(rf"(?<![A-Za-z\d./-])({_YEAR})\.(0[1-9]|1[0-2])\s?[-~—]\s?"
                rf"({_YEAR})\.(0[1-9]|1[0-2])(?![\d./·-])"),
     lambda m: f"{_date(m[1], m[2])}到{_date(m[3], m[4])}", "."),
    (re.compile(rf"(?<![A-Za-z\d./-])({_DAY})([-/.])({_DAY})\2({_YEAR})(?![\d./-])"), _day_first,
        "-/."),
    (re.compile(rf"(?<![A-Za-z\d./-])([12]\d{{3}})[-/](0[1-9]|1[0-2])(?![\d/-])|"
                rf"(?<![A-Za-z\d./价格值约共额率=$¥€£-])"
                rf"({_YEAR})\.(0[1-9]|1[0-2]){_NO_DECIMAL}"),
     lambda m: _date(m[1] or m[3], m[2] or m[4]), "-/."),
    (re.compile(rf"(?<![A-Za-z\d./-])(?:(0[1-9])[-/.]|(1[0-2])/)({_YEAR}){_NO_DECIMAL}"),
        lambda m: _date(m[3], m[1] or m[2]), "-/."),
    (re.compile(rf"(?<![A-Za-z\d./第号號-])(?:(0[1-9])[-.](0[1-9]|[12]\d|3[01])|"
                rf"(1[0-2])-(0[1-9])){_NO_DECIMAL}"),
     lambda m: _date("", m[1] or m[3], m[2] or m[4]), "-."),
    (re.compile(r"(?<=[月日])\s?[-~—]{1,2}\s?(?=[零一二三四五六七八九十])"), lambda m: "到", "-~—"),
    (re.compile(r"(?<!\d)0([1-9])(?=[月日])|(?<=月)0([1-9])(?=[号號])"), lambda m: m[1] or m[2],
        "月日"),
    (re.compile(r"(?<=公元)(前?)(\d{3,4})(?=年)"), lambda m: m[1] + zh_digits(m[2]), "元"),
    (re.compile(r"(?<![\d.])\d{1,4}(?:\.\d{1,4}){2,3}(?![\d.])"),
        lambda m: "点".join(zh_cardinal(p) for p in m[0].split(".")), "."),
    (re.compile(rf"(?<!\d)\d{{{MAX_DIGITS + 1},}}"), lambda m: zh_digits(m[0]), ""),
    (re.compile(r"(?<![\d,.])\d{1,3}(?:,\d{3}){1,4}(?!\d|,\d)"), lambda m: m[0].replace(",", ""),
        ","),
    (re.compile(r"(?<!\d)([12]\d{3})(年?)\s?[-~—至到]{1,2}\s?([12]\d{3})(?=年)"),
        lambda m: f"{zh_digits(m[1])}{m[2]}到{zh_digits(m[3])}", "年"),
    (re.compile(r"(?<!\d)(?![12]000年[前后以])([12]\d{3})(?=\s?年)"), lambda m: zh_digits(m[1]),
        "年"),
    (re.compile(r"(?<!\d)(\d{2})(?=年\d{1,2}月|[后後](?![来來面天续續方]))"),
        lambda m: zh_digits(m[1]), "年后後"),
    (re.compile(r"(?<![\d.:/-])\+?(?:86[- ]?)?1[3-9]\d[- ]?\d{4}[- ]?\d{4}(?![\d.])"), _phone, ""),
    (re.compile(r"(?<![\d.:/-])(?:0\d{2,3}[- ]\d{7,8}|\(0\d{2,3}\)\s?\d{3,4}[- ]?\d{4}|"
                r"[48]00[- ]?\d{3}[- ]?\d{4})(?!\d)"), _phone, ""),
    (re.compile(r"(?=1)(?<![\d.])(?:10086|10010|12306|12315|12345(?=热线)|(?<=打)1(?:10|14|19|20|"
                r"22)(?![分个個年元次]))(?![\d.])"), _phone, ""),
    (re.compile(r"(?<![\d.])\+\d{1,3}(?:[- ]\(?\d{2,4}\)?){2,4}(?!\d)"), _phone, "+"),
    (re.compile(rf"((?:{_PHONE_WORD})[是为:： ]{{0,3}})(\d{{3,15}}(?:-\d{{1,12}}){{0,3}})(?!\d)"),
        lambda m: m[1] + zh_digits(m[2].replace("-", ""), phone=True), ""),
    (re.compile(r"(比分|比例|比率|赔率)([^\d。]{0,6})(\d{1,4}):(\d{1,4})(?!\d)"),
        lambda m: f"{m[1]}{m[2]}{zh_cardinal(m[3])}比{zh_cardinal(m[4])}", ":"),
    (re.compile(r"(?<![A-Za-z\d.-])(\d{1,3})-(\d{1,3})(?![\d.:-])"), _score, "-"),
    (re.compile(r"(?<![\d:.])([01]?\d|2[0-4]):([0-5]\d)(?::([0-5]\d))?(?![\d:])"
                r"(?:\s?([ap]\.?m\b\.?))?", re.I), _time, ":"),
    (re.compile(r"(?<![\d:.])(\d{1,6}):(\d{1,6})(?![\d:])"),
        lambda m: f"{zh_cardinal(m[1])}比{zh_cardinal(m[2])}", ":"),
    (re.compile(rf"(?<![A-Za-z\d.])({_N})\s?w(\+?)(?![A-Za-z\d])"), _ten_thousands, "w"),
    (re.compile(r"±\s?(?=\d)"), lambda m: "正负", "±"),
    (re.compile(r"(?<![\dA-Za-z)<>=-])([<>≤≥≈≠])\s?(?=[-+]?\d)"), lambda m: _OPERATORS[m[1]],
    "<>≤≥≈≠"),
    (re.compile(rf"(?=[-A-Z$¥€£₩₽₹฿])(?:(?<![A-Za-z\d)\]])(-))?({_CURRENCY})\s?({_N})\s?"
                rf"([百千]?[万亿])?(?:元|块)?"), _money, "$¥€£₩₽₹฿BDYWRFP"),
    (re.compile(rf"(?<![A-Za-z\d.])({_N})\s?([百千]?[万亿])?\s?({_CODES})(?![A-Za-z])"),
        lambda m: _two(m[1]) + (m[2] or "") + _MONEY[m[3]], "BDYWRFP"),
    (re.compile(rf"{_START}({_N})\s?[-~—]{{1,2}}\s?({_N})\s?%"),
        lambda m: f"百分之{zh_number(m[1])}到百分之{zh_number(m[2])}", "%"),
    (re.compile(rf"(?=[-+\d])(?:(?<![A-Za-z\d)\]])([-+]))?{_START}({_N})\s?([%‰])"
                rf"(?:\s?[-~—]{{1,2}}\s?({_N})\s?[%‰])?"),
     lambda m: _sign_word(m) + ("百" if m[3] == "%" else "千") + "分之" + zh_number(m[2])
     + (f"到{'百' if m[3] == '%' else '千'}分之{zh_number(m[4])}" if m[4] else ""), "%‰"),
    (re.compile(r"(?<![\d/])(0[1-9]|1[0-2])/(0[1-9]|[12]\d|3[01])(?![\d/])"),
        lambda m: f"{zh_cardinal(str(int(m[1])))}月{zh_cardinal(str(int(m[2])))}日", "/"),
    (re.compile(rf"(?=[-\d])(?:(?<![A-Za-z\d)\]])(-))?(?<![\d/.])(?:(\d{{1,4}})\s)?([1-9]\d{{0,5}})"
                rf"(?:/| / )([1-9]\d{{0,5}})(?![\d/])"
                rf"(?:\s?({_UNIT})(?![A-Za-z\d]))?"), _fraction, "/"),
    (re.compile(rf"(?=[时時秒\d])(?:(时速|時速|秒速)([为是达约]{{0,2}})\s?)?(?<![A-Za-z\d.-])(?:"
                rf"({_N})\s?[-~—到至]\s?)?({_N})\s?(km/h|m/s)(?![A-Za-z\d])"), _speed, "/"),
    (re.compile(rf"{_START}({_N})e([+-]?\d{{1,3}})(?![A-Za-z\d])", re.I),
        lambda m: f"{zh_number(m[1])}乘以十的{zh_number(m[2])}次方", "eE"),
    (re.compile(rf"{_START}({_N})-({_N})(?==)"), lambda m: f"{zh_number(m[1])}减{m[2]}", "="),
    (re.compile(rf"(?<![\d.A-Za-z-])({_N})\s?(?:~|-|—)\s?({_N})(?![\d-])"), _range, "~-—"),
    (re.compile(rf"(?<!\d)([-+]?)({_N})\s?°\s?([CF]?)(?![A-Za-z])"), _degrees, "°"),
    (re.compile(rf"(?=[-+\d])(?:(?<![A-Za-z\d)\]])([-+])|(?<![A-Za-z\d.])(?<![A-Za-z] "
                rf"))({_N})\s?({_UNIT})"
                rf"(?![A-Za-z\d])"), lambda m: _sign_word(m) + _two(m[2]) + _UNITS[m[3]], ""),
    (re.compile(r"(?<=[\dA-Za-z)])\s?([+×*÷=<>≤≥≈≠])\s?(?=[\dA-Za-z(])"),
        lambda m: _OPERATORS[m[1]], "+×*÷=<>≤≥≈≠"),
    (re.compile(r"(?<=[\dA-Za-z)])\s?\^\s?(-?\d{1,3})(?!\d)"), _power, "^"),
    (re.compile(r"(?<=\d)\s?[x]\s?(?=\d)"), lambda m: "乘", "x"),
    (re.compile(r"#(\d{1,15})(?!\d)"), lambda m: f"{zh_cardinal(m[1])}号", "#"),
    (re.compile(r"\bNo\.\s?(\d{1,6})(?![\d.])", re.I | re.A),
        lambda m: "第一" if m[1] == "1" else f"{zh_cardinal(m[1])}号", "."),
    (re.compile(rf"{_START}(?<!第)2(?={_COUNTED})"), lambda m: "两", ""),
    (re.compile(r"(?<![A-Za-z\d])(B|C|D|F|G|M|O|P|V)2([BCDEFGMOPVX])(?![A-Za-z\d])"),
        lambda m: f"{m[1]} to {m[2]}", ""),
    (re.compile(r"(?<=[A-Za-z])(\d{3,15})(?![\d.])"), lambda m: zh_digits(m[1]), ""),
    (re.compile(rf"{_SIGN}(?=\d|百分之)"), lambda m: "负" if m[0] == "-" else "正", "-+"),
    (re.compile(rf"{_START}{_N}"), lambda m: zh_number(m[0]), ""),
    (re.compile(r"(?<!\d)\.(\d{1,15})"), lambda m: "零点" + zh_digits(m[1]), "."),
    (re.compile(r"\d{1,15}"), lambda m: zh_number(m[0]), ""),
    (re.compile(rf"(?<=[{HAN}])/(?=[{HAN}])"), lambda m: "、", "/"),
    (re.compile(r"(?<=[A-Za-z])/(?=[A-Za-z])"), lambda m: " ", "/"),
    (re.compile(r"[&@%°#*_^~|\\=+<>]"), lambda m: _LEFT[m[0]], "&@%°#*_^~|\\=+<>"),
    (re.compile(r" {2,}"), lambda m: " ", ""),
)  # fmt: skip


def read_mandarin(sentence: str) -> str:
    """`sentence` with nothing left that is not said as written.

    Linear in its length; text without digits and symbols is returned as it is.
    """
    return apply_rules(_RULES, sentence).strip()
