"""The words of the page's style chips as descriptions: -Instruct was taught English sentences about
the speaker, and may read Chinese ones aloud.
"""

from __future__ import annotations

from .style_tags import tag_instructions

# key of the style chip: its words in Chinese and in English, and what they mean of the speaker
DESCRIPTIONS = {
    "happy": ("开心地", "happily", "a happy and cheerful tone"),
    "sad": ("悲伤地", "sadly", "a sad and low tone"),
    "angry": ("生气地", "angrily", "an angry tone"),
    "calm": ("平静地", "calmly", "a calm and steady tone"),
    "surprise": ("惊讶地", "in surprise", "a surprised tone"),
    "fear": ("害怕地", "fearfully", "a fearful tone"),
    "gentle": ("温柔地", "gently", "a gentle and soft tone"),
    "whisper": ("低语般地", "in a whisper", "a whispering voice"),
    "fast": ("快一点", "a little faster", "a fast speaking rate"),
    "slow": ("慢一点", "a little slower", "a slow speaking rate"),
    "news": ("用播音腔", "like a newsreader", "the clear tone of a newsreader"),
    "story": ("用讲故事的语气", "like a storyteller", "the vivid tone of a storyteller"),
}
_MEANING = {words: meaning for zh, en, meaning in DESCRIPTIONS.values() for words in (zh, en)}


def described(instruction: str) -> str:
    """An instruction as an English description, where it says nothing but what the page's chips
    say; else as it is.
    """
    phrases = tag_instructions(instruction, _MEANING)
    return f"A speaker with {' and '.join(phrases)}." if phrases else instruction
