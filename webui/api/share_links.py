"""/v1/demos: demo links made, listed with what they used, and taken back; /d/{token}: the page of a
link. What a guest hears comes by the page's own routes.
"""

from __future__ import annotations

import html
import io
import json
import time
from functools import cache
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

import segno
from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import HTMLResponse
from pydantic import Field, FiniteFloat

from ..errors import BadInput, KaikouError
from ..settings import Settings, is_loopback
from ..studio import DEMO_LIMITS, ShareLink, Studio, Used, reachable
from . import schemas
from .auth import Sessions
from .fields import JsonBody
from .health import Static
from .keys import usage_info
from .middleware.access import language_of, name_of_host
from .openapi import answers, file_of, refusals

Whole = Annotated[int, Field(ge=-(1 << 53), le=1 << 53)]
Number = FiniteFloat | Whole
LANGUAGES = ("zh", "en")
WORDS = (
    "demo.",
    "bar.",
    "st.",
    "err.",
    "m.",
    "app.",
    "takes.label",
)  # of assets/lang: what the page of a link says
# of this page alone: any site may put it into a frame; it runs nothing but our own files
POLICY = (
    "default-src 'self'; script-src 'self'; style-src 'self' 'unsafe-inline'; connect-src 'self'"
    " ws: wss:; img-src 'self' data:; media-src 'self' blob:; worker-src 'self' blob:; object-src"
    " 'none'; base-uri 'none'; form-action 'none'; frame-ancestors *"
)


class NewDemo(JsonBody):
    voice: str = Field(max_length=200)
    title: str = Field("", max_length=1000)
    sample: str = Field("", max_length=1000)  # a text to begin with
    mode: Literal["auto", "zero_shot", "cross_lingual", "instruct", "preset"] = "auto"
    instructions: str = Field("", max_length=100_000)
    language: str = Field("auto", max_length=16)
    speed: Number = 1.0
    seed: int | None = Field(None, ge=-1, lt=1 << 63)
    days: Number = 7
    max_text: Whole = 200  # characters at a time
    max_chars: Whole = 20_000  # in all
    max_uses: Whole = 200
    per_minute: Whole = 20  # all guests together

    def fixed(self) -> dict:
        return {
            "mode": self.mode,
            "instruction": self.instructions,
            "language": self.language,
            "speed": float(self.speed),
            "seed": -1 if self.seed is None else self.seed,
            "sample": self.sample,
        }


def routes(studio: Studio, settings: Settings, sessions: Sessions, static: Static) -> APIRouter:
    router, share_links, root = APIRouter(), studio.share_links, settings.server.root_path
    modules = static.modules("page/demo.js") | static.modules("player/view.js")
    preloads = "\n".join(f'<link rel="modulepreload" href="{{files}}/{name}">' for name in modules)
    page = (settings.paths.assets / "page" / "demo.html").read_text("utf-8")
    page = page.replace("{preloads}", preloads)

    def owner(request: Request) -> str:
        return request.scope["kk_owner"]

    def base(request: Request) -> str:
        """The studio's address as this caller knows it."""
        head = request.headers
        scheme = head.get("x-forwarded-proto", request.url.scheme).partition(",")[0].strip()
        forwarded = head.get("x-forwarded-host", "").partition(",")[0].strip()
        host = forwarded if name_of_host(forwarded) else head.get("host", "")
        return f"{'https' if scheme in ('https', 'wss') else 'http'}://{host}{root}"

    def places(path: str, request: Request) -> list[dict]:
        """Where other devices reach `path`: as this caller came, unless that is this machine only,
        and at the interfaces that are listened on.
        """
        own = base(request)
        name_by_url = {} if is_loopback(urlsplit(own).hostname or "") else {own + path: ""}
        for at in reachable(settings.server.host):
            host = f"[{at.address}]" if ":" in at.address else at.address
            name_by_url.setdefault(f"http://{host}:{settings.server.port}{root}{path}", at.name)
        return [{"url": url, "interface": name} for url, name in name_by_url.items()]

    def to_dict(demo: ShareLink, used: Used, request: Request) -> dict:
        state = demo.ended or (
            "expired"
            if time.time() >= demo.expires_at
            else "used_up"
            if demo.uses >= demo.max_uses or demo.chars >= demo.max_chars
            else "live"
        )
        path = f"/d/{sessions.demo_token(demo)}"
        return {
            "id": demo.id,
            "object": "demo",
            "voice": demo.voice,
            "title": demo.title,
            "state": state,
            "path": path,
            "url": base(request) + path,
            "urls": places(path, request),
            "created_at": int(demo.created_at),
            "expires_at": int(demo.expires_at),
            "max_text": demo.max_text,
            "max_chars": demo.max_chars,
            "max_uses": demo.max_uses,
            "per_minute": demo.per_minute,
            "uses": demo.uses,
            "characters": demo.chars,
            "settings": {k: v for k, v in demo.fixed.items() if k != "seed" or v >= 0},
            "usage": usage_info(used),
        }

    @router.get("/v1/demos", responses={**answers(200, of=schemas.DemoList), **refusals(503, 507)})
    def every(request: Request):
        used = studio.usage.totals()
        return {
            "object": "list",
            "data": [
                to_dict(d, used.get(d.id, Used()), request)
                for d in share_links.list(owner(request))
            ],
            "limits": DEMO_LIMITS,
        }

    @router.post(
        "/v1/demos",
        status_code=201,
        responses={**answers(201, of=schemas.DemoInfo), **refusals(403, 404, 422, 503, 507)},
    )
    def create(body: NewDemo, request: Request):
        voice = studio.voice_resolver.voice(owner(request), body.voice)
        demo = share_links.create(
            owner(request),
            voice.id,
            body.title or voice.name,
            body.fixed(),
            days=body.days,
            max_text=body.max_text,
            max_chars=body.max_chars,
            max_uses=body.max_uses,
            per_minute=body.per_minute,
        )
        return to_dict(demo, Used(), request)

    @router.delete("/v1/demos/{demo_id}", status_code=204, responses=refusals(404, 503, 507))
    def revoke(demo_id: str, request: Request):
        share_links.revoke(owner(request), demo_id)
        return Response(status_code=204)

    @router.get(
        "/v1/demos/{demo_id}/qr.svg",
        response_class=Response,
        responses={
            200: {"description": "The link as a QR code", "content": file_of("image/svg+xml")},
            **refusals(404, 422, 503, 507),
        },
    )
    def qr(demo_id: str, request: Request, url: str = Query("", max_length=2000)):
        """`url`: one of the link's `urls`; else the address that this caller came by."""
        path = f"/d/{sessions.demo_token(share_links.get(owner(request), demo_id))}"
        if url and all(url != at["url"] for at in places(path, request)):
            raise BadInput("bad_url.link_address", param="url")
        url = url or base(request) + path
        out = io.BytesIO()
        segno.make(url, error="m", micro=False).save(
            out, kind="svg", scale=4, border=4, dark="#000", light="#fff", xmldecl=False
        )
        return Response(
            out.getvalue(), 200, {"Cache-Control": "private, no-store"}, "image/svg+xml"
        )

    @router.get("/d/{token}", response_class=HTMLResponse, include_in_schema=False)
    def visit(token: str, request: Request):
        """The page of a link; of one that is not valid, a page that says so.

        Nothing of the voice is in it but its title.
        """
        language = language_of(dict(request.headers.raw))
        facts: dict = {"version": static.version, "lang": language, "root": root, "link": ""}
        try:
            demo, status = share_links.open(sessions.demo_of(token)), 200
            facts |= {
                "link": f"{root}/d/{token}",
                "title": demo.title,
                "sample": demo.fixed.get("sample", ""),
                "max_text": demo.max_text,
                "until": int(demo.expires_at),
            }
        except KaikouError as error:
            if "text/html" not in request.headers.get(
                "accept", "*/*"
            ) and "*/*" not in request.headers.get("accept", "*/*"):
                raise
            facts["refused"], status = {"en": error.en, "zh": error.zh}, error.status
        headers = {
            "Content-Security-Policy": POLICY,
            "Cache-Control": "no-store",
            "X-Robots-Tag": "noindex",
        }
        return HTMLResponse(_fill(page, facts, settings.paths.assets), status, headers)

    return router


def _fill(page: str, facts: dict, assets: Path) -> str:
    """Facts and sentences as JSON that no reader of HTML takes for markup."""
    data = json.dumps(
        {
            "facts": facts,
            "strings": _strings(assets),
            "bar": (assets / "player" / "player.html").read_text("utf-8"),
        },
        ensure_ascii=False,
    ).replace("<", "\\u003c")
    files = f"{facts['root']}/tts/static/{facts['version']}"
    return (
        page.replace("{files}", html.escape(files))
        .replace("{lang}", "zh-CN" if facts["lang"] == "zh" else "en")
        .replace("{data}", data)
    )


@cache
def _strings(assets: Path) -> dict:
    whole = {
        code: json.loads((assets / "lang" / f"{code}.json").read_text("utf-8"))
        for code in LANGUAGES
    }
    return {
        code: {k: v for k, v in table.items() if k.startswith(WORDS)}
        for code, table in whole.items()
    }
