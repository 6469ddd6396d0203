"""Who opened a socket, asked again at every request that comes by it: a key that was revoked since opens nothing more, and its rate counts here too."""

from __future__ import annotations

from ..errors import LoginNeeded
from ..studio import Studio


class Holder:
    """`scope`: of the socket, as the guard left it. The first request was counted there, with the socket itself."""

    def __init__(self, studio: Studio, scope):
        self._studio, self._key, self._is_by_key, self._n_asked = (
            studio,
            scope["kk_key"],
            scope["kk_by_key"],
            0,
        )

    def ask(self) -> None:
        """One more request. Raises LoginNeeded, Busy with the seconds to wait."""
        key, self._n_asked = self._key, self._n_asked + 1
        if key is None:
            return
        if self._studio.keys.by_id(key.id) is None:
            raise LoginNeeded(
                "This API key is not valid.", "这个 API 密钥无效。", code="invalid_api_key"
            )
        if self._n_asked > 1:
            if self._is_by_key:
                self._studio.keys.count(key)
            self._studio.usage.asked(key.id)
