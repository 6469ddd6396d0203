"""From a request to the sources of its segments: text ids, the prompt that its mode asks for, and a sampler of its own."""

from __future__ import annotations

from collections.abc import Iterable

from ...types import SpeechRequest
from .board import Board
from .lm import MAX_IDS_PER_TEXT_ID, MIN_IDS_PER_TEXT_ID, Drawing
from .lm_seam import Draw, DrawingModel
from .model import CosyVoice2
from .prompt import check_fit
from .sampler import Sampler
from .sources import Arriving, Drawn, DrawnThere
from .text_stream import TextStream
from .tokenizer import instruction
from .voices import LiveVoice

FIRST_ROOM = 256  # positions of a past whose text is still to come


class Script:
    """Raises BadInput when the transcript cannot be what the clip says."""

    def __init__(self, model: CosyVoice2, voice: LiveVoice, request: SpeechRequest):
        self._model, self._voice, self._request = model, voice, request
        self._prompt_text, self._prompt_speech = self._prompt()

    def _prompt(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Prompt text and prompt speech of the language model: they depend on the mode (specification, section 4)."""
        model, prompt, request = self._model, self._voice.prompt, self._request
        if request.mode == "instruct" and request.instruction.strip():
            return tuple(model.tokenizer.encode(instruction(request.instruction))), ()
        if request.mode == "zero_shot" and prompt.speech_ids:
            text = tuple(model.tokenizer.typed(request.transcript)) or prompt.text_ids
            if text:
                check_fit(len(text), len(prompt.speech_ids), len(prompt.speech_ids) / model.spec.ids_per_s)
                return text, prompt.speech_ids
        return (), ()

    def drawn(self) -> list[Drawn | DrawnThere]:
        """One source for each segment; each has its own random numbers, so that a segment does not depend on the length of those before."""
        model, request, dims = self._model, self._request, self._model.lm.dims
        out = []
        for index, segment in enumerate(request.segments or (request.text,)):
            text = model.tokenizer.typed(segment)
            seed = (request.seed + index) % 2**63
            if isinstance(model.lm, DrawingModel):
                draw = Draw(seed, MIN_IDS_PER_TEXT_ID * len(text), MAX_IDS_PER_TEXT_ID * len(text))
                out.append(DrawnThere(model.lm, lambda: self._voice.prefix(self._prompt_text), text, self._prompt_speech, draw))
                continue
            sampler = Sampler(seed, model.spec.rule, never=(dims.reserved, dims.fill))
            out.append(Drawn(model.lm, lambda: self._voice.prefix(self._prompt_text), text, self._prompt_speech, Drawing(dims, len(text), sampler)))
        return out

    def arriving(self, pieces: Iterable[str], board: Board) -> Arriving:
        """15 speech ids for every 5 text ids that come (specification, 5.5)."""
        model = self._model
        sampler = Sampler(self._request.seed, model.spec.rule, never=(model.lm.dims.reserved,))

        def stream() -> TextStream:
            return TextStream(model.lm, model.lm.new_cache(FIRST_ROOM), self._prompt_text, self._prompt_speech, sampler)
        return Arriving(stream, (i for piece in pieces for i in model.tokenizer.arriving(piece)), board)
