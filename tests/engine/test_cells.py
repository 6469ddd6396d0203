"""Two studios with data of their own behind scripts/deploy/haproxy.cfg, run by a real HAProxy, and
one replica that both speak through.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
import time

import httpx
import pytest
from websockets.sync.client import connect

from scripts.deploy_check.files import FOLDER
from scripts.deploy_check.proxy import program
from tests.api.test_demos import clip
from tests.engine.fleet import ReplicaProcess
from tests.serve import Running, free_port, running

pytestmark = pytest.mark.thorough

KEYS = [f"key-of-somebody-{n}" for n in range(8)]
USERS = [f"user{n}" for n in range(6)]
N_LANES = 4
GREEDY = 16


class Cells:
    """Two studios and the proxy before them."""

    def __init__(self, folder):
        self.replica = ReplicaProcess(max_streams=N_LANES)
        self.folder, self.ports = folder, [free_port(), free_port()]
        self.url = f"http://127.0.0.1:{free_port()}"
        self._stacks = [contextlib.ExitStack(), contextlib.ExitStack()]
        self.studios: list[Running] = []
        threads = [threading.Thread(target=self.start, args=(n,)) for n in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        environment = {"PROXY_ADDRESS": self.url.removeprefix("http://")}
        environment |= {f"CELL_{n}": f"127.0.0.1:{port}" for n, port in enumerate(self.ports)}
        self.proxy = subprocess.Popen(
            [program(), "-db", "-f", FOLDER / "haproxy.cfg"], env={**os.environ, **environment}
        )
        for n in range(2):
            self.wait_for(n, 200)

    def start(self, n: int) -> None:
        studio = running(
            *(part for user in USERS for part in ("--auth", f"{user}:secret")),
            engine=f"ray://127.0.0.1:{self.replica.port}",
            port=self.ports[n],
            data_dir=self.folder / f"cell-{n}",
            env={
                "KAIKOU_CELL": str(n),
                "KAIKOU_API_KEY": ",".join(KEYS),
                "KAIKOU_MAX_STREAMS_PER_VISITOR": str(2 * GREEDY),
                "KAIKOU_STARTS_PER_MINUTE": "100000",
            },
        )
        self.studios.append(self._stacks[n].enter_context(studio))

    def kill(self, n: int) -> None:
        url = f"http://127.0.0.1:{self.ports[n]}"
        next(s for s in self.studios if s.url == url).process.send_signal(signal.SIGKILL)
        self._stacks[n].close()
        self.studios = [s for s in self.studios if s.url != url]

    def direct(self, n: int, key: str) -> httpx.Client:
        """Past the proxy."""
        return self.client(key, f"http://127.0.0.1:{self.ports[n]}")

    def client(self, key: str = "", url: str = "", **more) -> httpx.Client:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        return httpx.Client(base_url=url or self.url, headers=headers, timeout=60, **more)

    def wait_for(self, n: int, status: int) -> None:
        """Until the proxy answers so to those of a cell."""
        end_s = time.monotonic() + 30
        with httpx.Client(base_url=self.url, cookies={"kk_cell": str(n)}) as http:
            while time.monotonic() < end_s:
                with contextlib.suppress(httpx.TransportError):
                    if http.get("/health/ready").status_code == status:
                        return
                time.sleep(0.1)
        raise AssertionError(f"cell {n} does not become {status}")

    def close(self) -> None:
        self.proxy.terminate()
        self.proxy.wait(10)
        for stack in self._stacks:
            stack.close()
        self.replica.kill()


@pytest.fixture(scope="module")
def cells(tmp_path_factory):
    cells = Cells(tmp_path_factory.mktemp("cells"))
    yield cells
    cells.close()


def add_voice(http: httpx.Client, name: str) -> str:
    answer = http.post(
        "/v1/audio/voices",
        files={"audio_sample": clip(4)},
        data={"name": name, "consent": "me", "transcript": "the transcript of it"},
    )
    assert answer.status_code == 201, answer.text
    return answer.json()["id"]


def voices(http: httpx.Client) -> set[str]:
    return {voice["id"] for voice in http.get("/v1/audio/voices").json()["data"]}


def home(cells: Cells, key: str, voice: str) -> int:
    """The one cell that has this voice of this key."""
    [n] = [n for n in range(2) if voice in voices(cells.direct(n, key))]
    return n


@pytest.fixture(scope="module")
def homes(cells) -> dict[str, tuple[int, str]]:
    """Key -> its cell and a voice that it has there."""
    homes_by_name = {}
    for key in KEYS:
        with cells.client(key) as http:
            voice = add_voice(http, key)
        homes_by_name[key] = home(cells, key, voice), voice
    return homes_by_name


def test_a_key_without_a_cookie_is_always_with_its_voices(cells, homes):
    assert {n for n, _ in homes.values()} == {0, 1}
    for key, (n, voice) in homes.items():
        for _ in range(5):  # a connection each, and nothing kept of the one before
            with cells.client(key) as http:
                assert voice in voices(http)
        assert voice not in voices(cells.direct(1 - n, key))


def test_the_cookie_of_another_cell_moves_no_key(cells, homes):
    for key, (n, voice) in homes.items():
        with cells.client(key, cookies={"kk_cell": str(1 - n)}) as http:
            assert voice in voices(http)


def test_a_key_and_a_link_made_by_a_cell_lead_there(cells, homes):
    for n in range(2):
        maker = next(key for key, (cell, _) in homes.items() if cell == n)
        with cells.client(maker) as http:
            new_keys = [
                http.post("/v1/keys", json={"name": f"k{i}", "scopes": ["voices"]}).json()
                for i in range(4)
            ]
            shared = {"voice": homes[maker][1], "title": "To try"}
            link = http.post("/v1/demos", json=shared).json()
        for key in new_keys:
            assert key["key"].startswith(f"kk_{n}.")
            with cells.client(key["key"]) as http:
                assert http.get("/v1/audio/voices").status_code == 200
            assert cells.direct(1 - n, key["key"]).get("/v1/audio/voices").status_code == 401
        for cookie in ({}, {"kk_cell": str(1 - n)}):
            with cells.client(cookies=cookie) as guest:
                assert guest.get(link["path"]).status_code == 200


def test_an_account_is_in_one_cell_whatever_browser_it_logs_in_from(cells):
    cells_by_user = {}
    for user in USERS:
        voice_ids = set()
        for begins_at in ("0", "1", None):
            with cells.client() as http:
                if begins_at:
                    http.cookies.set("kk_cell", begins_at, "127.0.0.1")
                http.get("/login")
                answer = http.post("/login", data={"user": user, "password": "secret"})
                assert answer.status_code == 303, answer.text
                if begins_at != "1":
                    voice_ids.add(add_voice(http, f"{user} {begins_at}"))
                http.get("/")
                assert voice_ids <= voices(http)
                cells_by_user.setdefault(user, set()).add(
                    http.cookies.get("kk_cell", domain="127.0.0.1")
                )
    assert all(len(cells_of) == 1 for cells_of in cells_by_user.values())
    assert set.union(*cells_by_user.values()) == {"0", "1"}


def test_sockets_pass(cells, homes):
    for key in KEYS[:3]:
        address = cells.url.replace("http", "ws", 1) + "/v1/audio/speech/stream"
        headers = {"Authorization": f"Bearer {key}"}
        with connect(address, additional_headers=headers, proxy=None) as socket:
            socket.send(json.dumps({"type": "start", "voice": homes[key][1]}))
            socket.send('{"type": "text", "delta": "Hello there, how are you?"}')
            socket.send('{"type": "end"}')
            n_bytes = 0
            while True:
                message = socket.recv(20)
                if isinstance(message, bytes):
                    n_bytes += len(message)
                elif '"speech.audio.done"' in message:
                    break
                assert isinstance(message, bytes) or '"speech.failed"' not in message, message
            assert n_bytes > 20_000


class Listener:
    """A request of its own, read as it comes."""

    def __init__(self, cells: Cells, key: str, voice: str, seconds: float):
        self.n_bytes, self.status, self.is_done = 0, 0, False
        body = {"input": "Hello.", "voice": voice, "response_format": "pcm", "stream": True}
        body |= {"mode": "instruct", "instructions": f"seconds={seconds} rtf=0.5"}

        def listen():
            with (
                cells.client(key) as http,
                http.stream("POST", "/v1/audio/speech", json=body) as answer,
            ):
                self.status = answer.status_code
                for data in answer.iter_raw():
                    self.n_bytes += len(data)
            self.is_done = True

        self.thread = threading.Thread(target=listen)
        self.thread.start()


def test_a_greedy_cell_leaves_the_other_its_half(cells, homes):
    """Sixteen streams of one cell and two of the other, on a fleet of four."""
    greedy, modest = (next(k for k, (cell, _) in homes.items() if cell == n) for n in range(2))
    many = [Listener(cells, greedy, homes[greedy][1], 6) for _ in range(GREEDY)]
    while sum(listener.n_bytes > 0 for listener in many) < 2:
        assert any(listener.thread.is_alive() for listener in many)
        time.sleep(0.02)
    before = sum(listener.n_bytes for listener in many)
    few = [Listener(cells, modest, homes[modest][1], 6) for _ in range(2)]
    for listener in few:
        listener.thread.join(60)
    of_greedy = sum(listener.n_bytes for listener in many) - before
    of_modest = sum(listener.n_bytes for listener in few)
    assert [listener.status for listener in few] == [200, 200]
    assert of_modest == 2 * 6 * 24000 * 2, "all of their sound"
    assert sum(listener.is_done for listener in many) < GREEDY, "while the greedy ones still wait"
    assert of_modest > (of_modest + of_greedy) / 3
    for listener in many:
        listener.thread.join(60)
    assert {listener.status for listener in many} <= {200, 429} and all(
        listener.is_done for listener in many
    )


def test_of_a_dead_cell_its_own_are_told_and_others_notice_nothing(cells, homes):
    key_of_cell = {n: next(k for k, (cell, _) in homes.items() if cell == n) for n in range(2)}
    cells.kill(0)
    cells.wait_for(0, 503)
    for way in ({"key": key_of_cell[0]}, {"key": "kk_0.whatever"}, {"cookies": {"kk_cell": "0"}}):
        with cells.client(**way) as http:
            answer = http.get("/v1/audio/voices")
        assert answer.status_code == 503 and int(answer.headers["Retry-After"]) > 0
        assert answer.json()["error"]["code"] == "notready"
    with cells.client(key_of_cell[1]) as http:
        assert homes[key_of_cell[1]][1] in voices(http)
    for _ in range(6):
        with cells.client() as newcomer:
            assert newcomer.get("/login").status_code == 200
            assert newcomer.cookies["kk_cell"] == "1"
    cells.start(0)
    cells.wait_for(0, 200)
    with cells.client(key_of_cell[0]) as http:
        assert homes[key_of_cell[0]][1] in voices(http)
