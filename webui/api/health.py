"""The small routes: health, metrics, page session, takes as a zip, static files of the player,
login.
"""

from __future__ import annotations

import gzip
import hashlib
import html
import posixpath
import re
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Depends, Form, Request, Response
from fastapi.responses import HTMLResponse, PlainTextResponse, RedirectResponse, StreamingResponse

from ..errors import KaikouError, LoginNeeded, NotFound, NotReady
from ..messages import Message
from ..settings import Settings
from ..studio import ModelLibrary, Studio
from . import schemas
from .audio_formats import file_format
from .auth import FIRST, PAGE_AGE_S, Sessions, is_stranger
from .middleware.access import language_of
from .openapi import answers, file_of, refusals
from .sockets import address_of

IMPORT = re.compile(r'^(import (?:[^"]* from )?)"(\.{1,2}/[^"]+)"', re.M)
TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


class Static:
    """Files of assets/player, /page and /style, read and packed once, under an address that holds
    their hash.

    Names are looked up, never joined to a path.
    """

    def __init__(self, assets: Path):
        self.files = {
            f"{name}/{p.name}": p.read_bytes()
            for name in ("player", "page", "style")
            for p in sorted((assets / name).glob("*"))
            if p.suffix in TYPES
        }
        self.packed = {name: gzip.compress(data, mtime=0) for name, data in self.files.items()}
        self.version = hashlib.sha256(
            b"".join(n.encode() + d for n, d in self.files.items())
        ).hexdigest()[:12]

    def modules(self, entry: str) -> dict[str, str]:
        """Name -> source of a script and of all that it imports; each import by its name."""
        sources: dict[str, str] = {}

        def add(name: str) -> None:
            if name in sources:
                return
            folder, source = posixpath.dirname(name), self.files[name].decode()

            def of(path: str) -> str:
                return posixpath.normpath(f"{folder}/{path}")

            sources[name] = IMPORT.sub(lambda m: f'{m[1]}"{of(m[2])}"', source)
            for _, path in IMPORT.findall(source):
                add(of(path))

        add(entry)
        return sources


def routes(studio: Studio, settings: Settings, sessions: Sessions, static: Static) -> APIRouter:
    router = APIRouter()
    root = settings.server.root_path

    @router.get("/health/live", responses={**answers(200, of=schemas.LiveInfo), **refusals()})
    def live():
        return {"status": "live"}

    @router.get("/health/ready", responses={**answers(200, of=schemas.ReadyInfo), **refusals(503)})
    def ready(request: Request):
        """For proxies and probes, which have no key: a stranger is told yes or no."""
        status, is_known = studio.status(), not is_stranger(request.scope["kk_owner"])
        if not studio.is_ready():
            reason = Message(status["reason"], status["reason_zh"])
            is_told = is_known and reason.en
            raise NotReady(reason if is_told else "notready.still_starting", retry_after_s=2)
        return {"status": "ready", "engine": status["engine"] if is_known else ""}

    @router.get("/tts/health", responses={**answers(200, of=schemas.HealthInfo), **refusals()})
    def health():
        return studio.status()

    @router.post("/tts/model/fetch", include_in_schema=False)
    def fetch_model(source: str = "", model: str = ""):
        return model_library_of(studio).fetch(source, model)

    @router.post("/tts/model/pause", include_in_schema=False)
    def pause_model():
        return model_library_of(studio).pause()

    @router.post("/tts/engine/again", include_in_schema=False)
    def try_again():
        return {"started": studio.engine_manager.again()}

    @router.post("/tts/engine/use", include_in_schema=False)
    def use(model: str):
        """Another model of this disk shall speak."""
        model_library_of(studio).use(model)
        return {"models": studio.model_library.list()}

    @router.post("/tts/model/examine", include_in_schema=False)
    def examine(model: str):
        model_library_of(studio).examine(model)
        return {"models": studio.model_library.list()}

    @router.get("/tts/model/report", include_in_schema=False)
    def report(model: str):
        """What the doctor found, with its figures."""
        return model_library_of(studio).report(model)

    @router.post("/tts/model/agree", include_in_schema=False)
    def agree(model: str):
        """The recommended profile shall be used."""
        model_library_of(studio).agree(model)
        return {"models": studio.model_library.list()}

    @router.get("/metrics", response_class=PlainTextResponse, responses=refusals())
    def metrics():
        return PlainTextResponse(studio.metrics.text(), media_type="text/plain; version=0.0.4")

    @router.post("/tts/session", include_in_schema=False)
    def session(request: Request):
        owner, scope = request.scope["kk_owner"], request.scope
        # who made the first key of an open studio might have no other way in again
        is_first = scope["kk_key"] is None and owner.startswith(f"{FIRST}/")
        return {
            "token": sessions.page_token(owner),
            "token_s": PAGE_AGE_S,
            "limits": studio.limits(),
            "version": static.version,
            "can_log_out": bool(scope["kk_login"]) and not is_first,
        }

    @router.get(
        "/tts/takes.zip",
        response_class=StreamingResponse,
        responses={**answers(200, content=file_of("application/zip")), **refusals(422)},
    )
    def takes(request: Request, kind: Annotated[str, Depends(file_format)]):
        return StreamingResponse(
            studio.takes.zip(request.scope["kk_owner"], kind),
            200,
            {
                "Content-Disposition": 'attachment; filename="kaikou-takes.zip"',
                "Cache-Control": "no-store",
            },
            "application/zip",
        )

    @router.get("/tts/static/{version}/{folder}/{name}", include_in_schema=False)
    def file(version: str, folder: str, name: str, request: Request):
        data = static.files.get(f"{folder}/{name}")
        if data is None:
            raise NotFound("not_found.address")
        age = "public, max-age=31536000, immutable" if version == static.version else "no-cache"
        headers = {"Cache-Control": age, "Vary": "Accept-Encoding"}
        if "gzip" in request.headers.get("accept-encoding", ""):
            data, headers["Content-Encoding"] = static.packed[f"{folder}/{name}"], "gzip"
        return Response(data, 200, headers, TYPES[Path(name).suffix])

    def page(request: Request, error: KaikouError | None = None) -> str:
        language = language_of(dict(request.headers.raw))
        message = error.sentence(language) if error is not None else ""
        return login_form(
            root, language, message, bool(settings.server.auth), studio.keys.auth_required()
        )

    @router.get("/login", include_in_schema=False)
    def login_page(request: Request):
        return HTMLResponse(page(request))

    @router.post("/login", include_in_schema=False)
    def login(
        request: Request, user: str = Form(""), password: str = Form(""), key: str = Form("")
    ):
        secure = (
            request.url.scheme == "https" or request.headers.get("x-forwarded-proto") == "https"
        )
        visit = sessions.visit_of(request.cookies)
        try:
            cookie = studio.logins.attempt(
                visit or address_of(request.scope),
                bool(visit),
                user,
                lambda: (
                    sessions.key_cookie(key, root, secure)
                    if key
                    else sessions.login_cookie(user, password, root, secure)
                ),
            )
            if not cookie:
                raise _wrong_login(bool(key))
        except KaikouError as error:
            if "text/html" not in request.headers.get("accept", ""):
                raise
            more = {} if error.retry_after_s is None else {"Retry-After": f"{error.retry_after_s}"}
            return HTMLResponse(page(request, error), error.status, more)
        return RedirectResponse(f"{root}/", 303, {"Set-Cookie": cookie})

    @router.post("/logout", status_code=204, include_in_schema=False)
    def log_out(request: Request):
        """This login opens nothing any more, and what is under way by it ends, but for this
        answer.
        """
        request.scope["kk_holder"].listen(None)
        cookie = sessions.log_out(request.scope["kk_login"], root)
        return Response(status_code=204, headers={"Set-Cookie": cookie})

    return router


def _wrong_login(is_key: bool) -> LoginNeeded:
    if is_key:
        return LoginNeeded("bad_login.key")
    return LoginNeeded("bad_login.password")


def model_library_of(studio: Studio) -> ModelLibrary:
    if studio.model_library is None:
        raise NotFound("no_model.builtin_only")
    return studio.model_library


def nothing() -> APIRouter:
    """The last of our routes: what lies below our prefixes and is not there answers in our shape,
    not in Gradio's.
    """
    router = APIRouter()

    @router.api_route(
        "/v1/{rest:path}",
        methods=["GET", "POST", "PUT", "PATCH", "DELETE"],
        include_in_schema=False,
    )
    @router.api_route(
        "/v2/{rest:path}",
        methods=["GET", "POST", "PUT", "PATCH", "DELETE"],
        include_in_schema=False,
    )
    @router.api_route(
        "/tts/{rest:path}",
        methods=["GET", "POST", "PUT", "PATCH", "DELETE"],
        include_in_schema=False,
    )
    def missing(rest: str):
        raise NotFound("not_found.address")

    return router


def login_form(root: str, language: str, error: str, by_name: bool, by_key: bool) -> str:
    zh = language == "zh"
    name, word, key, go = (
        ("用户名", "密码", "API 密钥（需要 admin 权限）", "登录")
        if zh
        else ("User name", "Password", "API key (with the scope admin)", "Log in")
    )
    alert = f'<p role="alert">{html.escape(error)}</p>' if error else ""

    def field(label: str, attributes: str) -> str:
        return f'<label>{label}<br><input {attributes} required style="width:100%"></label>'

    named = field(name, 'name="user" autocomplete="username"') + field(
        word, 'name="password" type="password" autocomplete="current-password"'
    )
    keyed = field(key, 'name="key" type="password" autocomplete="off" spellcheck="false"')
    forms = "".join(
        f'<form method="post" action="{root}/login">{fields}<button>{go}</button></form>'
        for fields, on in ((named, by_name), (keyed, by_key))
        if on
    )
    return f"""<!doctype html><html lang="{"zh-CN" if zh else "en"}"><meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>开口 Kaikou</title><style>:root{{color-scheme:light dark}}
body{{font:16px/1.6 -apple-system,"Segoe UI","PingFang SC","Microsoft YaHei",sans-serif;
display:grid;place-items:center;min-height:90vh;margin:0}}main{{width:min(320px,90vw)}}
form{{display:grid;gap:12px;margin-bottom:28px}}input{{box-sizing:border-box}}
input,button{{font:inherit;padding:10px 12px;
border-radius:10px;border:1px solid #918c81}}button{{background:#0a6b57;color:#fff;border:0}}
p{{color:light-dark(#a8261c,#ffa297);margin:0}}</style>
<main><h1>开口 Kaikou</h1>{alert}{forms}</main></html>"""
