"""The sizes of the language model, as data.

Knows numbers and what must divide; blind to files and tensors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class LmDims:
    """Qwen2 body and the speech vocabulary around it.

    `speech_codes` S: head and speech embedding have S + marks rows; end_at, fill_at: which of the
    marks end a text and ask for more of it. Whatever else is drawn of them ends a text too.
    """

    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    text_rows: int
    speech_codes: int
    rope_theta: float = 1e6
    rms_eps: float = 1e-6
    mix: tuple[int, int] = (5, 15)  # text : speech in text streaming, from training
    marks: int = 3
    end_at: int = 0
    fill_at: int = 2

    def __post_init__(self):
        for value, by, names in (
            (self.hidden, self.heads, "hidden_size by num_attention_heads"),
            (self.heads, self.kv_heads, "num_attention_heads by num_key_value_heads"),
            (self.hidden // max(self.heads, 1), 2, "head size by 2"),
        ):
            if by < 1 or value < 1 or value % by:
                raise ValueError(f"{names}: {value} does not divide by {by}")
        if len(self.mix) != 2:
            raise ValueError(f"mix_ratio: {self.mix} is no pair")
        if min(self.intermediate, self.layers, self.text_rows, self.speech_codes, *self.mix) < 1:
            raise ValueError("every size must be 1 or more")
        if not 0 <= min(self.end_at, self.fill_at) <= max(self.end_at, self.fill_at) < self.marks:
            raise ValueError(
                f"end {self.end_at} and fill {self.fill_at} are not among {self.marks} marks"
            )

    @classmethod
    def of(cls, config: Mapping) -> LmDims:
        """From the names of the published configuration (Qwen2's, with `text_vocab_size` or
        `vocab_size`, and `speech_token_size`).
        """
        rows = config["text_vocab_size"] if "text_vocab_size" in config else config["vocab_size"]
        return cls(
            hidden=int(config["hidden_size"]),
            intermediate=int(config["intermediate_size"]),
            layers=int(config["num_hidden_layers"]),
            heads=int(config["num_attention_heads"]),
            kv_heads=int(config["num_key_value_heads"]),
            text_rows=int(rows),
            speech_codes=int(config["speech_token_size"]),
            rope_theta=float(config.get("rope_theta", 1e6)),
            rms_eps=float(config.get("rms_norm_eps", 1e-6)),
            mix=tuple(int(n) for n in config.get("mix_ratio", (5, 15))),
        )

    @property
    def head_size(self) -> int:
        return self.hidden // self.heads

    @property
    def rows(self) -> int:
        """Of the head and of the speech embedding."""
        return self.speech_codes + self.marks

    @property
    def end(self) -> int:
        return self.speech_codes + self.end_at

    @property
    def fill(self) -> int:
        return self.speech_codes + self.fill_at

    def forbidden_ids(self, *allowed_ids: int) -> tuple[int, ...]:
        """The marks but `allowed_ids`: they mean nothing where only those are asked for."""
        return tuple(row for row in range(self.speech_codes, self.rows) if row not in allowed_ids)

    def cache_bytes(self, tokens: int, bytes_per_value: int) -> int:
        """Keys and values of `tokens` positions of one request."""
        return 2 * self.layers * self.kv_heads * self.head_size * tokens * bytes_per_value
