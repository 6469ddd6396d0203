"""Prompts of saved voices in a Redis that studios and replicas share, for an hour: a replica looks
there before it asks a studio, a studio before it encodes a clip again. Optional, and never waited
for: without it, or while it is away, everything goes on as it does without one.

Every value is sealed with the fleet's key, under the name it lies at: one that was damaged, forged
or moved is refused and removed. Values are frames of `webui/frames.py`; nothing is unpickled.
"""

from __future__ import annotations

import hashlib
import hmac
import io
import json
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

import redis
from cachetools import TTLCache
from redis.backoff import NoBackoff
from redis.retry import Retry

from .. import frames
from ..engine.remote.protocol import prompt_of, words_of_prompt
from ..types import Prompt
from .prompts import key_of

log = logging.getLogger(__name__)
T = TypeVar("T")
KEEP_S = 3600
TIMEOUT_S = 0.25  # of one answer
AWAY_S = 5.0  # after a failure nobody asks for so long
MAX_BYTES = 8 << 20  # of a value
MAX_WRITES = 64  # that wait; more are left out
SEAL_BYTES = hashlib.sha256().digest_size
# what is forgotten is not put back by somebody who had it in hand
PUT = """if redis.call('exists', KEYS[1]) == 1 then return 0 end
redis.call('set', KEYS[3], ARGV[2], 'EX', ARGV[1])
redis.call('set', KEYS[4], ARGV[3], 'EX', ARGV[1])
redis.call('sadd', KEYS[2], KEYS[3], KEYS[4])
redis.call('expire', KEYS[2], ARGV[1])
return 1"""
FORGET = """redis.call('set', KEYS[1], '', 'EX', ARGV[1])
for _, name in ipairs(redis.call('smembers', KEYS[2])) do redis.call('del', name) end
return redis.call('del', KEYS[2])"""


class RedisPrompts:
    """Thread-safe. url: redis://[user@]HOST:PORT[/DB], rediss:// with TLS. secret: the fleet's
    key. A prompt is found by its content (`get`) or by what it is made from (`find`): engine,
    version, sound and words, as studio.prompt_cache.PromptKey has them.
    """

    def __init__(self, url: str, password: str, secret: str):
        self._redis = redis.Redis.from_url(
            url,
            password=password or None,
            socket_timeout=TIMEOUT_S,
            socket_connect_timeout=TIMEOUT_S,
            retry=Retry(NoBackoff(), 0),
            protocol=2,
        )
        self._secret = secret.encode()
        space = hmac.digest(self._secret, b"kaikou prompts", "sha256").hex()[:16]
        self._prefix = f"kaikou:{space}:"  # another key, another cache
        self._lock, self._counts = threading.Lock(), Counter()
        self._away_until_s, self._is_away = 0.0, False
        self._recent_writes: TTLCache[str, None] = TTLCache(4096, KEEP_S / 2)
        self._forgotten: dict[str, float] = {}  # sound -> when it has expired anyway
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="shared-prompts")
        self._n_waiting = 0
        self._closing = threading.Event()
        self._news = threading.Event()
        threading.Thread(target=self._confirm, name="shared-forget", daemon=True).start()

    # ---- look ------------------------------------------------------------------------------------
    def get(self, content_key: str) -> Prompt | None:
        """By `prompts.key_of`."""
        prompt = self._prompt(content_key)
        self._count("missed" if prompt is None else "found")
        return prompt

    def find(self, made_from: Sequence[str]) -> Prompt | None:
        content_key = self._read(self._made_name(made_from))
        prompt = self._prompt(content_key.decode()) if content_key is not None else None
        self._count("missed" if prompt is None else "found")
        return prompt

    def _prompt(self, content_key: str) -> Prompt | None:
        name = self._prompt_name(content_key)
        data = self._read(name)
        if data is None:
            return None
        prompt = None
        with suppress(frames.Closed, TypeError, KeyError, ValueError):
            prompt = prompt_of(*frames.receive(io.BytesIO(data).read))
        if prompt is None or key_of(prompt) != content_key:
            self._refuse(name)
            return None
        return prompt

    def _read(self, name: str) -> bytes | None:
        """What lies there, if its seal is ours."""
        value = self._ask(lambda: self._redis.getrange(name, 0, MAX_BYTES))
        if not value:
            return None
        seal, data = value[:SEAL_BYTES], value[SEAL_BYTES:]
        if len(value) <= MAX_BYTES and hmac.compare_digest(seal, self._seal(name, data)):
            return data
        self._refuse(name)
        return None

    def _refuse(self, name: str) -> None:
        self._count("refused")
        log.warning("a value of the shared cache was damaged or forged, and is removed")
        self._ask(lambda: self._redis.delete(name))

    # ---- write -----------------------------------------------------------------------------------
    def put(self, made_from: Sequence[str], prompt: Prompt) -> None:
        """Returns at once; what was written a short while ago is not written again."""
        name = self._made_name(made_from)
        with self._lock:
            if (
                name in self._recent_writes
                or self._n_waiting >= MAX_WRITES
                or self._closing.is_set()
            ):
                return
            self._recent_writes[name] = None
            self._n_waiting += 1
        self._writer.submit(self._put, name, made_from[2], prompt)

    def _put(self, made_name: str, sound: str, prompt: Prompt) -> None:
        content_key = key_of(prompt)
        name = self._prompt_name(content_key)
        frame = b"".join(frames.pack(words_of_prompt(prompt), prompt.data))
        is_written: int | None = 0
        # where Redis has not heard yet that it is to forget this, nobody else may tell it either
        if len(frame) + SEAL_BYTES <= MAX_BYTES and sound not in self._forgotten:
            keys = (self._name("gone", sound), self._name("sound", sound), name, made_name)
            values = (self._sealed(name, frame), self._sealed(made_name, content_key.encode()))
            is_written = self._ask(lambda: self._redis.eval(PUT, 4, *keys, KEEP_S, *values))
        with self._lock:
            self._n_waiting -= 1
            if is_written is None:
                self._recent_writes.pop(made_name, None)  # the next one who has it tries again

    def forget(self, sound: str) -> None:
        """What is made from a sound goes, and nothing of it is taken for an hour. When Redis does
        not answer it is asked again until it does, or until all of it has expired.
        """
        with self._lock:
            self._forgotten[sound] = time.monotonic() + KEEP_S
        self._forget(sound)
        self._news.set()

    def _forget(self, sound: str) -> None:
        keys = (self._name("gone", sound), self._name("sound", sound))
        answer = self._ask(lambda: self._redis.eval(FORGET, 2, *keys, KEEP_S))
        with self._lock:
            if answer is not None or time.monotonic() > self._forgotten.get(sound, 0.0):
                self._forgotten.pop(sound, None)

    def _confirm(self) -> None:
        """Where something is not forgotten yet: one try after each time that Redis was away."""
        while not self._closing.is_set():
            self._news.wait()
            self._news.clear()
            while self._forgotten and not self._closing.wait(AWAY_S):
                for sound in list(self._forgotten):
                    self._forget(sound)

    # ---- Redis -----------------------------------------------------------------------------------
    def _ask(self, call: Callable[[], T]) -> T | None:
        """None when Redis is away, or was a moment ago."""
        if time.monotonic() < self._away_until_s:
            return None
        try:
            answer = call()
        except (redis.RedisError, OSError) as error:
            self._count("failures")
            self._away_until_s = time.monotonic() + AWAY_S
            if not self._is_away:
                log.warning("the shared cache is away, and nobody waits for it: %s", error)
            self._is_away = True
            return None
        if self._is_away:
            self._is_away = False
            log.info("the shared cache is back")
        return answer

    def _name(self, kind: str, key: str) -> str:
        return f"{self._prefix}{kind}:{key}"

    def _prompt_name(self, content_key: str) -> str:
        return self._name("prompt", content_key)

    def _made_name(self, made_from: Sequence[str]) -> str:
        text = json.dumps(list(made_from))
        return self._name("made", hashlib.sha256(text.encode()).hexdigest())

    def _seal(self, name: str, data: bytes) -> bytes:
        return hmac.digest(self._secret, name.encode() + b"\0" + data, "sha256")

    def _sealed(self, name: str, data: bytes) -> bytes:
        return self._seal(name, data) + data

    # ---- figures ---------------------------------------------------------------------------------
    def _count(self, result: str) -> None:
        with self._lock:
            self._counts[result] += 1

    def figures(self) -> dict[str, int]:
        """What was asked so far, and deleted voices whose prompts may still lie there."""
        with self._lock:
            counts = {name: self._counts[name] for name in RESULTS}
            return counts | {"forgets_unconfirmed": len(self._forgotten)}

    def close(self) -> None:
        """What waits to be written is written, unless Redis is away. Idempotent."""
        self._closing.set()
        self._news.set()
        self._writer.shutdown()
        self._redis.close()


RESULTS = ("found", "missed", "refused", "failures")
