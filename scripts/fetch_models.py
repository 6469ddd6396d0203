#!/usr/bin/env python
"""Fetch model weights: only the files that the studio reads, checked, and taken up again where an
earlier run stopped.

python scripts/fetch_models.py
    CosyVoice2-0.5B from ModelScope, about 3.1 GB
python scripts/fetch_models.py CosyVoice-300M-SFT
    another one: Fun-CosyVoice3-0.5B-2512 (4.4 GB), CosyVoice-300M, CosyVoice-300M-SFT,
    CosyVoice-300M-Instruct (2.3 GB each);
    several names, or: all
python scripts/fetch_models.py --source hf-mirror
    from a mirror of Hugging Face
python scripts/fetch_models.py --source https://HOST/FOLDER
    from a place of your own
python scripts/fetch_models.py natural
    the natural built-in voice's weights, 92 MB: only needed where its packages cannot be installed;
    --source may also be a folder that has the
    file
python scripts/fetch_models.py --offline
    is everything here? asks no server
python scripts/fetch_models.py --check
    the same, and every checksum compared
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from webui.engine.natural import weights
from webui.errors import KaikouError, NotReady
from webui.store.model_files import SOURCES, Model, ModelFetcher, Progress, read_manifest
from webui.store.model_hub import FileSpec

MANIFEST = Path(__file__).resolve().parent.parent / "pretrained_models" / "MANIFEST.json"
DEFAULT = "CosyVoice2-0.5B"
# Not in the manifest, which lists what the page offers and what "all" means.
NATURAL = Model(
    "natural", {}, (FileSpec(weights.FILE, weights.SIZE_BYTES, True, weights.SHA256),), "builtin"
)
NATURAL_SOURCE = "https://github.com/thewh1teagle/kokoro-onnx/releases/download/model-files-v1.0"


class Line:
    """One line that is written over on a terminal; a line per file and tenth otherwise."""

    def __init__(self):
        self._last = None

    def show(self, at: Progress) -> None:
        percent = 100 * at.done // at.total
        key = (at.file, percent if sys.stdout.isatty() else percent // 10)
        if key == self._last:
            return
        self._last = key
        eta_text = f", {at.left_s / 60:.0f} min left" if at.left_s else ""
        text = (
            f"{percent:3d} %  {at.done / 1e6:,.0f} of {at.total / 1e6:,.0f} MB, {at.rate / 1e6:.1f}"
            f" MB/s{eta_text}  {at.file}"
        )
        print(
            f"\r{text:<110}" if sys.stdout.isatty() else text,
            end="" if sys.stdout.isatty() else "\n",
            flush=True,
        )


def local(fetcher: ModelFetcher, is_deep: bool) -> int:
    faults = (
        fetcher.verify()
        if is_deep
        else [
            (s.path, "missing or not whole", "") for s in fetcher.plan().missing if not s.optional
        ]
    )
    for path, fault, _ in faults:
        print(f"{path}: {fault}", file=sys.stderr)
    for path in fetcher.unexpected():
        print(
            f"{path} differs from the expected file; it may be a newer publication. / {path}"
            " 与预期的文件不同，可能是新发布的版本。"
        )
    name, blind = fetcher.model.name, len(fetcher.unknown()) if is_deep else 0
    if blind:
        print(f"{name}: of {blind} files no checksum is known, only their sizes were compared.")
    print(
        f"{name}: {len(faults)} of {len(fetcher.model.files)} files are not in order."
        if faults
        else f"{name}: all files are here."
    )
    return 1 if faults else 0


def bring(fetcher: ModelFetcher, cancelled: threading.Event) -> int:
    plan = fetcher.plan()
    if plan.is_complete:
        return local(fetcher, False)
    about = "" if plan.exact else "about "
    print(
        f"{fetcher.model.name}: {len(plan.missing)} files to fetch, {about}{plan.bytes / 1e6:,.0f}"
        f" MB, from {fetcher.source} into {fetcher.root}"
    )
    fetcher.fetch(Line().show, cancelled)
    print()
    return local(fetcher, False)


def copy_natural(source: Path, folder: Path) -> int:
    """From a folder of this computer: a USB stick, a share."""
    try:
        print(weights.write(weights.blocks_of(source / weights.FILE), folder))
    except OSError as error:
        print(f"{error.filename or folder}: {error.strerror}", file=sys.stderr)
        return 1
    return 0


def main() -> int:
    models = read_manifest(MANIFEST)
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help=f"which models: {', '.join(models)}, natural, or all (default: {DEFAULT})",
    )
    parser.add_argument(
        "--dir",
        type=Path,
        default=MANIFEST.parent,
        help="folder that holds one folder per model (default: pretrained_models)",
    )
    parser.add_argument(
        "--source",
        help=(
            f"{', '.join(SOURCES)}, or an http(s) address below which the files lie (default:"
            " modelscope)"
        ),
    )
    parser.add_argument(
        "--offline", action="store_true", help="only say whether everything is here"
    )
    parser.add_argument(
        "--check", action="store_true", help="only read every file and compare its checksum"
    )
    args = parser.parse_args()
    cancelled = threading.Event()

    def stop(number: int, _frame: object) -> None:
        signal.signal(number, signal.SIG_DFL)  # a second one does not wait for the server
        threading.Thread(
            target=cancelled.set
        ).start()  # this thread may be inside the event's own wait, with its lock

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    names = list(models) if "all" in args.names else args.names or [DEFAULT]
    models_by_name = {**models, NATURAL.name: NATURAL}
    unknown = next((name for name in names if name not in models_by_name), None)
    if unknown is not None:
        parser.error(f"no model “{unknown}”; known: {', '.join(models)}")
    try:
        if names == [NATURAL.name] and args.source and Path(args.source).is_dir():
            return copy_natural(Path(args.source), args.dir / NATURAL.name)
        args.source = args.source or (NATURAL_SOURCE if names == [NATURAL.name] else "modelscope")
        fetchers = [
            ModelFetcher(args.dir / name, args.source, models_by_name[name]) for name in names
        ]
        return max(
            local(f, args.check) if args.offline or args.check else bring(f, cancelled)
            for f in fetchers
        )
    except KaikouError as fault:
        if cancelled.is_set():
            print("\nStopped. What has come stays: run this again to go on.", file=sys.stderr)
            return 130
        print(f"\n{fault.en}\n{fault.zh}", file=sys.stderr)
        if isinstance(fault, NotReady):
            sources = " or ".join(f"--source {name}" for name in SOURCES if name != args.source)
            print(
                f"This was {args.source}; no other source is asked unless you say so: {sources}."
                " What has come stays.",
                file=sys.stderr,
            )
        return 1


if __name__ == "__main__":
    sys.exit(main())
