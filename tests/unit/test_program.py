"""`python -m webui` with an engine asked for by name: that one or none, whichever generation it
is.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from dataclasses import replace
from types import SimpleNamespace

import pytest

from webui import __main__ as program
from webui.errors import NotReady
from webui.messages import Message
from webui.settings import EngineChoice, Server, Settings

WHY = NotReady(
    Message("The model file llm.pt cannot be used.", "模型文件 llm.pt 不能用。"), code="model_file"
)


async def page(scope, receive, send):
    if scope["type"] == "lifespan":
        while (await receive())["type"] != "lifespan.shutdown":
            await send({"type": "lifespan.startup.complete"})
        await send({"type": "lifespan.shutdown.complete"})


def serve(name: str, failure: NotReady | None, server_began: threading.Event) -> int:
    """Exit code. Its engine's start is over as soon as the server may be told of it."""
    starting = threading.Thread(target=server_began.wait, args=(10,))
    starting.start()
    studio = SimpleNamespace(
        starting=starting,
        engine_manager=SimpleNamespace(failure=lambda: failure),
        close=lambda: None,
    )
    settings = replace(Settings(), engine=EngineChoice(name=name))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return program.run(settings, listener, page, studio)


@pytest.mark.parametrize("name", ["cosyvoice1", "cosyvoice2", "cosyvoice3"])
def test_asked_for_by_name_and_not_to_be_had_it_ends_with_the_reason(name, capsys):
    began = threading.Event()
    began.set()
    assert serve(name, WHY, began) == 2
    assert capsys.readouterr().err.strip().splitlines()[-2:] == [WHY.en, WHY.zh]


@pytest.mark.parametrize("name", ["auto", "builtin"])
def test_where_another_voice_steps_in_it_goes_on(name, monkeypatch):
    import uvicorn

    began, served = threading.Event(), []

    def run(self, sockets):
        began.set()
        served.append(self.should_exit)

    monkeypatch.setattr(uvicorn.Server, "run", run)
    assert serve(name, WHY, began) == 0 and served == [False]


def test_a_small_answer_is_not_held_back_until_the_one_before_it_was_received():
    """What asyncio accepts sends at once (TCP_NODELAY) only where the listening socket names its
    protocol.
    """

    async def accepted(listener: socket.socket) -> int:
        writer_future = asyncio.get_running_loop().create_future()
        server = await asyncio.start_server(
            lambda _, writer: writer_future.set_result(writer), sock=listener
        )
        _, client_writer = await asyncio.open_connection(*listener.getsockname())
        server_writer = await asyncio.wait_for(writer_future, 20)
        is_on = server_writer.get_extra_info("socket").getsockopt(
            socket.IPPROTO_TCP, socket.TCP_NODELAY
        )
        for writer in (client_writer, server_writer):
            writer.close()
        server.close()
        return is_on

    assert asyncio.run(
        accepted(program.listen(replace(Settings(), server=replace(Server(), port=0))))
    )
