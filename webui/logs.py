"""How the log is written: one line per record, the id of the request it belongs to, and of a
failure only where it was, never what was said in it.
"""

from __future__ import annotations

import hashlib
import logging
import re
import secrets
import threading
import time
import traceback
from contextvars import ContextVar

REQUEST_ID: ContextVar[str] = ContextVar("request_id", default="")
_GIVEN = re.compile(r"[A-Za-z0-9._-]{1,64}")
_KEY = secrets.token_bytes(
    16
)  # of this run: equal texts can be told within a log, and none can be guessed from it


def request_id(header_value: str) -> str:
    """The caller's own when it can stand in a header and a log line, else a new one."""
    return header_value if _GIVEN.fullmatch(header_value) else f"req-{secrets.token_hex(8)}"


def mark(text: str) -> str:
    """Eight hex digits that stand for a text in the log of this run."""
    return hashlib.blake2b(text.encode("utf-8", "replace"), key=_KEY, digest_size=4).hexdigest()


class OneLine(logging.Formatter):
    """time level logger request=… message; of an exception its kind, the places it passed, and
    length and hash of its words.
    """

    def format(self, record: logging.LogRecord) -> str:
        """One line, whatever the record holds."""
        stamp = (
            time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
            + f".{int(record.msecs):03d}Z"
        )
        current_id = REQUEST_ID.get()
        message = record.getMessage()
        parts = [
            stamp,
            record.levelname,
            record.name,
            *([f"request={current_id}"] if current_id and "request=" not in message else []),
            message,
        ]
        if record.exc_info and record.exc_info[1] is not None:
            parts.append(failure(record.exc_info[1]))
        return " ".join(parts).replace("\\", "\\\\").replace("\r", "\\r").replace("\n", "\\n")


def to_stderr(level: int = logging.INFO) -> None:
    """All of this process' log, and what other packages would print of a failure themselves."""
    handler = logging.StreamHandler()
    handler.setFormatter(OneLine())
    logging.basicConfig(level=level, handlers=[handler])

    def printed(*_, **__) -> None:
        logging.getLogger("printed").error("a failure was met", exc_info=True)

    traceback.print_exc = printed  # Gradio's way of telling what a handler raised, words and all
    threading.excepthook = lambda args: logging.getLogger("thread").error(
        "%s ended", args.thread.name if args.thread else "a thread", exc_info=args.exc_value
    )


def failure(error: BaseException) -> str:
    """kind, what it came from, the last places; its words may be a user's and are told by length
    and hash.
    """
    words, chain, cause = str(error), type(error).__name__, error.__cause__ or error.__context__
    while cause is not None and len(chain) < 200:
        chain += f"<{type(cause).__name__}"
        cause = cause.__cause__ or cause.__context__
    frames = traceback.extract_tb(error.__traceback__)[-8:]
    places = ",".join(f"{'/'.join(f.filename.rsplit('/', 2)[-2:])}:{f.lineno}" for f in frames)
    return f"failure={chain} words={len(words)}#{mark(words)} at={places}"
