"""Who is let in, whichever protocol they ask by: identity, scopes and rates, decided in one place.

HTTP, WebSockets (`middleware/access.py`) and gRPC (`rpc/guard.py`) ask here.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from ..errors import LoginNeeded
from ..settings import Settings
from ..studio import Studio
from . import permissions
from .auth import NOBODY, Caller, Sessions
from .socket_auth import SocketAuth
from .sockets import Sockets

DOOR_THREADS = 4
# of a scope in which nobody was let in yet
BLANK_SCOPE = {"kk_owner": "", "kk_key": None, "kk_by_key": False, "kk_demo": "", "kk_login": ""}


class Door:
    """`threads`: who asks is looked up on the disk, never on the event loop and not among those who
    wait for voices.
    """

    def __init__(self, settings: Settings, sessions: Sessions, studio: Studio):
        self._sessions, self._studio = sessions, studio
        self.sockets, self.threads = Sockets(settings.limits), ThreadPoolExecutor(DOOR_THREADS)

    def identify(
        self, scope, cookies: dict[str, str], authorization: str, needs: frozenset[str] | None
    ) -> Caller | None:
        """Blocking. Counts the request and puts key and login into the scope.

        needs: scopes of which one is enough; None: everybody may come in. Raises LoginNeeded,
        NotAllowed, Busy.
        """
        try:
            caller = self._sessions.caller(cookies, authorization)
        except LoginNeeded:
            if needs is not None:
                raise
            caller = None
        if caller is None and needs is not None:
            raise LoginNeeded("login_needed.log_in")
        if caller is not None and caller.key is not None:
            scope |= {"kk_key": caller.key, "kk_by_key": caller.is_by_key}
            if needs is not None:
                permissions.check(caller.key.scopes, needs)
                if caller.is_by_key:
                    self._studio.keys.count(caller.key)
            self._studio.usage.count_request(caller.key.id)
        scope["kk_login"] = caller.login if caller is not None else ""
        return caller

    def holder(self, scope) -> SocketAuth:
        """The right that let it in, for as long as the request lasts."""
        return SocketAuth(self._studio, self.threads, scope)


def owner_of(caller: Caller | None, visit: str = "") -> str:
    """ "account/visit", whose voices, takes and rates they are."""
    account = caller.account if caller is not None else NOBODY
    return f"{account}/{visit or (caller.visit if caller is not None else '') or 'api'}"
