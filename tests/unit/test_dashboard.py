"""The dashboard asks only for what /metrics tells, by the labels it has; and /metrics is on the
dashboard.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.conftest import ROOT
from webui.messages import Message
from webui.settings import Paths, Settings
from webui.studio import Studio

BOARD = json.loads((ROOT / "assets" / "grafana.json").read_text("utf-8"))
EXPRESSIONS = [t["expr"] for panel in BOARD["panels"] for t in panel["targets"]] + [
    v["query"] for v in BOARD["templating"]["list"] if v["type"] == "query"
]


@pytest.fixture(scope="module")
def exported(tmp_path_factory) -> dict[str, set[str]]:
    """Sample name -> its labels, as a fresh studio exports them."""
    studio = Studio(Settings(paths=replace(Paths(), data_dir=tmp_path_factory.mktemp("data"))))
    samples: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(studio.metrics.text().decode()):
        for s in family.samples:
            samples.setdefault(s.name, set()).update(s.labels)
    return samples


def test_every_metric_of_the_dashboard_is_exported(exported):
    named = {name for e in EXPRESSIONS for name in re.findall(r"\bcv_\w+", e)}
    assert len(named) >= 20
    assert named - exported.keys() == set()


def test_every_label_of_the_dashboard_is_there(exported):
    for e in EXPRESSIONS:
        has = {"instance"} | set().union(*(exported[name] for name in re.findall(r"\bcv_\w+", e)))
        used = {
            x.strip() for group in re.findall(r"by \(([^)]*)\)", e) for x in group.split(",")
        } | set(re.findall(r"[{,]\s*(\w+)=~?\"", e))
        assert used <= has, (e, used - has)


def test_what_an_operator_is_promised_is_on_it(exported):
    families = {
        re.sub(r"_(bucket|sum|count|total|created)$", "", name)
        for name in exported
        if name.startswith("cv_")
    }
    expressions = " ".join(EXPRESSIONS)
    assert {f for f in families if f not in expressions} == set(), (
        "told by /metrics, and nobody looks"
    )
    for word in (
        "cv_audio_first_byte_seconds_bucket",
        "cv_queue_seconds_bucket",
        "cv_stage_seconds_sum",
        "cv_rtf_bucket",
        "cv_underruns_total",
        "_cache_total",
        "cv_jobs_total",
        "cv_errors_total",
    ):
        assert word in expressions


def test_panels_do_not_overlap_and_have_names_of_their_own():
    cells = [
        (x, y)
        for p in BOARD["panels"]
        for g in [p["gridPos"]]
        for x in range(g["x"], g["x"] + g["w"])
        for y in range(g["y"], g["y"] + g["h"])
    ]
    assert len(cells) == len(set(cells)) and all(x < 24 for x, _ in cells)
    assert (
        len({p["title"] for p in BOARD["panels"]})
        == len({p["id"] for p in BOARD["panels"]})
        == len(BOARD["panels"])
    )


def test_labels_have_closed_sets_whatever_comes_to_the_door(exported):
    from webui.api.middleware.access import area_of
    from webui.errors import KaikouError, NotAllowed
    from webui.studio.metrics import AREAS, Metrics

    metrics = Metrics()
    before = metrics.text().count(b"\n")
    for n in range(300):
        metrics.count_turned_away(NotAllowed(Message("x", "x"), code=f"code_{n}"))
        metrics.count_refusal(KaikouError(Message("x", "x"), code=f"code_{n}"))
        metrics.count_answer(area_of(f"/v1/{n}/x"), n * 7)
        metrics.count_answer(f"area {n}", 200)
    assert metrics.text().count(b"\n") == before, "a label made up by a caller grows without end"
    assert {
        area_of(p)
        for p in (
            "/v1/audio/speech",
            "/v1/audio/voices",
            "/v2/jobs",
            "/v1/keys",
            "/d/x",
            "/",
            "/metrics",
            "/inference_sft",
            "/gradio_api/x",
        )
    } == set(AREAS)
