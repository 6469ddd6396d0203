"""The language model over static buffers: slots instead of caches, replays instead of calls, ids
drawn on the device.

The decode step is captured; prefill, once for each segment and of any length, is not. What
`text`, `speech`, `special_embedding` and `prefill_embeddings` give are row numbers of the one
table, (1, n, 1) on the host: they join with torch.cat like embeddings and are good for `step` and
`start` of this model only.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..llm.interface import DecodedTokens, SamplingRequest
from ..llm.qwen2 import SOS, TASK, Qwen2LM
from ..llm.sampler import RasRule
from .capture import Capture, EagerCapture, Table, Work, fit
from .lm_layers import PackedLm
from .lm_slots import Place, SlotKVCache, Slots, StoredKVCache
from .sampling import NONE, DeviceSampler
from .staging import Arriving, Download, Upload

# positions behind a slot's last: padding writes to the first of them, nobody reads it; eight,
# because attention likes multiples
SPARE = 8


MAX_PREFILL = 512  # positions in one call: its mask grows with their square


@dataclass(frozen=True)
class LmSizes:
    """slots: batch buckets, the last is how many requests there may be. reaches: attention lengths
    of the decode graphs, the last is how many positions a request may have. run: most steps of one
    run.
    """

    slots: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64)
    reaches: tuple[int, ...] = (256, 512, 1024, 2048)
    run: int = 32

    @property
    def positions(self) -> int:
        return self.reaches[-1]


class PendingDecode:
    """The ids of a run, on their way from the device."""

    def __init__(
        self, arriving: Arriving, columns: list[tuple[SlotKVCache, int]], steps: int, end: int
    ):
        self._arriving, self._columns, self._steps, self._end = arriving, columns, steps, end

    def take(self) -> list[DecodedTokens]:
        """Waits for the run. In the order of its pasts."""
        log = self._arriving.take()
        return [
            self._spoken(past, log[: self._steps, column].tolist())
            for past, column in self._columns
        ]

    def _spoken(self, past: SlotKVCache, row: list[int]) -> DecodedTokens:
        ids = [i for i in row if i not in (NONE, self._end)]
        past.left -= len(ids)
        past.length += len(ids)
        past.pending -= self._steps
        return DecodedTokens(ids, len(ids) < len(row) or past.left == 0)


class StaticLm:
    """A LanguageModel and a DeviceSamplingModel. Used from one thread, on one stream."""

    packed = PackedLm  # how a generation's layers compute over rows

    def __init__(
        self,
        lm: Qwen2LM,
        rule: RasRule | None = None,
        sizes: LmSizes | None = None,
        capture: Capture | None = None,
    ):
        """Takes copies of what it needs: `lm` may be dropped afterwards.

        Call `prewarm` before the first request.
        """
        self.dims, self.sizes = lm.dims, sizes or LmSizes()
        s = self.sizes
        self.positions = s.positions
        self._weights = self.packed(lm, s.positions + SPARE)
        self.slots, self.table = Slots(s.slots[-1]), Table(capture or EagerCapture())
        self._workshop = s.slots[-1]  # the slot where prefixes are made
        count, device = s.slots[-1] + 1, self._weights.device
        d = self._weights.dims
        self.store = torch.zeros(
            d.layers,
            2,
            count,
            d.kv_heads,
            s.positions + SPARE,
            d.head_size,
            dtype=self._weights.dtype,
            device=device,
        )
        self.bytes_per_position = self.store[:, :, 0, :, 0].nbytes
        self.lengths = torch.zeros(count, dtype=torch.long, device=device)
        self.scores = torch.zeros(count, lm.dims.rows, device=device)
        self.draws = DeviceSampler(count, s.positions, rule or RasRule(), lm.dims, device)
        self._wanted = torch.zeros(count, dtype=torch.bool, device=device)  # rows that a run steps
        self._log = torch.full((s.run, count), NONE, dtype=torch.long, device=device)
        self._at = torch.zeros(1, dtype=torch.long, device=device)
        self._send_wanted = Upload(self._wanted)
        self._download = Download(self._log)
        self._selected: frozenset[int] | None = None

    # -- what is captured --------------------------------------------------------------------------

    def works(self) -> dict[Hashable, Work]:
        """Every work by its key, largest first.

        With nothing wanted they leave all requests as they are.
        """
        s = self.sizes
        pairs = [(count, reach) for count in reversed(s.slots) for reach in reversed(s.reaches)]
        return {("tick", *pair): self._bound(self._tick, *pair) for pair in pairs}

    def _bound(self, work: Callable[..., None], *sizes: int) -> Work:
        def bound() -> None:
            with torch.no_grad():
                work(*sizes)

        return bound

    @torch.no_grad()
    def prewarm(self, on_progress: Callable[[float], None] = lambda share: None) -> None:
        self._wanted.zero_()
        self.table.fill(self.works(), on_progress)

    def _tick(self, count: int, reach: int) -> None:
        """One step of the first `count` slots: draw an id from the scores of each wanted one, note
        it, feed it, and keep its scores.
        """
        ids = self.draws.next(self.scores[:count], self._wanted[:count])
        self._log[:, :count].index_copy_(0, self._at, ids[None])
        self._at.copy_((self._at + 1) % self.sizes.run)
        goes_on = (ids >= 0) & (ids != self.dims.end)
        lengths, scores = self.lengths[:count], self.scores[:count]
        hidden = self._weights.run(
            self._weights.table[ids.clamp(min=0) + self._weights.speech_at],
            torch.arange(count, device=lengths.device),
            lengths.clamp(max=self.sizes.positions),
            self.store,
            self._weights.each_its_own(count, reach, lengths),
        )
        scores.copy_(torch.where(goes_on[:, None], self._weights.scores(hidden), scores))
        lengths += goes_on

    def _embedded(self, x: Tensor) -> Tensor:
        """Row numbers (1, n, 1) on the host -> embeddings (n, hidden)."""
        return self._weights.table[x[0, :, 0].to(self._weights.device, non_blocking=True)]

    # -- LanguageModel -----------------------------------------------------------------------------

    def _rows(self, ids: Sequence[int], offset: int) -> Tensor:
        return (torch.as_tensor(ids, dtype=torch.long) + offset).reshape(1, -1, 1)

    def special_embedding(self, which: int) -> Tensor:
        return self._rows([which], self._weights.marks_at)

    def text(self, ids: Sequence[int]) -> Tensor:
        return self._rows(ids, 0)

    def speech(self, ids: Sequence[int]) -> Tensor:
        return self._rows(ids, self._weights.speech_at)

    def prefill_embeddings(self, text: Sequence[int], prompt_speech: Sequence[int] = ()) -> Tensor:
        return torch.cat(
            (self.text(text), self.special_embedding(TASK), self.speech(prompt_speech)), 1
        )

    @torch.no_grad()
    def new_cache(self, capacity: int = 1) -> SlotKVCache:
        """Raises Busy when all slots are taken. `capacity` is that of every slot."""
        past = SlotKVCache(self, Place(self.slots))
        self.lengths[past.slot].zero_()
        return past

    @torch.no_grad()
    def prefix(self, prompt_text: Sequence[int]) -> StoredKVCache:
        x = torch.cat((self.special_embedding(SOS), self.text(prompt_text)), 1)
        self.lengths[self._workshop].zero_()
        self._feed_rows(x, self._workshop)
        return StoredKVCache(self, self.store[:, :, self._workshop, :, : x.shape[1]].clone())

    @torch.no_grad()
    def step(self, x: Tensor, past: SlotKVCache) -> Tensor:
        past.claim(x.shape[1])
        self._feed_rows(x, past.slot)
        past.length += x.shape[1]
        return self.scores[past.slot : past.slot + 1].clone()

    def step_many(self, ids: Sequence[int], pasts: Sequence[SlotKVCache]) -> Tensor:
        """One after the other: serving draws on the device, and asks for no scores."""
        rows = zip(ids, pasts, strict=True)
        return torch.cat([self.step(self.speech([one]), past) for one, past in rows])

    # -- ids drawn on the device -------------------------------------------------------------------

    @torch.no_grad()
    def start(self, x: Tensor, past: SlotKVCache, draw: SamplingRequest) -> None:
        """Feed (1, n, 1) behind `past` and get ready to draw; `draw.most` is cut to what the slot
        holds. Waits for nothing.
        """
        past.claim(x.shape[1] + draw.least)
        self._feed_rows(x, past.slot)
        past.length += x.shape[1]
        past.left = min(draw.most, self.sizes.positions - past.length)
        self.draws.begin(past.slot, replace(draw, most=past.left))

    @torch.no_grad()
    def run(self, pasts: Sequence[SlotKVCache], steps: int) -> PendingDecode:
        """`steps` ids (fewer where a request ends) for each of `pasts`, all started.

        Waits for nothing; `take` of the result waits.
        """
        if not 1 <= steps <= self.sizes.run:
            raise ValueError(f"a run has 1 to {self.sizes.run} steps, got {steps}")
        self._gather()
        self._select(frozenset(past.slot for past in pasts))
        for past in pasts:
            past.pending += steps
        bucket = self._bucket(pasts)
        self._at.zero_()
        for _ in range(steps):
            self.table.play(("tick", *bucket))
        return PendingDecode(
            self._download.start(), [(past, past.slot) for past in pasts], steps, self.dims.end
        )

    # -- slots -------------------------------------------------------------------------------------

    @torch.no_grad()
    def copy_slot(self, source: int, target: int, length: int) -> None:
        """`length` positions, the scores and the draws."""
        self.store[:, :, target, :, :length].copy_(self.store[:, :, source, :, :length])
        for rows in (self.lengths, self.scores, *self.draws.rows):
            rows[target].copy_(rows[source])

    @torch.no_grad()
    def fill_slot(self, slot: int, kept: Tensor) -> None:
        """kept (layers, 2, kv_heads, n, head)"""
        self.store[:, :, slot, :, : kept.shape[3]].copy_(kept)
        self.lengths[slot].fill_(kept.shape[3])

    def _feed_rows(self, x: Tensor, slot: int) -> None:
        """New positions of one slot, and the scores after the last. Not captured: once for each
        segment, in as many lengths as there are texts.
        """
        at = torch.full((1,), slot, dtype=torch.long, device=self._weights.device)
        for piece in self._embedded(x).split(MAX_PREFILL):
            count, start = len(piece), self.lengths[slot : slot + 1]
            hidden = self._weights.run(
                piece,
                at.expand(count),
                start + torch.arange(count, device=at.device),
                self.store,
                self._weights.all_one_slot(count, at, start.clone()),
            )
            self.scores[slot] = self._weights.scores(hidden[-1:])[0]
            start += count

    def _select(self, slots: frozenset[int]) -> None:
        if slots == self._selected:
            return
        wanted = self._send_wanted.array()
        wanted[:] = False
        wanted[list(slots)] = True
        self._send_wanted.send()
        self._selected = slots

    def _bucket(self, pasts: Sequence[SlotKVCache]) -> tuple[int, int]:
        return fit(self.sizes.slots, 1 + max(past.slot for past in pasts)), fit(
            self.sizes.reaches, max(past.reach for past in pasts)
        )

    def _gather(self) -> None:
        """After others left: requests move down when that makes a smaller bucket do."""
        users, used = self.slots.users, self.slots.in_use
        target = fit(self.sizes.slots, max(used, 1))
        for slot in sorted((slot for slot in users.keys() if slot >= target), reverse=True):
            past = users.get(slot)
            if past is None:
                continue
            to = self.slots.take()
            self.copy_slot(slot, to, past.reach)
            past.move(to)
