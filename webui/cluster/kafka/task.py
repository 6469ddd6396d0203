"""One message of the topic that is read: what it asks for, and how far that has come. Knows no
brokers.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from ...client.atomic_files import Unwritable
from ...client.audio import Sound
from ...client.batch_input import NAMES, Known, line_of, with_seed
from ...client.batch_worker import Item
from ...client.errors import ProxyFault, Unreachable
from ...client.request import SpeechParams
from ...errors import BadInput, Busy, KaikouError, LoginNeeded, NotReady, StorageFull
from ...studio.batch.worker import FOR_GOOD, MAX_TRIES
from .output import StoredSound

MAX_ID = 200  # characters
WAITING = (Busy, NotReady, Unreachable, ProxyFault, LoginNeeded, StorageFull, Unwritable)
MARK = "kaikou."  # before the name of every header that a dead letter gets


@dataclass(eq=False)
class Task:
    """item: what the studio is asked, None where the message cannot be understood. attempts: how
    often its own making has failed, as the broker remembers it. sound: made, not stored yet.
    """

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    id: str | int | None = None
    item: Item | None = None
    attempts: int = 0
    sound: Sound | None = None
    stored_sound: StoredSound | None = None
    error: KaikouError | None = None
    is_dead: bool = False
    is_value_left_out: bool = False  # of its dead letter, which the broker found too large

    @property
    def is_settled(self) -> bool:
        """Nothing is left to do but to announce it."""
        return self.stored_sound is not None or self.is_dead

    @property
    def is_waiting(self) -> bool:
        """For a studio or a store that is away, full or closed to this consumer."""
        return isinstance(self.error, WAITING) or getattr(self.error, "code", "") == "scope"

    def fail(self, error: KaikouError) -> None:
        """Count it against the message where another try might end the same; a studio or a store
        that is away or full says nothing about the message.
        """
        self.error = error.copy()
        if self.is_waiting:
            return
        self.attempts += 1
        self.is_dead = isinstance(error, FOR_GOOD) or self.attempts >= MAX_TRIES

    def done(self) -> bytes:
        """The value that announces the sound."""
        ask = self.item.ask
        words = {
            "id": self.id,
            "url": self.stored_sound.url,
            "bytes": self.stored_sound.n_bytes,
            "seconds": self.stored_sound.seconds,
            "voice": ask.voice,
            "seed": ask.seed,
            "partition": self.partition,
            "offset": self.offset,
        }
        return json.dumps(words, ensure_ascii=False).encode()

    def dead(self) -> tuple[bytes | None, list[tuple[str, bytes | None]]]:
        """Value and headers of the dead letter: the value as it came, so that it can be sent again
        as it is, and beside it why it was given up.
        """
        reasons = {
            "code": self.error.code,
            "param": self.error.param or "",
            "en": self.error.en,
            "zh": self.error.zh,
            "attempts": self.attempts,
            "topic": self.topic,
            "partition": self.partition,
            "offset": self.offset,
            "value": "left out" if self.is_value_left_out else "whole",
        }
        own = [(name, value) for name, value in self.headers if not name.startswith(MARK)]
        own += [(MARK + name, str(value).encode()) for name, value in reasons.items()]
        return (None, own[-len(reasons) :]) if self.is_value_left_out else (self.value, own)


def task_of(
    topic: str,
    partition: int,
    offset: int,
    key: bytes | None,
    value: bytes | None,
    headers: Iterable[tuple[str, bytes | None]] = (),
    attempts: int = 0,
) -> Task:
    """A message that cannot be understood is a task that is dead already."""
    task = Task(topic, partition, offset, key, value, tuple(headers), attempts=attempts)
    try:
        fields = _fields(value)
        task.id = _id(fields)
        line = line_of(offset, fields, SpeechParams("", ""))
        if line.problem is not None:
            raise line.problem
        content_key = Known(0).key(line.ask)
        task.item = Item(line, content_key, with_seed(line.ask, content_key))
    except BadInput as error:
        task.error, task.is_dead = error.copy(), True
    return task


def _fields(value: bytes | None) -> dict:
    try:
        fields = json.loads(value or b"")
    except (ValueError, RecursionError):
        raise BadInput("bad_line.not_json") from None
    if not isinstance(fields, dict):
        raise BadInput("bad_line.not_line")
    for name, field in fields.items():
        param = NAMES.get(name.strip().lower())
        is_nested = isinstance(field, dict) and param != "voice"
        if param and (is_nested or isinstance(field, list | bool)):
            raise BadInput("bad_line.value", value=str(field)[:40], param=param)
    return fields


def _id(fields: dict) -> str | int:
    value = fields.get("id")
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    if not is_whole and not (isinstance(value, str) and 0 < len(value) <= MAX_ID):
        raise BadInput("bad_message.id", most=MAX_ID, param="id")
    return value
