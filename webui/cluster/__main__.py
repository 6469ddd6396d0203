"""`python -m webui.cluster serve`: the fleet that studios started with `--engine ray://HOST:PORT`
speak through. `python -m webui.cluster kafka`: a consumer that has a studio speak messages.

    python -m webui.cluster serve --engine builtin --replicas 1..3
    python -m webui.cluster serve --engine cosyvoice2 --gpus-per-replica 1 --address auto \
        --host 0.0.0.0
    python -m webui.cluster kafka --brokers 127.0.0.1:9092 --out sounds
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Callable, Sequence
from functools import partial

from ..engine.base import Engine
from ..errors import BadInput, KaikouError
from ..logs import to_stderr
from ..settings import Settings, load
from .kafka import program as kafka

LOCAL = ("127.0.0.1", "localhost", "::1")


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        prog="python -m webui.cluster", description="A fleet of voice engines. 语音引擎集群。"
    )
    commands = p.add_subparsers(dest="command", required=True)
    kafka.add_parser(commands)
    serve = commands.add_parser(
        "serve",
        help="start the fleet with Ray Serve / 用 Ray Serve 启动集群",
        epilog="Other flags are those of run.sh: --engine, --model-dir, --profile ...",
        allow_abbrev=False,
    )
    serve.add_argument("--host", default="127.0.0.1", help="address to listen on / 监听地址")
    serve.add_argument("--port", type=int, default=8000, help="port (default 8000) / 端口")
    serve.add_argument(
        "--replicas",
        default="1",
        metavar="N|N..M",
        help="replicas of the engine, as many as the streams need / 副本数",
    )
    serve.add_argument(
        "--without-ray",
        action="store_true",
        help="one replica in this process, for the studios of one machine / 单机单副本，不用 Ray",
    )
    serve.add_argument(
        "--gpus-per-replica", type=float, default=0.0, metavar="N", help="0: none / 每副本 GPU 数"
    )
    serve.add_argument(
        "--cpus-per-replica", type=float, default=1.0, metavar="N", help="default 1 / 每副本 CPU 数"
    )
    serve.add_argument(
        "--streams", type=int, default=8, help="open at once on a replica / 每副本同时的流"
    )
    serve.add_argument(
        "--downscale-after",
        type=float,
        default=30.0,
        metavar="SECONDS",
        help="streams must be few for so long before a replica leaves / 缩容前等待的秒数",
    )
    serve.add_argument(
        "--address", default="", help="of a running Ray cluster, or auto / 已有 Ray 集群的地址"
    )
    return p


def replicas(text: str) -> tuple[int, int]:
    """ "1..3" -> (1, 3), "2" -> (2, 2). Raises BadInput."""
    low, dots, high = text.partition("..")
    try:
        n = int(low), int(high if dots else low)
    except ValueError:
        n = 0, 0
    if not 1 <= n[0] <= n[1]:
        raise BadInput("bad_setting.replicas", text=text, param="replicas")
    return n


def make_engine(settings: Settings) -> Engine:
    """The engine that a studio with these settings would end up with."""
    from ..app import engine_makers  # a second of imports that only a fleet needs

    return engine_makers(settings)[-1]()


def main(argv: Sequence[str] | None = None) -> int:
    to_stderr()
    p = parser()
    args, rest = p.parse_known_args(argv)
    if rest and args.command == "kafka":
        p.error(f"unrecognized arguments: {' '.join(rest)}")
    try:
        settings = load(rest)
        if args.command == "kafka":
            kafka.run(args, settings)
            return 0
        low, high = replicas(args.replicas)
        if args.host not in LOCAL and not settings.engine.fleet_key:
            raise BadInput("bad_setting.fleet_without_key", param="host")
        from ..app import shared_prompts
        from .serve import FleetOptions

        if args.without_ray:
            if args.replicas != "1":
                raise BadInput("bad_setting.replicas_without_ray", param="replicas")
            from .plain import run
        elif importlib.util.find_spec("ray") is None:
            raise BadInput("bad_setting.no_ray")
        else:
            from .serve import run

        options = FleetOptions(
            args.host,
            args.port,
            low,
            high,
            gpus=args.gpus_per_replica,
            cpus=args.cpus_per_replica,
            streams=args.streams,
            key=settings.engine.fleet_key,
            address=args.address,
            downscale_s=args.downscale_after,
            make_shared=partial(shared_prompts, settings),
        )
        make: Callable[[], Engine] = partial(make_engine, settings)
        run(make, settings, options)
    except KaikouError as error:
        print(f"{error.en}\n{error.zh}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        pass  # the usual way to end it
    return 0


if __name__ == "__main__":
    sys.exit(main())
