"""All items in their order: one model directory in, one report out.

What goes wrong inside an item is that item's failure.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from ....errors import KaikouError
from ..device import DeviceConfig, choose
from ..frontend.prompt_encoder import PromptFeatures
from ..model import Model
from ..model_spec import ModelSpec
from ..registry import model_spec_of
from . import description, directory, graphs, language, listening, machine, sound, speaking, text
from .result import FAILED, FETCH, Result, failed
from .speech import Clip

log = logging.getLogger(__name__)
FORMAT = 1
Keep = Callable[[str, np.ndarray, int], str]  # name, samples, Hz -> name of the file


@dataclass(frozen=True)
class Options:
    """expected: sizes and checksums of the published files; published: of each release. quick: the
    short texts only, and no item I. keep: where sound is put for whoever
    listens. recognise: of item H.
    """

    expected: directory.Expected
    device: str = "auto"
    is_quick: bool = False
    keep: Keep | None = None
    recognise: speaking.Recognise | None = None
    published: Mapping[str, directory.Expected] = field(default_factory=dict)


def examine(
    root: Path,
    clips: Sequence[Clip],
    options: Options,
    on_result: Callable[[Result], None] = lambda result: None,
) -> dict:
    """clips: of two voices at least, with their transcripts; the first is the one that is spoken
    with. Raises NotReady where the directory
    holds no model, or there is no memory for it now; nothing else.
    """
    model_spec = model_spec_of(root)
    run = _Run(on_result)
    began = time.perf_counter()
    run.add(
        "A", "files", lambda: directory.files(root, model_spec, options.expected, options.published)
    )
    model = run.load(lambda: _reference(root, model_spec, options.device))
    if model is not None:
        _networks(run, root, model_spec, model, clips, options)
    return {
        "format": FORMAT,
        "model": root.name,
        "engine": model_spec.engine,
        "fingerprint": model.mark if model is not None else "",
        "device": model.device_config.describe(model_spec.title) if model is not None else "",
        "seconds": round(time.perf_counter() - began, 1),
        "results": [result.to_dict() for result in run.results],
        "recommended": run.recommended,
    }


def _reference(root: Path, model_spec: ModelSpec, device: str) -> Model:
    """Exact, and with the steps it was trained for."""
    return _load(root, model_spec, replace(choose(device, machine.EXACT), graphs=False))


def _load(root: Path, model_spec: ModelSpec, device_config: DeviceConfig) -> Model:
    return machine.load_beside(root, model_spec, device_config, model_spec.steps[0])


def _networks(
    run: _Run,
    root: Path,
    model_spec: ModelSpec,
    model: Model,
    clips: Sequence[Clip],
    options: Options,
) -> None:
    run.add("B", "text", lambda: text.text(root, model))
    run.add("C", "tensors", lambda: directory.tensors(root, model_spec))
    run.add("C", "spectrum", lambda: directory.spectrum(root, model_spec))
    run.add("D", "listening", lambda: listening.listening(model, clips))
    if not model.prompt_encoder.can_hear:
        return
    clip = clips[0]
    prompt, other = (model.prompt_encoder.voice(c.samples, c.rate) for c in clips[:2])
    run.add("E", "transcript", lambda: language.transcript(model, clip, prompt))
    run.add("F", "vocoder", lambda: sound.vocoder(model, clip, prompt))
    run.add("F", "flow", lambda: sound.flow(model, clip, prompt))
    run.add("F", "cache", lambda: sound.cache(model, prompt))
    run.add(
        "F",
        "graphs",
        lambda: graphs.recorded(lambda at: _load(root, model_spec, at), choose(options.device)),
    )
    run.speak(model, prompt, other, options)
    if run.is_trained and description.applies(model):
        run.add(
            "G",
            "description",
            lambda: description.description(model, prompt, options.recognise),
        )
    if not options.is_quick and run.is_trained:
        run.compare(root, model_spec, model, clip, prompt)


class _Run:
    """The results so far."""

    def __init__(self, on_result: Callable[[Result], None]):
        self.results: list[Result] = []
        self.recommended: Mapping[str, object] | None = None
        self._on_result = on_result

    def add(self, item: str, name: str, work: Callable[[], Result]) -> None:
        began = time.perf_counter()
        try:
            result = work()
        except KaikouError as error:
            result = failed(item, name, (error.en, error.zh))
        except (
            Exception
        ) as error:  # a damaged directory may break anything; the next item is asked all the same
            log.exception("item %s (%s) broke off", item, name)
            message = f"{type(error).__name__}: {str(error)[:200]}"
            result = failed(item, name, (message, message), FETCH)
        result = replace(result, seconds=round(time.perf_counter() - began, 2))
        self.results.append(result)
        self._on_result(result)

    @property
    def is_trained(self) -> bool:
        """Nothing has said otherwise yet: what does not follow its own clip need not be heard at
        length, nor be timed.
        """
        return not any(
            (r.item, r.name, r.status) == ("E", "transcript", FAILED) for r in self.results
        )

    def load(self, load: Callable[[], Model]) -> Model | None:
        """None, and a failed item, where the networks cannot be loaded."""
        try:
            return load()
        except KaikouError as error:
            if error.code == "no_memory":  # says nothing about the model: another time it may fit
                raise
            sentences = error.en, error.zh
            self.add("C", "load", lambda: failed("C", "load", sentences, ("", "")))
            return None

    def speak(
        self, model: Model, prompt: PromptFeatures, other: PromptFeatures, options: Options
    ) -> None:
        is_short = options.is_quick or not self.is_trained
        texts = [speaking.TEXTS[i] for i in speaking.QUICK] if is_short else speaking.TEXTS
        waves: list[np.ndarray] = []

        def speak() -> Result:
            result, new_waves = speaking.speaking(model, prompt, other, texts)
            waves.extend(new_waves)
            return result

        self.add("G", "speaking", speak)
        rate, keep = model.spec.sample_rate, options.keep
        files = [keep(f"doctor-{i + 1}", w, rate) for i, w in enumerate(waves)] if keep else []
        if waves:
            recognise = options.recognise
            self.add("H", "words", lambda: speaking.words(waves, rate, texts, recognise, files))

    def compare(
        self, root: Path, model_spec: ModelSpec, model: Model, clip: Clip, prompt: PromptFeatures
    ) -> None:
        device = model.device_config.device
        choices: list[machine.Choice] = []

        def measure() -> Result:
            reference = machine.Reference(
                language.nll(model, prompt, clip)[1], machine.reference_mel(model, prompt)
            )
            names = machine.precisions(device)
            device_config = machine.place_for(device)
            record = graphs.load_compared if device == "cuda" else None
            choices.extend(
                machine.choices(
                    root, model_spec, clip, prompt, reference, device_config, names, record
                )
            )
            return machine.machine(choices)

        self.add("I", "machine", measure)
        self.add("E", "precision", lambda: machine.precision(choices, model_spec.steps[0]))
        best = machine.recommended(choices)
        if best is not None and not any(r.status == FAILED for r in self.results if r.item != "E"):
            self.recommended = {"precision": best.precision, "steps": best.steps}
