"""Where the speech ids of one segment come from: drawn from the language model, drawn while the
text still arrives, or given.

A source belongs to the LM worker; only the reading of an arriving text runs elsewhere.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence

from ..llm.interface import DecodedTokens, KVCache, LanguageModel, SamplingRequest
from ..llm.streaming_input import TextStream

MAX_PENDING = 16  # text ids read ahead of the language model
END = object()
# whether the flow hears an id; asked once for each as it is drawn, one of these per segment, and it
# may remember
Hears = Callable[[int], bool]


class TokenSource:
    """ids: what the flow hears so far, appended to by the LM worker only. is_row: its next step
    is a row of `decode`.
    """

    ids: list[int]
    is_over = False
    is_joining = False  # nothing was prefilled yet: `prefill_or_step` does that
    is_row = False

    @property
    def can_step(self) -> bool:
        return not self.is_over

    def prefill_or_step(self) -> None:
        """One call of the language model, and what it gives."""

    def start(self, fail: Callable[[Exception], None]) -> None:
        """Its request has begun. fail: how it ends when something goes wrong that no stage sees."""

    def free(self) -> None:
        """Nothing more is wanted of it. The lock is held."""
        self.is_over = True


class FixedTokens(TokenSource):
    """The ids of a source clip (voice conversion): there at once."""

    def __init__(self, ids: Sequence[int]):
        self.ids, self.is_over = list(ids), True


class LMTokens(TokenSource):
    """A row of the batch, once its opening is read. prefix: called then, for the past behind the
    prompt text. hears: None = all of them.
    """

    is_joining = is_row = True

    def __init__(
        self,
        lm: LanguageModel,
        prefix: Callable[[], KVCache],
        text: Sequence[int],
        prompt_speech: Sequence[int],
        sampling: SamplingRequest,
        hears: Hears | None = None,
    ):
        self._lm, self._prefix, self._text, self._prompt_speech = lm, prefix, text, prompt_speech
        self.sampling, self._hears = sampling, hears
        self.ids: list[int] = []
        self.is_over = sampling.most < 1
        self.past: KVCache | None = None

    def prefill_or_step(self) -> None:
        """The opening, or one step alone."""
        past = self.past
        if self.is_joining:
            opening = self._lm.prefill_embeddings(self._text, self._prompt_speech)
            past = self._prefix().fork(
                opening.shape[1] + (self.sampling.most if self._lm.positions is None else 0)
            )
            decoded = self._lm.start(opening, past, self.sampling)
            self.past, self.is_joining = past, False
        else:
            (decoded,) = self._lm.decode([past])
        self.add(decoded)

    def add(self, decoded: DecodedTokens) -> None:
        """Raises what went wrong in this row."""
        if decoded.error is not None:
            raise decoded.error
        if self.is_over:
            return
        self.ids += [i for i in decoded.ids if self._hears is None or self._hears(i)]
        if decoded.over:
            self.free()

    def free(self) -> None:
        self.is_over, self.past = True, None


class StreamingTextTokens(TokenSource):
    """Text that comes piece by piece.

    Its calls have lengths of their own, so it steps alone, and it never waits for its text.
    """

    def __init__(
        self,
        stream: Callable[[], TextStream],
        text: Iterable[int],
        lock: threading.Lock,
        on_text: Callable[[], None],
        hears: Hears | None = None,
    ):
        """stream: called once, in the LM worker. text: its ids; may block, and is read in a
        thread of its own. lock: what the sources are read under. on_text: called with that lock
        held when text or its end has come.
        """
        self.ids: list[int] = []
        self._hears = hears
        self._text, self._lock, self._on_text = text, lock, on_text
        self._room = threading.Condition(lock)
        self._pending: deque[int] = deque()
        self._has_all = self._is_starved = False
        self._make_stream = stream
        self._speech = self._speak()

    def start(self, fail: Callable[[Exception], None]) -> None:
        def feed() -> None:
            try:
                self._feed()
            except Exception as error:  # of whoever writes the text
                fail(error)

        threading.Thread(target=feed, name="cosyvoice-text", daemon=True).start()

    def _feed(self) -> None:
        """As the language model takes it, until it ends or nothing more is wanted."""
        for text_id in self._text:
            with self._lock:
                self._room.wait_for(lambda: len(self._pending) < MAX_PENDING or self.is_over)
                if self.is_over:
                    return
                self._pending.append(text_id)
                self._on_text()
        with self._lock:
            self._has_all = True
            self._on_text()

    def _speak(self) -> Iterator[int | None]:
        yield from self._make_stream().speak(self._iterate_text())

    def _iterate_text(self) -> Iterator[int | None]:
        """None while the rest is still to come."""
        while True:
            with self._lock:
                text_id, is_end = (
                    (self._pending.popleft() if self._pending else None),
                    self._has_all,
                )
                self._is_starved = text_id is None and not is_end
                self._room.notify()
            if text_id is None and is_end:
                return
            yield text_id

    @property
    def can_step(self) -> bool:
        return not self.is_over and (not self._is_starved or bool(self._pending) or self._has_all)

    def prefill_or_step(self) -> None:
        chosen = next(self._speech, END)
        if chosen is END:
            self.is_over = True
        elif chosen is not None and (self._hears is None or self._hears(chosen)):
            self.ids.append(chosen)

    def free(self) -> None:
        self.is_over = True
        self._room.notify_all()
