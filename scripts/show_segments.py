"""How 40 texts are cut: sentence by sentence with a short first clause (the built-in voice), packed
for CosyVoice, and by the public front end.

    python scripts/show_segments.py [--texts]

Prints a Markdown table of units per segment, a line of counts, and with --texts the segments of
CosyVoice themselves.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripts.published import text_front
from webui import text
from webui.types import Segmentation

RULE = Segmentation(80, 60, 20)  # CosyVoice's, as its engines state it
LEAST_HAN, LEAST_WORDS = 10, 6
_HAN, _WORD = re.compile(r"[\u4e00-\u9fff]"), re.compile(r"[A-Za-z][A-Za-z']*")
_MARK_WORDS = re.compile(
    r"[<>|\[\]]|endofprompt|helpful assistant|\b(?:zh|en|jp|yue|im)\b", re.I
)  # what is left in a segment where a mark of these texts is spoken
KEPT_TAGS = ("[laughter]", "[breath]", "<strong>", "</strong>")
PREFIX = text.PREFIX

TEXTS: dict[str, tuple[str, ...]] = {
    "short": (
        "你好。",
        "好的，谢谢！",
        "今天天气真不错，我们一起去公园散步吧。",
        (
            "收到好友从远方寄来的生日礼物，那份意外的惊喜与深深的祝福让我心中充满了甜蜜的快乐，"
            "笑容如花儿般绽放。"
        ),
        "真的吗？太好了！那我明天早上八点来接你",
        "Yes.",
        "Good morning, everyone!",
        "After a long and rainy winter, the first warm day felt like a gift to everyone.",
        "Wait. Stop. Look at me. Now go on, please.",
        "Dr. Smith paid $1,234.56 at 3 p.m. and went to https://example.com/a?b=1 now!",
    ),
    "long": (
        (
            "春天来了。山坡上的草绿了，河边的柳树也发了芽。孩子们脱下厚厚的棉衣，"
            "跑到田野里去放风筝。老人们坐在门口晒太阳，聊着一年的打算。"
            "村里的小学校也热闹起来，下课铃一响，操场上到处是笑声。谁也没有注意到，"
            "那只燕子又回到了旧年的屋檐下。"
        ),
        (
            "他推开门。屋里没有人。桌上放着一封信，信封上只写了他的名字。他坐下来，慢慢地拆开，"
            "看了一遍又一遍。最后他站起身，把信折好放进口袋，走了出去。"
            "外面下着雨。他没有打伞。街上的灯一盏一盏地亮了，像是有人在远处替他数着脚步。好。"
        ),
        (
            "人工智能的发展经历了几次起伏，从最早的符号推理，到后来的专家系统，"
            "再到统计学习和深度神经网络，每一次进步都离不开数据、算法和算力的共同作用，"
            "而今天的大语言模型更是把这三者结合到了前所未有的程度，"
            "让机器第一次能够用接近人类的方式理解和生成语言，这也带来了关于安全、"
            "隐私和就业的新问题，需要全社会一起回答。"
        ),
        (
            "第一章 开端\n这是一个关于海的故事\n很久以前，有一个渔村，村里的人世世代代靠打鱼为生。"
            "\n直到有一天，海水忽然退了下去，再也没有回来。\n人们站在干涸的海床上，"
            "不知道该往哪里走。"
        ),
        (
            "我们的课程分为三个部分：第一部分讲基础，第二部分讲应用，第三部分是实践。"
            "每个部分大约需要四周时间；每周有两次课，一次作业。请大家按时完成，遇到问题随时提问。"
            "祝学习愉快！"
        ),
        (
            "The old lighthouse stood at the edge of the cliff. Nobody had lived there for years."
            " Every night, however, a light appeared in its highest window. The fishermen talked"
            " about it in low voices. Some said it was a ghost. Others laughed and said it was the"
            " moon. One evening a girl decided to find out. She took a lamp and a rope, and climbed"
            " the narrow path. What she saw at the top, she never told anyone. But she smiled"
            " whenever she was asked."
        ),
        (
            "He ran. He fell. He got up again. The crowd was shouting his name, and he could hear"
            " nothing but his own breath. Ten metres to go. Five. Then it was over, and he lay on"
            " the grass looking at a sky so blue that it hurt. Somebody put a towel on his face."
            " Somebody else was crying. He had done it. Yes."
        ),
        (
            "Machine learning systems, which were once limited to narrow and carefully controlled"
            " laboratory settings, are now used every day by hundreds of millions of people, who"
            " ask them for directions, for translations, for advice about their health and their"
            " money, and who seldom think about the enormous amount of data, of energy, and of"
            " human work that had to come together before a machine could answer even the simplest"
            " of these questions in a voice that sounds almost like one of us"
        ),
        (
            "Chapter One\nIt was a dark and stormy night\nThe rain fell in torrents, except at"
            " occasional intervals, when it was checked by a violent gust of wind.\nMr. Brown"
            " closed the window. He had been waiting since 9:30 p.m. and his patience was at an"
            " end.\nThe telephone rang"
        ),
        (
            "Please listen carefully: this is an important announcement. The train to London will"
            " leave from platform 4, not from platform 2. Passengers with heavy luggage should use"
            " the lift; all others may take the stairs. We are sorry for the delay. Thank you for"
            " your patience. Have a pleasant journey!"
        ),
    ),
    "mixed": (
        "我有3只猫。I have 3 cats. 它们都很可爱。",
        "今天的 meeting 改到下午3点，请大家提前5分钟进入 Zoom 会议室。See you there!",
        "他说：“Hello, my friend!”然后就笑了。我也笑了。",
        "OK。",
        (
            "这个 API 返回的是 JSON，字段名是 user_id。Please check the documentation at"
            " example.com before you call it. 调用之前请先看文档。"
        ),
        (
            "The word 开口 means to open one's mouth. It is also the name of this studio."
            " 开口说话，就这么简单。"
        ),
        (
            "苹果公司（Apple Inc.）在2024年发布了新款 iPhone 16 Pro，起售价为$999。The new model"
            " comes in 4 colours. 国内售价为¥7,999，9月20日正式开售。Pre-orders start on Friday at"
            " 8 p.m. 想买的朋友可以提前准备了。"
        ),
        "Bonjour 是法语的你好，Guten Tag 是德语的你好，Hello 大家都会。",
        "价格从 $12.50 涨到了 $15。That is 20 percent more! 你还买吗？I will not. 我也不买。",
        (
            "第一句中文。Second sentence in English. 第三句中文。Fourth in English. 第五句。Sixth."
            " 七。Eight."
        ),
    ),
    "marks": (
        (
            "<|zh|>在那之后，完全收购那家公司，因此保持管理层的一致性，"
            "利益与即将加入家族的资产保持一致。这就是我们有时不买下全部的原因。"
        ),
        (
            "<|en|>And then later on, fully acquiring that company. So keeping management in line,"
            " interest in line with the asset that's coming into the family is a reason why"
            " sometimes we don't buy the whole thing."
        ),
        "<|jp|>こんにちは、きょうはいいてんきですね。",
        f"{PREFIX}<|endofprompt|>八百标兵奔北坡，北坡炮兵并排跑，炮兵怕把标兵碰，标兵怕碰炮兵炮。",
        (
            f"{PREFIX}<|endofprompt|>[breath]因为他们那一辈人[breath]在乡里面住的要习惯一点，"
            "[breath]邻居都很活络，[breath]嗯，都很熟悉。[breath]"
        ),
        "在面对挑战时，他展现了非凡的<strong>勇气</strong>与<strong>智慧</strong>。<|endofprompt|>",
        "在面对挑战时，他展现了非凡的勇气与智慧。<endofprompt>",
        "他突然停下来，[laughter]因为自己也被逗笑了[laughter]。<|im_end|>",
        "<|yue|>今日天气好好，<|translate|>我哋去饮茶啦！",
        f"{PREFIX} 请用广东话表达。<|endofprompt|>好少咯，一般系放嗰啲国庆啊，中秋嗰啲可能会咯。",
    ),
}


def segments(raw_text: str, rule: Segmentation | None) -> list[str]:
    """Of a typed text, as a request to an engine with this rule has them."""
    known_tags = KEPT_TAGS if rule is not None else ()
    language = text.marked_language(raw_text) or "auto"
    return text.prepare(text.strip_tags(raw_text, known_tags), language, rule=rule)


def public(raw_text: str) -> list[str]:
    """As the public front end cuts it. A text with a mark is one segment there."""
    return text_front.normalise(raw_text, True, lambda piece: round(text.units(piece, RULE)))


def is_short(segment: str) -> bool:
    return (
        len(_HAN.findall(segment)) + len(_WORD.findall(segment)) * (LEAST_HAN / LEAST_WORDS)
        < LEAST_HAN - 0.5
    )


def n_short(cut: list[str]) -> int:
    """Segments under the minimum; none where the whole text is one."""
    return sum(map(is_short, cut)) if len(cut) > 1 else 0


def n_marks(cut: list[str]) -> int:
    """Segments in which something of a mark would be spoken; event tags that the engine knows do
    not count.
    """
    return sum(
        bool(_MARK_WORDS.search(re.sub("|".join(map(re.escape, KEPT_TAGS)), "", segment)))
        for segment in cut
    )


def rows() -> list[tuple[str, str, list[str], list[str], list[str]]]:
    """(group, text, before, after, public) of every text."""
    return [
        (group, raw_text, segments(raw_text, None), segments(raw_text, RULE), public(raw_text))
        for group, texts in TEXTS.items()
        for raw_text in texts
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--texts", action="store_true", help="print the segments too")
    with_texts = parser.parse_args(arguments).texts
    table = rows()
    print("| group | text | clauses | CosyVoice | public |\n|---|---|---|---|---|")
    for group, raw_text, *cuts in table:
        excerpt = re.sub(r"\s+", " ", raw_text)[:24].replace("|", "\\|")
        lengths = (
            f"{len(cut)}: " + " ".join(f"{text.units(s, RULE):.0f}" for s in cut) for cut in cuts
        )
        print(f"| {group} | {excerpt} | {' | '.join(lengths)} |")
        if with_texts:
            print("\n".join(f"    {segment}" for segment in cuts[1]))
    for name, at in (("clauses", 2), ("CosyVoice", 3), ("public", 4)):
        cuts = [row[at] for row in table]
        print(
            f"{name}: {sum(map(len, cuts))} segments, {sum(map(n_short, cuts))} under the minimum,"
            f" {sum(map(n_marks, cuts))} with a mark read aloud"
        )


if __name__ == "__main__":
    main()
