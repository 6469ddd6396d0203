"""What a request remembers between the hops of a flow in which every frame sees every other:
little, and none of it saves work.

A hop is computed anew behind the whole prompt, so its frames are not those of a longer call. Two
hops overlap by 34 frames, which are blended; they begin there with the same noise and mu. Hops must
have even numbers of frames (those of 50, 100 and 200 ids do): the network halves the rate, and an
overlap that begins between two of its frames is another one in the next hop.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import torch

from ..dims_v1 import OVERLAP_FRAMES, OVERLAP_IDS, frames_of
from ..random_noise import noise_at
from .dims import MEL_BANDS
from .hop_flow import HopCache, HopFlow, Work

PROMPT_NOISE, SPEECH_NOISE = 2 << 48, 3 << 48  # places of a request's random numbers
NOISE_FRAMES = 64


def rising(frames: int) -> torch.Tensor:
    """(frames, 1) weights of what comes in, half a cosine; those of what goes out are 1 minus
    these.
    """
    return (0.5 - 0.5 * torch.cos(torch.pi * (torch.arange(frames) + 0.5) / frames))[:, None]


@dataclass
class HopVoice:
    """prompt_ids (p,), prompt_mel (m, 80), both may be empty; speaker (1, 80).

    Nothing of a prompt can be computed ahead of a request.
    """

    flow: HopFlow
    prompt_ids: torch.Tensor
    prompt_mel: torch.Tensor
    speaker: torch.Tensor

    is_ready = True

    @classmethod
    @torch.inference_mode()
    def of(
        cls,
        flow: HopFlow,
        prompt_ids: Sequence[int] | torch.Tensor,
        prompt_mel: torch.Tensor,
        embedding: torch.Tensor,
    ) -> HopVoice:
        """embedding (192,). A prompt of ids without mel, or of mel without ids, is none."""
        ids, mel = (
            torch.as_tensor(prompt_ids, dtype=torch.long).reshape(-1).cpu(),
            prompt_mel.reshape(-1, MEL_BANDS),
        )
        if not len(ids) or not len(mel):
            ids, mel = ids[:0], mel[:0]
        return cls(flow, ids, mel.to(device=flow.device, dtype=flow.dtype), flow.speaker(embedding))

    def grow(self) -> None:
        """Nothing to do."""

    @property
    def bytes(self) -> int:
        return self.prompt_mel.nbytes

    def shape(self, n_ids: int, final: bool = False) -> Hashable:
        return _shape(len(self.prompt_mel), n_ids, final)

    def begin(self, seed: int = 0) -> HopState:
        return HopState(self, seed)


class HopState:
    """One request.

    `seed` decides its noise, which belongs to frames of the utterance: other hops, same noise.
    """

    def __init__(self, voice: HopVoice, seed: int = 0):
        self.voice, self.seed = voice, seed
        self.done = 0  # ids whose frames were given
        self.computed_frames = self.emitted_frames = 0
        self.cache: HopCache | None = None
        self.tail: torch.Tensor | None = None  # (34, 80) of the last hop, held back
        self.closed = False

    def shape(self, n_ids: int, final: bool = False) -> Hashable:
        return _shape(len(self.voice.prompt_mel), n_ids - self.done, final)

    def step(self, ids: Sequence[int] | torch.Tensor, final: bool = False) -> torch.Tensor:
        """All generated ids so far (n,) -> the mel frames (m, 80) that became final and were not
        given before; m may be 0. What is known beyond the overlap is one hop, however long it is.
        After the final step the memory is gone.
        """
        return step_many([(self, ids, final)])[0]

    def work(self, ids: Sequence[int] | torch.Tensor, final: bool) -> Work | None:
        """What a step computes, if anything."""
        if self.closed:
            raise ValueError("this request has had its final step")
        if self.shape(len(ids), final) is None:
            return None
        voice = self.voice
        hop = torch.as_tensor(ids, dtype=torch.long).reshape(-1).cpu()[self.done :]
        before, count = len(voice.prompt_mel), frames_of(len(hop))
        parts = (
            noise_at(self.seed, 0, before, MEL_BANDS, NOISE_FRAMES, PROMPT_NOISE),
            noise_at(self.seed, self.emitted_frames, count, MEL_BANDS, NOISE_FRAMES, SPEECH_NOISE),
        )
        return Work(
            hop,
            voice.prompt_ids,
            voice.prompt_mel,
            voice.speaker,
            torch.cat(parts)[None],
            self.cache,
        )

    def took(
        self, work: Work | None, output: tuple[torch.Tensor, HopCache] | None, final: bool
    ) -> torch.Tensor:
        """The step's frames, blended with what was held back."""
        mel = self.voice.prompt_mel.new_zeros(0, MEL_BANDS)
        if work is not None:
            mel, self.cache = output
            self.computed_frames += work.frames
            self.done += len(work.ids) - (0 if final else OVERLAP_IDS)
            if self.tail is not None:
                weight = rising(OVERLAP_FRAMES).to(mel)
                mel = torch.cat(
                    [torch.lerp(self.tail, mel[:OVERLAP_FRAMES], weight), mel[OVERLAP_FRAMES:]]
                )
            if not final:
                mel, self.tail = mel[:-OVERLAP_FRAMES], mel[-OVERLAP_FRAMES:].clone()
        if final:
            self.close()
        self.emitted_frames += len(mel)
        return mel

    @property
    def bytes(self) -> int:
        return (self.cache.nbytes if self.cache is not None else 0) + (
            self.tail.nbytes if self.tail is not None else 0
        )

    def close(self) -> None:
        """Free the memory. Idempotent."""
        self.closed, self.cache, self.tail = True, None, None


def _shape(prompt_frames: int, new: int, final: bool) -> Hashable:
    """Frames of the call; None: there is nothing to compute."""
    return (prompt_frames + frames_of(new),) if new > (0 if final else 2 * OVERLAP_IDS) else None


@torch.inference_mode()
def step_many(
    batch: Sequence[tuple[HopState, Sequence[int] | torch.Tensor, bool]],
) -> list[torch.Tensor]:
    """`step` of different requests of one `shape`, their calls shared.

    When it raises no step has been made, and each may be asked for alone.
    """
    works = [state.work(ids, final) for state, ids, final in batch]
    busy = [work for work in works if work is not None]
    outputs = iter(batch[0][0].voice.flow.hops(busy) if busy else ())
    return [
        state.took(work, next(outputs) if work else None, final)
        for (state, _, final), work in zip(batch, works, strict=True)
    ]
