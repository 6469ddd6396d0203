"""Voices and streams of the flow over static buffers: what flow/stream.py is for one request at a
time, here for a batch, from replays alone.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor

from ....errors import BadInput, EngineFault
from ..flow import Blocks, CausalFlow
from ..flow.dims import FRAMES_PER_ID, LOOKAHEAD_IDS, MAX_FRAMES, MEL_BANDS
from .capture import Capture, EagerCapture, Table, Work, fit
from .flow_encoder import EncoderWork, Encoding
from .flow_rows import SCRATCH, UnitAllocator
from .flow_work import FlowBuffers, FlowSizes, FlowWork
from .staging import Upload


class StaticPosition:
    """Ids in order and what was made of the first `done` of them: units of its own behind those of
    its voice, and a slot.
    """

    def __init__(self, flow: StaticFlow, blocks: Blocks, before: Sequence[int] = ()):
        self.flow, self.blocks = flow, blocks
        self.before, self.own = list(before), []
        self.done = len(self.before)
        (self.slot,) = flow.slots.take(1)
        self.close = weakref.finalize(self, _leave, flow, self.slot, self.own)

    @property
    def units(self) -> list[int]:
        return self.before + self.own

    def last_end(self, known: int, final: bool) -> int:
        """How far ids can be computed of which so many are known."""
        return known if final else self.blocks.last_end(known - LOOKAHEAD_IDS)

    def shape(self, known: int, final: bool) -> Hashable:
        """The bucket of what one replay can compute of it; None where there is nothing, or more
        than that, or it looks back too far.
        """
        count, sizes = self.last_end(known, final) - self.done, self.flow.sizes
        fits = 0 < count <= sizes.ids[-1] and self.done <= sizes.reaches[-1]
        return fit(sizes.ids, count) if fits else None

    def next_end(self, end: int) -> int:
        """Where the next call stops on the way to `end`: at `end`, or at the last block end that a
        call can reach.
        """
        most = self.done + self.flow.sizes.ids[-1]
        if end <= most:
            return end
        stop = self.blocks.last_end(most)
        if stop <= self.done:
            raise ValueError(f"a block of more than {self.flow.sizes.ids[-1]} ids")
        return stop


def _leave(flow: StaticFlow, slot: int, own: list[int]) -> None:
    flow.slots.give_back([slot])
    flow.units.give_back(own)


class StaticVoice:
    """A voice's complete prompt blocks, as rows of the pool.

    Arguments as those of VoiceState.begun; `grow` until it is ready.
    """

    def __init__(
        self,
        flow: StaticFlow,
        prompt_ids,
        prompt_mel: Tensor,
        embedding: Tensor,
        blocks: Blocks | None = None,
        ahead=(),
    ):
        like = flow.buffers.speakers
        self.flow, self.blocks = flow, blocks or Blocks(flow.dims.chunk_size)
        self.prompt_ids, self.ahead = _ids(prompt_ids), _ids(ahead)
        self.prompt_mel = prompt_mel.reshape(-1, MEL_BANDS).to(like)
        self.line = StaticPosition(flow, self.blocks)
        flow.clear_slot(self.line.slot, embedding.reshape(-1).to(like))
        self.head: Tensor | None = None
        self.computed_frames, self.is_ready = 0, False

    @property
    def done(self) -> int:
        return self.line.done

    @property
    def bytes(self) -> int:
        """At least a slot's share of the pool: voices end by bytes, before slots do."""
        sizes = self.flow.sizes
        units = max(len(self.line.own), sizes.units // sizes.slots)
        return units * self.flow.buffers.bytes_per_unit()

    def grow(self) -> None:
        """The next piece of the prompt, so that other work can go between."""
        known = np.concatenate([self.prompt_ids, self.ahead])
        last = self.blocks.last_end(min(len(self.prompt_ids), len(known) - LOOKAHEAD_IDS))
        if last > self.done:
            begun = self.done
            (mel,) = self.flow.advance(
                [Call(self.line, known, self.prompt_mel, self.line.next_end(last), False)]
            )
            self.computed_frames += len(mel)
            past_mel = mel[max(0, len(self.prompt_mel) - FRAMES_PER_ID * begun) :]
            if len(past_mel):
                self.head = (
                    past_mel.clone() if self.head is None else torch.cat([self.head, past_mel])
                )
        self.is_ready = self.done >= last

    def shape(self, known: int, final: bool = False) -> Hashable:
        """That of a new stream's first step."""
        return self.line.shape(len(self.prompt_ids) + known, final)

    def begin(self, blocks: Blocks | None = None, seed: int = 0) -> StaticStream:
        blocks = blocks or self.blocks
        if not blocks.agrees(self.blocks, self.done):
            raise ValueError(
                f"these block ends do not cut the voice's first {self.done} ids as the voice did"
            )
        return StaticStream(self, blocks)


class StaticStream:
    """One request, as FlowState. Several at once: StaticFlow.step_many."""

    def __init__(self, voice: StaticVoice, blocks: Blocks):
        self.voice = voice
        self.line = StaticPosition(voice.flow, blocks, voice.line.own)
        voice.flow.copy_slot(voice.line.slot, self.line.slot)
        self.computed_frames = self.emitted_frames = 0
        self.closed = False

    @property
    def done(self) -> int:
        return self.line.done

    @property
    def blocks(self) -> Blocks:
        return self.line.blocks

    @property
    def wanted_ids(self) -> int:
        """Ids that must be known, counted without the prompt, before `step` gives the next
        frames.
        """
        end = self.blocks.end_after(self.done)
        while FRAMES_PER_ID * end <= len(self.voice.prompt_mel):
            end = self.blocks.end_after(end)
        return max(0, end + LOOKAHEAD_IDS - len(self.voice.prompt_ids))

    @property
    def bytes(self) -> int:
        return len(self.line.own) * self.voice.flow.buffers.bytes_per_unit()

    def shape(self, known: int, final: bool = False) -> Hashable:
        """Equal for steps that share a replay: `known` ids were generated so far.

        None: it goes alone.
        """
        return self.line.shape(len(self.voice.prompt_ids) + known, final)

    def step(self, ids, final: bool = False) -> Tensor:
        """All generated ids so far -> the mel frames (m, 80) that became final and were not given
        before.
        """
        return self.voice.flow.step_many([(self, ids, final)])[0].clone()

    def close(self) -> None:
        """Free the memory. Idempotent."""
        self.closed = True
        self.line.close()


class Call:
    """What one row of a batch is to do: the ids of `line` from where it stands up to `end`.

    `ends_all`: no id follows.
    """

    def __init__(
        self, line: StaticPosition, known: np.ndarray, prompt_mel: Tensor, end: int, ends_all: bool
    ):
        self.line, self.known, self.prompt_mel = line, known, prompt_mel
        self.start, self.end, self.ends_all = line.done, end, ends_all

    @property
    def count(self) -> int:
        return self.end - self.start

    def write(self, fresh: list[int], head, ids, units, ends, past) -> None:
        """Into the parts of one row of the job table (FlowBuffers.parts). fresh: as many units as
        there are new ids; they are the line's now.
        """
        fed = self.known[self.start : self.end if self.ends_all else self.end + LOOKAHEAD_IDS]
        line, count = self.line, self.count
        earlier = line.units
        line.own += fresh
        head[:] = line.slot, self.start, count, len(fed)
        ids[: len(fed)], ids[len(fed) :] = fed, 0
        units[:count], units[count:] = fresh, SCRATCH
        ends[:count] = [
            min(line.blocks.end_after(i), self.end) - self.start
            for i in range(self.start, self.end)
        ]
        ends[count:] = count
        past[: len(past) - len(earlier)], past[len(past) - len(earlier) :] = SCRATCH, earlier


class StaticFlow:
    """Used from one thread, on one stream. Call `prewarm` before the first voice."""

    def __init__(
        self,
        flow: CausalFlow,
        sizes: FlowSizes | None = None,
        store: torch.dtype | None = None,
        capture: Capture | None = None,
        encoding: type[Encoding] = EncoderWork,
    ):
        """store: dtype of the kept K/V (None: the model's). encoding: of the generation."""
        self.dims, self.sizes = flow.dims, sizes or FlowSizes()
        self.buffers = FlowBuffers(flow, self.sizes, store or flow.dtype, encoding)
        self.units = UnitAllocator(self.sizes.units, ("speech under way", "进行中语音"))
        self.slots = UnitAllocator(self.sizes.slots, ("voices and streams", "声音与语音流"))
        self.table = Table(capture or EagerCapture())
        self._work, self._jobs = FlowWork(flow, self.buffers), Upload(self.buffers.jobs)
        self._with_cond: set[int] = set()
        self.passed_by = 0  # calls that looked back further than any graph

    def works(self) -> dict[Hashable, Work]:
        s = self.sizes
        keys = [
            (new, batch, reach)
            for new in reversed(s.ids)
            for batch in reversed(s.batches)
            for reach in reversed(s.reaches)
        ]
        return {key: partial(self._work, *key) for key in keys}

    @torch.inference_mode()
    def prewarm(self, on_progress: Callable[[float], None] = lambda share: None) -> None:
        self._write([], [])
        self.table.fill(self.works(), on_progress)
        self._tables = list(
            self.buffers.encoding.tables
        )  # graphs read them where they are, even if longer ones replace them

    @torch.inference_mode()
    def clear_slot(self, slot: int, speaker: Tensor) -> None:
        for rows in self.buffers.by_slot:
            rows[slot].zero_()
        self.buffers.speakers[slot].copy_(speaker)

    @torch.inference_mode()
    def copy_slot(self, source: int, target: int) -> None:
        for rows in self.buffers.by_slot:
            rows[target].copy_(rows[source])

    @torch.inference_mode()
    def step_many(
        self, asked: Sequence[tuple[StaticStream, Sequence[int] | Tensor, bool]]
    ) -> list[Tensor]:
        """`step` for several streams at once: one replay where their new ids fit one.

        Different streams only. When one is refused (too_long, out_of_memory) nothing of that replay
        was done: the caller may ask for each alone and lose only the one at fault. A mel may be a
        view of the stream's own buffer, good until its next step or `close`.
        """
        plans = [_Plan(*one) for one in asked]
        while calls := [(plan, call) for plan in plans if (call := plan.next_call()) is not None]:
            for at in range(0, len(calls), self.sizes.batches[-1]):
                some = calls[at : at + self.sizes.batches[-1]]
                for (plan, call), mel in zip(some, self.advance([call for _, call in some])):
                    plan.took(call, mel)
        return [plan.result() for plan in plans]

    @torch.inference_mode()
    def advance(self, calls: Sequence[Call]) -> list[Tensor]:
        """One replay. -> mel (2 * count, 80) of each, prompt frames included."""
        furthest = max(call.start for call in calls)
        if FRAMES_PER_ID * max(call.end for call in calls) > MAX_FRAMES:
            raise BadInput(
                "This is more than 300 seconds in one piece. Split it.",
                "这一段超过 300 秒，请拆成几段。",
            )
        if furthest > self.sizes.furthest:
            raise EngineFault(
                "This is too long for the acoustic model in one piece. Split it.",
                "这一段超出声学模型的长度，请拆成几段。",
                code="too_long",
            )
        if furthest > self.sizes.reaches[-1]:
            return self._passed_by(calls)
        key = (
            fit(self.sizes.ids, max(call.count for call in calls)),
            fit(self.sizes.batches, len(calls)),
            fit(self.sizes.reaches, furthest),
        )
        self._write(calls, self.units.take(sum(call.count for call in calls)))
        self.table.play(key)
        return [self._taken(call) for call in calls]

    def _passed_by(self, calls: Sequence[Call]) -> list[Tensor]:
        """A long clip and a long sentence behind it: the same work without a graph, one call at a
        time, since it takes memory of its own.
        """
        fresh, mels, s = self.units.take(sum(call.count for call in calls)), [], self.sizes
        for call in calls:
            self.passed_by += 1
            mine, fresh = fresh[: call.count], fresh[call.count :]
            self._write([call], mine)
            reach = -(-call.start // s.reaches[-1]) * s.reaches[-1]
            self._work(fit(s.ids, call.count), 1, min(reach, s.furthest))
            mels.append(self._taken(call))
        return mels

    def _taken(self, call: Call) -> Tensor:
        call.line.done = call.end
        return self.buffers.mels[call.line.slot, : FRAMES_PER_ID * call.count]

    def _write(self, calls: Sequence[Call], fresh: list[int]) -> None:
        jobs = self._jobs.array()
        for row, fields in enumerate(zip(*self.buffers.parts(jobs))):
            if row < len(calls):
                call = calls[row]
                mine, fresh = fresh[: call.count], fresh[call.count :]
                call.write(mine, *fields)
                self._know(row, call)
            else:
                jobs[row] = 0
                # a padding row sees itself: nothing visible at all would make it NaN
                fields[3][:] = 1
        self._jobs.send()

    def _know(self, row: int, call: Call) -> None:
        """The prompt's frames among those of this call."""
        known = call.prompt_mel[FRAMES_PER_ID * call.start : FRAMES_PER_ID * call.end]
        if row in self._with_cond:
            self.buffers.cond[row].zero_()
        self._with_cond.discard(row)
        if len(known):
            self.buffers.cond[row, : len(known)].copy_(known)
            self._with_cond.add(row)


class _Plan:
    """The calls that one stream's step takes: mostly one."""

    def __init__(self, stream: StaticStream, ids: Sequence[int] | Tensor, final: bool):
        if stream.closed:
            raise ValueError("this request has had its final step")
        self._stream, self._final = stream, final
        self._known = np.concatenate([stream.voice.prompt_ids, _ids(ids)])
        if len(self._known) and self._known.max() >= stream.voice.flow.dims.speech_token_size:
            raise ValueError(
                f"speech id {self._known.max()} is outside"
                f" 0..{stream.voice.flow.dims.speech_token_size - 1}"
            )
        self._end = stream.line.last_end(len(self._known), final)
        self._parts: list[Tensor] = []
        if not stream.emitted_frames and stream.voice.head is not None:
            self._parts.append(stream.voice.head)

    def next_call(self) -> Call | None:
        line = self._stream.line
        if line.done >= self._end:
            return None
        end = line.next_end(self._end)
        self._parts = [part.clone() for part in self._parts]  # the next call writes over them
        return Call(
            line, self._known, self._stream.voice.prompt_mel, end, self._final and end == self._end
        )

    def took(self, call: Call, mel: Tensor) -> None:
        self._stream.computed_frames += len(mel)
        self._parts.append(
            mel[max(0, len(self._stream.voice.prompt_mel) - FRAMES_PER_ID * call.start) :]
        )

    def result(self) -> Tensor:
        stream = self._stream
        stream.closed = stream.closed or self._final
        mel = (
            self._parts[0]
            if len(self._parts) == 1
            else torch.cat([stream.voice.flow.buffers.mels[0, :0], *self._parts])
        )
        stream.emitted_frames += len(mel)
        return mel


def _ids(values) -> np.ndarray:
    return np.maximum(np.asarray(values, dtype=np.int64).reshape(-1), 0)
