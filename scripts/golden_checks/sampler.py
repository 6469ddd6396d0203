"""Repetition-aware sampling against golden data: the nucleus, the exact law, and the upstream
histogram within sampling error.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from safetensors.torch import load_file

from webui.engine.cosyvoice.llm.sampler import RasRule, exact_distribution, top_k_top_p


def check(folder: Path, report: Callable[[str, str, float, float], None]) -> None:
    """folder: golden/sampler or one of the same format. report(case, tensor, largest error,
    tolerance).
    """
    data, rule = load_file(folder / "ras_cases.safetensors"), RasRule()
    for case in sorted(
        {key.split(".")[0] for key in data}, key=lambda name: int(name.removeprefix("case"))
    ):
        scores, history = data[f"{case}.scores"], data[f"{case}.decoded"].tolist()
        ids, _ = top_k_top_p(scores, rule)
        report(case, "nucleus_ids", float(ids.tolist() != data[f"{case}.nucleus_ids"].tolist()), 0)
        exact = exact_distribution(scores, history, rule)
        report(case, "exact_prob", float((exact - data[f"{case}.exact_prob"]).abs().max()), 1e-6)
        counts = data[f"{case}.counts"].double()
        draws = counts.sum()
        spread = float(
            (exact * (1 - exact) / draws).sqrt().sum() / 2
        )  # the most that drawing by chance differs on average
        report(
            case, "counts", float((counts / draws - exact).abs().sum() / 2), 1.2 * spread + 0.005
        )
