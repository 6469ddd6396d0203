"""Files that visitors uploaded through the page, held in memory, each for the visitor who sent it.

Gradio names an upload by a path. Here the path is a random name and no such file exists: an event
that names any other path finds nothing, nothing a visitor sends becomes a path, and no raw
recording is left on the disk.
"""

from __future__ import annotations

import re
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from ..errors import Busy, NotAllowed

MAX_RAW_EACH = 4  # uploads of one visitor that are not yet a draft
MAX_NAMED_EACH = 32  # uploads of one visitor whose name is still known, drafts included
MAX_RAW_BYTES = 96 << 20  # of all visitors
MAX_RAW_AGE_S = 120.0  # the page asks for a draft at once; what is older will not be asked for


@dataclass(frozen=True)
class Upload:
    """data: the bytes of the file until there is a draft of it, then empty."""

    owner: str
    data: bytes
    created_s: float
    draft_id: str = ""


class Uploads:
    """Thread-safe. `folder`: where Gradio believes the files lie; it is never created."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.monotonic):
        self._folder, self._clock, self._lock = folder, clock, threading.Lock()
        self._uploads: OrderedDict[str, Upload] = OrderedDict()  # by path, oldest first

    def add(self, owner: str, file_name: str, data: bytes) -> str:
        """Hold the file and return the path that names it.

        Raises Busy while too much waits to be read.
        """
        name = re.sub(r"[^\w.-]+", "_", Path(file_name).name)[-80:].lstrip(".") or "clip"
        path = str(self._folder / secrets.token_hex(16) / name)
        with self._lock:
            self._drop_old_locked()
            self._drop_surplus_locked(owner)
            if sum(len(u.data) for u in self._uploads.values()) + len(data) > MAX_RAW_BYTES:
                raise Busy("busy.uploads", retry_after_s=5)
            self._uploads[path] = Upload(owner, data, self._clock())
        return path

    def get(self, owner: str, path: str) -> Upload:
        """Return the upload that `path` names.

        Raises NotAllowed for any other path, whatever lies there.
        """
        with self._lock:
            upload = self._uploads.get(path)
        if upload is None or upload.owner != owner:
            raise NotAllowed("foreign_file")
        return upload

    def replace(self, path: str, draft_id: str) -> None:
        """There is a draft of the upload: forget its bytes, keep its name."""
        with self._lock:
            if path in self._uploads:
                self._uploads[path] = replace(self._uploads[path], data=b"", draft_id=draft_id)

    def _drop_old_locked(self) -> None:
        oldest_s = self._clock() - MAX_RAW_AGE_S
        for path, upload in list(self._uploads.items()):
            if upload.data and upload.created_s < oldest_s:
                del self._uploads[path]

    def _drop_surplus_locked(self, owner: str) -> None:
        """Make room for one more of this visitor's, at the expense of their own oldest ones."""
        named = [(path, u) for path, u in self._uploads.items() if u.owner == owner]
        raw = [path for path, u in named if u.data]
        for path in {
            *raw[: max(0, len(raw) - MAX_RAW_EACH + 1)],
            *(path for path, _ in named[: max(0, len(named) - MAX_NAMED_EACH + 1)]),
        }:
            del self._uploads[path]
