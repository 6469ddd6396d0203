"""What a generation of the model says about itself, before anything of it is loaded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from ...types import SpeechRequest
from .checkpoint import Component
from .device import DeviceConfig
from .llm.interface import SpeechDims
from .llm.sampler import RasRule

Progress = Callable[[float, str, str], None]  # share done, words in English, words in Chinese
EXPRESSIONS = (
    "happy",
    "sad",
    "angry",
    "calm",
    "surprise",
    "fear",
    "gentle",
    "whisper",
    "fast",
    "slow",
    "news",
    "story",
)  # emotions, manners and paces that more than one generation follows as an instruction


@dataclass(frozen=True)
class Capabilities:
    """What the page is told. modes: of webui.types, and CONVERT. languages: BCP 47. styles: keys of
    the style chips. tags: as typed.
    preset_modes: those beside "preset" that ready speakers were made for. told_clones: an
      instruction counts in zero_shot too.
    """

    modes: tuple[str, ...]
    languages: tuple[str, ...]
    styles: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    text_in: bool = False
    preset_modes: tuple[str, ...] = ()
    told_clones: bool = False

    def for_model(self, has_presets: bool, can_hear: bool) -> Capabilities:
        """Of a directory: without networks that hear a clip, what its ready speakers can do;
        without ready speakers, the rest.
        """
        preset_modes = ("preset", *self.preset_modes)
        if not can_hear:
            return replace(
                self,
                modes=tuple(mode for mode in self.modes if mode in preset_modes),
                told_clones=False,
            )
        return (
            self
            if has_presets
            else replace(
                self, modes=tuple(mode for mode in self.modes if mode != "preset"), preset_modes=()
            )
        )


@dataclass(frozen=True)
class MemoryEstimate:
    """Bytes of the flow's memory of a voice of VOICE_S and of a stream of STREAM_S, and of the
    language model in int8.
    """

    voice: int
    stream: int
    int8_lm: int


class ModelSizes(Protocol):
    """What a directory says about itself, read without its weights."""

    lm: SpeechDims  # LmDims, or another generation's own
    rule: RasRule
    sample_rate: int
    ids_per_s: int


@dataclass(frozen=True)
class ModelSpec:
    """One generation. engine: its name in prompts and in describe(). title: in sentences. code:
    raised when the same weights and seed give other samples. prompt_code: raised when prompts are
    other ones, or are read otherwise. yaml: the file that says which generation it is. required:
    files needed beside the components; clip_encoders: those of them that encode a clip. reinforced:
    a language model that may be chosen instead. steps, first_hops: the values that are allowed, the
    first is what it was trained for. ends_of_prompt: what may end a description, the usual one
    first; the doctor may find another.

    read_spec(root, steps) and load(root, device_config, on_progress, steps) raise NotReady naming
    file and field; costs(sizes, device_config) is for the memory plan.
    """

    engine: str
    title: str
    code: str
    prompt_code: str
    yaml: str
    components: Mapping[str, Component]
    required: tuple[str, ...]
    steps: tuple[int, ...]
    first_hops: tuple[int, ...]
    read_spec: Callable[[Path, int], ModelSizes]  # root, steps of the flow's solver
    costs: Callable[[Any, DeviceConfig], MemoryEstimate]
    load: Callable[[Path, DeviceConfig, Progress, int], Any]  # gives a Model
    clip_encoders: tuple[str, ...] = ()
    reinforced: Component | None = None
    ends_of_prompt: tuple[str, ...] = ()
    cautions: Callable[[SpeechRequest], list[tuple[str, str]]] = (
        lambda request: []
    )  # what it cannot do of a request, in English and Chinese
