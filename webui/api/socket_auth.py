"""The right that a request came in by: a key, a demo link, a login.

Asked again at whatever comes later, and told when the right ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress

from ..errors import KaikouError, LoginNeeded, NotAllowed, NotFound
from ..studio import Studio

GLANCE_S = 0.5  # pieces that go out more closely than that are one


class SocketAuth:
    """Lives as long as its request: `with Holder(...)`.

    Used on the event loop; what may read the disk runs in `door`.

    scope: as the guard has left it. Of an open socket each start is one more request; the first was
      counted with the socket itself.
    """

    def __init__(self, studio: Studio, door: Executor, scope):
        self._studio, self._door, self._loop = studio, door, asyncio.get_running_loop()
        self._key, self._is_by_key = scope["kk_key"], scope["kk_by_key"]
        self._demo, self._login = scope["kk_demo"], scope["kk_login"]
        self._rights = [r for r in (self._key and self._key.id, self._demo, self._login) if r]
        self.error: KaikouError | None = None  # why the right has ended
        self._on_end: Callable[[], object] | None = None
        self._n_asked, self._looked_s, self._is_looking = 0, 0.0, False

    def __enter__(self) -> SocketAuth:
        self._unwatch = [self._studio.rights.add(right, self._look) for right in self._rights]
        return self

    def __exit__(self, *_) -> None:
        self._on_end = None
        for unwatch in self._unwatch:
            unwatch()

    def listen(self, on_end: Callable[[], object] | None) -> None:
        """`on_end` is called once, on the event loop, when the right has ended; `error` says why.

        None: the request goes on to its end.
        """
        self._on_end = on_end

    async def ask(self) -> None:
        """One more request. Raises as `check` does, and Busy with the seconds to wait."""
        await self.check()
        self._n_asked += 1
        if self._key is not None and self._n_asked > 1:
            if self._is_by_key:
                self._studio.keys.count(self._key)
            self._studio.usage.count_request(self._key.id)

    async def check(self) -> None:
        """Whether what came in may still be heeded.

        Raises LoginNeeded, NotAllowed (link taken back or expired).
        """
        if not self._rights:
            return
        try:
            await self._loop.run_in_executor(self._door, self._check)
        except (NotAllowed, NotFound) as error:
            self._on_check(error)
            raise

    def glance(self) -> None:
        """At each piece that goes out: what another process has changed, and the end of a link's
        time, is noticed. Waits for nothing.
        """
        if self._rights and not self._is_looking and self._loop.time() - self._looked_s > GLANCE_S:
            self._is_looking, self._looked_s = True, self._loop.time()
            self._door.submit(self._look)

    def _check(self) -> None:
        if self._key is not None and self._studio.keys.by_id(self._key.id) is None:
            raise LoginNeeded("invalid_api_key")
        if self._login and self._studio.logins.is_ended(self._login):
            raise LoginNeeded("login_needed.log_in_again")
        if self._demo:
            self._studio.share_links.open(self._demo)

    def _look(self) -> None:
        """From any thread."""
        error = None
        try:
            self._check()
        except (NotAllowed, NotFound) as failure:
            error = failure
        except KaikouError:
            pass  # the disk cannot be asked just now: nothing is known to have ended
        with suppress(RuntimeError):  # the loop has closed
            self._loop.call_soon_threadsafe(self._on_check, error)

    def _on_check(self, error: KaikouError | None) -> None:
        self._is_looking = False
        if error is not None and self.error is None:
            self.error = error
            if self._on_end is not None:
                self._on_end()
