"""Gives schemathesis something to succeed with: real recordings, and ids of things that are there.

Loaded by it, not by the studio.

Every second request stays as it was made up, so that what nobody expects is asked too.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import httpx
import schemathesis

SAMPLE = (
    Path(__file__).resolve().parents[2] / "assets" / "voices" / "starter-en-mid.wav"
).read_bytes()
RECORDINGS = {"audio_sample", "recording", "prompt_wav", "ref_audio"}
TTS = {
    "text": "Checked.",
    "ref_audio_path": "alloy",
    "text_lang": "en",
    "prompt_lang": "en",
    "media_type": "wav",
    "streaming_mode": "1",
    "speed_factor": 1.0,
    "seed": 7,
    "aux_ref_audio_paths": None,
}
GOOD = {  # what makes a body good enough, whatever else is in it
    "POST /v1/audio/voices": {"name": "Checked", "language": "en", "consent": "me"},
    "PATCH /v1/audio/voices/{voice_id}": {
        "name": "Checked",
        "language": "en",
        "transcript": "Checked.",
    },
    "PATCH /v1/audio/takes/{take_id}": {"starred": True},
    "POST /v1/audio/voice_consents": {"name": "Checked", "language": "en"},
    "POST /v1/audio/voice_consents/{consent_id}": {"name": "Checked"},
    "PUT /v1/pronunciations": {"term": "GPU", "reading": "G P U", "language": "en", "was": None},
    "POST /v1/demos": {"voice": "alloy"},
    "POST /v1/keys": {"name": "Checked", "scopes": ["speak"]},
    "POST /v1/text/prepare": {"text": "Checked.", "language": "en", "model": "auto"},
    "POST /v1/audio/speech": {"input": "Checked.", "voice": "alloy", "model": "auto"},
    "POST /inference_sft": {"tts_text": "Checked.", "spk_id": "alloy"},
    "POST /inference_instruct": {
        "tts_text": "Checked.",
        "spk_id": "alloy",
        "instruct_text": "happy",
    },
    "POST /inference_instruct2": {"tts_text": "Checked.", "instruct_text": "happy"},
    "POST /inference_zero_shot": {"tts_text": "Checked.", "prompt_text": "Checked."},
    "POST /inference_cross_lingual": {"tts_text": "Checked."},
    "POST /tts": TTS,
    "POST /v2/synthesize/batch": {
        "texts": ["Checked."],
        "requests": None,
        "voice": "alloy",
        "async": True,
    },
}
_turns: Counter[str] = Counter()
_http = httpx.Client(
    base_url=os.environ["KAIKOU_CHECK_URL"],
    headers={"Authorization": os.environ["KAIKOU_CHECK_KEY"]},
    timeout=30,
)
_ids: dict[str, str] = {}


def _create(path: str, **how) -> str:
    return _http.post(path, **how).json()["id"]


def _take() -> str:
    return _http.post(
        "/v1/audio/speech", json={"input": "Checked.", "voice": "alloy", "stream": False}
    ).headers["x-job-id"]


MAKE: dict[str, Callable[[], str]] = {
    "voice_id": lambda: _create(
        "/v1/audio/voices",
        files={"audio_sample": SAMPLE},
        data={"name": "Checked", "consent": "me"},
    ),
    "consent_id": lambda: _create(
        "/v1/audio/voice_consents",
        files={"recording": SAMPLE},
        data={"name": "Checked", "language": "en"},
    ),
    "job_id": lambda: _create(
        "/v2/synthesize/batch", json={"texts": ["One.", "Two."], "voice": "alloy", "async": True}
    ),
    "demo_id": lambda: _create("/v1/demos", json={"voice": "alloy", "title": "Checked"}),
    "key_id": lambda: _create("/v1/keys", json={"name": "Checked"}),
    "take": _take,
    "take_id": _take,
    "model": lambda: "auto",
    "kind": lambda: "csv",
    "n": lambda: "1",
}


def _id(name: str, method: str) -> str:
    """A new one for what the call takes away, else one for all."""
    if method == "DELETE":
        return MAKE[name]()
    if name not in _ids:
        _ids[name] = MAKE[name]()
    return _ids[name]


@schemathesis.hook
def before_call(context, case, kwargs) -> None:
    path_params = case.path_parameters or {}
    label = case.operation.label
    _turns[label] += 1
    if _turns[label] % 2 == 0 or f"{case.method} {case.path}" != label:
        return
    for name in path_params:
        is_take = case.path.startswith("/tts/") and name in ("job_id", "name")
        if is_take or name in MAKE:
            path_params[name] = _id("take" if is_take else name, case.method) + (
                ".wav" if name == "name" else ""
            )
    if label == "GET /tts":
        case.query = {k: v for k, v in TTS.items() if v is not None}
    if isinstance(case.body, dict):
        case.body |= GOOD.get(label, {})
        if case.media_type == "multipart/form-data":
            case.body |= dict.fromkeys(RECORDINGS & set(case.body), SAMPLE)
    elif label.endswith("/v1/pronunciations.{kind}"):
        case.body = b"GPU,G P U\n"
