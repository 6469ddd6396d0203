"""A replica with the built-in voice behind a plain server, as a program: PORT."""

import sys

import uvicorn

from tests.engine.fleet import STALL_S
from webui.cluster.replica import Replica, build_app
from webui.engine.espeak import EspeakEngine

if __name__ == "__main__":
    engine = EspeakEngine(2)
    engine.start()
    app = build_app(Replica(engine, STALL_S))
    uvicorn.run(
        app, port=int(sys.argv[1]), log_level="error", ws="websockets-sansio", loop="asyncio"
    )
