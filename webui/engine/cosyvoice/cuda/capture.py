"""Works in, replays out.

`CudaCapture` is the only code here that needs a GPU, and it has not yet run on one:
scripts/bench_engine.py --device cuda is its first run. Everything else (`Direct`, `Table`) is the
same on every machine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from typing import Protocol

import torch

from ....errors import EngineFault, NotReady

Work = Callable[[], None]
WARM_RUNS = 2  # before capture: libraries choose their kernels and make their workspaces then


class Capture(Protocol):
    def add(self, work: Work) -> Work:
        """What to call instead of `work` from now on.

        Runs `work` a few times on the way: nothing may be asked of it by then.
        """


class EagerCapture:
    """No graphs: the works themselves. For machines without CUDA."""

    def add(self, work: Work) -> Work:
        work()
        return work


class CudaCapture:
    """One graph per work.

    All its graphs share one memory pool, so they must be replayed one after the other, on one
    stream. A work must not look at values from the host, nor draw from torch's generators.
    """

    def __init__(self, device: torch.device | str = "cuda"):
        self._stream = torch.cuda.Stream(device)
        self._pool = torch.cuda.graph_pool_handle()

    def add(self, work: Work) -> Work:
        caller = torch.cuda.current_stream()
        self._stream.wait_stream(caller)
        with torch.cuda.stream(self._stream):
            for _ in range(WARM_RUNS):
                work()
        caller.wait_stream(self._stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool, stream=self._stream):
            work()
        return graph.replay


class Table:
    """The replays of one network by bucket.

    Filled once; what is not in it afterwards is refused, never run eagerly.
    """

    def __init__(self, capture: Capture):
        self._capture = capture
        self._replays: dict[Hashable, Work] = {}
        self.played: Counter[Hashable] = Counter()
        self.refused = 0

    def fill(
        self,
        works: Mapping[Hashable, Work],
        on_progress: Callable[[float], None] = lambda share: None,
    ) -> None:
        """In the order given: largest first, so that the smaller ones find room in the pool.

        Raises NotReady when memory ends.
        """
        for done, (key, work) in enumerate(works.items()):
            try:
                self._replays[key] = self._capture.add(work)
            except RuntimeError as error:
                if not ran_out(error):
                    raise
                raise no_memory(key) from error
            on_progress((done + 1) / len(works))

    def play(self, key: Hashable) -> None:
        replay = self._replays.get(key)
        if replay is None:
            self.refused += 1
            raise EngineFault(
                f"No graph was captured for {key}.", f"没有为 {key} 录制计算图。", code="no_graph"
            )
        self.played[key] += 1
        replay()

    def keys(self) -> list[Hashable]:
        return list(self._replays)

    def __len__(self) -> int:
        return len(self._replays)


def ran_out(error: BaseException | None) -> bool:
    """Whether memory was the reason.

    Ending a capture that broke off raises an error of its own on top.
    """
    return error is not None and (
        isinstance(error, torch.OutOfMemoryError) or ran_out(error.__context__)
    )


def no_memory(what: object) -> NotReady:
    return NotReady(
        f"The GPU has too little memory for its prepared graphs (at {what}). Allow fewer streams,"
        " or close other programs.",
        f"显存不足，无法准备计算图（{what}）。请减少并发路数，或关闭其他程序。",
        code="no_memory",
    )


def fit(buckets: tuple[int, ...], size: int) -> int:
    """The smallest of the ascending `buckets` that holds `size`.

    Raises ValueError when none does.
    """
    for bucket in buckets:
        if size <= bucket:
            return bucket
    raise ValueError(f"{size} is above the largest bucket {buckets[-1]}")
