"""Speech while the text is still arriving: 5 text ids, 15 speech ids, in turn.

Knows the order of embeddings; blind to where text comes from.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor

from .decode import MAX_IDS_PER_TEXT_ID, Sample
from .interface import KVCache, LanguageModel
from .qwen2 import SOS, TASK


class TextStream:
    """One request whose text arrives id by id.

    Owns its cache, its pending text and everything it has emitted.

    `speak(ids)` yields speech ids as soon as the text so far allows. Fill ids are kept in `out`
    (the repetition window sees them) and never yielded. `forward_lengths` counts the positions of
    every model call, in order.
    """

    def __init__(
        self,
        lm: LanguageModel,
        cache: KVCache,
        prompt_text: Sequence[int],
        prompt_speech: Sequence[int],
        sample: Sample,
        head: Sequence[int] = (),
    ):
        """cache: empty (the start mark is fed here, since prompt text and prompt speech
        interleave). head: text ids that stand before both.
        """
        self._lm, self._cache, self._sample = lm, cache, sample
        self._pending_text: list[Tensor] = [lm.text([i]) for i in prompt_text]
        self._pending_speech: list[Tensor] = [lm.speech([i]) for i in prompt_speech]
        self._input: list[Tensor] = [lm.special_embedding(SOS), *(lm.text([i]) for i in head)]
        self._opening = len(self._input)
        n = len(prompt_speech)
        self._next_fill = (n // lm.dims.mix[1] + 1) * lm.dims.mix[1] - n
        self._text_ids = 0
        self.out: list[int] = []
        self.forward_lengths: list[int] = []

    def speak(self, text: Iterable[int | None]) -> Iterator[int | None]:
        """None in `text` says that nothing has arrived just now; it is passed on, and the caller
        comes back when something has.
        """
        for text_id in text:
            if text_id is None:
                yield None
                continue
            self._text_ids += 1
            self._pending_text.append(self._lm.text([text_id]))
            self._interleave_prompt()
            if not self._pending_speech and self._may_speak():
                yield from self._until_fill()
        yield from self._to_the_end()

    def _interleave_prompt(self) -> None:
        text, speech = self._lm.dims.mix
        while self._pending_speech and len(self._pending_text) >= text:
            self._input += self._take_text(text) + self._pending_speech[:speech]
            del self._pending_speech[:speech]

    def _take_text(self, count: int) -> list[Tensor]:
        ids, self._pending_text = self._pending_text[:count], self._pending_text[count:]
        return ids

    def _may_speak(self) -> bool:
        """True when decoding can go on; takes five text ids where a round starts.

        After a fill they replace what was fed before it.
        """
        starting = not self.out and len(self._input) == self._opening
        after_fill = bool(self.out) and self.out[-1] == self._lm.dims.fill
        if not (starting or after_fill):
            return True
        count = self._lm.dims.mix[0]
        if len(self._pending_text) < count:
            return False
        ids = self._take_text(count)
        self._input = ids if after_fill else self._input + ids
        return True

    def _until_fill(self) -> Iterator[int]:
        dims = self._lm.dims
        while True:
            scores = self._forward()
            if len(self.out) == self._next_fill:
                chosen = dims.fill  # forced: the scores of this call are not used
            else:
                chosen = self._choose(scores, never=dims.forbidden_ids(dims.fill))
            if chosen == dims.fill:
                self._next_fill = len(self.out) + dims.mix[1] + 1
                self.out.append(chosen)
                return
            self.out.append(chosen)
            self._input = [self._lm.speech([chosen])]
            yield chosen

    def _to_the_end(self) -> Iterator[int]:
        dims = self._lm.dims
        self._input += self._pending_text + [self._lm.special_embedding(TASK)] + self._left_over()
        limit = len(self.out) + MAX_IDS_PER_TEXT_ID * max(
            self._text_ids, 1
        )  # upstream has none: an unlucky draw never ended
        while len(self.out) < limit:
            chosen = self._choose(self._forward(), never=dims.forbidden_ids(dims.end))
            self.out.append(chosen)
            if chosen == dims.end:
                return
            self._input = [self._lm.speech([chosen])]
            yield chosen

    def _left_over(self) -> list[Tensor]:
        """Of the prompt's speech what no text was left for: behind the task mark, as where all text
        is known (upstream drops it).
        """
        leftover, self._pending_speech = self._pending_speech, []
        return leftover

    def _forward(self) -> Tensor:
        x = torch.cat(self._input, 1)
        self.forward_lengths.append(x.shape[1])
        return self._lm.step(x, self._cache)[0]

    def _choose(self, scores: Tensor, never: tuple[int, ...]) -> int:
        """Sample; an id that has no meaning here is drawn again without it (upstream raises).

        The end id is masked before the draw.
        """
        if self._lm.dims.end in never:
            scores[self._lm.dims.end] = -torch.inf
        chosen = self._sample(scores, self.out)
        while chosen in never:
            scores[chosen] = -torch.inf
            chosen = self._sample(scores, self.out)
        return chosen
