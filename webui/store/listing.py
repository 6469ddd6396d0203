"""What a source says of its files before they are fetched: exact sizes and checksums. Optional: without it the download still checks itself."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

import httpx

from .download import FileSpec, Opener

log = logging.getLogger(__name__)
MAX_BYTES = 4 << 20
LISTINGS = {
    "modelscope": "https://modelscope.cn/api/v1/models/{repository}/repo/files?Revision=master&Recursive=True",
    "hf-mirror": "https://hf-mirror.com/api/models/{repository}/tree/main?recursive=true",
}
_SHA256 = re.compile(r"[0-9a-f]{64}")


def sharpen(
    specs: Iterable[FileSpec], source: str, repository: str, opener: Opener
) -> tuple[FileSpec, ...]:
    """The same files with what the source's listing adds. An entry that does not fit the manifest adds nothing: the download will name it."""
    known = {path: (size, sha256) for path, size, sha256 in _asked(source, repository, opener)}

    def one(spec: FileSpec) -> FileSpec:
        size, sha256 = known.get(spec.path, (0, None))
        return (
            replace(spec, size=size, exact=True, sha256=spec.sha256 or sha256)
            if size and spec.fits(size)
            else spec
        )

    return tuple(one(spec) for spec in specs)


def _asked(source: str, repository: str, opener: Opener) -> list[tuple[str, int, str | None]]:
    if source not in LISTINGS:
        return []
    try:
        with opener(
            LISTINGS[source].format(repository=repository), {"Accept": "application/json"}
        ) as answer:
            if answer.status_code != 200:
                raise ValueError(f"HTTP {answer.status_code}")
            body = bytearray()
            for block in answer.iter_bytes():
                body += block
                if len(body) > MAX_BYTES:
                    raise ValueError("a listing without end")
        return list(_entries(json.loads(body)))
    except (
        httpx.HTTPError,
        ValueError,
        TypeError,
        KeyError,
        AttributeError,
        RecursionError,
    ) as error:
        log.info("%s gave no listing (%s): sizes are learnt file by file", source, error)
        return []


def _entries(told: object) -> Iterator[tuple[str, int, str | None]]:
    """ModelScope: {"Data": {"Files": [{"Path", "Size", "Sha256"}]}}; Hugging Face: [{"path", "size", "lfs": {"oid", "size"}}]."""
    for row in told if isinstance(told, list) else told["Data"]["Files"]:
        if "Path" in row:
            path, size, sha256 = row["Path"], row.get("Size"), row.get("Sha256")
        else:
            lfs = row.get("lfs") or {}
            path, size, sha256 = row.get("path"), lfs.get("size", row.get("size")), lfs.get("oid")
        if isinstance(path, str) and type(size) is int and size > 0:
            yield (
                path,
                size,
                sha256 if isinstance(sha256, str) and _SHA256.fullmatch(sha256) else None,
            )
