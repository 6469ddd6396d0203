"""What CUDA forbids while it captures, looked for on a CPU: no work may ask for a value, make one
of the host's, or draw at random.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tests.engine import cosyvoice1_small
from tests.engine.cosyvoice_small import small_flow, small_vocoder
from tests.engine.test_cosyvoice_graphs_lm import RULE, SIZES
from tests.engine.test_cosyvoice_lm import tiny
from webui.engine.cosyvoice.cuda.capture import WARM_RUNS, CudaCapture, Graphs
from webui.engine.cosyvoice.cuda.flow import CapturedFlow, CapturedHops, FlowSizes, HopSizes
from webui.engine.cosyvoice.cuda.lm import CapturedLM
from webui.engine.cosyvoice.cuda.vocoder import CapturedVocoder

torch.set_num_threads(1)
ASKS = {"_local_scalar_dense", "item", "is_nonzero", "equal", "allclose", "istft"}  # for a value
DEPENDS = {
    "nonzero",
    "masked_select",
    "unique",
    "_unique2",
    "bincount",
    "unique_consecutive",
}  # its shape on values
MAKES = {"lift_fresh", "scalar_tensor", "_pin_memory", "from_file"}  # from the host's memory
DRAWS = {
    "rand",
    "randn",
    "randint",
    "uniform_",
    "normal_",
    "bernoulli",
    "bernoulli_",
    "multinomial",
    "rand_like",
    "randn_like",
    "exponential_",
}


class Watched(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.wrong, self.count = [], 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        self.count += 1
        picks = (
            [i for i in (args[1] or ()) if i is not None]
            if name in ("index", "index_put", "index_put_")
            else []
        )
        if (
            name in ASKS | DEPENDS | MAKES | DRAWS
            or any(i.dtype == torch.bool for i in picks)
            or (kwargs or {}).get("pin_memory")
        ):
            self.wrong.append(name)
        return func(*args, **(kwargs or {}))


def lm_works():
    captured = CapturedLM(tiny(dtype=torch.float32), RULE, SIZES)
    return {size: partial(captured.decode_step, *size) for size in ((1, 24), (4, 160))}


def flow_works():
    captured = CapturedFlow(
        small_flow(torch.float32),
        FlowSizes(ids=(12, 28), batches=(1, 2), reaches=(64,), units=100, slots=4),
    )
    return {size: partial(captured.hop, *size) for size in ((12, 1, 64), (28, 2, 64))}


def hop_works():
    captured = CapturedHops(cosyvoice1_small.small_flow(torch.float32), HopSizes((256,), (1, 2)))
    return {size: partial(captured.hop, *size) for size in ((256, 1), (256, 2))}


def vocoder_works():
    captured = CapturedVocoder(small_vocoder())
    return {size: partial(captured.windows, *size) for size in ((20, 1), (50, 2))}


@pytest.mark.parametrize("works", [lm_works, flow_works, hop_works, vocoder_works])
def test_works_keep_to_the_rules_of_a_capture(works):
    for key, work in works().items():
        work()  # constant tables grow in warm-up runs
        with Watched() as watched:
            work()
        assert not watched.wrong and watched.count > 50, (key, watched.wrong)


def test_a_work_that_breaks_them_is_seen():
    values = torch.arange(4.0)
    for work in (
        lambda: values[0].item(),
        lambda: values[values > 1],
        lambda: torch.tensor([1, 2]),
        lambda: torch.rand(2),
        lambda: bool(values.any()),
    ):
        with Watched() as watched:
            work()
        assert watched.wrong


def test_the_order_of_a_capture(monkeypatch):
    """Warm-up on the side stream, then one recorded run on it, in the shared pool; the caller's
    stream waits on both sides.
    """
    events = []

    class Stream:
        def __init__(self, name="side"):
            self.name = name

        def wait_stream(self, other):
            events.append(f"{self.name} waits for {getattr(other, 'name', other)}")

    class Graph:
        def replay(self):
            events.append("replay")

    @contextmanager
    def on(stream):
        events.append(f"on {stream.name}")
        yield

    @contextmanager
    def recording(graph, pool, stream):
        events.append(f"record on {stream.name} in {pool}")
        yield

    caller = Stream("caller")
    fake = SimpleNamespace(
        Stream=lambda device: Stream(),
        graph_pool_handle=lambda: "pool",
        current_stream=lambda: caller,
        stream=on,
        CUDAGraph=Graph,
        graph=recording,
    )
    monkeypatch.setattr(torch, "cuda", fake)
    graphs = Graphs("test", lambda size: events.append("work"), CudaCapture())
    graphs.record([(4,)])
    first = [
        "side waits for caller",
        "on side",
        *["work"] * WARM_RUNS,
        "caller waits for side",
        "record on side in pool",
        "work",
    ]
    assert events == first
    graphs(4)
    graphs(4)
    assert events == [*first, "replay", "replay"] and graphs.replayed[(4,)] == 2
    graphs(5)
    assert events[-1] == "work" and graphs.plain[(5,)] == 1, "what was not recorded is computed"
