"""The files of scripts/deploy, or of a copy, as their examiners read them."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDER = ROOT / "scripts" / "deploy"


@dataclass(frozen=True)
class Step:
    """An instruction of a Dockerfile: its name, its text with lines joined, its build stage."""

    name: str
    text: str
    stage: str

    @property
    def words(self) -> list[str]:
        """Of the form ["a", "b"], or of a shell's line; no flags of the instruction itself."""
        text = re.sub(r"^(--[a-z-]+=\S+\s+)+", "", self.text)
        return yaml.safe_load(text) if text.startswith("[") else shlex.split(text)


def dockerfile(folder: Path) -> list[Step]:
    lines = [
        line
        for line in (folder / "Dockerfile").read_text("utf-8").splitlines()
        if not line.lstrip().startswith("#")
    ]
    steps, stage = [], ""
    for line in re.sub(r"\\\n\s*", " ", "\n".join(lines)).splitlines():
        name, _, text = line.strip().partition(" ")
        if name == "FROM":
            stage = text.rpartition(" AS ")[2]
        if name:
            steps.append(Step(name, text.strip(), stage))
    return steps


def compose(folder: Path) -> dict:
    return yaml.safe_load((folder / "compose.yaml").read_text("utf-8"))


def manifests(folder: Path) -> dict[str, dict]:
    """Kind/name -> resource."""
    return {
        f"{resource['kind']}/{resource['metadata']['name']}": resource
        for path in sorted((folder / "kubernetes").glob("*.yaml"))
        for resource in yaml.safe_load_all(path.read_text("utf-8"))
    }


def pods(resource: dict) -> list[dict]:
    """The pod specs of a resource, a RayService's included."""
    if resource["kind"] == "RayService":
        cluster = resource["spec"]["rayClusterConfig"]
        groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
        return [group["template"]["spec"] for group in groups]
    template = resource["spec"].get("template")
    return [template["spec"]] if template else []
