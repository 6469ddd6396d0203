"""What one request remembers of the language model and, while its text is being read, of the text
encoder before it.
"""

from __future__ import annotations

from torch import Tensor

from .kv_cache import TorchKVCache


class TextKVCache:
    """A Past of `..cosyvoice.lm_seam`. text: None once the whole text has been read."""

    def __init__(self, body: TorchKVCache, text: TorchKVCache | None):
        self.body, self.text = body, text

    @property
    def length(self) -> int:
        return self.body.length

    @property
    def nbytes(self) -> int:
        return self.body.nbytes + (self.text.nbytes if self.text is not None else 0)

    def reserve(self, new: int) -> None:
        self.body.reserve(new)

    def release(self) -> Tensor:
        """The body's, as TorchKVCache.release."""
        self.text = None
        return self.body.release()

    def fork(self, room: int = 0) -> TextKVCache:
        return TextKVCache(
            self.body.fork(room), self.text.fork(0) if self.text is not None else None
        )
