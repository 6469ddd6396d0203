"""The named Gradio endpoints: gradio_client and an MCP client clone a voice, list it and speak with
it, behind the same door as everything else.
"""

from __future__ import annotations

import asyncio
import base64
import json
import wave
from pathlib import Path

import gradio_client
import httpx
import pytest
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client

from tests.api.test_http import clip
from tests.serve import running

NAMES = {"/speak", "/clone_voice", "/list_voices", "/convert"}
FILE = {"path": "/etc/passwd", "meta": {"_type": "gradio.FileData"}}


def seconds(path: str) -> float:
    with wave.open(path) as file:
        return file.getnframes() / file.getframerate()


def recording(length_s: float = 4) -> str:
    return base64.b64encode(clip(length_s)).decode()


def client_of(studio, tmp_path: Path, **headers: str) -> gradio_client.Client:
    return gradio_client.Client(
        studio.url, verbose=False, download_files=tmp_path, headers=headers, analytics_enabled=False
    )


def ask(studio, *calls: tuple[str, dict], headers: dict | None = None) -> list:
    """The tools' names, then what each call gave."""

    async def talk() -> list:
        address = f"{studio.url}/gradio_api/mcp"
        async with (
            streamable_http_client(
                address, http_client=httpx.AsyncClient(headers=headers)
            ) as streams,
            ClientSession(*streams[:2]) as session,
        ):
            await session.initialize()
            out: list = [{tool.name for tool in (await session.list_tools()).tools}]
            for name, arguments in calls:
                out.append(await session.call_tool(name, arguments))
            return out

    return asyncio.run(talk())


def test_gradios_client_clones_lists_and_speaks(studio, tmp_path):
    client = client_of(studio, tmp_path)
    assert set(client.view_api(return_format="dict")["named_endpoints"]) == NAMES
    new_voice = client.predict(
        name="Lin", clip=recording(), consent="Lin agreed", api_name="/clone_voice"
    )
    voices = client.predict(api_name="/list_voices")
    assert voices[0] == {key: new_voice[key] for key in ("id", "name", "language")}
    assert any(voice["id"].startswith("starter-") for voice in voices)
    predict_args = {
        "text": "一二三四五。",
        "voice": new_voice["id"],
        "seed": 7,
        "api_name": "/speak",
    }
    path = client.predict(**predict_args)
    assert seconds(path) == pytest.approx(0.15 * 6, abs=0.1)
    assert Path(client.predict(**predict_args)).read_bytes() == Path(path).read_bytes(), (
        "the same seed"
    )


def test_gradios_client_is_told_why_not(studio, tmp_path):
    client = client_of(studio, tmp_path)
    for arguments, code in (
        ({"text": " ", "api_name": "/speak"}, "no_text"),
        ({"text": "a", "voice": "nobody", "api_name": "/speak"}, "voice_gone"),
        ({"text": "a", "speed": 9, "api_name": "/speak"}, "bad_speed"),
        ({"name": "a", "clip": "?", "consent": "a", "api_name": "/clone_voice"}, "bad_base64"),
        ({"name": "a", "clip": recording(), "consent": " ", "api_name": "/clone_voice"}, "consent"),
        ({"recording": recording(), "voice": "starter-en-mid", "api_name": "/convert"}, ""),
    ):
        with pytest.raises(gradio_client.exceptions.AppError, match=code or "."):
            client.predict(**arguments)


def test_an_mcp_client_speaks_a_sentence(studio):
    names, voices, result = ask(
        studio, ("list_voices", {}), ("speak", {"text": "一二三四五。", "seed": 7})
    )
    assert names == {name.removeprefix("/") for name in NAMES}
    assert "starter-zh" in voices.content[0].text and not result.isError
    [address] = [word for word in result.content[0].text.split() if word.startswith("http")]
    sound = httpx.get(address.strip("\"',"))
    assert sound.status_code == 200 and sound.content[:4] == b"RIFF" and len(sound.content) > 20_000


def test_a_key_may_do_what_its_scopes_say(tmp_path):
    env = {"KAIKOU_API_KEY": "the-admins-own-key-0123456789"}
    with running(env=env) as studio:
        admin = {"Authorization": f"Bearer {env['KAIKOU_API_KEY']}"}
        with httpx.Client(base_url=studio.url, headers=admin) as http:
            keys = {
                scope: http.post("/v1/keys", json={"name": scope, "scopes": [scope]}).json()["key"]
                for scope in ("speak", "voices", "jobs")
            }
        speak = ("speak", {"text": "一二三四五。"})
        clone = ("clone_voice", {"name": "a", "clip": recording(), "consent": "a"})
        for scope, can_speak, can_clone in (
            ("speak", True, False),
            ("voices", False, True),
            ("jobs", False, False),
        ):
            _, first, second = ask(
                studio, speak, clone, headers={"Authorization": f"Bearer {keys[scope]}"}
            )
            assert (not first.isError, not second.isError) == (can_speak, can_clone), scope
        client = client_of(studio, tmp_path, Authorization=f"Bearer {keys['speak']}")
        assert seconds(client.predict(text="一二三四五。", api_name="/speak")) > 0.5
        events = client.config["dependencies"]
        private = next(d["id"] for d in events if f"/{d['api_name']}" not in NAMES)
        refused = httpx.post(
            f"{studio.url}/gradio_api/queue/join",
            json={"fn_index": private, "data": [], "session_hash": "a"},
            headers={"Authorization": f"Bearer {keys['speak']}"},
        )
        assert refused.status_code == 403 and refused.json()["error"]["code"] == "scope"
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        refused = httpx.post(f"{studio.url}/gradio_api/mcp", json=message)
        assert refused.status_code == 401


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("run/speak", {"data": [FILE]}),
        ("run/clone_voice", {"data": ["a", FILE, "a"]}),
        ("api/predict", {"fn_index": 0, "data": [[{"deep": FILE}]]}),
        (
            "mcp",
            {
                "jsonrpc": "2.0",
                "id": 1,
                "method": "tools/call",
                "params": {"name": "speak", "arguments": {"text": FILE}},
            },
        ),
    ],
)
def test_no_file_can_be_named(studio, path, body):
    accept = {"Accept": "application/json, text/event-stream"}
    answer = httpx.post(f"{studio.url}/gradio_api/{path}", json=body, headers=accept)
    assert answer.status_code == 403 and answer.json()["error"]["code"] == "no_path"


def test_nothing_else_of_gradio_is_opened(studio):
    with studio.client() as http:
        config = http.get("/config").json()
        private = [d["id"] for d in config["dependencies"] if f"/{d['api_name']}" not in NAMES]
        assert len(private) > 5
        for index in private:
            body = json.dumps({"fn_index": index, "data": [], "session_hash": "a"})
            assert http.post("/gradio_api/api/predict", content=body).status_code == 404, index
        for method, path in (
            ("GET", "/gradio_api/mcp"),
            ("DELETE", "/gradio_api/mcp"),
            ("GET", "/gradio_api/mcp/sse"),
            ("GET", "/gradio_api/mcp/schema"),
            ("POST", "/gradio_api/mcp/messages"),
            ("POST", "/gradio_api/run/lambda"),
            ("POST", "/gradio_api/call/speak"),
        ):
            assert http.request(method, path, json={}).status_code == 404, path
