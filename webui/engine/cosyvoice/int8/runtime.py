"""The int8 language models at work: LanguageModels of llm/interface.py on ONNX Runtime, one
thread, any number of requests at once.

In the first generation text is encoded by torch, which is done once for a request; the layers
behind it run in ONNX Runtime.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnxruntime
import torch
from torch import Tensor

from ..dims_v1 import LmDimsV1, StackDims
from ..llm.decode import HostDecoding
from ..llm.dims import LmDims
from ..llm.kv_cache import TorchKVCache
from ..llm.qwen2 import SOS, TASK
from ..llm.relative_cache import TextKVCache
from ..llm.text_lm import READY, TextLM
from ..relative_attention import sinusoid
from .large_pages import large_pages
from .slots import SlotDims, SlotKVCache, Slots

# Names of what the converted file holds beside the graphs' values: the graphs, each with the
# endings of values that are the other one's, and tables.
GRAPHS = {"graph.steps": (".bytes", ".gains"), "graph.passage": (".codes", ".scales")}
TABLES = {"text": "table.text", "speech": "table.speech", "mark": "table.mark"}
POSITIONS = "table.positions"  # of every relative layer: what heads hear of a distance's sines
TEXT = "table.text."  # the published tensors of the first generation that torch computes with
LAYERS = "llm.encoders."  # the others of them
Arrays = Mapping[str, np.ndarray]


class Int8Body(HostDecoding, ABC):
    """Layers and head at work. values: what weights.py makes of the published ones. threads: of
    a step, which waits for memory.
    passage_threads: of an opening, which computes, and for which a first sound waits.
    """

    def __init__(
        self,
        dims: SlotDims,
        values: Arrays,
        threads: int = 1,
        passage_threads: int = 1,
    ):
        self.dims = dims
        self._steps, self._passage = (
            _session(values, graph, count)
            for graph, count in zip(GRAPHS, (threads, passage_threads), strict=True)
        )
        self._slots = Slots(dims)
        self._positions = self.position_inputs(self._slots.capacity)
        self._bindings: dict[tuple[int, int, bool], _Binding] = {}
        self._n_grown = self._slots.n_grown
        self.calls = 0

    @abstractmethod
    def position_inputs(self, count: int) -> Arrays:
        """The graphs' inputs that tell where a position is, for so many."""

    def call_inputs(self, last: np.ndarray, n: int, longest: int) -> Arrays:
        """Those that are other ones at every call of rows with n positions each, the last of them
        at `last` (rows,), where the longest slot has `longest`.
        """
        return {}

    def new_cache(self, capacity: int = 0) -> SlotKVCache:
        past = SlotKVCache(self._slots)
        past.reserve(capacity)
        return past

    def run(self, x: np.ndarray, pasts: Sequence[SlotKVCache]) -> Tensor:
        """x: (rows, n, hidden) behind `pasts`; several rows have one position each."""
        n, slots = x.shape[1], self._slots
        with slots.lock:
            at = [past.seat() for past in pasts]
            slots.make_room(max(slots.lengths[slot] for slot in at) + n)
            scores = self._binding(min(at), max(at) + 1, n > 1).run(x, at)
            for slot in at:
                slots.lengths[slot] += n
            self.calls += 1
        return torch.from_numpy(scores)

    def _binding(self, first: int, stop: int, is_passage: bool) -> _Binding:
        """Names bound to the arrays of these slots, kept from step to step."""
        if self._n_grown != self._slots.n_grown:
            self._bindings.clear()
            self._positions, self._n_grown = (
                self.position_inputs(self._slots.capacity),
                self._slots.n_grown,
            )
        key = first, stop, is_passage
        if key not in self._bindings:
            self._bindings[key] = _Binding(
                self._passage if is_passage else self._steps,
                self._slots,
                self._positions,
                self.call_inputs,
                first,
                stop,
            )
        return self._bindings[key]


class Int8Lm(Int8Body):
    def __init__(
        self,
        dims: LmDims,
        values: Arrays,
        threads: int = 1,
        passage_threads: int = 1,
    ):
        self._tables = {kind: torch.from_numpy(values[name]) for kind, name in TABLES.items()}
        super().__init__(dims, values, threads, passage_threads)

    def position_inputs(self, count: int) -> Arrays:
        return dict(zip(("cos", "sin"), _turns(self.dims, count), strict=True))

    def special_embedding(self, which: int) -> Tensor:
        return self._rows("mark", [which])

    def text(self, ids: Sequence[int]) -> Tensor:
        return self._rows("text", ids)

    def speech(self, ids: Sequence[int]) -> Tensor:
        return self._rows("speech", ids)

    def _rows(self, kind: str, ids: Sequence[int]) -> Tensor:
        return self._tables[kind][torch.as_tensor(ids, dtype=torch.long)].float()[None]

    def prefill_embeddings(self, text: Sequence[int], prompt_speech: Sequence[int] = ()) -> Tensor:
        return torch.cat(
            (self.text(text), self.special_embedding(TASK), self.speech(prompt_speech)), 1
        )

    def prefix(self, prompt_text: Sequence[int]) -> SlotKVCache:
        past = self.new_cache(1 + len(prompt_text))
        self.step(torch.cat((self.special_embedding(SOS), self.text(prompt_text)), 1), past)
        return past.rest()

    def step(self, x: Tensor, past: SlotKVCache) -> Tensor:
        """x: (1, n, hidden), n of 1 or more."""
        return self.run(x.float().numpy(), [past])

    def step_many(self, ids: Sequence[int], pasts: Sequence[SlotKVCache]) -> Tensor:
        """The pasts must be different ones."""
        return self.run(self.speech(ids)[0][:, None].numpy(), pasts)


@dataclass(frozen=True)
class BodyDims(StackDims):
    """The layers, and the rows of the head behind them."""

    rows: int

    @classmethod
    def of(cls, dims: LmDimsV1) -> BodyDims:
        body = dims.body
        return cls(body.hidden, body.heads, body.inner, body.layers, dims.rows)


class RelativeBody(Int8Body):
    """Rows of its tables are made as far as requests reach, and once for as many as most need."""

    def __init__(
        self,
        dims: BodyDims,
        values: Arrays,
        threads: int = 1,
        passage_threads: int = 1,
    ):
        self._distances = [torch.zeros(dims.heads, 0, dims.head_size) for _ in range(dims.layers)]
        self._weights = [
            torch.from_numpy(values[f"{POSITIONS}.{layer}"]) for layer in range(dims.layers)
        ]
        super().__init__(dims, values, threads, passage_threads)
        self._slots.make_room(READY - 1)

    def call_inputs(self, last: np.ndarray, n: int, longest: int) -> Arrays:
        """back (rows, heads, n, longest): how far each key lies behind each query; 0 for keys that
        it does not see.
        """
        queries = last[:, None, None, None] + np.arange(1 - n, 1)[:, None]
        back = np.maximum(queries - np.arange(longest), 0)
        return {"back": back.repeat(self.dims.heads, 1)}

    def position_inputs(self, count: int) -> Arrays:
        """distances.L (heads, count, head_size): what the heads hear of a distance, scaled as their
        scores are.
        """
        d, out = self.dims, {}
        for layer, (layer_distances, weight) in enumerate(
            zip(self._distances, self._weights, strict=True)
        ):
            waves = sinusoid(
                torch.arange(layer_distances.shape[1], count, dtype=torch.float64), d.hidden
            ).float()
            rows = (waves @ weight.T * d.head_size**-0.5).view(-1, d.heads, d.head_size)
            self._distances[layer] = torch.cat([layer_distances, rows.transpose(0, 1)], 1)
            out[f"distances.{layer}"] = self._distances[layer].numpy()
        return out


class Int8TextLm(TextLM):
    """The LanguageModel of llm/interface.py.

    What it holds of the published weights is what makes the layers' input.
    """

    def __init__(self, dims: LmDimsV1):
        super().__init__(dims, layers=0)
        self.body: RelativeBody | None = None

    @classmethod
    def create(
        cls,
        dims: LmDimsV1,
        values: Arrays,
        dtype: torch.dtype = torch.float32,
        threads: int = 1,
        passage_threads: int = 1,
    ) -> Int8TextLm:
        """values: of `weights.relative`. dtype: of what torch computes."""
        lm = cls.of(
            dims,
            {
                name.removeprefix(TEXT): torch.from_numpy(array).to(dtype)
                for name, array in values.items()
                if name.startswith(TEXT)
            },
        )
        lm.body = RelativeBody(BodyDims.of(dims), values, threads, passage_threads)
        return lm

    def new_cache(self, capacity: int = 0) -> TextKVCache:
        return TextKVCache(
            self.body.new_cache(capacity),
            TorchKVCache(self.dims.encoder, 1, 1, self._like.dtype, self._like.device),
        )

    def _behind(self, x: Tensor, past: TextKVCache) -> TextKVCache:
        self.body.run(x.float().numpy(), [past.body])
        return TextKVCache(past.body.rest(), past.text)

    @torch.no_grad()
    def step(self, x: Tensor, past: TextKVCache) -> Tensor:
        """Row numbers (1, n, 1) behind `past`; log-probabilities after the last position, (1, rows)
        fp32.
        """
        hidden = self.embedded(x, past)
        return self.body.run(hidden.float().numpy(), [past.body])

    @torch.no_grad()
    def step_many(self, ids: Sequence[int], pasts: Sequence[TextKVCache]) -> Tensor:
        """The pasts must be different ones."""
        return self.body.run(
            self.table[torch.as_tensor(ids)][:, None].float().numpy(), [past.body for past in pasts]
        )


class _Binding:
    """The session's inputs and outputs for the slots first..stop.

    Small inputs have arrays of their own that are written, not bound anew.
    """

    def __init__(
        self,
        session: onnxruntime.InferenceSession,
        slots: Slots,
        positions: Arrays,
        call_inputs: Callable[[np.ndarray, int, int], Arrays],
        first: int,
        stop: int,
    ):
        self._session, self._slots, self._first, self._stop = session, slots, first, stop
        self._call_inputs = call_inputs
        self._io = session.io_binding()
        self._last, self._spread, self._longest = (
            np.zeros(stop - first, np.int32),
            np.zeros(stop - first, np.int64),
            np.zeros((), np.int32),
        )
        for name, array in (
            ("last", self._last),
            ("spread", self._spread),
            ("longest", self._longest),
            *positions.items(),
        ):
            self._io.bind_ortvalue_input(name, _value(array))
        for layer, pair in enumerate(slots.layers):
            for kind, array in zip(("keys", "values"), pair, strict=True):
                shared = _value(array[first:stop])
                self._io.bind_ortvalue_input(f"{kind}.{layer}", shared)
                self._io.bind_ortvalue_output(f"{kind}.{layer}.new", shared)

    def run(self, x: np.ndarray, at: Sequence[int]) -> np.ndarray:
        """Slots that are not in `at` are passed over: what is written behind their filled positions
        is never read.
        """
        rows = np.array(at, np.int64) - self._first
        n = x.shape[1]
        self._last[:] = self._slots.lengths[self._first : self._stop]
        self._last[rows] += n - 1
        self._longest[...] = self._last.max() + 1
        self._spread[:] = 0
        self._spread[rows] = range(len(at))
        scores = np.empty((len(at), self._slots.dims.rows), np.float32)
        feeds = {"x": np.ascontiguousarray(x), "rows": rows}
        feeds |= self._call_inputs(self._last[rows], n, int(self._longest))
        for name, array in feeds.items():
            self._io.bind_ortvalue_input(name, _value(array))
        self._io.bind_ortvalue_output("scores", _value(scores))
        self._session.run_with_iobinding(self._io)
        return scores


def _value(array: np.ndarray) -> onnxruntime.OrtValue:
    """The array itself, not a copy."""
    return onnxruntime.OrtValue.ortvalue_from_numpy(array)


def _turns(dims: LmDims, positions: int) -> tuple[np.ndarray, np.ndarray]:
    """cos and sin of every position, (positions, head_size / 2)."""
    rates = dims.rope_theta ** (-np.arange(0, dims.head_size, 2, dtype=np.float32) / dims.head_size)
    angles = np.arange(positions, dtype=np.float32)[:, None] * rates.astype(np.float32)
    return np.cos(angles), np.sin(angles)


def _session(values: Arrays, graph: str, threads: int) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 3
    own = {
        name: array
        for name, array in values.items()
        if not name.startswith(("graph.", "table.")) and not name.endswith(GRAPHS[graph])
    }
    options.add_external_initializers(list(own), [_value(array) for array in own.values()])
    with large_pages():
        return onnxruntime.InferenceSession(
            values[graph].tobytes(), options, providers=["CPUExecutionProvider"]
        )
