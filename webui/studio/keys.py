"""API keys: made once and shown once, known afterwards by their hash alone.

Who a key is, what it may do, and how often. Blind to HTTP.
"""

from __future__ import annotations

import hashlib
import math
import secrets
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress

from ..errors import BadInput, Busy, NotFound, StorageDamaged
from ..store.access_db import ADMIN, AccessStore, Key
from .admission import Bucket
from .drafts import account_of

SCOPES = ("speak", "voices", "jobs", ADMIN)
PER_MINUTE, MAX_PER_MINUTE = 600, 100_000
MAX_LIVE = 200  # keys of one account
MAX_NAME = 60


def key_fingerprint(secret: str) -> str:
    """A key has 256 random bits: a plain hash of it cannot be turned back."""
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()


class Keys:
    """`fixed`: hashes of keys that were given at the start (KAIKOU_API_KEY).

    They may do everything, on a shelf of their own. `cell`: whose name new keys carry.
    `on_end(id)` is called for each key that is found to be revoked, by whichever process. Blocking:
    every call may read the disk.
    """

    def __init__(
        self,
        store: AccessStore,
        fixed: Iterable[str] = (),
        clock: Callable[[], float] = time.time,
        on_end: Callable[[str], None] = lambda key_id: None,
        cell: str = "",
    ):
        self._store, self._clock, self._lock = store, clock, threading.Lock()
        self._prefix = f"kk_{cell}." if cell else "kk_"
        self._on_end = on_end
        self._fixed = {
            mark: Key(f"key-{mark[:12]}", mark, "KAIKOU_API_KEY", f"key-{mark[:12]}", SCOPES)
            for mark in fixed
        }
        self._state: tuple | None = None
        self._live: dict[str, Key] = {}
        self._must_ask = False
        self._buckets: dict[str, Bucket] = {}

    # ---- at the door -----------------------------------------------------------------------------
    def auth_required(self) -> bool:
        """There is a key, so that who has none stays out.

        A damaged file of keys does not open the door either.
        """
        self.look()
        return bool(self._fixed or self._live or self._must_ask)

    @property
    def n_live(self) -> int:
        self.look()
        return len(self._fixed) + len(self._live)

    def find(self, secret: str) -> Key | None:
        """None for one that is wrong or revoked."""
        self.look()
        mark = key_fingerprint(secret)
        return self._fixed.get(mark) or self._live.get(mark)

    def by_id(self, key_id: str) -> Key | None:
        self.look()
        return next(
            (k for k in (*self._fixed.values(), *self._live.values()) if k.id == key_id), None
        )

    def count(self, key: Key) -> None:
        """One more request of it. Raises Busy with the seconds to wait."""
        if not key.per_minute:
            return
        with self._lock:
            bucket = self._buckets.setdefault(key.id, Bucket(key.per_minute))
            wait_s = bucket.take()
        if wait_s:
            s = math.ceil(wait_s)
            raise Busy("rate_limited.key", per_minute=key.per_minute, retry_after_s=s)

    def look(self) -> None:
        """A key that another process made or revoked counts at once.

        Every question about keys begins with this.
        """
        with suppress(StorageDamaged):  # it was set aside, and the next look sees the new file
            state = self._store.state()
            if state == self._state:
                return
        with self._lock:
            self._state, before = self._store.state(), self._live
            self._live = {k.mark: k for k in self._store.keys() if k.revoked_at is None}
            self._must_ask = not self._live and self._store.was_damaged()
            ended = [k.id for mark, k in before.items() if mark not in self._live]
        for key_id in ended:
            self._on_end(key_id)

    def revoked(self) -> list[str]:
        """Ids of all keys that were ever revoked."""
        return [k.id for k in self._store.keys() if k.revoked_at is not None]

    # ---- for who keeps them ----------------------------------------------------------------------
    def create(
        self,
        owner: str,
        name: str,
        scopes: Iterable[str] = ("speak",),
        per_minute: int = PER_MINUTE,
    ) -> tuple[Key, str]:
        """The key itself is returned here and never again. Raises BadInput, StorageFull."""
        name, scopes = " ".join(name.split()), tuple(s for s in SCOPES if s in set(scopes))
        if not name or len(name) > MAX_NAME:
            raise BadInput("bad_name.key", max_name=MAX_NAME, param="name")
        if not scopes:
            raise BadInput("bad_scope", scopes=SCOPES, param="scopes")
        if not 1 <= per_minute <= MAX_PER_MINUTE:
            raise BadInput("bad_rate", max_per_minute=MAX_PER_MINUTE, param="per_minute")
        account = account_of(owner)
        secret = self._prefix + secrets.token_urlsafe(32)
        mark = key_fingerprint(secret)
        key = Key(f"key-{mark[:12]}", mark, name, account, scopes, per_minute, self._clock())
        if not self._store.add_key(key, MAX_LIVE):
            raise BadInput("too_many_keys", max_live=MAX_LIVE)
        return key, secret

    def list(self, owner: str) -> list[Key]:
        """Of the account, newest first, revoked ones too."""
        return [k for k in self._store.keys() if k.account == account_of(owner)]

    def revoke(self, owner: str, key_id: str) -> Key:
        """From now on it is as unknown as a wrong one.

        Idempotent. Raises NotFound; another's is as unknown as none.
        """
        key = next((k for k in self.list(owner) if k.id == key_id), None)
        if key is None:
            raise NotFound("key_gone")
        self._store.revoke_key(key.id, self._clock())
        with self._lock:
            self._buckets.pop(key.id, None)
        self.look()
        return next(k for k in self.list(owner) if k.id == key_id)
