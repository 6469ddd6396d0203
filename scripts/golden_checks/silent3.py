"""Third generation: which drawn ids the flow hears."""

from __future__ import annotations

import json
from pathlib import Path

from webui.engine.cosyvoice.llm.silence_filter import MAX_RUN, SILENT, SilenceFilter

from .flow import Report


def check(folder: Path, report: Report) -> None:
    """folder: golden3/silent or one of the same format. report(case, tensor, largest error,
    tolerance).
    """
    meta = json.loads((folder / "silent_cases.json").read_text())
    report("rule", "silent_ids", float(sorted(SILENT) != sorted(meta["silent_ids"])), 0)
    report("rule", "max_run", abs(MAX_RUN - meta["max_run"]), 0)
    for number, case in enumerate(meta["cases"]):
        hears = SilenceFilter()
        report(f"case{number}", "out", float([i for i in case["in"] if hears(i)] != case["out"]), 0)
