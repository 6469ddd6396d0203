"""The JSON that routes answer with, for the OpenAPI document alone: nothing is checked or left out
by these.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel

State = Literal["waiting", "running", "paused", "saving", "done", "failed", "cancelled"]


class Why(BaseModel):
    code: str
    message: str


class SegmentInfo(BaseModel):
    text: str
    language: str


class PreparedText(BaseModel):
    """`segments`: what is spoken, in order, each in one go and in this language.

    `characters`, `sentences`: of what was typed. `seconds`: a guess, at normal speed.
    """

    segments: list[SegmentInfo]
    characters: int
    sentences: int
    seconds: float


class JobInfo(BaseModel):
    id: str
    object: Literal["job"]
    name: str
    state: State
    total: int
    done: int
    failed: int
    cancelled: int
    eta_s: float | None
    seed: int
    model: str
    created_at: int
    error: Why | None


class JobList(BaseModel):
    object: Literal["list"]
    data: list[JobInfo]
    limits: dict[str, int]


class LineInfo(BaseModel):
    line: int
    text: str
    voice: str
    mode: str
    instructions: str
    language: str
    speed: float
    seed: int
    model: str
    state: State
    attempts: int
    engine: str | None
    seconds: float | None
    notes: list[str]
    error: Why | None


class LineList(BaseModel):
    object: Literal["list"]
    data: list[LineInfo]
    next: int | None


class TermInfo(BaseModel):
    term: str
    reading: str
    language: str


class TermList(BaseModel):
    data: list[TermInfo]
    limits: dict[str, int]
    notice: dict[str, Any] | None


class TermsTaken(BaseModel):
    added: int
    changed: int


class UsageInfo(BaseModel):
    requests: int
    characters: int
    audio_s: float
    last_used_at: int | None


class KeyInfo(BaseModel):
    id: str
    object: Literal["key"]
    name: str
    scopes: list[str]
    per_minute: int
    created_at: int
    revoked_at: int | None
    usage: UsageInfo


class KeyMade(KeyInfo):
    key: str


class KeyList(BaseModel):
    object: Literal["list"]
    data: list[KeyInfo]
    scopes: list[str]
    are_on: bool


class DemoPlace(BaseModel):
    url: str
    interface: (
        str  # of this machine; "" where the caller came by this address, or the studio was told it
    )


class DemoInfo(BaseModel):
    id: str
    object: Literal["demo"]
    voice: str
    title: str
    state: Literal["live", "revoked", "expired", "used_up"]
    path: str
    url: str
    urls: list[
        DemoPlace
    ]  # where other devices reach it; empty where the studio listens on this machine only
    created_at: int
    expires_at: int
    max_text: int
    max_chars: int
    max_uses: int
    per_minute: int
    uses: int
    characters: int
    settings: dict[str, Any]
    usage: UsageInfo


class DemoList(BaseModel):
    object: Literal["list"]
    data: list[DemoInfo]
    limits: dict[str, int]


class WordInfo(BaseModel):
    text: str
    start_s: float
    end_s: float


class AlignedSegmentInfo(BaseModel):
    """`start`, `end`: samples of the whole. `is_whole`: false for the one that broke off, or that
    is being spoken.
    """

    index: int
    text: str
    spoken_text: str
    characters: tuple[int, int] | None
    language: str
    start: int
    end: int
    start_s: float
    end_s: float
    is_whole: bool
    words: list[WordInfo] | None
    words_note: str | None


class AlignmentInfo(BaseModel):
    id: str | None  # null of a line
    object: Literal["audio.alignment"]
    state: State
    rate: int
    duration_s: float
    segments: list[AlignedSegmentInfo]


class CancelInfo(BaseModel):
    cancelled: bool


class TakeInfo(BaseModel):
    """`trace`: milliseconds by stage."""

    job: str
    state: State
    samples: int
    rate: int
    engine: str
    engine_version: str
    model: str
    seed: int
    rtf: float | None
    trace: dict[str, Any]


class LiveInfo(BaseModel):
    status: Literal["live"]


class ReadyInfo(BaseModel):
    status: Literal["ready"]
    engine: str


class HealthInfo(BaseModel):
    """More where an engine is there: its name, abilities, rate."""

    state: Literal["starting", "ready", "busy", "draining", "broken"]
    reason: str
    reason_zh: str
    progress: float
    version: str
    streams: int
    batch_lines: int
    waiting: int
    restarting: bool  # the engine had served, lost its process, and is coming back
    handing_over: bool  # it is lost for good, and the one before it takes over
