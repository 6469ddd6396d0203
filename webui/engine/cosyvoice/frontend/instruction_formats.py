"""What this generation was taught to follow: its instructions under the keys of the page's style
chips, and what the chips write for them.

Other wording works to a degree, long one tends to be spoken; so what the chips write becomes the
trained sentence.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ....messages import message
from ....text import detect
from ....types import SpeechRequest
from .style_tags import tag_instructions


class Recipe(NamedTuple):
    """zh, en: as the chip writes it. trained: what the model was taught."""

    zh: str
    en: str
    trained: str


def _dialect(zh: str, en: str, trained: str = "") -> Recipe:
    return Recipe(f"用{zh}", f"in {en} dialect", f"请用{trained or zh}表达。")


DIALECTS = {
    "yue": _dialect("粤语", "Cantonese", "广东话"),
    "dongbei": _dialect("东北话", "Northeastern"),
    "gansu": _dialect("甘肃话", "Gansu"),
    "guizhou": _dialect("贵州话", "Guizhou"),
    "henan": _dialect("河南话", "Henan"),
    "hubei": _dialect("湖北话", "Hubei"),
    "hunan": _dialect("湖南话", "Hunan"),
    "jiangxi": _dialect("江西话", "Jiangxi"),
    "minnan": _dialect("闽南话", "Hokkien"),
    "ningxia": _dialect("宁夏话", "Ningxia"),
    "shanxi": _dialect("山西话", "Shanxi"),
    "shaanxi": _dialect("陕西话", "Shaanxi"),
    "shandong": _dialect("山东话", "Shandong"),
    "shanghai": _dialect("上海话", "Shanghai"),
    "sichuan": _dialect("四川话", "Sichuan"),
    "tianjin": _dialect("天津话", "Tianjin"),
    "yunnan": _dialect("云南话", "Yunnan"),
}
MANNERS = {
    "happy": Recipe("开心地", "happily", "请非常开心地说一句话。"),
    "sad": Recipe("悲伤地", "sadly", "请非常伤心地说一句话。"),
    "angry": Recipe("生气地", "angrily", "请非常生气地说一句话。"),
    "fast": Recipe("快一点", "a little faster", "请用尽可能快地语速说一句话。"),
    "slow": Recipe("慢一点", "a little slower", "请用尽可能慢地语速说一句话。"),
    "loud": Recipe("大声地", "loudly", "Please say a sentence as loudly as possible."),
    "soft": Recipe("非常轻声地", "very softly", "Please say a sentence in a very soft voice."),
    "peppa": Recipe("像小猪佩奇一样", "like Peppa Pig", "我想体验一下小猪佩奇风格，可以吗？"),
    "robot": Recipe("像机器人一样", "like a robot", "你可以尝试用机器人的方式解答吗？"),
}
RECIPES = DIALECTS | MANNERS
STYLES = tuple(RECIPES)
_CHIPS = {words: recipe.trained for recipe in RECIPES.values() for words in (recipe.zh, recipe.en)}


def trained(instruction: str) -> str:
    """An instruction as the model knows it, where it says nothing but what the page's chips say;
    else as it is.
    """
    return "".join(tag_instructions(instruction, _CHIPS)) or instruction


def cautions(request: SpeechRequest) -> list[tuple[str, str]]:
    """It was taught Japanese in katakana: Han it reads as Chinese."""
    is_japanese = request.language == "ja" or (
        request.language in ("", "auto") and detect(request.text) == "ja"
    )
    if is_japanese and re.search(r"[\u3400-\u9fff]", request.text):
        return [message("note.kanji")]
    return []
