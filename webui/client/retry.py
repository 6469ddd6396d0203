"""When to try again and how long to wait: exponential with jitter, never sooner than Retry-After
asks. And the bucket all tries take a token from.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from tenacity import AsyncRetrying, RetryCallState, Retrying, retry_if_exception

from ..errors import Busy
from .errors import is_passing, is_unheard

FULL = (
    "too_many_streams",
    "too_many_jobs",
    "busy",
)  # codes of a 429 that says nothing of a rate: room comes as others end


@dataclass(frozen=True)
class Retry:
    """tries: how often something may go wrong.

    A studio that is busy, starts or is away costs patience only: patience_s seconds of waiting in
    all.
    """

    tries: int = 6
    patience_s: float = 30.0
    first_s: float = 0.5
    longest_s: float = 30.0

    def _rules(
        self, is_worth: Callable[[BaseException], bool], has_another: Callable[[], bool]
    ) -> dict:
        n_wrong = 0

        def wait(state: RetryCallState) -> float:
            nonlocal n_wrong
            error = state.outcome.exception()
            n_wrong += not is_unheard(error)
            if has_another():
                return 0.0
            backed_off = min(
                self.longest_s, self.first_s * 2 ** min(state.attempt_number - 1, 30)
            ) * random.uniform(0.5, 1.0)
            retry_after_s = getattr(error, "retry_after_s", None) or 0.0
            return max(
                backed_off, retry_after_s * random.uniform(1.0, 1.1)
            )  # told the same, they must not all come at once

        def is_enough(state: RetryCallState) -> bool:
            return n_wrong >= self.tries or state.idle_for + state.upcoming_sleep > self.patience_s

        return {
            "retry": retry_if_exception(is_worth),
            "wait": wait,
            "stop": is_enough,
            "reraise": True,
        }

    def sync(
        self,
        is_worth: Callable[[BaseException], bool] = is_passing,
        has_another: Callable[[], bool] = lambda: False,
    ) -> Retrying:
        """The rules for calls that block. has_another: somebody else can be asked at once."""
        return Retrying(**self._rules(is_worth, has_another))

    def asynchronous(
        self,
        is_worth: Callable[[BaseException], bool] = is_passing,
        has_another: Callable[[], bool] = lambda: False,
    ) -> AsyncRetrying:
        """The rules for coroutines."""
        return AsyncRetrying(**self._rules(is_worth, has_another))


class Bucket:
    """Tokens: `per_second` on average, `burst` at once.

    None = no limit of our own; what the studio asks for is kept all the same.
    """

    def __init__(
        self,
        per_second: float | None = None,
        burst: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._rate, self._burst, self._clock = per_second, max(1, burst), clock
        self._level, self._at = float(self._burst), clock()
        self._closed_until = 0.0

    def take(self) -> float:
        """Seconds to wait before the token that was just taken is good."""
        now = self._clock()
        closed_s = max(0.0, self._closed_until - now)
        if not self._rate:
            return closed_s
        self._level, self._at = (
            min(self._burst, self._level + (now - self._at) * self._rate) - 1,
            now,
        )
        return max(closed_s, -self._level / self._rate)

    def heed(self, error: BaseException) -> None:
        """A studio that speaks of too many requests is left alone by everybody for as long as it
        asks.
        """
        if isinstance(error, Busy) and error.retry_after_s and error.code not in FULL:
            self._closed_until = max(self._closed_until, self._clock() + error.retry_after_s)
