"""A small byte-level vocabulary in the published layout: 256 byte tokens and merges that spell some
frequent words.
"""

from __future__ import annotations

import base64
import json

_WORDS = (
    " the",
    " and",
    " to",
    " of",
    "ing",
    "er",
    " in",
    "he",
    "你",
    "好",
    "的",
    "是",
    "我",
    "不",
    "一",
    "了",
    "。",
    "，",
    " hello",
    " voice",
)


def byte_letters() -> list[str]:
    """The printable letter of each byte 0..255, as byte-level BPE writes it."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [b for b in range(256) if b not in shown]
    letters = {b: chr(b) for b in shown} | {b: chr(256 + i) for i, b in enumerate(hidden)}
    return [letters[b] for b in range(256)]


def _learn_merges() -> tuple[list[str], list[str]]:
    """(tokens in the order of their ids, merges)."""
    letters = byte_letters()
    tokens, merges = list(letters), []
    for word in _WORDS:
        joined, *rest = (letters[b] for b in word.encode())
        for letter in rest:
            if joined + letter not in tokens:
                tokens.append(joined + letter)
                merges.append(f"{joined} {letter}")
            joined += letter
    return tokens, merges


def vocabulary() -> tuple[str, str]:
    """(vocab.json, merges.txt)."""
    tokens, merges = _learn_merges()
    return json.dumps({token: i for i, token in enumerate(tokens)}, ensure_ascii=False), "\n".join(
        ["#version: 0.2", *merges, ""]
    )


def ranks(count: int = 0) -> list[bytes]:
    """The same tokens as bytes, as the first generation keeps them; filled up with pairs of bytes
    to `count`, where so many are wanted.
    """
    bytes_of = {letter: b for b, letter in enumerate(byte_letters())}
    tokens = [bytes(bytes_of[letter] for letter in token) for token in _learn_merges()[0]]
    have = set(tokens)
    pairs = (
        pair
        for pair in (bytes((a, b)) for a in range(255, -1, -1) for b in range(256))
        if pair not in have
    )
    return tokens + [next(pairs) for _ in range(count - len(tokens))]


def tiktoken(tokens: list[bytes]) -> str:
    """A token in base64 and its rank in each line."""
    return "".join(
        f"{base64.b64encode(token).decode()} {rank}\n" for rank, token in enumerate(tokens)
    )
