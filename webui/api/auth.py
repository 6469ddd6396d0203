"""Who is asking: signed visits (browser cookie and page token), logins, API keys and demo links.

Signs with one secret kept in the data folder.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from pathlib import Path

from ..errors import LoginNeeded
from ..settings import Server
from ..studio import ADMIN, GUEST, Key, Keys, Logins, ShareLink

VISIT, LOGIN = "kk_visit", "kk_login"
LOGIN_AGE_S = 30 * 86400
# of what a page opens its socket with; it asks for another when that is half as old
PAGE_AGE_S = 86400
NOBODY = "nobody"  # the account of who shows no login and no key where one is needed
FIRST = "local"  # holder: the browser that made the first key of an open studio


@dataclass(frozen=True)
class Caller:
    """`visit`: what stands for one where there is no cookie. is_by_key: the key came with this
    request, not with a login of before.
    login: id of the login that let the caller in, "" where none did.
    """

    account: str
    key: Key | None = None
    visit: str = ""
    is_by_key: bool = False
    login: str = field(default="", compare=False)


class Sessions:
    """Blocking where keys or logins are asked about: those lie on the disk."""

    def __init__(
        self,
        data_dir: Path,
        server: Server,
        keys: Keys,
        logins: Logins,
        clock: Callable[[], float] = time.time,
    ):
        self._server, self._secret, self._keys = server, _secret(data_dir / "secret"), keys
        self._logins, self._clock = logins, clock

    def _sign(self, kind: str, value: str) -> str:
        mark = hmac.new(self._secret, f"{kind}:{value}".encode(), hashlib.sha256).hexdigest()
        return f"{value}.{mark[:40]}"

    def _check(self, kind: str, signed: str) -> str:
        value, _, _ = signed.rpartition(".")
        return (
            value
            if value and hmac.compare_digest(self._sign(kind, value).encode(), signed.encode())
            else ""
        )

    def _sign_dated(self, kind: str, value: str) -> str:
        return self._sign(kind, f"{value}.{int(self._clock())}")

    def _check_dated(self, kind: str, signed: str, age_s: float) -> str:
        """ "" when it is not ours, or older than that."""
        value, _, issued = self._check(kind, signed).rpartition(".")
        return value if issued.isdigit() and self._clock() < int(issued) + age_s else ""

    # ---- visits ----------------------------------------------------------------------------------
    def new_visit(self) -> str:
        return secrets.token_hex(12)

    def visit_cookie(self, visit: str, path: str, secure: bool) -> str:
        return _cookie(VISIT, self._sign("visit", visit), path, secure, 400 * 86400)

    def visit_of(self, cookies: dict[str, str]) -> str:
        return self._check("visit", cookies.get(VISIT, ""))

    def page_token(self, owner: str) -> str:
        return self._sign_dated("page", owner)

    def owner_of_token(self, token: str) -> str:
        """ "" when the token is not ours, or too old."""
        return self._check_dated("page", token, PAGE_AGE_S)

    # ---- demo links ------------------------------------------------------------------------------
    def demo_token(self, demo: ShareLink) -> str:
        """What stands in the address: id and end, signed, so that neither can be edited."""
        return self._sign("demo", f"{demo.id.removeprefix(GUEST)}.{int(demo.expires_at)}")

    def demo_of(self, token: str) -> str:
        """The link's id, "" when the token is not ours."""
        value = self._check("demo", token)
        return GUEST + value.partition(".")[0] if value else ""

    # ---- accounts --------------------------------------------------------------------------------
    def is_open(self) -> bool:
        """No login and no key is asked for."""
        return self._server.is_open and not self._keys.auth_required()

    def caller(self, cookies: dict[str, str], authorization: str) -> Caller | None:
        """None when nobody we know asks, and a login or a key is needed.

        Raises LoginNeeded for a key that is wrong or revoked, all alike.
        """
        kind, _, secret = authorization.partition(" ")
        if kind.lower() == "bearer" and self._keys.auth_required():
            key = self._keys.find(secret.strip())
            if key is None:
                raise LoginNeeded("invalid_api_key")
            return Caller(key.account_id, key, "" if key.account_id == key.id else key.id, True)
        if self.is_open():
            return Caller("local")
        signed = cookies.get(LOGIN, "")
        for name, password in self._server.auth:
            user, _, login = self._login(f"login:{password}", signed)
            if user == name:
                return Caller(f"user-{user}", login=login)
        return self._holder(signed)

    def _login(self, kind: str, signed: str) -> tuple[str, str, str]:
        """Who logged in, and the id of the login.

        Empty when that is not ours, too old, or was ended.
        """
        parts = self._check_dated(kind, signed, LOGIN_AGE_S).rpartition(".")
        return ("", "", "") if parts[2] and self._logins.is_ended(parts[2]) else parts

    def _holder(self, signed: str) -> Caller | None:
        """Who logged in with a key, as long as it may do everything; or made the first one here."""
        holder, _, login = self._login("holder", signed)
        if holder == FIRST and self._server.is_open:
            return Caller(FIRST, login=login)
        key = self._keys.by_id(holder) if holder else None
        if key is None or ADMIN not in key.scopes:
            return None
        return Caller(key.account_id, key, login=login)

    def login_cookie(self, user: str, password: str, path: str, secure: bool) -> str:
        """ "" when the pair is wrong.

        Compares every pair, so that time tells nothing. Signed with the password: another one ends
        what was open with it.
        """
        good = [
            hmac.compare_digest(f"{u}:{p}".encode(), f"{user}:{password}".encode())
            for u, p in self._server.auth
        ]
        return self._login_cookie(f"login:{password}", user, path, secure) if any(good) else ""

    def key_cookie(self, secret: str, path: str, secure: bool) -> str:
        """ "" unless the key may do everything: the page does."""
        key = self._keys.find(secret.strip()) if secret else None
        return (
            self.holder_cookie(key.id, path, secure)
            if key is not None and ADMIN in key.scopes
            else ""
        )

    def holder_cookie(self, holder: str, path: str, secure: bool) -> str:
        return self._login_cookie("holder", holder, path, secure)

    def _login_cookie(self, kind: str, subject: str, path: str, secure: bool) -> str:
        """Each login has an id, so that it can be ended alone."""
        signed = self._sign_dated(kind, f"{subject}.login-{secrets.token_hex(8)}")
        return _cookie(LOGIN, signed, path, secure, LOGIN_AGE_S)

    def log_out(self, login: str, path: str) -> str:
        """The login opens nothing any more, wherever its cookie is.

        Returns what takes the cookie from this browser.
        """
        if login:
            self._logins.end(login, LOGIN_AGE_S)
        return _cookie(LOGIN, "", path, False, 0)


def is_stranger(owner: str) -> bool:
    """Of an account that nobody has shown a login or a key for."""
    return owner.startswith(f"{NOBODY}/")


def cookies_of(headers: dict[bytes, bytes]) -> dict[str, str]:
    try:
        return {
            k: m.value
            for k, m in SimpleCookie(headers.get(b"cookie", b"").decode("latin-1")).items()
        }
    except CookieError:
        return {}


def _cookie(name: str, value: str, path: str, secure: bool, age_s: int) -> str:
    return f"{name}={value}; Path={path or '/'}; Max-Age={age_s}; HttpOnly; SameSite=Lax" + (
        "; Secure" if secure else ""
    )


def _secret(path: Path) -> bytes:
    """32 random bytes, made once.

    A data folder that cannot be written gives a secret for this run only.
    """
    try:
        path.parent.mkdir(0o700, parents=True, exist_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as f:
            f.write(secrets.token_bytes(32))
    except FileExistsError:
        pass
    except OSError:
        return secrets.token_bytes(32)
    secret = path.read_bytes()
    return secret if len(secret) == 32 else secrets.token_bytes(32)
