"""Rules and dashboard against what a studio exports: each expression is parsed as PromQL, and each
metric, label and value that it asks for is there.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import promql_parser
import yaml
from prometheus_client.parser import text_string_to_metric_families

from .files import ROOT

Exported = Mapping[str, Mapping[str, set[str]]]
DASHBOARD = ROOT / "assets" / "grafana.json"
# what Prometheus itself adds; "job" is the name in prometheus.yml
ADDED = {"instance", "job"}
OWN = {"up"}
EQUAL = promql_parser.MatchOp.Equal
BOTH = ("summary", "summary_zh")


def exported(text: str) -> Exported:
    """Sample -> label -> the values it has, of an answer of /metrics."""
    metrics: dict[str, dict[str, set[str]]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = metrics.setdefault(sample.name, defaultdict(set))
            for label, value in sample.labels.items():
                labels[label].add(value)
    return metrics


def check(folder: Path, has: Exported, board: Path = DASHBOARD) -> Iterator[str]:
    for group in yaml.safe_load((folder / "rules.yml").read_text("utf-8"))["groups"]:
        for rule in group["rules"]:
            yield from (f"{rule['alert']}: {p}" for p in problems(rule["expr"], has))
            sentences = rule.get("annotations", {})
            if not all(sentences.get(name) for name in BOTH):
                yield f"{rule['alert']}: a sentence in English and one in Chinese are needed"
    for panel in json.loads(board.read_text("utf-8"))["panels"]:
        for target in panel["targets"]:
            text = target["expr"].replace("$__rate_interval", "5m").replace("$instance", ".*")
            yield from (f"panel {panel['title']!r}: {p}" for p in problems(text, has))


def problems(expression: str, has: Exported) -> Iterator[str]:
    try:
        tree = promql_parser.parse(expression)
    except ValueError as error:
        yield f"no PromQL: {error}"
        return
    selectors, labels = [], set()

    def look(node) -> bool:
        if isinstance(node, promql_parser.VectorSelector):
            selectors.append(node)
        elif isinstance(node, promql_parser.AggregateExpr) and node.modifier is not None:
            labels.update(node.modifier.labels)
        return True

    promql_parser.walk(tree, look)
    names = set(ADDED)
    for selector in selectors:
        name = selector.name
        if name not in has and name not in OWN:
            yield f"nobody exports {name}"
            continue
        values = has.get(name, {})
        names |= values.keys()
        for matcher in selector.matchers.matchers:
            if matcher.name in ADDED or matcher.name == "__name__":
                continue
            if matcher.name not in values:
                yield f"{name} has no label {matcher.name}"
            elif matcher.op == EQUAL and matcher.value not in values[matcher.name]:
                yield f"{name} has no {matcher.name}={matcher.value}"
    for label in labels - names:
        yield f"grouped by {label}, which no metric of it has"
