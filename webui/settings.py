"""Everything that can be set, read once from flags, environment (KAIKOU_*) and kaikou.toml, then
frozen. The only reader of all three.
"""

from __future__ import annotations

import argparse
import difflib
import hashlib
import ipaddress
import math
import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

from .errors import BadInput
from .files import ASSETS, IS_CLONE, USER
from .types import FOREVER_DAYS


@dataclass(frozen=True)
class Server:
    """Where the studio listens, and who may come in."""

    host: str = "127.0.0.1"
    port: int = 7860
    grpc_port: int = 0  # 0: no gRPC
    grpc_cert: str = ""  # PEM files of its TLS, both or neither
    grpc_key: str = ""
    root_path: str = ""
    share: bool = False
    lang: str = ""  # zh, en, or "" for the browser's
    # its name among studios behind one address: keys and demo links carry it, so that a proxy
    # without memory finds their studio
    cell: str = ""
    auth: tuple[tuple[str, str], ...] = ()  # (user, password)
    api_keys: tuple[str, ...] = ()  # sha256 hex of each key; the keys themselves are not kept

    @property
    def is_open(self) -> bool:
        """No login and no key is needed."""
        return not self.auth and not self.api_keys


@dataclass(frozen=True)
class Limits:
    """How much one visitor, one request and all together may ask for."""

    max_streams: int = 0  # sounding at once; 0 = from the engine's measured speed
    max_waiting: int = 32
    max_streams_per_visitor: int = 12  # streams and waiting together
    starts_per_minute: int = 240  # per visitor
    max_body_mb: int = 11  # of a request in JSON, which may bring a clip along
    max_upload_mb: int = 51  # of a file that is sent as such: a clip, or a video with one
    max_draft_mb: int = 96  # decoded clips kept in memory, all visitors
    max_draft_mb_per_visitor: int = 32  # of these; a minute at 48 kHz takes 11.5
    uploads_per_minute: int = 60  # recordings of a visitor that are decoded
    takes_per_visitor: int = 200
    stall_s: float = 20.0
    sockets: int = 512  # open WebSockets, of all visitors
    sockets_per_address: int = 64
    sockets_per_visitor: int = 48
    # the page's socket without a stream and a word, or a stream that waits for its reader's credit
    silent_s: float = 600.0
    # a connection whose other side takes nothing of what is sent, or does not say what it wants
    unread_s: float = 60.0
    logins_per_minute: int = 12  # wrong ones, of an address
    idle_s: float = 60.0  # a socket on which a text is written, and nothing comes or goes
    # for a request's body to come in; a large one gets more as long as it keeps coming
    body_s: float = 30.0


@dataclass(frozen=True)
class EngineChoice:
    """Which engine speaks, and how it uses the machine."""

    # auto, builtin, a generation: cosyvoice1 (the 300M), cosyvoice2, cosyvoice3; or ray://HOST:PORT,
    # a fleet
    name: str = "auto"
    # what the fleet asks studios for; "" where it asks for nothing
    fleet_key: str = ""
    # a Redis in which studios and the replicas of a fleet share prompts; "" = none
    shared_cache: str = ""
    shared_cache_password: str = ""
    # folder below the model directory to begin with; "" = the one chosen last, or the first there
    # is
    model: str = ""
    workers: int = 0  # processes of the built-in voice; 0 = one for each core, two to four
    natural: bool = True  # load the natural voice beside the built-in engine's instant one
    device: str = "auto"  # of CosyVoice: auto, cpu, cuda, mps
    # of CosyVoice: auto, int8 (its language model, on a CPU), fp32, bf16, fp16
    precision: str = "auto"
    # of CosyVoice on a CPU, in each of its two stages; 0 = from the machine's cores
    threads: int = 0
    # of CosyVoice: ttfa (first sounds before everything), balanced, throughput (the most sound in
    # all)
    profile: str = "balanced"
    steps: int = 10  # of CosyVoice's flow: 10 as published, 5 in half the time
    # of CosyVoice: ids of the first sound, 0 as trained, or one its generation has (10 of
    # CosyVoice2)
    first_hop: int = 0
    # of Fun-CosyVoice3: speak with llm.rl.pt, its language model after reinforcement learning
    reinforced: bool = False
    # of CosyVoice on a CUDA GPU: auto (recorded, where that sounds as the plain networks do), off
    graphs: str = "auto"
    # a new CosyVoice model is examined by itself, once, while nobody speaks (scripts/doctor.py)
    examine: bool = True
    # of CosyVoice: keep the GPU's memory, or pin the weights in RAM, from its start on
    lock_memory: bool = False


@dataclass(frozen=True)
class Privacy:
    """How long takes are kept, and whether files say that they are synthetic."""

    keep_takes_days: int = FOREVER_DAYS  # at most; FOREVER_DAYS: until they are deleted
    label_files: bool = True


@dataclass(frozen=True)
class Paths:
    """Where things lie on the disk."""

    data_dir: Path = USER / "data"
    model_dir: Path = USER / "pretrained_models"
    assets: Path = ASSETS
    # of the natural voice's weights, a file kokoro-v1.0.int8.onnx
    natural_dir: Path = USER / "pretrained_models" / "natural"


@dataclass(frozen=True)
class Kafka:
    """Of `python -m webui.cluster kafka`."""

    studio_key: str = ""  # API key of the studio that speaks; "" where it asks for none


@dataclass(frozen=True)
class Settings:
    """All settings, read once at the start and never changed."""

    server: Server = field(default_factory=Server)
    limits: Limits = field(default_factory=Limits)
    engine: EngineChoice = field(default_factory=EngineChoice)
    privacy: Privacy = field(default_factory=Privacy)
    paths: Paths = field(default_factory=Paths)
    kafka: Kafka = field(default_factory=Kafka)


ENGINES = ("auto", "builtin", "cosyvoice1", "cosyvoice2", "cosyvoice3")
FLEET = "ray://"  # before the HOST:PORT of a fleet (webui/cluster)
REDIS = r"rediss?://(?:[\w.-]+@)?[\w.-]+:\d{1,5}(?:/\d{1,3})?"  # never with a password in it
SECTIONS = {f.name: f.default_factory for f in fields(Settings)}  # name -> dataclass
FLAGS = {
    "host": "server.host",
    "port": "server.port",
    "grpc_port": "server.grpc_port",
    "grpc_cert": "server.grpc_cert",
    "grpc_key": "server.grpc_key",
    "root_path": "server.root_path",
    "share": "server.share",
    "lang": "server.lang",
    "engine": "engine.name",
    "shared_cache": "engine.shared_cache",
    "model": "engine.model",
    "profile": "engine.profile",
    "model_dir": "paths.model_dir",
    "data_dir": "paths.data_dir",
}


def engine_name(text: str) -> str:
    """One of ENGINES, or ray://HOST:PORT. Raises argparse's error."""
    if text not in ENGINES and not re.fullmatch(r"ray://[\w.-]+:\d{1,5}", text):
        raise argparse.ArgumentTypeError(f"{', '.join(ENGINES)} or ray://HOST:PORT")
    return text


def parser() -> argparse.ArgumentParser:
    """The options of `run.sh` and `python -m webui`."""
    p = argparse.ArgumentParser(
        prog="run.sh" if IS_CLONE else "kaikou",
        description="Kaikou 开口: the voice-cloning studio. 声音克隆工作室。",
        allow_abbrev=False,
    )
    p.add_argument("--host", help="address to listen on (default 127.0.0.1) / 监听地址")
    p.add_argument("--port", type=int, help="port (default 7860) / 端口")
    p.add_argument("--grpc-port", type=int, help="also speak gRPC on this port / gRPC 端口")
    p.add_argument(
        "--grpc-cert", metavar="FILE", help="its TLS certificate chain, PEM / gRPC 的 TLS 证书"
    )
    p.add_argument("--grpc-key", metavar="FILE", help="the key of that / 证书的私钥")
    p.add_argument(
        "--root-path",
        metavar="PATH",
        help="path below which a reverse proxy serves the studio, e.g. /voice / 反向代理的子路径",
    )
    p.add_argument(
        "--engine",
        type=engine_name,
        metavar="ENGINE",
        help=f"which voice engine speaks: {', '.join(ENGINES)}, or ray://HOST:PORT, a fleet"
        " (default auto) / 语音引擎，或语音集群",
    )
    p.add_argument(
        "--shared-cache",
        metavar="URL",
        help="redis://HOST:PORT in which studios and replicas share prompts / 共享音色缓存的 Redis",
    )
    p.add_argument(
        "--model-dir",
        metavar="DIR",
        help="where the model weights are: one model's folder, or one that holds several / "
        "模型目录",
    )
    p.add_argument(
        "--model",
        metavar="NAME",
        help="the model below it to begin with; the page changes it while it runs / 先用哪个模型",
    )
    p.add_argument(
        "--profile",
        choices=("ttfa", "balanced", "throughput", "lite"),
        help="what matters most; lite: a 300M model on a CPU (default balanced) / 侧重",
    )
    p.add_argument("--data-dir", metavar="DIR", help="where voices and takes are kept / 数据目录")
    p.add_argument(
        "--auth",
        metavar="USER:PASSWORD",
        action="append",
        help="ask for this login; may be given more than once / 登录账号",
    )
    p.add_argument(
        "--share",
        action="store_const",
        const=True,
        help="also open a public link (needs --auth or an API key) / 公网分享链接",
    )
    p.add_argument(
        "--lang",
        choices=("zh", "en"),
        help="language of the page (default: the browser's) / 界面语言",
    )
    return p


def load(argv: Sequence[str] = (), environ: Mapping[str, str] | None = None) -> Settings:
    """Flags win over environment, environment over kaikou.toml.

    Unknown names are refused with the nearest valid one.

    Raises BadInput (code bad_setting). argparse itself ends the process with exit code 2 on wrong
    flags.
    """
    environ = os.environ if environ is None else environ
    flags = vars(parser().parse_args(list(argv)))
    values: dict[str, object] = {}
    data_dir = flags.get("data_dir") or environ.get("KAIKOU_DATA_DIR")
    for place in (USER / "kaikou.toml", Path(data_dir) / "kaikou.toml" if data_dir else None):
        if place is not None and place.is_file():
            values |= _from_toml(place)
    for key, raw in environ.items():
        if key.startswith("KAIKOU_"):
            values |= _from_environment(key, raw)
    values |= {FLAGS[k]: v for k, v in flags.items() if k in FLAGS and v is not None}
    if flags["auth"]:
        values["server.auth"] = flags["auth"]
    return _check(_build(values))


def _names() -> dict[str, type]:
    return {
        f"{s}.{f.name}": type(getattr(make(), f.name))
        for s, make in SECTIONS.items()
        for f in fields(make)
    }


def _unknown(name: str, names, source: str) -> BadInput:
    near = difflib.get_close_matches(name, list(names), 1, 0.4)
    if near:
        return BadInput("bad_setting.unknown_near", where=source, near=near[0], param=name)
    return BadInput("bad_setting.unknown", where=source, names=sorted(names), param=name)


def _from_toml(path: Path) -> dict[str, object]:
    try:
        tree = tomllib.loads(path.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise BadInput("bad_setting.toml", error=error, param="") from error
    flat: dict[str, object] = {}
    for section, body in tree.items():
        if section not in SECTIONS or not isinstance(body, dict):
            raise _unknown(section, SECTIONS, "kaikou.toml")
        flat |= {f"{section}.{k}": v for k, v in body.items()}
    for name in flat:
        if name not in _names():
            raise _unknown(name, _names(), "kaikou.toml")
    return flat


def _from_environment(key: str, raw: str) -> dict[str, object]:
    if key == "KAIKOU_API_KEY":
        return {"server.api_keys": [k.strip() for k in raw.split(",") if k.strip()]}
    name_by_variable = {"KAIKOU_" + n.split(".")[1].upper(): n for n in _names()} | {
        "KAIKOU_" + n.replace(".", "_").upper(): n for n in _names()
    }
    if key not in name_by_variable:
        raise _unknown(key, name_by_variable, "The environment")
    return {
        name_by_variable[key]: raw.split(",") if _names()[name_by_variable[key]] is tuple else raw
    }


def _convert(name: str, kind: type, value: object) -> object:
    try:
        if name == "server.auth":
            return tuple(_login(v) for v in value)
        if name == "server.api_keys":
            return tuple(hashlib.sha256(str(k).encode()).hexdigest() for k in value)
        if kind is bool:
            return (
                value
                if isinstance(value, bool)
                else {
                    "1": True,
                    "true": True,
                    "yes": True,
                    "0": False,
                    "false": False,
                    "no": False,
                }[str(value).lower()]
            )
        if issubclass(kind, Path):
            return Path(str(value)).expanduser().absolute()
        if kind is float and not math.isfinite(float(value)):
            raise ValueError("not a finite number")
        return kind(value)
    except (ValueError, KeyError, TypeError, OverflowError) as error:
        raise BadInput("bad_setting.value", value=str(value), param=name) from error


def _login(pair: str) -> tuple[str, str]:
    user, colon, password = str(pair).partition(":")
    if not (user and colon and password) or not re.fullmatch(r"[\w.@-]{1,64}", user):
        raise BadInput("bad_setting.auth", param="auth")
    return user, password


def _build(values: Mapping[str, object]) -> Settings:
    kinds = _names()
    settings = Settings()
    for name, value in values.items():
        section, key = name.split(".")
        settings = replace(
            settings,
            **{
                section: replace(
                    getattr(settings, section), **{key: _convert(name, kinds[name], value)}
                )
            },
        )
    return settings


def is_loopback(host: str) -> bool:
    """Whether only programs of this computer can reach that address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _check(s: Settings) -> Settings:
    server = s.server
    if not 1 <= server.port <= 65535:
        raise BadInput("bad_setting.port", param="port")
    if server.root_path and not re.fullmatch(r"(/[\w.~-]+)+", server.root_path):
        raise BadInput("bad_setting.root_path", param="root_path")
    if not re.fullmatch("[a-z0-9]{0,16}", server.cell):
        raise BadInput("bad_setting.cell", param="cell")
    if server.is_open and server.share:
        raise BadInput("bad_setting.share", param="share")
    if server.is_open and not is_loopback(server.host):
        raise BadInput("bad_setting.host", host=server.host, param="host")
    if not 0 <= server.grpc_port <= 65535 or server.grpc_port == server.port:
        raise BadInput("bad_setting.grpc_port", param="grpc_port")
    if bool(server.grpc_cert) != bool(server.grpc_key):
        raise BadInput("bad_setting.grpc_pair", param="grpc_cert")
    if server.grpc_port and not server.grpc_cert and not is_loopback(server.host):
        raise BadInput("bad_setting.grpc_tls", host=server.host, param="grpc_cert")
    if s.engine.shared_cache:
        if not re.fullmatch(REDIS, s.engine.shared_cache):
            raise BadInput("bad_setting.shared_cache", param="shared_cache")
        if not s.engine.fleet_key:
            raise BadInput("bad_setting.shared_cache_without_key", param="shared_cache")
    return s
