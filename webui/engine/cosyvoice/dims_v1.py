"""Sizes of the first generation as data.

Defaults are CosyVoice-300M; the constants below come from training and never vary.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

RATE_HZ, FRAME_SAMPLES = 22050, 256
IDS_PER_S = 50
HOP_IDS, OVERLAP_IDS = 100, 20


def frames_of(ids: int) -> int:
    """Mel frames of so many ids, in the order and precision in which the model was trained."""
    return int(ids / IDS_PER_S * RATE_HZ / FRAME_SAMPLES)


OVERLAP_FRAMES = frames_of(OVERLAP_IDS)


@dataclass(frozen=True)
class StackDims:
    """Of layers with relative attention. The names are those that a TorchKVCache asks for."""

    hidden: int
    heads: int
    inner: int
    layers: int

    def __post_init__(self):
        if (
            min(self.hidden, self.heads, self.inner) < 1
            or self.layers < 0
            or self.hidden % self.heads
            or self.head_size % 2
        ):
            raise ValueError(
                f"{self.hidden} values do not make {self.heads} heads of whole pairs, or"
                f" {self.layers} layers of {self.inner} are none"
            )

    @property
    def kv_heads(self) -> int:
        return self.heads

    @property
    def head_size(self) -> int:
        return self.hidden // self.heads

    def cache_bytes(self, tokens: int, bytes_per_value: int) -> int:
        return 2 * self.layers * self.hidden * tokens * bytes_per_value


@dataclass(frozen=True)
class LmDimsV1:
    """The text encoder and the language model behind it. Of its marks there is one: the end."""

    encoder: StackDims
    body: StackDims
    text_width: int = 512
    text_rows: int = 51866
    speech_codes: int = 4096
    vector: int = 192

    @classmethod
    def of(cls, config: Mapping[str, int]) -> LmDimsV1:
        def stack(name: str) -> StackDims:
            return StackDims(
                *(int(config[f"{name}_{part}"]) for part in ("dim", "heads", "ffn_dim", "blocks"))
            )

        rest = (
            int(config[name])
            for name in ("text_embed_dim", "text_vocab_size", "speech_token_size", "spk_embed_dim")
        )
        return cls(stack("text_encoder"), stack("llm"), *rest)

    @property
    def rows(self) -> int:
        return self.speech_codes + 1

    @property
    def end(self) -> int:
        return self.speech_codes

    def forbidden_ids(self, *allowed_ids: int) -> tuple[int, ...]:
        return () if self.end in allowed_ids else (self.end,)

    def cache_bytes(self, tokens: int, bytes_per_value: int) -> int:
        """What one request remembers of `tokens` positions; that of the text encoder is gone when
        the text has been read.
        """
        return self.body.cache_bytes(tokens, bytes_per_value)
