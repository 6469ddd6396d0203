"""Demo links: one voice with fixed settings for whoever has the link, until it expires, is used up
or is taken back. Blind to HTTP and signatures.

A guest's owner is `demo-…/visit`. What is spoken for a guest uses the voice and the dictionary of
who made the link, and leaves no take.
"""

from __future__ import annotations

import math
import secrets
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from ..errors import BadInput, Busy, NotAllowed, NotFound, StorageFull
from ..store.access_db import AccessStore, ShareLink
from ..types import MAX_INSTRUCTION, MODES, Voice
from .admission import Bucket
from .drafts import account_of
from .request_builder import known_language

GUEST = "demo-"
DAY_S = 86400.0
MAX_LIVE = 200  # links of one account that have not ended
DEMO_LIMITS = {
    "days": 365,
    "max_text": 1000,
    "max_chars": 1_000_000,
    "max_uses": 100_000,
    "per_minute": 600,
}


def is_guest(owner: str) -> bool:
    return owner.startswith(GUEST)


def share_link_settings(voice: Voice, title: str) -> Voice:
    """All that a guest learns of it."""
    return Voice("demo", title, voice.language, "", "", voice.duration_s, 0.0)


class ShareLinks:
    """`on_end(id)` is called for each link that is taken back. `cell`: whose name new ids carry.

    Blocking: every call may read the disk.
    """

    def __init__(
        self,
        store: AccessStore,
        clock: Callable[[], float] = time.time,
        on_end: Callable[[str], None] = lambda demo_id: None,
        cell: str = "",
    ):
        self._prefix = f"{GUEST}{cell}-" if cell else GUEST
        self._store, self._clock, self._lock = store, clock, threading.Lock()
        self._on_end = on_end
        self._buckets: dict[str, Bucket] = {}
        self.refused: dict[str, int] = dict.fromkeys(
            ("demo_gone", "demo_ended", "demo_expired", "demo_used_up", "rate_limited"), 0
        )
        self.n_uses = 0

    # ---- for guests ------------------------------------------------------------------------------
    def open(self, demo_id: str) -> ShareLink:
        """A link that may still be looked at. Raises NotFound, NotAllowed (taken back, expired)."""
        demo = self._store.demo(demo_id)
        if demo is None:
            raise self._count_refusal(NotFound("demo_gone.not_valid"))
        if not demo.ended and self._clock() >= demo.expires_at:
            with suppress(StorageFull):  # it is refused all the same
                self._store.end_demo(demo.id, "expired")
        if demo.ended == "revoked":
            raise self._count_refusal(NotAllowed("demo_ended"))
        if demo.ended or self._clock() >= demo.expires_at:
            raise self._count_refusal(NotAllowed("demo_expired"))
        return demo

    def of(self, owner: str) -> ShareLink:
        """The link of a guest."""
        return self.open(account_of(owner))

    def host(self, owner: str) -> str:
        """The owner whose voice and dictionary a guest borrows."""
        return f"{self.of(owner).account}/{account_of(owner)}"

    def check_rate(self, owner: str) -> ShareLink:
        """Once more, at the link's rate. Raises Busy too."""
        demo = self.of(owner)
        with self._lock:
            wait_s = self._buckets.setdefault(demo.id, Bucket(demo.per_minute)).take()
        if wait_s:
            s = math.ceil(wait_s)
            raise self._count_refusal(Busy("rate_limited.share_link", retry_after_s=s))
        return demo

    def enter(self, owner: str, text: str) -> ShareLink:
        """One use of the link, counted.

        Raises BadInput (too long at a time), NotAllowed (expired, taken back, used up), Busy.
        """
        demo = self.check_rate(owner)
        if len(text) > demo.max_text:
            raise BadInput(
                "too_long_text.share_link", max_text=demo.max_text, n=len(text), param="input"
            )
        if not self._store.use_demo(demo.id, len(text)):
            self.open(demo.id)  # says so if it ended just now
            raise self._count_refusal(NotAllowed("demo_used_up"))
        self.n_uses += 1
        return demo

    def give_back(self, demo: ShareLink, text: str) -> None:
        """A use that was refused further in."""
        self.n_uses -= 1
        self._store.give_back_demo(demo.id, len(text))

    def _count_refusal(self, error):
        self.refused[error.code] += 1
        return error

    # ---- for who makes them ----------------------------------------------------------------------
    def create(
        self,
        owner: str,
        voice: str,
        title: str,
        fixed: dict,
        *,
        days: float = 7,
        max_text: int = 200,
        max_chars: int = 20_000,
        max_uses: int = 200,
        per_minute: int = 20,
    ) -> ShareLink:
        """`voice` was found to be the owner's. fixed: mode, instruction, language, speed, seed,
        sample (a text to begin with). Raises BadInput, StorageFull.
        """
        title, account = " ".join(title.split())[:60], account_of(owner)
        for name, value in (
            ("days", days),
            ("max_text", max_text),
            ("max_chars", max_chars),
            ("max_uses", max_uses),
            ("per_minute", per_minute),
        ):
            if not 0 < value <= DEMO_LIMITS[name]:
                raise BadInput("bad_field.above_zero", most=DEMO_LIMITS[name], param=name)
        if voice.startswith("draft-"):
            raise NotAllowed("draft_voice.share_link", param="voice")
        now = self._clock()
        demo = ShareLink(
            self._prefix + secrets.token_hex(12),
            account,
            voice,
            title,
            _settings(fixed),
            now + days * DAY_S,
            max_text,
            max_chars,
            max_uses,
            per_minute,
            now,
        )
        if not self._store.add_demo(demo, MAX_LIVE):
            raise BadInput("too_many_demos", max_live=MAX_LIVE)
        return demo

    def list(self, owner: str) -> list[ShareLink]:
        """Of the account, newest first, ended ones too."""
        return [d for d in self._store.demos() if d.account == account_of(owner)]

    def get(self, owner: str, demo_id: str) -> ShareLink:
        """Raises NotFound; another's is as unknown as none."""
        demo = self._store.demo(demo_id)
        if demo is None or demo.account != account_of(owner):
            raise NotFound("demo_gone.link")
        return demo

    def revoke(self, owner: str, demo_id: str) -> ShareLink:
        """Idempotent. Raises NotFound."""
        self._store.end_demo(self.get(owner, demo_id).id, "revoked")
        self._on_end(demo_id)
        return self.get(owner, demo_id)


def _settings(fixed: dict) -> dict:
    """Raises BadInput."""
    settings = {
        "mode": "auto",
        "instruction": "",
        "language": "auto",
        "speed": 1.0,
        "seed": -1,
        "sample": "",
    } | fixed
    if settings["mode"] not in ("auto", *MODES):
        raise BadInput("bad_mode.share_link", modes=MODES, param="mode")
    if len(settings["instruction"]) > MAX_INSTRUCTION:
        raise BadInput(
            "too_long_instruction", max_instruction=MAX_INSTRUCTION, param="instructions"
        )
    if not 0.25 <= settings["speed"] <= 4.0:
        raise BadInput("bad_speed", param="speed")
    if not -1 <= settings["seed"] < 2**63:
        raise BadInput("bad_seed", param="seed")
    return settings | {"language": known_language(settings["language"])}
