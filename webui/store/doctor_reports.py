"""The doctor's report of a model: JSON beside the model, or in the data folder where the model may
not be written to. Never looks inside.
"""

from __future__ import annotations

import hashlib
import json
import logging
from pathlib import Path

from .private_files import make_folder, write_file

log = logging.getLogger(__name__)
FILE = "kaikou-doctor.json"
FOLDER = "doctor"  # in the data folder
AGREED = "agreed.json"
TELLING = ("*.pt", "*.onnx", "*.yaml", "*.tiktoken", "*/*.json", "*/*.txt")


def stamp(model: Path) -> str:
    """Names a model directory's files by name, size and time: quick, and another one when a file is
    exchanged. "" where it cannot be read.
    """
    try:
        files = [path for like in TELLING for path in model.glob(like)]
        rows = sorted(
            (str(p.relative_to(model)), p.stat().st_size, p.stat().st_mtime_ns) for p in files
        )
    except OSError:
        return ""
    return hashlib.sha256(repr(rows).encode()).hexdigest()[:32]


def folders(model: Path, data_dir: Path) -> tuple[Path, Path]:
    """Where a report may be: beside the model, and else."""
    place = hashlib.sha256(str(model.resolve()).encode()).hexdigest()[:8]
    return model, data_dir / FOLDER / f"{model.name}-{place}"


def save(model: Path, data_dir: Path, report: dict, sounds: dict[str, bytes]) -> Path | None:
    """Report and sounds in the first folder that can be written; returns it, None where neither
    can.
    """
    own = json.dumps({**report, "stamp": stamp(model)}, ensure_ascii=False, indent=1)
    for folder in folders(model, data_dir):
        try:
            make_folder(folder)
            for name, data in sounds.items():
                write_file(folder / name, data)
            write_file(folder / FILE, own.encode())
        except OSError as error:
            log.info("the doctor's report cannot be written to %s: %s", folder.name, error)
            continue
        return folder
    return None


def load(model: Path, data_dir: Path) -> dict | None:
    """The report of these very files; None where there is none, or files were exchanged since."""
    return next(
        (report for folder in folders(model, data_dir) if (report := _of(model, folder / FILE))),
        None,
    )


def switched_off(model: Path, data_dir: Path) -> tuple[str, ...]:
    """Precisions that were too far from fp32 with these very files."""
    results = (load(model, data_dir) or {}).get("results") or ()
    all_figures = [
        r["figures"] for r in results if (r.get("item"), r.get("name")) == ("E", "precision")
    ]
    return tuple(name for figures in all_figures for name in figures.get("off", ()))


def end_of_prompt(model: Path, data_dir: Path) -> str:
    """What ended a description of these very files without its being read aloud; "" where that was
    not examined.
    """
    results = (load(model, data_dir) or {}).get("results") or ()
    all_figures = (
        r["figures"] for r in results if (r.get("item"), r.get("name")) == ("G", "description")
    )
    return next((str(figures.get("end_of_prompt", "")) for figures in all_figures), "")


def agree(model: Path, data_dir: Path, profile: dict) -> None:
    """These files shall be used with this profile.

    Where that cannot be written, it is forgotten.
    """
    folder = folders(model, data_dir)[1]
    try:
        make_folder(folder)
        write_file(
            folder / AGREED, json.dumps({"profile": profile, "stamp": stamp(model)}).encode()
        )
    except OSError as error:
        log.warning("the agreed profile is not remembered: %s", error)


def agreed(model: Path, data_dir: Path) -> dict:
    """The profile for these very files; empty where none was agreed to."""
    agreement = _of(model, folders(model, data_dir)[1] / AGREED) or {}
    return agreement["profile"] if isinstance(agreement.get("profile"), dict) else {}


def _of(model: Path, path: Path) -> dict | None:
    """What was written about these very files."""
    try:
        content = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    own = stamp(model)
    return content if isinstance(content, dict) and own and content.get("stamp") == own else None
