"""The shared cache of prompts against a real Redis: found by content and by what they are made of,
sealed, forgotten, and never waited for.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import partial

import pytest

from tests.api.test_http import clip
from tests.engine.contract import ask
from tests.engine.fake import FakeEngine
from tests.engine.fleet import STALL_S, joined, served
from tests.engine.redis_server import PASSWORD, needs_redis, redis_server, unanswering
from tests.engine.test_cluster_faults import prompt_of
from tests.serve import running
from tests.unit.test_studio import ME, speak
from webui.cluster import shared_prompts
from webui.cluster.prompts import key_of
from webui.cluster.replica import Replica
from webui.cluster.shared_prompts import RedisPrompts
from webui.errors import BadInput
from webui.settings import Paths, Settings, load
from webui.studio import Studio
from webui.studio.prompt_cache import PromptKey
from webui.types import Prompt

pytestmark = needs_redis
SECRET = "a long secret of the fleet"
KEY = PromptKey("e", "1", "sound-1", "")
PROMPT = Prompt("e", "1", "print-1", b"\x00\x01 voice", ("a_note",))


@pytest.fixture(scope="module")
def server():
    with redis_server() as server:
        yield server


@pytest.fixture
def clean(server):
    server.client().flushall()
    return server


def open_cache(server, secret: str = SECRET) -> RedisPrompts:
    return RedisPrompts(server.url, PASSWORD, secret)


def write(cache: RedisPrompts, key: PromptKey = KEY, prompt: Prompt = PROMPT) -> None:
    """Until it is written: the one thread that writes has nothing left to do."""
    cache.put(key, prompt)
    cache._writer.submit(lambda: None).result(20)


@pytest.fixture
def cache(clean):
    with closing(open_cache(clean)) as cache:
        yield cache


def test_a_prompt_is_found_by_its_content_and_by_what_it_is_made_from(clean, cache):
    assert cache.find(KEY) is None and cache.get(key_of(PROMPT)) is None
    write(cache)
    with closing(open_cache(clean)) as other:
        assert other.find(KEY) == other.get(key_of(PROMPT)) == PROMPT
        for wrong in (KEY._replace(version="2"), KEY._replace(words="x")):
            assert other.find(wrong) is None
        assert other.figures() == {
            "found": 2, "missed": 2, "refused": 0, "failures": 0, "forgets_unconfirmed": 0
        }  # fmt: skip
    for name in clean.client().keys():
        assert 0 < clean.client().ttl(name) <= 3600
    with closing(open_cache(clean, "another secret")) as stranger:
        assert stranger.find(KEY) is None and stranger.figures()["refused"] == 0


def test_it_is_written_once_and_not_again_with_every_use(clean, cache):
    write(cache)
    clean.client().flushall()
    write(cache)
    assert clean.client().keys() == []
    cache.put(KEY._replace(sound="s2"), replace(PROMPT, data=bytes(9 << 20)))
    write(cache, KEY._replace(sound="s3"))
    assert cache.find(KEY._replace(sound="s2")) is None, "a huge one is left out"


def value_names(server) -> list[bytes]:
    return sorted(n for n in server.client().keys() if b":prompt:" in n or b":made:" in n)


@pytest.mark.parametrize("damage", ["a bit", "cut", "no seal", "huge", "not ours"])
@pytest.mark.parametrize("which", [b":prompt:", b":made:"], ids=["prompt", "pointer"])
def test_a_damaged_or_forged_value_is_refused_and_removed(clean, cache, which, damage):
    write(cache)
    client = clean.client()
    (name,) = (n for n in value_names(clean) if which in n)
    value = client.get(name)
    forged = {
        "a bit": value[:-1] + bytes([value[-1] ^ 1]),
        "cut": value[:-1],
        "no seal": value[32:],
        "huge": value + bytes(9 << 20),
        "not ours": b"\x80\x04cos\nsystem\n",
    }[damage]
    client.set(name, forged)
    assert cache.find(KEY) is None
    assert cache.figures()["refused"] == 1 and not client.exists(name)


def test_a_value_under_another_name_is_refused(clean, cache):
    """Whoever may write to Redis gives nobody another's voice."""
    write(cache)
    other_key, other = KEY._replace(sound="sound-2"), replace(PROMPT, data=b"another voice")
    write(cache, other_key, other)
    client = clean.client()
    for kind in (b":prompt:", b":made:"):
        first, second = (n for n in value_names(clean) if kind in n)
        client.mset({first: client.get(second), second: client.get(first)})
    assert cache.find(KEY) is None and cache.get(key_of(PROMPT)) is None
    assert cache.figures()["refused"] == 2


def test_what_is_forgotten_is_gone_at_once_and_cannot_be_put_back(clean, cache):
    write(cache)
    write(cache, KEY._replace(words="w"), replace(PROMPT, data=b"with words"))
    write(cache, KEY._replace(sound="sound-2"), replace(PROMPT, data=b"another"))
    cache.forget("sound-1")
    assert cache.find(KEY) is None and cache.find(KEY._replace(words="w")) is None
    assert cache.find(KEY._replace(sound="sound-2")) is not None
    with closing(open_cache(clean)) as other:  # who had it in hand
        write(other)
        assert other.find(KEY) is None
    assert len(value_names(clean)) == 2 and cache.figures()["forgets_unconfirmed"] == 0


def test_nobody_waits_for_one_that_does_not_answer(clean, cache, monkeypatch, caplog):
    write(cache)
    clean.freeze()
    try:
        for _ in range(50):
            assert cache.find(KEY) is None
        assert cache.figures()["failures"] == 1, "one time-out, and then nobody asks for a while"
        cache.forget("sound-1")
        assert cache.figures()["forgets_unconfirmed"] == 1
    finally:
        clean.thaw()
    assert sum("is away" in r.message for r in caplog.records) == 1
    write(cache)
    cache._away_until_s = 0.0
    with unanswering() as url, closing(RedisPrompts(url, "", SECRET)) as silent:
        assert silent.get(key_of(PROMPT)) is None and silent.figures()["failures"] == 1
    with closing(RedisPrompts("redis://127.0.0.1:1", "", SECRET)) as nobody:
        assert nobody.find(KEY) is None and nobody.figures()["failures"] == 1
    with closing(RedisPrompts(clean.url, "a wrong password", SECRET)) as locked:
        assert locked.find(KEY) is None and locked.figures()["failures"] == 1


def test_a_forget_that_found_nobody_is_made_good_when_redis_is_back(clean, monkeypatch):
    monkeypatch.setattr(shared_prompts, "AWAY_S", 0.05)
    with closing(open_cache(clean)) as cache:
        write(cache)
        clean.freeze()
        cache.forget("sound-1")
        assert cache.figures()["forgets_unconfirmed"] == 1
        write(cache, KEY._replace(words="late"))
        clean.thaw()
        await_figure(cache, "forgets_unconfirmed", 0)
        assert value_names(clean) == []
        clean.kill()
        cache.forget("sound-2")
        assert cache.figures()["forgets_unconfirmed"] == 1
        clean.start()
        await_figure(cache, "forgets_unconfirmed", 0)
        monkeypatch.setattr(shared_prompts, "KEEP_S", -1)
        clean.freeze()
        try:
            cache.forget("sound-3")
            assert cache.figures()["forgets_unconfirmed"] == 0, "it has expired by itself"
        finally:
            clean.thaw()


def await_figure(cache: RedisPrompts, name: str, value: int) -> None:
    await_value(lambda: cache.figures()[name], value)


def await_value(read: Callable[[], int], value: int) -> None:
    tick = threading.Event()
    for _ in range(400):
        if read() == value:
            return
        tick.wait(0.05)
    raise AssertionError(read())


def test_a_replica_looks_there_before_it_asks_the_studio(clean, cache):
    replicas = [Replica(FakeEngine(), STALL_S, shared=cache) for _ in range(2)]
    with served(replicas[0]) as first, joined(first) as engine:
        prompt = prompt_of(engine)
        write(cache, PromptKey(prompt.engine, prompt.version, "sound-1", ""), prompt)
    with served(replicas[1]) as second, joined(second) as engine:
        assert list(engine.stream(ask(), prompt))[-1].last
        assert engine.figures()["fleet_prompt_misses"] == 0
        engine._ask()
        assert engine.figures()["shared_found"] == 1
        clean.freeze()
        try:
            other = replace(prompt, data=prompt.data * 2, fingerprint="another")
            chunks = engine.stream(ask(), other)
            assert next(chunks) is not None, "spoken as without a cache"
            chunks.close()
        finally:
            clean.thaw()
        assert engine.figures()["fleet_prompt_misses"] == 1


def studio_at(folder, cache) -> Studio:
    studio = Studio(Settings(paths=replace(Paths(), data_dir=folder)), cache)
    studio.start(FakeEngine).join(20)
    return studio


def test_a_studio_looks_there_before_it_encodes_and_takes_a_deleted_voice_away(clean, tmp_path):
    saved = []
    for n in range(2):
        cache = open_cache(clean)
        studio = studio_at(tmp_path / str(n), cache)
        starters = studio.voices.list("-")
        try:
            if n:
                await_figure(cache, "found", len(starters))
                assert studio.prompts.n_encoded == 0, "all starters came from the other studio"
            voice, _ = studio.voices.add(ME, clip(), "Mine", "", consent="I agree.")
            _, end = speak(studio, voice_id=voice.id)
            assert end.state == "done"
            await_value(
                partial(getattr, studio.prompts, "n_encoded"), 0 if n else 1 + len(starters)
            )
            saved.append((studio, voice, cache))
            cache._writer.submit(lambda: None).result(20)
        except BaseException:
            studio.close()
            raise
    (first, voice, _), (second, _, cache) = saved
    key = next(k for k, users in second.prompts._users.items() if k.sound == voice.fingerprint)
    assert cache.find(key) is not None
    first.voices.delete(ME, voice.id)
    assert cache.find(key) is None, "gone before the answer"
    text = first.metrics.text().decode()
    assert "cv_shared_cache_forgets_unconfirmed 0.0" in text
    for studio, _, _ in saved:
        studio.close()


def sounds_in(server) -> set[str]:
    return {name.split(b":")[-1].decode() for name in server.client().keys("*:sound:*")}


def test_drafts_never_leave_the_studio(clean, tmp_path):
    cache = open_cache(clean)
    studio = studio_at(tmp_path, cache)
    try:
        draft = studio.drafts.make(ME, clip(4.0))
        job, end = speak(studio, voice_id=draft.id, consent=True)
        assert end.state == "done"
        starters = {v.fingerprint for v in studio.voices.list("-")}
        await_value(lambda: sounds_in(clean) >= starters, True)
        cache._writer.submit(lambda: None).result(20)
        assert sounds_in(clean) == starters and job.voice.fingerprint not in starters
    finally:
        studio.close()


@pytest.mark.parametrize(
    ("url", "key", "code"),
    [
        ("http://127.0.0.1:1", SECRET, "redis://"),
        ("redis://user:password@127.0.0.1:6379", SECRET, "KAIKOU_SHARED_CACHE_PASSWORD"),
        ("redis://127.0.0.1", SECRET, "redis://"),
        ("redis://127.0.0.1:6379", "", "KAIKOU_FLEET_KEY"),
    ],
)
def test_settings_that_cannot_work_are_refused(url, key, code):
    with pytest.raises(BadInput, match=code):
        load(["--shared-cache", url], {"KAIKOU_FLEET_KEY": key} if key else {})


def test_without_the_client_the_program_says_what_to_install(monkeypatch):
    from webui import app

    settings = load(
        ["--shared-cache", "rediss://me@cache.example:6380/1"], {"KAIKOU_FLEET_KEY": SECRET}
    )
    with closing(app.shared_prompts(settings)) as cache:
        assert cache.figures()["found"] == 0
    assert app.shared_prompts(Settings()) is None
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(BadInput, match="pip install"):
        app.shared_prompts(settings)


def test_a_studio_that_is_started_with_the_option_shares_its_voices(clean):
    env = {"KAIKOU_FLEET_KEY": SECRET, "KAIKOU_SHARED_CACHE_PASSWORD": PASSWORD}
    with running("--shared-cache", clean.url, env=env) as studio, studio.client() as http:
        n_starters = sum(v["starter"] for v in http.get("/v1/audio/voices").json()["data"])
        await_value(lambda: len(value_names(clean)), 2 * n_starters)
        assert f"cv_shared_cache_missed {n_starters}.0" in http.get("/metrics").text
