"""Item F on a GPU: recorded graphs beside the same networks computed step by step, before anybody
hears them. A recording that fails or sounds otherwise is not used: a slow start is better than a
wrong one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from ....errors import NotReady
from ..backend import to_backend
from ..device import DeviceConfig
from ..frontend.prompt_cache import CachedPrompt
from ..scheduler.chunk_schedule import latency_profile
from .language import LEAST_AGREEMENT, agreement
from .machine import MOST_DISTANCE
from .result import Result, failed, passed, skipped
from .speech import distance, draw, grown, mel_of_sound, request

if TYPE_CHECKING:
    from ..model import Model

log = logging.getLogger(__name__)
TEXT = "你好，我已经准备好了。"
SEEDS, IDS_EACH = range(8), 4  # a draw that differs once differs from there on: many short ones
Note = tuple[str, str] | None


@dataclass(frozen=True)
class SpokenSample:
    """What a model says of the warm-up sentence: ids drawn with several seeds, and mel (frames, 80)
    and samples of fixed ids.
    """

    ids: tuple[int, ...]
    mel: Tensor
    wave: np.ndarray


def speak_sample(model: Model) -> SpokenSample:
    """As the engine speaks, hop by hop, behind the warm-up's prompt."""
    prompt = model.warm_prompt()
    voice, ids = CachedPrompt(model, prompt), []
    for seed in SEEDS:
        drawn, _ = draw(model, voice, request(TEXT, "zh", seed=seed), IDS_EACH)
        ids += [*drawn, *[-1] * (IDS_EACH - len(drawn))]
    flow, wave = grown(model, prompt).begin(seed=1), model.new_wave_stream(1)
    hops, known = (
        model.hops(model.model_spec.first_hops[0], latency_profile("balanced")),
        prompt.speech_ids,
    )
    ends = [n for n in map(hops.needed, range(len(known))) if n < len(known)]
    mels, waves = [], []
    try:
        for end in (*ends, len(known)):
            is_last = end == len(known)
            mels += model.flow_batch([(flow, known[:end], is_last)])
            waves += model.vocode_batch([(wave, mels[-1], is_last)])
    finally:
        flow.close()
    return SpokenSample(tuple(ids), torch.cat(mels).float().cpu(), torch.cat(waves).cpu().numpy())


def difference(
    model: Model, wanted: SpokenSample, found: SpokenSample
) -> tuple[Note, Mapping[str, float]]:
    """Why the two are not alike, or None; and the figures."""
    rate = model.spec.sample_rate
    figures = {
        "agreement": agreement(wanted.ids, found.ids),
        "mel_distance": distance(wanted.mel, found.mel),
        "sound_distance": distance(
            mel_of_sound(model, wanted.wave, rate), mel_of_sound(model, found.wave, rate)
        ),
    }
    if figures["agreement"] < LEAST_AGREEMENT:
        return (
            f"only {figures['agreement']:.0%} of the speech ids are the same",
            f"只有 {figures['agreement']:.0%} 的语音编号相同",
        ), figures
    far = max(figures["mel_distance"], figures["sound_distance"])
    if not far <= MOST_DISTANCE:
        return (
            f"its sound differs (log-mel {far:.2f})",
            f"声音不同（对数梅尔 {far:.2f}）",
        ), figures
    return None, figures


def load_compared(
    load: Callable[[DeviceConfig], Model], device_config: DeviceConfig
) -> tuple[Model, Note]:
    """The model with its networks recorded where that sounds as it should, else without, and why.
    load(place): a new model; only where place.graphs is on are its networks recorded. Raises
    NotReady where the model cannot be loaded at all.
    """
    plain = replace(device_config, graphs=False)
    model = load(plain)
    if not device_config.graphs:
        return model, None
    try:
        wanted = speak_sample(model)
        fast = to_backend(replace(model, device_config=device_config), lambda share, en, zh: None)
        why, figures = difference(model, wanted, speak_sample(fast))
        log.info("recorded networks beside plain ones: %s", figures)
    except Exception as error:  # of a driver, of a library, of ours: none of it may end the start
        log.exception("the networks could not be recorded for the GPU")
        why = f"{type(error).__name__}: {str(error)[:120]}", f"{type(error).__name__}"
    else:
        if why is None:
            return fast, None
    note = (
        f"CUDA graphs are off: {why[0]}. It speaks correctly, but more slowly.",
        f"已停用 CUDA 图：{why[1]}。朗读不受影响，只是慢一些。",
    )
    log.warning("%s", note[0])
    model = fast = None  # room for the fresh one
    try:
        return load(plain), note  # a recording that broke off may have left anything in the old one
    except Exception as error:
        raise NotReady(
            f"Recording CUDA graphs has failed ({why[0]}), and the GPU does not recover from it."
            " Set KAIKOU_GRAPHS=off and start again.",
            f"录制 CUDA 图失败（{why[1]}），显卡未能恢复。请设置 KAIKOU_GRAPHS=off 后重新启动。",
            code="graphs",
        ) from error


def recorded(load: Callable[[DeviceConfig], Model], device_config: DeviceConfig) -> Result:
    """As a result. place: where the engine computes."""
    if device_config.device != "cuda":
        return skipped(
            "F",
            "graphs",
            ("Nothing is recorded without a CUDA GPU.", "没有 CUDA 显卡，不录制计算图。"),
        )
    _, note = load_compared(load, device_config)
    if note is not None:
        way_out = (
            "Nothing needs to be done: the studio does without. A newer driver may help.",
            "无需处理，工作室会自动停用。更新显卡驱动可能有帮助。",
        )
        return failed("F", "graphs", note, way_out)
    said = "Recorded CUDA graphs sound as the plain networks.", "CUDA 图与逐步计算的声音一致。"
    return passed("F", "graphs", said)
