"""Exact memory of the flow: a request computes only frames that nobody computed before, and gets
those of a full run.

Only complete blocks are computed before the end, because those never change again. A voice's
complete prompt blocks depend on nothing but the voice, so they are computed once and shared,
read-only, by all its requests.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

import torch

from .blocks import Blocks
from .causal_flow import CausalFlow, Work
from .conformer import EncoderCache
from .conv import ConvCache
from .dims import FRAMES_PER_ID, LOOKAHEAD_IDS, MEL_BANDS
from .unet import EstimatorCache

GROWTH_IDS = 50


def _ids(values: Sequence[int] | torch.Tensor) -> torch.Tensor:
    return torch.as_tensor(values, dtype=torch.long).reshape(-1).cpu()


@dataclass
class VoiceState:
    """What a voice knows once. Shared by its requests and never written once it `is_ready`."""

    flow: CausalFlow
    blocks: Blocks
    prompt_ids: torch.Tensor  # (p,)
    prompt_mel: torch.Tensor  # (t, 80); t is mostly 2p, but need not be
    ahead: torch.Tensor  # ids of the clip behind the prompt: all that its last block looks ahead at
    speaker: torch.Tensor  # (1, 80)
    store: torch.dtype
    encoder_past: EncoderCache | ConvCache
    pasts: list[EstimatorCache] = field(
        default_factory=list
    )  # one per Euler step, frozen when ready
    done: int = 0  # ids whose activations are kept
    computed_frames: int = 0
    # frames past the prompt mel that these ids already gave (mel shorter than the ids)
    head: torch.Tensor | None = None
    is_ready: bool = False

    @classmethod
    @torch.inference_mode()
    def create(
        cls,
        flow: CausalFlow,
        prompt_ids: Sequence[int] | torch.Tensor,
        prompt_mel: torch.Tensor,
        embedding: torch.Tensor,
        blocks: Blocks | None = None,
        store: torch.dtype | None = None,
        ahead: Sequence[int] | torch.Tensor = (),
    ) -> VoiceState:
        """Nothing computed yet: call `grow` until it is ready. Arguments as in `of`."""
        mel = prompt_mel.reshape(-1, MEL_BANDS).to(device=flow.device, dtype=flow.dtype)
        store = store or flow.dtype
        return cls(
            flow,
            blocks or Blocks(flow.dims.chunk_size),
            _ids(prompt_ids),
            mel,
            _ids(ahead),
            flow.speaker(embedding),
            store,
            flow.new_past(),
            flow.new_pasts(store),
        )

    @classmethod
    def of(cls, *args, keep: bool = True, **named) -> VoiceState:
        """prompt_ids (p,) and prompt_mel (t, 80) may be empty; embedding (192,).

        `store`: dtype of kept K/V (None: the model's).
        ahead: the 3 ids behind the prompt, with which a prompt that ends on a block is complete.
        keep False: nothing is computed here and every request runs the prompt itself.
        """
        voice = cls.create(*args, **named)
        while not voice.is_ready:
            voice.grow(keep)
        return voice

    @torch.inference_mode()
    def grow(self, keep: bool = True) -> None:
        """The next two seconds of the prompt, so that other work can go between; ready when all
        complete blocks are kept.
        """
        all_ids = torch.cat([self.prompt_ids, self.ahead])
        end, last = (
            self.done,
            (
                self.blocks.last_end(min(len(self.prompt_ids), len(all_ids) - LOOKAHEAD_IDS))
                if keep
                else 0
            ),
        )
        while end < last and end - self.done < GROWTH_IDS:
            end = self.blocks.end_after(end)
        if end > self.done:
            feed = all_ids[self.done : end + LOOKAHEAD_IDS]
            out = self.flow.advance(
                feed,
                self.done,
                False,
                self.prompt_mel,
                self.speaker,
                self.encoder_past,
                self.pasts,
                self.blocks,
            )
            past_mel = out[max(0, len(self.prompt_mel) - FRAMES_PER_ID * self.done) :]
            self.head = past_mel if self.head is None else torch.cat([self.head, past_mel])
            self.done, self.computed_frames = end, self.computed_frames + len(out)
        if end >= last:
            for past in self.pasts:
                past.freeze()
            self.is_ready = True

    @property
    def bytes(self) -> int:
        """Memory of the kept K/V."""
        return sum(past.shared_bytes for past in self.pasts)

    def shape(self, n_ids: int, final: bool = False) -> Hashable:
        """That of a new request's first step."""
        return _shape(self.flow, self.blocks, len(self.prompt_ids) + n_ids, self.done, final)

    def begin(self, blocks: Blocks | None = None, seed: int = 0) -> FlowState:
        """A new request behind this voice.

        `blocks` may differ from the voice's where nothing is kept yet. The noise is the model's:
        seed says nothing.
        """
        blocks = blocks or self.blocks
        if not blocks.agrees(self.blocks, self.done):
            raise ValueError(
                f"these block ends do not cut the voice's first {self.done} ids as the voice did"
            )
        return FlowState(self, blocks)


class FlowState:
    """One request.

    `emitted_frames` and `computed_frames` (sent through the estimator) count its work.
    """

    def __init__(self, voice: VoiceState, blocks: Blocks):
        self.voice, self.blocks = voice, blocks
        self.done = voice.done
        self.computed_frames = self.emitted_frames = 0
        self.encoder_past = voice.encoder_past.copy()
        self.pasts = [past.fork() for past in voice.pasts]
        self.closed = False

    @property
    def wanted_ids(self) -> int:
        """Ids that must be known, counted without the prompt, before `step` gives the next
        frames.
        """
        prompt = len(self.voice.prompt_ids)
        end = self.blocks.end_after(self.done)
        while FRAMES_PER_ID * end <= len(self.voice.prompt_mel):
            end = self.blocks.end_after(end)
        return max(0, end + LOOKAHEAD_IDS - prompt)

    def step(self, ids: Sequence[int] | torch.Tensor, final: bool = False) -> torch.Tensor:
        """All generated ids so far (n,) -> the mel frames (m, 80) that became final and were not
        given before; m may be 0. After the final step the memory is gone.
        """
        return step_many([(self, ids, final)])[0]

    def shape(self, n_ids: int, final: bool = False) -> Hashable:
        """Equal for steps that can share their calls: `n_ids` ids were generated so far.

        None: it goes alone.
        """
        n_ids += len(self.voice.prompt_ids)
        return _shape(self.voice.flow, self.blocks, n_ids, self.done, final)

    def work(self, ids: Sequence[int] | torch.Tensor, final: bool) -> Work | None:
        """What a step computes, if anything."""
        if self.closed:
            raise ValueError("this request has had its final step")
        voice = self.voice
        all_ids = torch.cat([voice.prompt_ids, _ids(ids)])
        end = _end(self.blocks, len(all_ids), final)
        if end <= self.done:
            return None
        feed = all_ids[self.done :] if final else all_ids[self.done : end + LOOKAHEAD_IDS]
        return Work(
            feed,
            self.done,
            final,
            voice.prompt_mel,
            voice.speaker,
            self.encoder_past,
            self.pasts,
            self.blocks,
        )

    def took(self, work: Work | None, out: torch.Tensor | None, final: bool) -> torch.Tensor:
        """The step's frames: those of its work behind the prompt's."""
        voice, parts = self.voice, []
        if not self.emitted_frames and voice.head is not None:
            parts.append(voice.head)
        if work is not None:
            self.computed_frames += len(out)
            parts.append(out[max(0, len(voice.prompt_mel) - FRAMES_PER_ID * work.start) :])
            self.done = work.start + work.count
        if final:
            self.close()
        mel = torch.cat(parts) if parts else voice.prompt_mel.new_zeros(0, MEL_BANDS)
        self.emitted_frames += len(mel)
        return mel

    @property
    def bytes(self) -> int:
        """Memory of its own K/V; the voice's is shared."""
        return sum(past.bytes for past in self.pasts)

    def close(self) -> None:
        """Free the memory. Idempotent."""
        for past in self.pasts:
            past.release()
        self.closed, self.pasts, self.encoder_past = True, [], None


def _end(blocks: Blocks, n_ids: int, final: bool) -> int:
    """How far ids can be computed of which so many are known."""
    return n_ids if final else blocks.last_end(n_ids - LOOKAHEAD_IDS)


def _shape(flow: CausalFlow, blocks: Blocks, n_ids: int, done: int, final: bool) -> Hashable:
    """None where there is nothing to compute."""
    end, at, ends = _end(blocks, n_ids, final), done, []
    while at < end:
        at = min(end, blocks.end_after(at))
        ends.append(at - done)
    return flow.batch_shape(done, ends) if ends else None


@torch.inference_mode()
def step_many(
    batch: Sequence[tuple[FlowState, Sequence[int] | torch.Tensor, bool]],
) -> list[torch.Tensor]:
    """`step` of different requests of one `shape`, their calls shared.

    When it raises no step has been made, and each may be asked for alone.
    """
    works = [state.work(ids, final) for state, ids, final in batch]
    busy = [work for work in works if work is not None]
    outputs = iter(batch[0][0].voice.flow.advance_many(busy) if busy else ())
    return [
        state.took(work, next(outputs) if work else None, final)
        for (state, _, final), work in zip(batch, works, strict=True)
    ]
