"""From a request to the sources of its segments: text ids, the prompt that its mode asks for, and a
sampler of its own.

What a generation feeds otherwise it says by overriding `prompt`, `head`, `text`, `prefix` and
`token_filter`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence

from ....errors import BadInput
from ....text import rewrite, without_marks
from ....types import SpeechRequest, part_seed
from ..llm.decode import MAX_IDS_PER_TEXT_ID, MIN_IDS_PER_TEXT_ID
from ..llm.interface import KVCache, SamplingRequest
from ..llm.sampler import Sampler
from ..llm.streaming_input import TextStream
from ..llm.token_sources import Hears, LMTokens, StreamingTextTokens
from .prompt_cache import CachedPrompt, PromptModel
from .prompt_encoder import fit_notes
from .tokenizer import instruction

MARKS = 3  # start, speaker, task: not every generation has all of them
FIRST_ROOM = 256  # positions of a past whose text is still to come


class PromptBuilder:
    def __init__(self, model: PromptModel, voice: CachedPrompt, request: SpeechRequest):
        self.model, self.voice, self.request = model, voice, request
        self.prompt_text, self.prompt_speech = self.prompt()

    def prompt(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Prompt text and prompt speech of the language model: they depend on the mode
        (specification, section 4).
        """
        if self.request.mode == "instruct" and self.request.instruction.strip():
            return tuple(self.model.tokenizer.encode(instruction(self.request.instruction))), ()
        text, speech = self.clip_ids()
        return (text, speech) if text else ((), ())

    def clip_ids(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """In zero_shot the clip's own words and its ids; nothing in other modes, or where either is
        not known.
        """
        model, prompt, request = self.model, self.voice.prompt, self.request
        if request.mode != "zero_shot" or not prompt.speech_ids:
            return (), ()
        text = tuple(model.tokenizer.typed(self.transcript())) or prompt.text_ids
        return (text, prompt.speech_ids) if text else ((), ())

    def transcript(self) -> str:
        """The clip's words as they are read: rewritten as the text is, unless they hold a mark
        (specification "First contact", section 1).
        """
        words = self.request.transcript
        return words if "<|" in words else rewrite(without_marks(words))

    def fit_notes(self) -> list[tuple[str, str]]:
        """What is odd about the clip's words beside the clip, as (English, Chinese) sentences."""
        text, speech = self.clip_ids()
        return fit_notes(len(text), len(speech), self.model.spec.ids_per_s)

    def head(self) -> Sequence[int]:
        """Of the prompt text, the ids that are read at once where the text arrives while it speaks;
        the others wait for their turn.
        """
        return ()

    def text(self, segment: str) -> list[int]:
        return self.model.tokenizer.typed(segment)

    def prefix(self) -> KVCache:
        """What all requests of this voice with this prompt text share.

        Called in the LM worker.
        """
        return self.voice.prefix(self.prompt_text)

    def token_filter(self) -> Hears | None:
        """A new one for each segment, where the flow does not hear all ids."""
        return None

    def build_lm_tokens(self) -> list[LMTokens]:
        """One source for each segment; each has its own random numbers, so that a segment does not
        depend on the length of those before.
        """
        model, request, out = self.model, self.request, []
        for index, segment in enumerate(request.segments or (request.text,)):
            if index < request.first_segment:
                continue
            text = self.text(segment)
            self._check_room(len(text))
            sampling = SamplingRequest(
                part_seed(request.seed, index),
                MIN_IDS_PER_TEXT_ID * len(text),
                MAX_IDS_PER_TEXT_ID * len(text),
                model.spec.rule,
            )
            out.append(
                LMTokens(
                    model.lm, self.prefix, text, self.prompt_speech, sampling, self.token_filter()
                )
            )
        return out

    def _check_room(self, n_text: int) -> None:
        """Raises BadInput where the least that is said of a segment has no room behind its
        prompt.
        """
        before = MARKS + len(self.prompt_text) + len(self.prompt_speech)
        least, most = before + (1 + MIN_IDS_PER_TEXT_ID) * n_text, self.model.lm.positions
        if most is not None and least > most:
            raise BadInput("too_long_sentence", param="input")

    def arriving(
        self, pieces: Iterable[str], lock: threading.Lock, on_text: Callable[[], None]
    ) -> StreamingTextTokens:
        """15 speech ids for every 5 text ids that come (specification, 5.5).

        lock, on_text: as StreamingTextTokens takes them.
        """
        model, dims, head = self.model, self.model.lm.dims, self.head()
        sampler = Sampler(
            part_seed(self.request.seed, 0),
            model.spec.rule,
            never=dims.forbidden_ids(dims.end, dims.fill),
        )

        def stream() -> TextStream:
            return TextStream(
                model.lm,
                model.lm.new_cache(FIRST_ROOM),
                self.prompt_text[len(head) :],
                self.prompt_speech,
                sampler,
                head,
            )

        return StreamingTextTokens(
            stream,
            (i for piece in pieces for i in model.tokenizer.arriving(piece)),
            lock,
            on_text,
            self.token_filter(),
        )
