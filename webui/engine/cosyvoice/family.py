"""The seam between the engine and the generations of the model: what a Family says about itself,
and what its loaded Model does.

A generation is a folder with one constant FAMILY. The engine, its stages and its stores see these
two only, and no generation's own names.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from torch import Tensor

from ...types import SpeechRequest
from ..generations import GENERATIONS, yamls
from . import files
from .contents import NEEDED, deaf
from .device import MemoryPlan, Place
from .faults import model_fault, remedy
from .lm_seam import LanguageModel, SpeechDims
from .pace import Hops, Profile
from .prompt import NoMaker, PromptMaker, VoicePrompt
from .sampler import RasRule
from .weights import Component, converted_form, tensor_names

if TYPE_CHECKING:
    from .script import Script
    from .voices import LiveVoice

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
class Facts:
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

    def here(self, has_presets: bool, can_hear: bool) -> Facts:
        """Of a directory: without networks that hear a clip, what its ready speakers can do;
        without ready speakers, the rest.
        """
        brought = ("preset", *self.preset_modes)
        if not can_hear:
            return replace(
                self, modes=tuple(mode for mode in self.modes if mode in brought), told_clones=False
            )
        return (
            self
            if has_presets
            else replace(
                self, modes=tuple(mode for mode in self.modes if mode != "preset"), preset_modes=()
            )
        )


@dataclass(frozen=True)
class Costs:
    """Bytes of the flow's memory of a voice of VOICE_S and of a stream of STREAM_S, and of the
    language model in int8.
    """

    voice: int
    stream: int
    int8_lm: int


class Spec(Protocol):
    """What a directory says about itself, read without its weights."""

    lm: SpeechDims  # LmDims, or another generation's own
    rule: RasRule
    sample_rate: int
    ids_per_s: int


@dataclass(frozen=True)
class Family:
    """One generation. engine: its name in prompts and in describe(). title: in sentences. code:
    raised when the same weights and seed give other samples. prompt_code: raised when prompts are
    other ones, or are read otherwise. yaml: the file that tells it. required: files needed beside
    the components; listening: those of them that hear a clip. reinforced: a language model that may
    be chosen instead. telling: a tensor of flow.pt that no other generation has. steps, first_hops:
    what may be asked for, the first is what it was trained for. ends_of_prompt: what may end a
    description, the usual one first; the doctor may find another.

    read_spec(root) and load(root, place, told, steps) raise NotReady naming file and field;
    costs(spec, place) is for the memory plan.
    """

    engine: str
    title: str
    code: str
    prompt_code: str
    yaml: str
    components: Mapping[str, Component]
    required: tuple[str, ...]
    telling: str
    steps: tuple[int, ...]
    first_hops: tuple[int, ...]
    read_spec: Callable[[Path, int], Spec]  # root, steps of the flow's solver
    costs: Callable[[Any, Place], Costs]
    load: Callable[[Path, Place, Progress, int], Model]
    listening: tuple[str, ...] = ()
    reinforced: Component | None = None
    ends_of_prompt: tuple[str, ...] = ()
    cautions: Callable[[SpeechRequest], list[tuple[str, str]]] = (
        lambda request: []
    )  # what it cannot do of a request, in English and Chinese


class FlowRequest(Protocol):
    """What one request remembers of the flow. computed_frames, emitted_frames: count its work."""

    computed_frames: int
    emitted_frames: int

    def shape(self, known: int, final: bool = False) -> Hashable:
        """Equal for steps that can share their calls; None: it goes alone."""

    def step(self, ids: Sequence[int], final: bool = False) -> Tensor:
        """All ids so far -> mel (m, 80) of the frames that became final and were not given
        before.
        """

    @property
    def bytes(self) -> int: ...

    def close(self) -> None: ...


class FlowVoice(Protocol):
    """What a voice costs the flow once, shared read-only by its requests. bytes: kept where it is
    used; host_bytes: where it waits, moved out; out_bytes: what it will take again. All but `bytes`
    are 0 where the two are one memory.
    """

    is_ready: bool
    host_bytes: int
    out_bytes: int

    def grow(self) -> None:
        """Its next piece, so that other work can go between."""

    @property
    def bytes(self) -> int: ...

    def move_out(self) -> None:
        """To the host's memory; `grow` brings it back."""

    def shape(self, known: int, final: bool = False) -> Hashable:
        """That of a new request's first step."""

    def begin(self, *, seed: int) -> FlowRequest:
        """seed: of the request, where its noise is not the model's."""


class Wave(Protocol):
    """A stream of the vocoder."""

    def push(self, mel: Tensor, final: bool = False) -> Tensor:
        """mel (n, 80), the next frames (n may be 0) -> float32 samples (m,) on the CPU that are
        final now. `final` gives the rest.
        """


class TwoHalves(Protocol):
    """A network that can compute half of its work elsewhere meanwhile: a solver its second guidance
    row, a vocoder some of its blocks.
    """

    beside: Executor | None


class Model(Protocol):
    """A loaded generation, read-only. mark: of its weights; voices made with other ones do not
    fit.
    """

    family: Family
    spec: Spec
    place: Place
    tokenizer: Any  # encode, typed, arriving, unknown
    lm: LanguageModel
    vocoder: TwoHalves
    maker: PromptMaker | NoMaker
    presets: Mapping[str, VoicePrompt]
    mark: str

    @property
    def facts(self) -> Facts:
        """Of this directory: its family's, without what its files cannot do."""

    @property
    def guidance(self) -> TwoHalves | None:
        """The solver; None where it is captured with both rows."""

    @property
    def together(self) -> int:
        """Requests whose sound is made in one call, at most."""

    @property
    def streams(self) -> int:
        """Requests that may be open at once; 0: any number, as memory allows."""

    def placed(self, told: Progress) -> Model:
        """As it computes where it is: recorded, on a GPU that has `place.graphs`."""

    def hops(self, first: int, pace: Profile) -> Hops:
        """How a request's ids are cut. first: ids of the first hop."""

    def unpack(self, data: bytes) -> VoicePrompt:
        """Raises EngineFault when the bytes are no voice of this generation."""

    def voice(self, prompt: VoicePrompt, first_hop: int) -> FlowVoice:
        """Begun, nothing computed yet."""

    def wave(self, seed: int) -> Wave: ...

    def flow_many(self, asked: Sequence[tuple[FlowRequest, Sequence[int], bool]]) -> list[Tensor]:
        """`step` of requests of one shape. When it raises no step has been made."""

    def wave_many(self, asked: Sequence[tuple[Wave, Tensor, bool]]) -> list[Tensor]:
        """`push` of different streams."""

    def voices_budget(self, plan: MemoryPlan) -> tuple[int, int]:
        """Bytes that kept voices may take: where they are used, and where they wait."""

    def script(self, voice: LiveVoice, request: SpeechRequest) -> Script: ...

    def warm_prompt(self) -> VoicePrompt:
        """Of random values, with every part that a prompt can have: what the warm-up speaks
        with.
        """


FOLDERS = {
    "cosyvoice2": "..cosyvoice.model",
    "cosyvoice3": "..cosyvoice3.model",
    "cosyvoice1": "..cosyvoice1.model",
}  # where FAMILY is


def families() -> list[Family]:
    """All of them. Imports their folders."""
    return [family_at(yaml) for yaml in GENERATIONS]


def family_at(yaml: str) -> Family:
    return importlib.import_module(FOLDERS[GENERATIONS[yaml]], __package__).FAMILY


def family_of(root: Path) -> Family:
    """The generation of a model directory, whatever its name, by its yaml.

    Raises NotReady when there is none.
    """
    found = yamls(root)
    if not found:
        expected = (
            "a CosyVoice model directory with one of " + ", ".join(GENERATIONS),
            "CosyVoice 模型目录，其中有 " + "、".join(GENERATIONS) + " 之一",
        )
        what = (
            ("no such file", "没有这样的文件")
            if root.is_dir()
            else ("no directory of that name", "没有这个目录")
        )
        raise model_fault(root.name, expected, what)
    if len(found) == 1:
        return family_at(found[0])
    candidates, keys = [family_at(yaml) for yaml in found], tensor_names(root, "flow")
    return next((family for family in candidates if family.telling in keys), candidates[0])


def check_files(family: Family, root: Path, dtype: str = "fp32") -> None:
    """Look at every needed file's first bytes, and the containers' ends, so that a fault is told
    before gigabytes are read. Raises NotReady.
    """
    expected = (f"a {family.title} model directory", f"{family.title} 模型目录")
    if not root.is_dir():
        raise model_fault(
            root.name, expected, ("no directory of that name", "没有这个目录"), remedy(family.title)
        )
    if not (root / family.yaml).exists():
        other = next(iter(yamls(root)), None)
        if other:
            raise model_fault(
                family.yaml,
                expected,
                (f"{other}, another generation of the model", f"{other}，另一代模型"),
                remedy(family.title),
            )
    check_generation(family, root)
    absent = family.listening if deaf(family, root) else ()
    for name in family.required:
        if name not in absent:
            files.head(root, name, NEEDED)
    for part in family.components.values():
        published = part.published(root)
        if part.name == "llm" and (root / "vllm").is_dir() and not (root / published).exists():
            found = (
                "only the folder vllm, which has no speech embedding",
                "只有 vllm 文件夹，其中没有语音编号的嵌入",
            )
            raise model_fault(published, ("the whole language model", "完整的语言模型"), found)
        if (root / published).exists() or not converted_form(root, part, dtype).exists():
            files.zipped(root, published).close()


def check_generation(family: Family, root: Path) -> None:
    """Raises NotReady when flow.pt, where the generations differ most, is another one's: that is
    quicker to mend than its first odd tensor.
    """
    keys = tensor_names(root, "flow")
    other = (
        next((f for f in families() if f.telling in keys), None)
        if keys and family.telling not in keys
        else None
    )
    if other is None:
        return
    expected = (
        f"the tensor {family.telling} of {family.title}",
        f"{family.title} 的张量 {family.telling}",
    )
    found = f"{other.telling}, which is {other.title}'s", f"{other.telling}，属于 {other.title}"
    way_out = (
        f"Use files of one model; if all of them are {other.title}'s, name its yaml {other.yaml}.",
        f"请使用同一个模型的文件；如果全部都是 {other.title} 的，请把 yaml 改名为 {other.yaml}。",
    )
    raise model_fault(family.components["flow"].file, expected, found, way_out)
