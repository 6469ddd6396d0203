"""What a voice costs once: its flow memory and its language-model prefixes, shared read-only by all its requests. LRU by bytes."""

from __future__ import annotations

import threading
from collections import OrderedDict

from ...types import Prompt
from .flow import Blocks, VoiceState
from .flow.dims import FRAMES_PER_ID, LOOKAHEAD_IDS
from .lm_seam import Past
from .model import CosyVoice2
from .prompt import VoicePrompt

MAX_PREFIXES = 8


class LiveVoice:
    """Made at once, and computed when it is first wanted: the flow's part by the sound stage (`grow`), prefixes by the token stage."""

    def __init__(self, model: CosyVoice2, prompt: VoicePrompt, first_hop: int | None = None):
        """first_hop: ids of a request's first hop, the model's block when None."""
        self._model, self.prompt = model, prompt
        self._first_hop = first_hop or model.flow.dims.chunk_size
        self.flow: VoiceState | None = None
        self._prefixes: OrderedDict[tuple[int, ...], Past] = OrderedDict()

    def grow(self) -> None:
        """The next piece of the prompt. Its last 3 ids are heard as what follows it: then it ends on a block, and a request's first hop
        computes frames of its own only."""
        if self.flow is None:
            self.flow = self._begun()
        if not self.flow.is_ready:
            self.flow.grow()

    def _begun(self) -> VoiceState:
        prompt, flow = self.prompt, self._model.flow
        n = min(len(prompt.speech_ids), prompt.mel.shape[1] // FRAMES_PER_ID)
        base = max(0, n - LOOKAHEAD_IDS)
        blocks = Blocks.behind(base, self._first_hop, flow.dims.chunk_size)
        return self._model.voice(prompt.speech_ids[:base], prompt.mel[:, : FRAMES_PER_ID * base], prompt.vector, blocks,
                                 store=self._model.place.store, ahead=prompt.speech_ids[base:n] if base else ())

    @property
    def is_ready(self) -> bool:
        return self.flow is not None and self.flow.is_ready

    def prefix(self, prompt_text: tuple[int, ...]) -> Past:
        """The language model behind [start] ++ prompt text. Fork it."""
        if prompt_text not in self._prefixes:
            self._prefixes[prompt_text] = self._model.lm.prefix(prompt_text)
            while len(self._prefixes) > MAX_PREFIXES:
                self._prefixes.popitem(last=False)
        self._prefixes.move_to_end(prompt_text)
        return self._prefixes[prompt_text]

    @property
    def bytes(self) -> int:
        return (self.flow.bytes if self.flow is not None else 0) + sum(p.nbytes for p in list(self._prefixes.values()))


class LiveVoices:
    """Thread-safe. A voice that is let go lives on in the requests that hold it."""

    def __init__(self, model: CosyVoice2, max_bytes: int, first_hop: int | None = None):
        self._model, self._max_bytes, self._first_hop = model, max_bytes, first_hop
        self._lock = threading.Lock()
        self._live: OrderedDict[str, LiveVoice] = OrderedDict()
        self.made = 0

    def get(self, prompt: Prompt) -> LiveVoice:
        """Quick. Raises EngineFault when the prompt's bytes are no voice."""
        with self._lock:
            if prompt.fingerprint not in self._live:
                self._live[prompt.fingerprint] = LiveVoice(self._model, VoicePrompt.unpack(prompt.data), self._first_hop)
                self.made += 1
            self._live.move_to_end(prompt.fingerprint)
            return self._live[prompt.fingerprint]

    def grow(self, voice: LiveVoice) -> None:
        """For the sound stage: a piece of one voice, and others go when it takes more than there is."""
        voice.grow()
        with self._lock:
            while len(self._live) > 1 and sum(v.bytes for v in self._live.values()) > self._max_bytes:
                self._live.popitem(last=False)

    def clear(self) -> None:
        with self._lock:
            self._live.clear()
