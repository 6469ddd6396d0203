"""The seam: what every engine is, and the rules that the contract suite (tests/engine/contract.py)
checks on each of them.

1. Chunks are in order, numbered from 0, non-empty, the last one marked; the whole is their
   concatenation.
2. Closing the iterator cancels; `cancel` is idempotent and takes effect within one step (one
   `next()`).
3. Every failure is a named error of webui.errors; nothing hangs: a silent engine becomes
   EngineStalled.
4. Same request + seed + version = same samples, whatever ran before it or beside it.
5. Buffers are bounded: an engine is ahead of its reader by one chunk at most, and by what the chunk
   after it needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

import numpy as np

from ..types import Abilities, Chunk, Health, Prompt, SpeechRequest


class Engine(Protocol):
    """What speaks, in this process or another. The rules above hold for every one."""

    def describe(self) -> Abilities:
        """What the engine can do. Quick, any time."""

    def start(self) -> None:
        """Load, and speak a warm-up sentence.

        Blocking; called once, in a background thread. Raises a named error.
        """

    def encode(self, samples: np.ndarray, rate: int, transcript: str, language: str) -> Prompt:
        """samples: float32 mono (n,), the cut reference at `rate` Hz.

        Thread-safe. Raises BadInput (too short, silent, not finite).
        """

    def prepare(self, prompt: Prompt) -> None:
        """Whatever makes the first request with this prompt as quick as later ones; may do nothing.

        Blocking, thread-safe, never needed.
        """

    def stream(self, request: SpeechRequest, prompt: Prompt, lane: int = 0) -> Iterator[Chunk]:
        """One `next()` = one chunk on `lane` (0 <= lane < describe().lanes), made then or waited
        for. `request.segments` is what is spoken, `request.text` when it is empty. With
        `first_segment` it gives what a stream of all segments gives from that one on, sample for
        sample; chunks keep the index that a segment has among all. The iterator has `close()`; it
        owns all state of the request.
        """

    def make_way(self, lane: int) -> None:
        """Somebody who listens waits for this lane: a long step of work in the background
        (`request.priority` > 0) ends early, with what it has. Never waits, any thread. Only of
        engines whose steps are longer when nobody listens.
        """

    def convert(
        self, request: SpeechRequest, prompt: Prompt, samples: np.ndarray, rate: int, lane: int = 0
    ) -> Iterator[Chunk]:
        """Voice conversion, as `stream`; only of engines whose modes hold "convert". samples: the
        source clip, float32 mono (n,).
        """

    def stream_text(
        self, request: SpeechRequest, prompt: Prompt, pieces: Iterable[str]
    ) -> Iterator[Chunk]:
        """As `stream`, for a text that is still arriving; only of engines whose `text_in` is true.

        `pieces` may wait, in any thread, and ends when nobody listens any more; a step then ends
        too.
        """

    def preset(self, name: str) -> Prompt:
        """The prompt of one of describe().presets; only of engines that have any."""

    def notes(self, request: SpeechRequest) -> list[tuple[str, str]]:
        """What this engine cannot do of the request, as (English, Chinese) sentences; empty when
        all of it. Quick: told before the first sound.
        """

    def settle(self, request: SpeechRequest) -> tuple[SpeechRequest, list[tuple[str, str]]]:
        """The request with its `voice_engine` decided, so that it is the same whenever it is made
        again, and what the caller must know of that choice, as `notes` has it. Quick. Only of
        engines whose `voice_engines` are several.
        """

    def check(self, request: SpeechRequest, prompt: Prompt) -> list[tuple[str, str]]:
        """What is odd about a transcript beside its clip, as `notes` has it.

        Raises BadInput for a text that has no room behind the clip, before a stream is begun that
        would end with it. Quick. Only of engines that read a transcript.
        """

    def forget(self, fingerprint: str) -> None:
        """Of a prompt that nobody needs any more: what is kept of it goes, in every process and on
        every device. A stream under way with it goes on to its end. Unknown ones are fine. Any
        thread. Only of engines that keep something of a prompt beyond its streams.
        """

    def figures(self) -> dict[str, float]:
        """Counts and sizes for /metrics, by the names of FIGURES in studio/metrics.py; others are
        passed over. Quick, any thread. Only of engines that have any.
        """

    def cancel(self, request_id: str) -> None:
        """Idempotent, unknown ids are fine. A running stream raises Cancelled at its next step."""

    def health(self) -> Health:
        """Whether it can speak now. Quick, any thread."""

    def close(self) -> None:
        """Free processes and memory. Idempotent."""
