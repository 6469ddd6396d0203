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
from ....messages import Message, message
from ..backend import to_backend
from ..device import DeviceConfig
from ..frontend.prompt_cache import CachedPrompt
from ..scheduler.chunk_schedule import latency_profile
from .language import LEAST_AGREEMENT, agreement
from .machine import MOST_DISTANCE
from .result import Result, failed, passed, skipped
from .speech import distance, draw, grown_flow_voice, mel_of_sound, request

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
        drawn_ids, _ = draw(model, voice, request(TEXT, "zh", seed=seed), IDS_EACH)
        ids += [*drawn_ids, *[-1] * (IDS_EACH - len(drawn_ids))]
    flow, wave = grown_flow_voice(model, prompt).begin(seed=1), model.new_wave_stream(1)
    hops, all_ids = (
        model.hops(model.model_spec.first_hops[0], latency_profile("balanced")),
        prompt.speech_ids,
    )
    ends = [n for n in map(hops.needed, range(len(all_ids))) if n < len(all_ids)]
    mels, waves = [], []
    try:
        for end in (*ends, len(all_ids)):
            is_last = end == len(all_ids)
            mels += model.flow_batch([(flow, all_ids[:end], is_last)])
            waves += model.vocode_batch([(wave, mels[-1], is_last)])
    finally:
        flow.close()
    return SpokenSample(tuple(ids), torch.cat(mels).float().cpu(), torch.cat(waves).cpu().numpy())


def difference(
    model: Model, expected: SpokenSample, actual: SpokenSample
) -> tuple[Note, Mapping[str, float]]:
    """Why the two are not alike, or None; and the figures."""
    rate = model.spec.sample_rate
    figures = {
        "agreement": agreement(expected.ids, actual.ids),
        "mel_distance": distance(expected.mel, actual.mel),
        "sound_distance": distance(
            mel_of_sound(model, expected.wave, rate), mel_of_sound(model, actual.wave, rate)
        ),
    }
    if figures["agreement"] < LEAST_AGREEMENT:
        return message("doctor.graphs_ids_differ", share=figures["agreement"]), figures
    far = max(figures["mel_distance"], figures["sound_distance"])
    if not far <= MOST_DISTANCE:
        return message("doctor.graphs_sound_differs", distance=far), figures
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
        expected = speak_sample(model)
        fast = to_backend(replace(model, device_config=device_config), lambda share, en, zh: None)
        why, figures = difference(model, expected, speak_sample(fast))
        log.info("recorded networks beside plain ones: %s", figures)
    except Exception as error:  # of a driver, of a library, of ours: none of it may end the start
        log.exception("the networks could not be recorded for the GPU")
        name = type(error).__name__
        why = Message(f"{name}: {str(error)[:120]}", name)
    else:
        if why is None:
            return fast, None
    note = message("doctor.graphs_off", why=why)
    log.warning("%s", note[0])
    model = fast = None  # room for the fresh one
    try:
        return load(plain), note  # a recording that broke off may have left anything in the old one
    except Exception as error:
        raise NotReady("graphs", why=why) from error


def recorded(load: Callable[[DeviceConfig], Model], device_config: DeviceConfig) -> Result:
    """As a result. place: where the engine computes."""
    if device_config.device != "cuda":
        return skipped("F", "graphs", message("doctor.graphs_no_gpu"))
    _, note = load_compared(load, device_config)
    if note is not None:
        way_out = message("doctor.graphs_nothing_to_do")
        return failed("F", "graphs", note, way_out)
    sentences = message("doctor.graphs_good")
    return passed("F", "graphs", sentences)
