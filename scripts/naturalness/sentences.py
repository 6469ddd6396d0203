"""What is said for measuring: ordinary sentences of 10 to 25 syllables, and the name of each one's
sound file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

SENTENCES = {
    "zh": (
        "今天下午三点，我们在图书馆门口见面。",
        "他慢慢地推开窗户，看见远处的山已经被雪盖住了。",
        "这本书写得真好，你应该抽时间读一读。",
        "请问去火车站怎么走，坐地铁方便吗？",
        "明天早上可能会下雨，出门记得带一把伞。",
        "奶奶做的红烧肉又香又嫩，我们都很喜欢吃。",
        "这个问题有点儿复杂，让我想一想再回答你。",
        "孩子们在院子里放风筝，笑声传得很远。",
    ),
    "en": (
        "The old lighthouse stood alone at the edge of the rocky shore.",
        "Please bring me a cup of tea and two slices of bread.",
        "We walked along the river until the sun went down behind the hills.",
        "Do you know what time the next train leaves for the city?",
        "My sister is learning to play the piano, and she practices every evening.",
        "It started to rain just as we were leaving the house.",
        "He left his keys on the kitchen table again this morning.",
        "The market on the corner sells fresh bread and good coffee.",
    ),
}
_NAME = re.compile(r"(?P<reference>.+)__(?P<language>zh|en)__(?P<number>\d)\.wav")


@dataclass(frozen=True)
class Utterance:
    """Sentence `number` of `language`, said in the voice of `reference`."""

    reference: str
    language: str
    number: int

    @property
    def text(self) -> str:
        return SENTENCES[self.language][self.number]

    @property
    def file(self) -> str:
        return f"{self.reference}__{self.language}__{self.number}.wav"


def utterance_of(file: str) -> Utterance | None:
    """What the file of that name says; None where the name is another's."""
    match = _NAME.fullmatch(file)
    if match is None or int(match["number"]) >= len(SENTENCES[match["language"]]):
        return None
    return Utterance(match["reference"], match["language"], int(match["number"]))
