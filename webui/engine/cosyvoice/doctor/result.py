"""What one item of the doctor found: a sentence, a remedy where it fails, and the figures.

Knows no networks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from ....messages import message

PASSED, WARNED, FAILED, SKIPPED = "passed", "warned", "failed", "skipped"
UNTRAINED = message("doctor.untrained")
FETCH = message("doctor.fetch_model")


@dataclass(frozen=True)
class Result:
    """item: a letter of the specification's table. name: what of it was measured. en, zh: one
    sentence. remedy_*: what to do, "" where
    nothing is to be done. figures: as JSON can hold them.
    """

    item: str
    name: str
    status: str
    en: str
    zh: str
    remedy_en: str = ""
    remedy_zh: str = ""
    figures: Mapping[str, object] = field(default_factory=dict)
    seconds: float = 0.0

    def to_dict(self) -> dict:
        return asdict(self)


def passed(
    item: str, name: str, sentences: tuple[str, str], figures: Mapping | None = None
) -> Result:
    return Result(item, name, PASSED, *sentences, figures=figures or {})


def skipped(
    item: str, name: str, sentences: tuple[str, str], figures: Mapping | None = None
) -> Result:
    return Result(item, name, SKIPPED, *sentences, figures=figures or {})


def failed(
    item: str,
    name: str,
    sentences: tuple[str, str],
    remedy: tuple[str, str] = FETCH,
    figures: Mapping | None = None,
    status: str = FAILED,
) -> Result:
    """status: WARNED where the finding is no proof."""
    return Result(item, name, status, *sentences, *remedy, figures=figures or {})
