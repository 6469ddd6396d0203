"""Images and manifests against the program: its flags, settings, ports, addresses and files."""

from __future__ import annotations

import importlib
import importlib.util
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from urllib.parse import urlsplit

import yaml

from webui.cluster import __main__ as fleet
from webui.cluster.serve import LONGEST_S, environment
from webui.cluster.serve_config import ARGUMENTS
from webui.errors import KaikouError
from webui.settings import Settings, load

from .files import ROOT, Step, compose, dockerfile, manifests, pods

FILES = 65535
HEALTH = {"/health/live", "/health/ready"}
EXACT = re.compile(r"^[\w./-]+:v?\d+\.\d+\.\d+[\w.-]*$")
SECRET = re.compile(r"KEY$|PASSWORD|AUTH$|SECRET|TOKEN")
STUDIO_PORT = Settings().server.port
FLEET_PORT = fleet.parser().parse_args(["serve"]).port
KEY = {"KAIKOU_API_KEY": "x", "KAIKOU_FLEET_KEY": "x"}


def check(folder: Path) -> Iterator[str]:
    steps = dockerfile(folder)
    yield from (f"Dockerfile: {p}" for p in _image(folder, steps))
    for name, service in compose(folder)["services"].items():
        yield from (f"compose {name}: {p}" for p in _service(folder, service))
    for name, resource in manifests(folder).items():
        for pod in pods(resource):
            for container in pod["containers"]:
                place = f"{name} {container['name']}"
                is_ray = resource["kind"] == "RayService"
                yield from (f"{place}: {p}" for p in _container(container, is_ray))
    yield from _fleet(folder)
    yield from _scraped(folder)


# ---- commands and settings -----------------------------------------------------------------------
def command(words: Sequence[str]) -> Iterator[str]:
    """A command of an image: its script or module is there and takes these flags and values."""
    words = [w for w in words if w not in ("python", "-P", "bash", "scripts/deploy/start.sh")]
    if words[:1] == ["scripts/deploy/fleet.sh"]:
        words = ["-m", "webui.cluster", "serve", *words[1:]]
    if words[:2] == ["-m", "webui"]:
        yield from _settings(words[2:], KEY)
        if "--host" not in words:
            yield "the studio listens to its own container only"
    elif words[:2] == ["-m", "webui.cluster"]:
        args, rest = fleet.parser().parse_known_args(words[2:])
        yield from _settings(rest, KEY)
        try:
            fleet.replicas(args.replicas)
        except KaikouError as error:
            yield error.en
    elif words and words[0].endswith((".py", ".sh")):
        path = ROOT / words[0]
        if not path.is_file():
            yield f"{words[0]} is not there"
        else:
            text = path.read_text("utf-8")
            yield from (
                f"{words[0]} has no {w}" for w in words[1:] if w[:2] == "--" and w not in text
            )
            yield from (p for w in words[1:] if w.startswith("http:") for p in _address(w))


def _settings(flags: Sequence[str], environment: Mapping[str, str]) -> Iterator[str]:
    try:
        load(flags, environment)
    except KaikouError as error:
        yield error.en
    except SystemExit:
        yield f"the studio has not all of {' '.join(flags)}"


def _address(url: str) -> Iterator[str]:
    """Of a health check."""
    parts = urlsplit(url)
    if (parts.port, parts.path) not in {(STUDIO_PORT, p) for p in HEALTH} | {
        (FLEET_PORT, "/about")
    }:
        yield f"nothing answers at {url}"


def _environment(values: Mapping[str, str]) -> Iterator[str]:
    own_settings = {k: v for k, v in values.items() if k.startswith("KAIKOU_")}
    yield from _settings((), own_settings | KEY)
    for name, value in values.items():
        if SECRET.search(name) and not value.startswith("${"):
            yield f"the secret {name} stands in a file"


def _images(*names: str) -> Iterator[str]:
    yield from (f"{name} has no exact tag" for name in names if not EXACT.match(name))


# ---- Dockerfile ----------------------------------------------------------------------------------
def _image(folder: Path, steps: list[Step]) -> Iterator[str]:
    stages = {s.stage for s in steps}
    values: dict[str, str] = {}
    users: dict[str, str] = {}
    for step in steps:
        if step.name == "FROM":
            base = step.text.split()[0]
            if base not in stages | {"scratch", "${ON}"}:
                yield from _images(base)
        elif step.name == "ENV":
            values |= dict(word.split("=", 1) for word in step.words)
        elif step.name == "USER":
            users[step.stage] = step.text
        elif step.name == "COPY" and "--from" not in step.text:
            missing = [w for w in step.words[:-1] if not (ROOT / w).exists()]
            yield from (f"{w} is copied and is not there" for w in missing)
        elif step.name in ("CMD", "ENTRYPOINT"):
            yield from command(step.words)
        elif step.name == "HEALTHCHECK":
            yield from command(yaml.safe_load(step.text.partition("CMD ")[2]))
        elif step.name == "EXPOSE" and int(step.text) not in (STUDIO_PORT, FLEET_PORT):
            yield f"nothing listens at port {step.text}"
        elif step.name == "RUN":
            yield from _run(step)
    yield from (f"{stage} runs as root" for stage, user in users.items() if "root" in user)
    settings = {k: v for k, v in values.items() if k.startswith("KAIKOU_")}
    yield from _environment(settings)
    yield from _settings((), settings)  # the fleet's machines have no key of the studio
    if values.get("KAIKOU_PORT") != str(STUDIO_PORT):
        yield f"KAIKOU_PORT is {values.get('KAIKOU_PORT')}"
    if {k: v for k, v in values.items() if k.startswith("RAY_")} != environment():
        yield "RAY_* differ from webui/cluster/serve.py"


def _run(step: Step) -> Iterator[str]:
    for part in re.split(r"&&|;| then ", step.text):
        words = part.split()
        for flag, file in pairwise(words):
            if flag in ("-r", "-c") and "pip" in words and not (ROOT / file).is_file():
                yield f"pip is given {file}, which is not there"
        if words[:1] == ["python"] and words[1].endswith(".py"):
            yield from command([w for w in words if "$" not in w])


# ---- compose and Kubernetes ----------------------------------------------------------------------
def _service(folder: Path, service: dict) -> Iterator[str]:
    is_own = "build" in service
    yield from _images(service["image"])
    yield from _environment(service.get("environment", {}))
    if is_own:
        yield from command([*service.get("entrypoint", []), *service.get("command", [])])
        if not (folder / service["build"]["context"] / service["build"]["dockerfile"]).is_file():
            yield f"{service['build']['dockerfile']} is not there"
        if service["build"]["target"] not in {s.stage for s in dockerfile(folder)}:
            yield f"the Dockerfile has no {service['build']['target']}"
        if service.get("ulimits", {}).get("nofile") != FILES:
            yield f"{FILES} open files are needed"
        yield from command(service.get("healthcheck", {}).get("test", [""])[1:])
        published = [int(p.rpartition(":")[2]) for p in service.get("ports", [])]
        yield from (f"nothing listens at port {p}" for p in published if p != STUDIO_PORT)
    for volume in service.get("volumes", []):
        source = volume.partition(":")[0]
        if source.startswith(".") and not (folder / source).exists():
            yield f"{source} is not there"


def _container(container: dict, is_ray: bool) -> Iterator[str]:
    yield from _images(container["image"])
    values = {e["name"]: e["value"] for e in container.get("env", []) if "value" in e}
    names = {e["name"]: "x" for e in container.get("env", []) if e["name"].startswith("KAIKOU_")}
    yield from _environment(values)
    yield from _settings((), {**names, **{k: v for k, v in values.items() if k in names}})
    requests = container.get("resources", {}).get("requests", {})
    if not {"cpu", "memory"} <= requests.keys():
        yield "cpu and memory are not requested"
    if container["image"].startswith("kaikou:"):
        yield from command(container.get("args", []))
    if is_ray:  # KubeRay adds the probes of its pods
        return
    ports = {p["name"]: p["containerPort"] for p in container.get("ports", [])}
    for kind in ("livenessProbe", "readinessProbe"):
        probe = container.get(kind, {})
        get = probe.get("httpGet")
        if not probe:
            yield f"{kind} is missing"
        elif get and ports.get(get["port"], get["port"]) not in ports.values():
            yield f"{kind} asks port {get['port']}"
        elif get and container["image"].startswith("kaikou:"):
            yield from _address(f"http://127.0.0.1:{ports[get['port']]}{get['path']}")


def _fleet(folder: Path) -> Iterator[str]:
    """The RayService as its operator and Ray would read it, and who speaks to it."""
    documents = manifests(folder)
    spec = documents["RayService/kaikou-fleet"]["spec"]
    config = yaml.safe_load(spec["serveConfigV2"])
    for application in config["applications"]:
        module, _, name = application["import_path"].partition(":")
        is_there = importlib.util.find_spec(module) is not None
        if not is_there or not hasattr(importlib.import_module(module), name):
            yield f"RayService: {application['import_path']} is not there"
        if unknown := application["args"].keys() - ARGUMENTS.keys():
            yield f"RayService: the fleet takes no {', '.join(sorted(unknown))}"
        yield from command(
            ["-m", "webui.cluster", "serve", "--replicas", application["args"]["replicas"]]
        )
    for group in spec["rayClusterConfig"]["workerGroupSpecs"]:
        if group["template"]["spec"].get("terminationGracePeriodSeconds", 30) < LONGEST_S:
            yield f"RayService: {group['groupName']} ends streams before {LONGEST_S:g} s"
    if config["http_options"] != {"host": "0.0.0.0", "port": FLEET_PORT}:
        yield f"RayService: studios come to port {FLEET_PORT} from other pods"
    cell = documents["StatefulSet/kaikou-cell"]["spec"]["template"]["spec"]["containers"][0]
    if f"ray://kaikou-fleet-serve-svc:{FLEET_PORT}" not in cell["args"]:
        yield "StatefulSet/kaikou-cell: the fleet is at another address"


def _scraped(folder: Path) -> Iterator[str]:
    prometheus = yaml.safe_load((folder / "prometheus.yml").read_text("utf-8"))
    services = compose(folder)["services"]
    for job in prometheus["scrape_configs"]:
        for target in (t for s in job["static_configs"] for t in s["targets"]):
            host, _, port = target.partition(":")
            if (
                host not in services
                or int(port) != STUDIO_PORT
                or job["metrics_path"] != "/metrics"
            ):
                yield f"prometheus.yml: no studio tells its figures at {target}"
    for file in prometheus["rule_files"]:
        if not (folder / file).is_file():
            yield f"prometheus.yml: {file} is not there"
