"""Who is asking: signed visits (browser cookie and page token), logins and API keys. Signs with one secret kept in the data folder."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from http.cookies import CookieError, SimpleCookie
from pathlib import Path

from ..settings import Server

VISIT, LOGIN = "kk_visit", "kk_login"
LOGIN_AGE_S = 30 * 86400


class Sessions:
    def __init__(self, data_dir: Path, server: Server):
        self._server, self._secret = server, _secret(data_dir / "secret")

    def _sign(self, kind: str, value: str) -> str:
        return f"{value}.{hmac.new(self._secret, f'{kind}:{value}'.encode(), hashlib.sha256).hexdigest()[:40]}"

    def _check(self, kind: str, signed: str) -> str:
        value, _, _ = signed.rpartition(".")
        return value if value and hmac.compare_digest(self._sign(kind, value).encode(), signed.encode()) else ""

    # ---- visits ---------------------------------------------------------------------------------------------
    def new_visit(self) -> str:
        return secrets.token_hex(12)

    def visit_cookie(self, visit: str, path: str, secure: bool) -> str:
        return _cookie(VISIT, self._sign("visit", visit), path, secure, 400 * 86400)

    def visit_of(self, cookies: dict[str, str]) -> str:
        return self._check("visit", cookies.get(VISIT, ""))

    def page_token(self, owner: str) -> str:
        return self._sign("page", owner)

    def owner_of_token(self, token: str) -> str:
        """"" when the token is not ours."""
        return self._check("page", token)

    # ---- accounts -------------------------------------------------------------------------------------------
    def account(self, cookies: dict[str, str], authorization: str) -> str:
        """The account of a request: "local" when no login is asked for, "" when one is and it is missing."""
        kind, _, key = authorization.partition(" ")
        if kind.lower() == "bearer" and self._server.api_keys:
            mark = hashlib.sha256(key.strip().encode()).hexdigest()
            if any(hmac.compare_digest(mark, known) for known in self._server.api_keys):
                return f"key-{mark[:12]}"
        if self._server.is_open:
            return "local"
        user = self._check("login", cookies.get(LOGIN, ""))
        return f"user-{user}" if any(user == name for name, _ in self._server.auth) else ""

    def login_cookie(self, user: str, password: str, path: str, secure: bool) -> str:
        """"" when the pair is wrong. Compares every pair, so that time tells nothing."""
        good = [hmac.compare_digest(f"{u}:{p}".encode(), f"{user}:{password}".encode()) for u, p in self._server.auth]
        return _cookie(LOGIN, self._sign("login", user), path, secure, LOGIN_AGE_S) if any(good) else ""


def cookies_of(headers: dict[bytes, bytes]) -> dict[str, str]:
    try:
        return {k: m.value for k, m in SimpleCookie(headers.get(b"cookie", b"").decode("latin-1")).items()}
    except CookieError:
        return {}


def _cookie(name: str, value: str, path: str, secure: bool, age_s: int) -> str:
    return f"{name}={value}; Path={path or '/'}; Max-Age={age_s}; HttpOnly; SameSite=Lax" + ("; Secure" if secure else "")


def _secret(path: Path) -> bytes:
    """32 random bytes, made once. A data folder that cannot be written gives a secret for this run only."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as f:
            f.write(secrets.token_bytes(32))
    except FileExistsError:
        pass
    except OSError:
        return secrets.token_bytes(32)
    made = path.read_bytes()
    return made if len(made) == 32 else secrets.token_bytes(32)
