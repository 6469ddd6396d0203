"""A small byte-level vocabulary in the published layout: 256 byte tokens and merges that spell some frequent words."""

from __future__ import annotations

import json

_WORDS = (" the", " and", " to", " of", "ing", "er", " in", "he", "你", "好", "的", "是", "我", "不", "一", "了", "。", "，", " hello", " voice")


def byte_letters() -> list[str]:
    """The printable letter of each byte 0..255, as byte-level BPE writes it."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [b for b in range(256) if b not in shown]
    letters = {b: chr(b) for b in shown} | {b: chr(256 + i) for i, b in enumerate(hidden)}
    return [letters[b] for b in range(256)]


def vocabulary() -> tuple[str, str]:
    """(vocab.json, merges.txt)."""
    letters = byte_letters()
    tokens, merges = list(letters), []
    for word in _WORDS:
        joined, *rest = (letters[b] for b in word.encode())
        for letter in rest:
            if joined + letter not in tokens:
                tokens.append(joined + letter)
                merges.append(f"{joined} {letter}")
            joined += letter
    return json.dumps({token: i for i, token in enumerate(tokens)}, ensure_ascii=False), "\n".join(["#version: 0.2", *merges, ""])
