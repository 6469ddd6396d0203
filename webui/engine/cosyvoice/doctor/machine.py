"""Item I, and the halves of E and F that need other precisions: each choice of steps and precision,
its speed beside its likeness to the reference, and the profile that this machine should use.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ....errors import NotReady
from ....messages import message
from ..backend import to_backend
from ..device import INT8, DeviceConfig, choose
from ..frontend.prompt_cache import CachedPrompt
from ..frontend.prompt_encoder import PromptFeatures
from ..memory_plan import plan
from ..scheduler.chunk_schedule import latency_profile
from .language import LEAST_AGREEMENT, agreement, nll
from .result import Result, failed, passed, skipped
from .speech import Clip, cut, distance, draw, grown_flow_voice, mel_of, request, sound_of

if TYPE_CHECKING:
    from ..model import Model
    from ..model_spec import ModelSpec

EXACT = "fp32"
Record = Callable[
    [Callable[[DeviceConfig], "Model"], DeviceConfig], tuple["Model", tuple[str, str] | None]
]  # (load, place) -> the model recorded, or a plain one and why
MOST_DISTANCE = 0.3  # natural-log mel beside the reference, 2.6 dB
IDS_S = 3.0  # of speech that is timed
TEXT = ("zh", "今天天气很好，我们去公园走一走吧，湖边的花已经开了。")


@dataclass(frozen=True)
class Choice:
    """One way to compute: its speed, and how like the reference it is. fault: why it could not be
    measured. graphs: recorded for a GPU.
    """

    precision: str
    steps: int
    first_sound_s: float = 0.0
    rtf: float = 0.0
    memory_mb: float = 0.0
    agreement: float = 0.0
    mel_distance: float = 0.0
    fault: str = ""
    graphs: bool = False

    @property
    def is_alike(self) -> bool:
        return (
            not self.fault
            and self.agreement >= LEAST_AGREEMENT
            and self.mel_distance <= MOST_DISTANCE
        )


@dataclass(frozen=True)
class Reference:
    """What the exact model with the trained number of steps gives: best ids under the clip's words,
    and the mel of the clip's ids.
    """

    best: Sequence[int]
    mel: Tensor


def precisions(device: str) -> tuple[str, ...]:
    """Those that this machine computes faster than, or as fast as, the exact one; that one
    first.
    """
    if device == "cpu":
        can = torch.cpu.get_capabilities()
        has_dots = any(can.get(name) for name in ("avx512_vnni", "avx_vnni", "dot"))
        has_bf16 = any(can.get(name) for name in ("avx512_bf16", "amx_bf16"))
        return (EXACT, *(["bf16"] if has_bf16 else []), *([INT8] if has_dots else []))
    return EXACT, "bf16" if device != "cuda" or torch.cuda.is_bf16_supported() else "fp16"


def load_beside(
    root: Path, model_spec: ModelSpec, device_config: DeviceConfig, steps: int
) -> Model:
    """A model beside the one that may be speaking.

    Raises NotReady, `no_memory` rather than taking what that one needs.
    """
    plan(model_spec, model_spec.read_spec(root, steps), root, device_config).check(model_spec.title)

    def quiet(share: float, en: str, zh: str) -> None:
        pass

    return to_backend(model_spec.load(root, device_config, quiet, steps), quiet)


def measure(
    root: Path,
    model_spec: ModelSpec,
    clip: Clip,
    prompt: PromptFeatures,
    reference: Reference,
    device_config: DeviceConfig,
    name: str,
    steps: int,
) -> Choice:
    """Load, time a sentence and compare. The model is gone afterwards."""
    try:
        model = load_beside(root, model_spec, device_config, steps)
    except NotReady as error:
        return Choice(name, steps, fault=error.en)
    best = nll(model, prompt, clip)[1]
    mel = reference_mel(model, prompt)
    first_s, rtf = timed(model, prompt)
    choice = Choice(
        name,
        steps,
        round(first_s, 3),
        round(rtf, 3),
        round(memory_mb(device_config.device)),
        round(agreement(reference.best, best), 3),
        round(distance(reference.mel, mel), 3),
    )
    del model
    gc.collect()
    return choice


def measure_recorded(
    root: Path,
    model_spec: ModelSpec,
    prompt: PromptFeatures,
    plain: Choice,
    device_config: DeviceConfig,
    record: Record,
) -> Choice:
    """The same with its networks recorded.

    `record` has compared them with the plain ones, so that they are as like the reference.
    """
    failure = Choice(plain.precision, plain.steps, graphs=True)
    try:
        model, note = record(
            lambda at: load_beside(root, model_spec, at, plain.steps), device_config
        )
    except NotReady as error:
        return replace(failure, fault=error.en)
    if note is not None:
        return replace(failure, fault=note[0])
    first_s, rtf = timed(model, prompt)
    choice = replace(plain, graphs=True, first_sound_s=round(first_s, 3), rtf=round(rtf, 3))
    choice = replace(choice, memory_mb=round(memory_mb(device_config.device)))
    del model
    gc.collect()
    return choice


def reference_mel(model: Model, prompt: PromptFeatures) -> Tensor:
    half = len(prompt.speech_ids) // 2
    return mel_of(model, grown_flow_voice(model, cut(prompt, half)), prompt.speech_ids[half:])


def timed(model: Model, prompt: PromptFeatures) -> tuple[float, float]:
    """Seconds to the first hop's sound behind a prepared voice, and seconds of work for a second of
    sound.
    """
    voice, flow = CachedPrompt(model, prompt), grown_flow_voice(model, prompt)
    hops = model.hops(model.model_spec.first_hops[0], latency_profile("balanced"))
    speech_request = request(TEXT[1], TEXT[0])
    began = time.perf_counter()
    ids, _ = draw(model, voice, speech_request, hops.needed(0))
    sound_of(model, mel_of(model, flow, ids or (0,)))
    first_s = time.perf_counter() - began
    began = time.perf_counter()
    ids, _ = draw(model, voice, speech_request, int(IDS_S * model.spec.ids_per_s))
    wave = sound_of(model, mel_of(model, flow, ids or (0,)))
    spent = time.perf_counter() - began
    return first_s, spent * model.spec.sample_rate / max(1, len(wave))


def memory_mb(device: str) -> float:
    """The most that was taken so far: of the GPU, else of this process; 0 where the system does not
    say.
    """
    if device == "cuda":
        return torch.cuda.max_memory_allocated() / 2**20
    try:
        import resource  # not on every system
    except ImportError:
        return 0.0
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def choices(
    root: Path,
    model_spec: ModelSpec,
    clip: Clip,
    prompt: PromptFeatures,
    reference: Reference,
    device_config: Callable[[str], DeviceConfig],
    names: Sequence[str],
    record: Record | None = None,
) -> list[Choice]:
    """place(precision): where it is computed. record: how networks are recorded there, None where
    they are not.
    """
    out = []
    for name in names:
        for steps in model_spec.steps:
            out.append(
                measure(root, model_spec, clip, prompt, reference, device_config(name), name, steps)
            )
            if record is not None and not out[-1].fault:
                recorded = replace(device_config(name), graphs=True)
                out.append(measure_recorded(root, model_spec, prompt, out[-1], recorded, record))
    return out


def place_for(device: str) -> Callable[[str], DeviceConfig]:
    """Plain networks: recorded ones are measured beside them."""
    return lambda precision: replace(choose(device, precision), graphs=False)


def precision(choice_list: Sequence[Choice], steps: int) -> Result:
    """Items E and F: narrower weights beside the exact ones."""
    narrow = [c for c in choice_list if c.precision != EXACT and c.steps == steps and not c.graphs]
    figures: dict = {
        c.precision: {"agreement": c.agreement, "mel_distance": c.mel_distance, "fault": c.fault}
        for c in narrow
    }
    if not narrow:
        sentences = message("doctor.precision_fp32_only")
        return skipped("E", "precision", sentences)
    off = [c.precision for c in narrow if not c.is_alike and not c.fault]
    figures["off"] = off
    if off:
        names = ", ".join(off)
        sentences = message("doctor.precision_off", names=names)
        way_out = message("doctor.precision_nothing_to_do")
        return failed("E", "precision", sentences, way_out, figures)
    names = ", ".join(f"{c.precision} {c.agreement:.0%}" for c in narrow)
    sentences = message("doctor.precision_good", names=names)
    return passed("E", "precision", sentences, figures)


def recommended(choice_list: Sequence[Choice]) -> Choice | None:
    """The fastest within tolerance of the reference."""
    return min((c for c in choice_list if c.is_alike), key=lambda c: c.rtf, default=None)


def machine(choice_list: Sequence[Choice]) -> Result:
    """Item I."""
    best = recommended(choice_list)
    figures = {"choices": [asdict(c) | {"is_alike": c.is_alike} for c in choice_list]}
    if best is None:
        sentences = message("doctor.nothing_measured")
        return failed("I", "machine", sentences, figures=figures)
    figures["recommended"] = {"precision": best.precision, "steps": best.steps}
    sentences = message(
        "doctor.recommended",
        precision=best.precision,
        steps=best.steps,
        first_sound_s=best.first_sound_s,
        rtf=best.rtf,
    )
    return passed("I", "machine", sentences, figures)
