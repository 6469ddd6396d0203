"""A data folder and settings of an earlier version open unchanged: what was saved is there, speaks
as it did, and can be used further.

The folder was made by the version before modules were renamed (tests/data/folder): a consent with
its recording, a voice made under it with its prompt, a starred take, a batch, a term of the
dictionary, a demo link and an API key, and a kaikou.toml that names every setting of that time.
"""

from __future__ import annotations

import io
import json
import shutil
import wave
import zipfile

import httpx
import numpy as np
import pytest

from tests.conftest import ROOT
from tests.serve import running

FOLDER = ROOT / "tests" / "data" / "folder"
# the second key only lets the test see when the studio is ready
ENV = {"KAIKOU_NATURAL": "0", "KAIKOU_API_KEY": "a-key-of-the-test-0123456789"}
ABOUT = json.loads((FOLDER / "about.json").read_text("utf-8"))


@pytest.fixture(scope="module")
def http(tmp_path_factory):
    data = tmp_path_factory.mktemp("old") / "data"
    with zipfile.ZipFile(FOLDER / "data.zip") as old:
        old.extractall(data)
    shutil.copy(FOLDER / "kaikou.toml", data)
    with running(engine="builtin", data_dir=data, env=ENV) as studio:
        headers = {"Authorization": f"Bearer {ABOUT['key']}"}
        with httpx.Client(base_url=studio.url, headers=headers, timeout=60) as client:
            client.data_dir = data
            yield client


def samples(data: bytes) -> np.ndarray:
    with wave.open(io.BytesIO(data)) as file:
        return np.frombuffer(file.readframes(file.getnframes()), np.int16).astype(float)


def test_the_voice_its_consent_and_its_prompt_are_there(http):
    voices = {v["id"]: v for v in http.get("/v1/audio/voices").json()["data"]}
    voice = voices[ABOUT["voice"]]
    assert voice["name"] == "Lin 小满" and voice["transcript"].startswith("One morning")
    consents = http.get("/v1/audio/voice_consents").json()["data"]
    assert [c["id"] for c in consents] == [ABOUT["consent"]] and consents[0]["name"] == "Lin"
    [prompt] = (http.data_dir / "voices" / ABOUT["voice"]).glob("*.prompt")
    old = zipfile.ZipFile(FOLDER / "data.zip").read(f"voices/{ABOUT['voice']}/{prompt.name}")
    assert prompt.read_bytes() == old, "its prompt is used, not made again"


def test_the_take_is_there_and_its_fields_and_seed_make_it_again(http):
    take = http.get(f"/v1/audio/takes/{ABOUT['take']}").json()
    assert take["starred"]
    saved_samples = samples(http.get(take["url"]).content)
    answer = http.post(
        "/v1/audio/speech",
        json={
            **{k: take[k] for k in ("input", "voice", "mode", "language", "speed", "seed")},
            "response_format": "wav",
            "stream": False,
        },
    )
    new = http.get(f"/tts/result/{answer.headers['x-job-id']}.json").json()
    assert (new["engine"], new["engine_version"]) == (take["engine"], take["engine_version"])
    new_samples = samples(answer.content)
    assert len(new_samples) == len(saved_samples)
    # made on another processor, whose last digits differ
    assert np.square(new_samples - saved_samples).mean() < 1e-3 * np.square(saved_samples).mean()


def test_the_batch_the_term_the_link_and_the_key_are_there(http):
    [job] = http.get("/v2/jobs").json()["data"]
    assert (job["id"], job["state"], job["done"]) == (ABOUT["job"], "done", 2)
    files = zipfile.ZipFile(io.BytesIO(http.get(f"/v2/jobs/{job['id']}/download").content))
    assert sum(name.endswith(".wav") for name in files.namelist()) == 2
    terms = http.get("/v1/pronunciations").json()["data"]
    assert [(t["term"], t["reading"], t["language"]) for t in terms] == [
        ("Kaikou", "kai koh", "en")
    ]
    [link] = http.get("/v1/demos").json()["data"]
    assert (link["id"], link["voice"]) == (ABOUT["demo"], ABOUT["voice"])
    keys = {key["id"]: key for key in http.get("/v1/keys").json()["data"]}
    assert keys[ABOUT["key_id"]]["scopes"] == ["admin"], "and it is what opened all of this"


def test_every_setting_of_that_time_is_still_one():
    from webui.settings import load

    text = (FOLDER / "kaikou.toml").read_text("utf-8")
    read = load(["--data-dir", str(FOLDER)], {})
    assert text.count(" = ") > 35 and read.limits.takes_per_visitor == 200
