"""Logins below HTTP: whom a cookie lets in, and what ends that."""

from __future__ import annotations

import sqlite3
import threading
import time

from webui.api.auth import LOGIN, LOGIN_AGE_S, PAGE_AGE_S, Caller, Sessions
from webui.errors import Busy
from webui.settings import Server
from webui.store import AccessStore
from webui.studio.keys import Keys
from webui.studio.logins import Logins


def sessions(folder, *auth: tuple[str, str], clock=time.time) -> Sessions:
    store = AccessStore(folder)
    return Sessions(folder, Server(auth=auth), Keys(store), Logins(store, 60), clock)


def cookie(set_cookie: str) -> dict[str, str]:
    return {LOGIN: set_cookie.partition("=")[2].partition(";")[0]}


def test_a_login_outlives_a_restart_and_ends_with_its_password(tmp_path):
    bob, ann = ("bob", "secret"), ("ann", "secret")
    jar = cookie(sessions(tmp_path, bob).login_cookie(*bob, "", False))
    assert (
        sessions(tmp_path, bob).caller(jar, "")
        == sessions(tmp_path, ann, bob).caller(jar, "")
        == Caller("user-bob")
    )
    for now in ((("bob", "another"),), (ann,)):
        assert sessions(tmp_path, *now).caller(jar, "") is None, (
            "what was open with the old one is closed"
        )
    forged = {LOGIN: jar[LOGIN].replace("bob", "ann")}
    assert sessions(tmp_path, ann, bob).caller(forged, "") is None
    assert sessions(tmp_path, bob).login_cookie("bob", "wrong", "", False) == ""


def test_what_a_page_opens_its_socket_with_has_an_age(tmp_path):
    now = [1_000_000.0]
    logins = sessions(tmp_path, clock=lambda: now[0])
    token = logins.page_token("user-bob/visit")
    assert logins.owner_of_token(token) == "user-bob/visit"
    now[0] += PAGE_AGE_S - 1
    assert (
        logins.owner_of_token(token) == "user-bob/visit" != logins.owner_of_token(token[:-1] + "x")
    )
    now[0] += 2
    assert logins.owner_of_token(token) == ""
    assert logins.owner_of_token(logins.page_token("user-bob/visit")) == "user-bob/visit"
    timeless = logins._sign("page", "user-bob/visit")  # as it was signed once
    assert logins.owner_of_token(timeless) == ""


def test_a_login_has_an_age_on_the_server_too(tmp_path):
    now, bob = [1_000_000.0], ("bob", "secret")
    logins = sessions(tmp_path, bob, clock=lambda: now[0])
    jar = cookie(logins.login_cookie(*bob, "", False))
    now[0] += LOGIN_AGE_S - 1
    assert logins.caller(jar, "") == Caller("user-bob")
    now[0] += 2
    assert logins.caller(jar, "") is None, (
        "a browser that keeps its cookie for longer is not let in"
    )


def test_each_login_is_ended_alone_and_for_good(tmp_path):
    bob = ("bob", "secret")
    session_store = sessions(tmp_path, bob)
    first, second = (cookie(session_store.login_cookie(*bob, "", False)) for _ in range(2))
    login = session_store.caller(first, "").login
    assert login.startswith("login-") and login != session_store.caller(second, "").login
    session_store.log_out(login, "")
    for logins in (session_store, sessions(tmp_path, bob)):  # after a restart too
        assert logins.caller(first, "") is None and logins.caller(second, "") == Caller("user-bob")


def test_ended_logins_are_forgotten_when_their_cookies_would_have_expired(tmp_path):
    now = [1_000_000.0]
    store = AccessStore(tmp_path)
    logins = Logins(store, 60, clock=lambda: now[0])
    for n in range(50):
        logins.end(f"login-{n}", 100.0)
        now[0] += 10
    with sqlite3.connect(tmp_path / "access.sqlite") as db:
        assert db.execute("SELECT count(*) FROM ended_logins").fetchone()[0] == 11


def test_a_file_of_keys_of_an_earlier_studio_is_taken_over(tmp_path):
    store = AccessStore(tmp_path)
    key, _ = Keys(store).create("local/x", "a")
    store.close()
    with sqlite3.connect(tmp_path / "access.sqlite") as db:
        db.execute("DROP TABLE ended_logins")
        db.execute("PRAGMA user_version=1")
    store = AccessStore(tmp_path)
    assert [k.id for k in store.keys()] == [key.id] and not store.is_login_ended("login-1")
    store.close()


# ---- guesses -------------------------------------------------------------------------------------
def tries(logins: Logins, place: str, name: str, n: int, account: str = "", is_known=False) -> int:
    """How many of `n` were tried at all."""
    tried = []

    def attempt() -> None:
        try:
            logins.attempt(place, is_known, name, lambda: tried.append(1) or account)
        except Busy as busy:
            assert busy.code == "rate_limited" and busy.retry_after_s >= 1

    threads = [threading.Thread(target=attempt) for _ in range(n)]
    [t.start() for t in threads], [t.join() for t in threads]
    return len(tried)


def test_guesses_in_parallel_are_slowed_by_address_and_by_name(tmp_path):
    logins = Logins(AccessStore(tmp_path), 12)
    assert tries(logins, "10.0.0.1", "bob", 100) == 4
    assert tries(logins, "10.0.0.1", "ann", 100) == 0, "another name is no way around it"
    assert tries(logins, "10.0.0.2", "ann", 100) == 4
    crowd = sum(tries(logins, f"10.1.{n}.1", "cid", 20) for n in range(60))
    assert crowd <= 25, "many addresses guess at one name no faster than five do"
    assert len(logins._by_name._buckets) <= 1024


def test_right_logins_cost_nothing_and_strangers_lock_nobody_out(tmp_path):
    logins = Logins(AccessStore(tmp_path), 12)
    assert tries(logins, "10.0.0.1", "bob", 100, account="cookie") == 100
    for n in range(60):
        tries(logins, f"10.1.{n}.1", "bob", 9)
    assert tries(logins, "10.0.0.9", "bob", 5, account="cookie") <= 1, (
        "a stranger has to wait a little"
    )
    known_browser = {"account": "cookie", "is_known": True}
    assert tries(logins, "a-visit", "bob", 5, **known_browser) == 5, "bob's own browser has not"
    assert tries(logins, "a-visit", "bob", 100, is_known=True) == 4, "and may not guess either"
