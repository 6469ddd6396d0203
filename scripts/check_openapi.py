"""Asks every route of the OpenAPI document what it may be asked, and more, with schemathesis: no
answer may be a fault, or one that is not in the document.

Starts a studio of its own with the tone engine and one key, in a folder that goes away; --quick is
what the tests run.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tests.serve import ROOT, running

KEY = "sk-check-openapi"
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "allow_header_conformance",
)
QUICK = ("--phases", "coverage,fuzzing", "--max-examples", "3", "--no-shrink", "--workers", "2")
LONG = ("--phases", "coverage,fuzzing,stateful", "--max-examples", "60", "--workers", "2")
OTHER = "other methods"  # than those a path is there for
SETTINGS = {
    "KAIKOU_STARTS_PER_MINUTE": "100000",
    "KAIKOU_UPLOADS_PER_MINUTE": "100000",
    "KAIKOU_MAX_STREAMS_PER_VISITOR": "1000",
    "KAIKOU_API_KEY": KEY,
}


@dataclass
class Found:
    """`routes`: "GET /v1/models" -> how often it answered with which status."""

    ok: bool
    text: str  # what schemathesis printed
    routes: dict[str, Counter]

    @property
    def statuses(self) -> Counter:
        return sum(self.routes.values(), Counter())

    @property
    def never_done(self) -> list[str]:
        """Routes that only ever refused: of these nothing but their refusals was looked at."""
        return sorted(
            name
            for name, statuses in self.routes.items()
            if name != OTHER and not any(status < 400 for status in statuses)
        )


def check(url: str, *flags: str, seed: int = 1, has_things: bool = True) -> Found:
    """Every route of the document at `url`, with what `flags` say of schemathesis' ways.
    has_things: it is a studio, and ids of real things are asked for too.
    """
    with tempfile.TemporaryDirectory(prefix="kaikou-openapi-") as folder:
        events_file = Path(folder) / "events.ndjson"
        command = [
            sys.executable,
            "-m",
            "schemathesis.cli",
            "run",
            f"{url}/v1/openapi.json",
            "--checks",
            ",".join(CHECKS),
            "--header",
            f"Authorization: Bearer {KEY}",
            "--seed",
            str(seed),
            "--continue-on-failure",
            "--generation-database",
            "none",
            "--request-timeout",
            "30",
            "--warnings",
            "off",
            "--report",
            "ndjson",
            "--report-ndjson-path",
            str(events_file),
            *flags,
        ]
        hooks = (
            {
                "SCHEMATHESIS_HOOKS": "scripts.openapi_check.hooks",
                "PYTHONPATH": str(ROOT),
                "KAIKOU_CHECK_URL": url,
                "KAIKOU_CHECK_KEY": f"Bearer {KEY}",
            }
            if has_things
            else {}
        )
        environment = {
            "HYPOTHESIS_STORAGE_DIRECTORY": str(ROOT / ".hypothesis")
        }  # its tables of characters take seconds to make
        run = subprocess.run(
            command,
            cwd=folder,
            capture_output=True,
            text=True,
            env={**os.environ, **environment, **hooks},
        )
        events = events_file.read_text("utf-8").splitlines() if events_file.exists() else []
    return Found(run.returncode == 0, run.stdout + run.stderr, _routes(map(json.loads, events)))


def _routes(events: Iterable[dict]) -> dict[str, Counter]:
    routes: dict[str, Counter] = {}
    for record in (e["ScenarioFinished"]["recorder"] for e in events if "ScenarioFinished" in e):
        for key, exchange in record.get("interactions", {}).items():
            case, label = record["cases"][key]["value"], record["label"]
            name = f"{case['method']} {case['path']}"
            if exchange.get("response"):
                routes.setdefault(
                    name if name == label or label == "Stateful tests" else OTHER, Counter()
                )[exchange["response"]["status_code"]] += 1
    return routes


def main() -> int:
    ask = argparse.ArgumentParser(
        description=(
            "Ask every route of the OpenAPI document, with schemathesis. 用 schemathesis 检查"
            " OpenAPI 文档里的每个接口。"
        )
    )
    ask.add_argument("--quick", action="store_true", help="a minute or less, as in the tests")
    ask.add_argument("--seed", type=int, default=1)
    wish = ask.parse_args()
    with running(env=SETTINGS) as studio:
        report = check(studio.url, *(QUICK if wish.quick else LONG), seed=wish.seed)
        state = studio.state()
    print(report.text)
    print(
        f"{len(report.routes)} routes, {sum(report.statuses.values())} answers:",
        ", ".join(f"{n} x {status}" for status, n in sorted(report.statuses.items())),
    )
    print("only refused:", ", ".join(report.never_done) or "none")
    print(
        f"streams spoken {state['opened']}, ended {state['finalised']}; codecs open"
        f" {state['coders']}"
    )
    return 0 if report.ok and state["opened"] == state["finalised"] and not state["coders"] else 1


if __name__ == "__main__":
    sys.exit(main())
