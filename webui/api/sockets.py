"""How many WebSockets are open: of all visitors, of an address, of a visitor.

Used on the event loop only.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from ..errors import Busy
from ..settings import Limits

RETRY_S = 10
NOBODY = ("/api", "/guest")  # how owners end that many have in common


def address_of(scope) -> str:
    """Of whoever asks; one machine has a whole /64 of the sixth version's addresses."""
    host = (scope.get("client") or ("", 0))[0]
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    return str(ipaddress.ip_network((host, 64), strict=False)) if address.version == 6 else host


class Sockets:
    def __init__(self, limits: Limits):
        self._limits, self._open = limits, Counter()

    @contextmanager
    def one_more(self, scope) -> Iterator[None]:
        """Raises Busy."""
        limits, owner = self._limits, scope["kk_owner"]
        places = {
            "": limits.sockets,
            f"address {address_of(scope)}": limits.sockets_per_address,
        }
        if scope["kk_key"] is not None or not owner.endswith(NOBODY):
            places[f"visitor {owner}"] = limits.sockets_per_visitor
        if any(self._open[place] >= most for place, most in places.items()):
            raise Busy("too_many_sockets", retry_after_s=RETRY_S)
        self._open.update(places.keys())
        try:
            yield
        finally:
            self._open.subtract(places.keys())
            self._open = +self._open
