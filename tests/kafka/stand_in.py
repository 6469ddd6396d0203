"""A studio's batch route without an engine, which fails as a test wants it to, and counts."""

from __future__ import annotations

import json
import threading
from collections import Counter
from contextlib import contextmanager

import uvicorn
from fastapi import FastAPI, Request, Response

from tests.serve import free_port
from webui import audio
from webui.api.middleware.access import error_body
from webui.errors import BadInput, EngineFault, KaikouError, NotFound
from webui.messages import message
from webui.studio.zip_stream import ZipStream

RATE = 24000


class StandIn:
    """refusal: what every batch is answered with, None = it is made. failures: text -> how often
    its line still fails. gate: a batch is answered when it is set.
    """

    def __init__(self) -> None:
        self.url = f"http://127.0.0.1:{free_port()}"
        self.refusal: KaikouError | None = None
        self.failures: Counter[str] = Counter()
        self.n_spoken: Counter[str] = Counter()
        self.batches: list[list[str]] = []
        self.refused, self.arrived = threading.Event(), threading.Event()
        self.gate = threading.Event()
        self.gate.set()

    def answer(self, lines: list[dict]) -> bytes:
        """The zip. Raises KaikouError."""
        texts = [line["input"] for line in lines]
        self.batches.append(texts)
        self.arrived.set()
        self.gate.wait(30)
        if self.refusal is not None:
            self.refused.set()
            raise self.refusal
        for n, line in enumerate(lines, 1):
            if len(line["input"]) > 5000:
                raise BadInput(
                    "too_long_text.request", n=len(line["input"]), max_text=5000, param="input"
                )
            if line["voice"] != "alloy":
                error = NotFound("voice_gone.deleted")
                raise NotFound(message("line", n=n, error=error), code=error.code)
        out, zip_, rows = b"", ZipStream(), []
        for n, line in enumerate(lines, 1):
            text = line["input"]
            if self.failures[text] > 0:
                self.failures[text] -= 1
                error = EngineFault()
                words = {"en": error.en, "zh": error.zh}
                row = {"code": error.code, "message": error.en, "sentences": words}
                rows.append({"line": n, "state": "failed", "error": row})
                continue
            self.n_spoken[text] += 1
            pcm = bytes([line["seed"] % 251, 0]) * 800
            wav = audio.wav_header(RATE, len(pcm) // 2, "test") + pcm
            out += zip_.add(f"{n:04d}_line.wav", wav)
            rows.append({"line": n, "state": "done"})
        manifest = json.dumps({"lines": rows}).encode()
        return out + zip_.add("manifest.json", manifest) + zip_.end()

    def app(self) -> FastAPI:
        app = FastAPI()

        @app.post("/v2/synthesize/batch")
        def batch(body: dict):
            return Response(self.answer(body["requests"]), headers={"X-Job-Id": "job-1"})

        @app.exception_handler(KaikouError)
        async def named(request: Request, error: KaikouError):
            return Response(error_body(error, "en"), error.status)

        @app.get("/v1/audio/voices")
        def voices():
            return {"data": []}

        @app.delete("/v2/jobs/{job}")
        def delete(job: str):
            return Response(status_code=204)

        return app

    @contextmanager
    def serving(self):
        port = int(self.url.rpartition(":")[2])
        config = uvicorn.Config(self.app(), port=port, loop="asyncio", log_level="error")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        while not server.started:
            thread.join(0.01)
        try:
            yield self
        finally:
            self.gate.set()
            server.should_exit = True
            thread.join()
