"""Logins below HTTP: whom a cookie lets in, and what ends that."""

from __future__ import annotations

from webui.api.session import LOGIN, Caller, Sessions
from webui.settings import Server
from webui.store import AccessStore
from webui.studio.keys import Keys


def sessions(folder, *auth: tuple[str, str]) -> Sessions:
    return Sessions(folder, Server(auth=auth), Keys(AccessStore(folder)))


def cookie(made: str) -> dict[str, str]:
    return {LOGIN: made.partition("=")[2].partition(";")[0]}


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
