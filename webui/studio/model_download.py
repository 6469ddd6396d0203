"""The model download as the page sees it: one at a time, in the background, may be paused and taken
up again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from ..errors import BadInput, Cancelled, KaikouError
from ..store.model_files import ModelFetcher, Progress

log = logging.getLogger(__name__)
SOURCES = ("modelscope", "hf-mirror")


class ModelDownload:
    """`fetcher(source)` makes a fetcher for one run; `on_complete()` is called in the background
    when the last file has come.
    """

    def __init__(self, fetcher: Callable[[str], ModelFetcher], on_complete: Callable[[], object]):
        self._fetcher, self._on_complete = fetcher, on_complete
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._source = SOURCES[0]
        self._progress: Progress | None = None
        self._error: KaikouError | None = None
        # the source before this one, and what went wrong there
        self._previous: tuple[str, KaikouError | None] | None = None
        self._state = "present" if fetcher(self._source).plan().is_complete else "none"

    def fetch(self, source: str = "") -> None:
        """Begin or go on.

        A running download is left alone unless another source is asked for. Raises BadInput for an
        unknown source.
        """
        source = source or self._source
        if (
            source not in SOURCES
        ):  # an address is for the script: nobody shall have the studio ask one
            raise BadInput(
                "bad_source.unknown", source=source[:60], sources=SOURCES, param="source"
            )
        with self._lock:
            if self._state in ("downloading", "present") and source == self._source:
                return
            if source != self._source:
                self._previous = self._source, self._error
            before, self._source = self._thread, source
            self._stop.set()
            self._stop = threading.Event()
            self._state, self._error = "downloading", None
            self._thread = threading.Thread(
                target=self._run, args=(source, self._stop, before), name="model-fetch", daemon=True
            )
            self._thread.start()

    def pause(self) -> None:
        """Idempotent. What has come stays and is taken up again."""
        with self._lock:
            self._stop.set()
            if self._state == "downloading":
                self._state = "paused"

    def _run(self, source: str, stop: threading.Event, before: threading.Thread | None) -> None:
        if before is not None:
            before.join()
        try:
            self._fetcher(source).fetch(self._tell, stop)
        except Cancelled:
            return
        except KaikouError as error:
            log.warning("model download: %s", error)
            with self._lock:
                self._state, self._error = "failed", error.copy()
            return
        with self._lock:
            self._state = "present"
        self._on_complete()

    def _tell(self, progress: Progress) -> None:
        self._progress = progress

    def status(self) -> dict:
        """state: none, downloading, paused, present, failed; p per cent, a of b in words, m minutes
        left; left: the source before, and its reason.
        """
        status: dict = {"state": self._state, "source": self._source, "sources": list(SOURCES)}
        if (failed_source := self._previous) is not None:
            status["left"] = {"source": failed_source[0]} | _why(failed_source[1])
        progress = self._progress
        if progress is None:
            plan = self._fetcher(self._source).plan() if self._state == "none" else None
            return (
                status
                | (
                    {"b": _gb(plan.total_bytes), "a": _gb(plan.total_bytes - plan.bytes)}
                    if plan
                    else {}
                )
                | _why(self._error)
            )
        status |= {
            "p": int(100 * progress.done / max(1, progress.total)),
            "a": _gb(progress.done),
            "b": _gb(progress.total),
            "file": progress.file,
        }
        if progress.left_s is not None:
            status["m"] = max(1, round(progress.left_s / 60))
        return status | _why(self._error)

    def close(self) -> None:
        self._stop.set()


def _why(error: KaikouError | None) -> dict:
    return {"reason": error.en, "reason_zh": error.zh} if error else {}


def _gb(n: int) -> str:
    return f"{n / 1e9:.1f} GB" if n >= 1e8 else f"{n / 1e6:.1f} MB"
