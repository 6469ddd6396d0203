"""One engine of the fleet: answers studios over WebSockets, and steps all their streams with the
scheduler of a studio, so that whoever's listener runs dry first is served first, whichever studio
it listens to. Knows no Ray: `serve` puts it into a deployment, tests into a plain server.
"""

from __future__ import annotations

import hmac
import secrets
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from fastapi import FastAPI, HTTPException, Request, WebSocket
from starlette.datastructures import Headers

from ..engine.base import Engine
from ..engine.remote.protocol import record_of, words_of, words_of_prompt
from ..studio.scheduler import Scheduler
from ..types import Prompt, SpeechRequest
from .job import open_stream
from .messages import PATH, PROTOCOL, Damaged
from .prompts import PromptCache
from .session import Session

if TYPE_CHECKING:  # its client is installed only where it is wanted
    from .shared_prompts import RedisPrompts

CELL_S = 15.0  # a studio that has not asked for so long has no share of the fleet


class Replica:
    """key: what studios must show; "" on one's own machine. max_streams: open at once, whatever
    the engine could carry; one more is refused, unless it goes on with a take. shared: where
    studios put their prompts. The engine is started already.
    """

    def __init__(
        self,
        engine: Engine,
        stall_s: float,
        key: str = "",
        max_streams: int = 1 << 16,
        shared: RedisPrompts | None = None,
    ):
        self.engine, self.id, self._key = engine, secrets.token_hex(4), key
        self._max_streams = max_streams
        self.scheduler = Scheduler(engine, stall_s, open_stream)
        self._shared = shared
        self.prompts = PromptCache(shared=shared.get if shared is not None else None)
        self._cells: dict[str, float] = {}  # id of a studio -> when it asked last
        self._lock = threading.Lock()

    def check_key(self, headers: Headers) -> None:
        """Raises HTTPException 401."""
        shown = headers.get("authorization", "").removeprefix("Bearer ")
        if self._key and not hmac.compare_digest(shown.encode(), self._key.encode()):
            raise HTTPException(401, "the fleet's key is needed")

    def load(self, cell: str = "") -> dict:
        """What a studio must know to share this replica with others."""
        now = time.monotonic()
        with self._lock:
            if cell:
                self._cells[cell] = now
            self._cells = {c: at for c, at in self._cells.items() if now - at < CELL_S}
            cells = sorted(self._cells)
        return {
            "replica": self.id,
            "cells": cells,
            "capacity": min(self.scheduler.capacity, self._max_streams),
            "open": self.scheduler.n_open,
            "wanting": self.scheduler.n_wanting_audio,
            "figures": self._figures(),
        }

    def _figures(self) -> dict[str, float]:
        figures = self.engine.figures() if hasattr(self.engine, "figures") else {}
        shared = self._shared.figures() if self._shared is not None else {}
        return figures | {f"shared_{name}": n for name, n in shared.items()}

    def forget(self, fingerprint: str) -> str:
        """Of a voice that was deleted; the replica's id, as a receipt."""
        self.prompts.forget(fingerprint)
        if hasattr(self.engine, "forget"):
            self.engine.forget(fingerprint)
        return self.id

    def hello(self) -> dict:
        about = self.engine.describe()
        return {
            "op": "hello",
            "protocol": PROTOCOL,
            "engine": about.name,
            "version": about.version,
            "replica": self.id,
        }

    async def serve(self, socket: WebSocket) -> None:
        """One socket, to its end; one that does not show the key is refused."""
        try:
            self.check_key(socket.headers)
        except HTTPException:
            return await socket.close(4401)
        await Session(
            socket, self.scheduler, self.prompts, self.hello(), self.call, self._max_streams
        ).run()

    def call(self, words: dict, body: bytes, prompt: Prompt | None) -> tuple[dict, bytes]:
        """One question that is no stream. Raises KaikouError."""
        engine, name = self.engine, words["name"]
        if name == "encode":
            samples = np.frombuffer(bytearray(body), np.float32)
            new_prompt = engine.encode(
                samples, words["rate"], words["transcript"], words["language"]
            )
            self.prompts.put(new_prompt)
            return {"prompt": words_of_prompt(new_prompt)}, new_prompt.data
        if name == "preset":
            new_prompt = engine.preset(words["preset"])
            self.prompts.put(new_prompt)
            return {"prompt": words_of_prompt(new_prompt)}, new_prompt.data
        if name == "prepare":
            engine.prepare(prompt)
            return {}, b""
        request = record_of(SpeechRequest, words["request"])
        if name == "notes":
            return {"notes": engine.notes(request)}, b""
        if name == "check":
            return {"notes": engine.check(request, prompt)}, b""
        if name == "settle":
            settled, notes = engine.settle(request)
            return {"request": words_of(settled), "notes": notes}, b""
        raise Damaged


def build_app(replica: Replica) -> FastAPI:
    """The replica's routes, without a document: studios speak to it, nobody else."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    add_routes(app, lambda: replica)
    return app


def add_routes(app: FastAPI, replica_of: Callable[[], Replica]) -> None:
    @app.websocket(PATH)
    async def engine(socket: WebSocket):
        await replica_of().serve(socket)

    @app.get("/about")
    async def about(request: Request, cell: str = ""):
        replica = replica_of()
        replica.check_key(request.headers)
        return about_of(replica, [replica.load(cell)])

    @app.post("/forget")
    async def forget(request: Request, fingerprint: str):
        replica = replica_of()
        replica.check_key(request.headers)
        return {"replicas": [replica.forget(fingerprint)]}


def about_of(replica: Replica, loads: list[dict]) -> dict:
    return {
        "protocol": PROTOCOL,
        "abilities": words_of(replica.engine.describe()),
        "reads_transcripts": hasattr(replica.engine, "check"),
        "loads": loads,
    }
