"""Functions of static buffers in, replays out.

`CudaCapture` is the only code here that needs a GPU, and it has not yet run on one:
scripts/bench_graphs.py --device cuda is its first run. All else is the same on every machine.
"""

from __future__ import annotations

import heapq
import logging
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Protocol

import torch
from torch import Tensor

from ....errors import EngineFault, NotReady
from ....messages import Message

log = logging.getLogger(__name__)
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


class Graphs:
    """One function of static buffers, recorded at some sizes and replayed there. At any other size
    it is computed as it is, and the log says so once.

    replayed, plain: how often, by size.
    """

    def __init__(self, name: str, function: Callable[..., None], capture: Capture):
        self._name, self._function, self._capture = name, function, capture
        self._replays: dict[tuple[int, ...], Work] = {}
        self.replayed: Counter[tuple[int, ...]] = Counter()
        self.plain: Counter[tuple[int, ...]] = Counter()

    def record(
        self,
        sizes: Sequence[tuple[int, ...]],
        on_progress: Callable[[float], None] = lambda share: None,
    ) -> None:
        """In the order given: largest first, so that the smaller ones find room in the pool.

        Raises NotReady when memory ends.
        """
        for n_recorded, size in enumerate(sizes):
            try:
                self._replays[size] = self._capture.add(partial(self._function, *size))
            except RuntimeError as error:
                if not ran_out(error):
                    raise
                raise no_memory(f"{self._name} {size}") from error
            on_progress((n_recorded + 1) / len(sizes))

    def __call__(self, *size: int) -> None:
        if size in self._replays:
            self.replayed[size] += 1
            self._replays[size]()
            return
        if not self.plain[size]:
            log.info("%s: no graph was recorded for %s, computed without", self._name, size)
        self.plain[size] += 1
        self._function(*size)

    @property
    def sizes(self) -> list[tuple[int, ...]]:
        return list(self._replays)


class Allocator:
    """Numbers from `first` up, the lowest that are free; given back in any thread, even from a
    finaliser.
    """

    def __init__(self, count: int, resource: Message, first: int = 0):
        """what: the memory is for."""
        self.count, self._resource = count, resource
        self._free = list(range(first, first + count))  # a heap
        self._returned: deque[int] = deque()

    def take(self, count: int) -> list[int]:
        """Raises EngineFault `out_of_memory` when there are not so many."""
        while self._returned:
            heapq.heappush(self._free, self._returned.popleft())
        if count > len(self._free):
            raise EngineFault("out_of_memory.gpu_units", what=self._resource, retry_after_s=2.0)
        return [heapq.heappop(self._free) for _ in range(count)]

    def give_back(self, numbers: Iterable[int]) -> None:
        self._returned.extend(numbers)

    @property
    def in_use(self) -> int:
        return self.count - len(self._free) - len(self._returned)


def upload(target: Tensor, values: Tensor | Sequence) -> None:
    """Host values into a device buffer without waiting; the host may change them at once."""
    source = torch.as_tensor(values)
    target.copy_(source.pin_memory() if target.is_cuda else source, non_blocking=True)


def ran_out(error: BaseException | None) -> bool:
    """Whether memory was the reason.

    Ending a capture that broke off raises an error of its own on top.
    """
    return error is not None and (
        isinstance(error, torch.OutOfMemoryError) or ran_out(error.__context__)
    )


def no_memory(resource: object) -> NotReady:
    return NotReady("no_memory.graphs", what=resource)


def fit(buckets: tuple[int, ...], size: int) -> int:
    """The smallest of the ascending `buckets` that holds `size`.

    Raises ValueError when none does.
    """
    for bucket in buckets:
        if size <= bucket:
            return bucket
    raise ValueError(f"{size} is above the largest bucket {buckets[-1]}")
