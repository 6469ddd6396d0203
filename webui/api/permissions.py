"""What a key needs for a route.

Whatever is not named here, Gradio's routes and those still to come among them, asks for admin.
"""

from __future__ import annotations

import re

from ..errors import NotAllowed
from ..studio import ADMIN

# open to everyone, with or without a key: tests/api/test_census.py holds every route of the app
# against these five
NAMED = (
    "/login",
    "/health/live",
    "/health/ready",
    "/tts/static/{version}/{folder}/{name}",
    "/d/{token}",
)
_FREE = re.compile("|".join(re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(p)) for p in NAMED))

ANY = frozenset({"speak", "voices", "jobs"})
RULES: tuple[tuple[re.Pattern, str, frozenset[str]], ...] = tuple(
    (re.compile(path), methods, needs)
    for path, methods, needs in (
        (r"/v1/models(/[^/]*)?|/v1/openapi\.json|/tts/health", "GET HEAD", ANY),
        (
            r"/v1/audio/voices",
            "GET HEAD",
            ANY,
        ),  # whoever speaks or hands in a batch must know the ids
        (
            r"/v1/audio/(voices|voice_consents)(/.*)?|/v1/pronunciations[^/]*|/tts/draft/.*",
            "",
            frozenset({"voices"}),
        ),
        (
            r"/v1/audio/(speech|takes)(/.*)?|/tts|/inference_\w+"
            r"|/tts/(ws|session|takes\.zip|cancel/.*|result/.*)",
            "",
            frozenset({"speak"}),
        ),
        (r"/v1/text/prepare", "POST", frozenset({"speak", "jobs"})),
        (r"/v2/.*", "", frozenset({"jobs"})),
        # which of them a key may call, webui/ui/endpoints.py asks
        (r"/config|/gradio_api/(info|app_id|queue/data|heartbeat/.*|file=.*)/?", "GET", ANY),
        (r"/gradio_api/((api|run)/[^/]+|mcp|queue/join)/?", "POST", ANY),
    )
)


def is_free(path: str) -> bool:
    return _FREE.fullmatch(path) is not None


def needed(method: str, path: str) -> frozenset[str]:
    """One of these is enough; admin always is."""
    for pattern, methods, needs in RULES:
        if pattern.fullmatch(path) and (not methods or method in methods.split()):
            return needs
    return frozenset()


def check(scopes: tuple[str, ...], needs: frozenset[str]) -> None:
    """Raises NotAllowed."""
    if ADMIN in scopes or needs & set(scopes):
        return
    raise NotAllowed("scope.key", wanted=sorted(needs) or ADMIN)
