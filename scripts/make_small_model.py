#!/usr/bin/env python
"""Write a whole model directory with random weights: the published layout without the download, for
tests and trials.

    python scripts/make_small_model.py DIR
        small networks of CosyVoice2, a few megabytes
    python scripts/make_small_model.py DIR --family cosyvoice3
        of another generation: cosyvoice1, cosyvoice2, cosyvoice3
    python scripts/make_small_model.py DIR --full
        the real sizes, 1.7 to 3.9 GB, for measurements

It speaks noise, not words.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import torch

from scripts.small_model import networks
from scripts.small_model.families import FAMILIES


def make(root: Path, seed: int = 0, full: bool = False, family: str = "cosyvoice2") -> Path:
    """Fill `root` (made when missing); returns it."""
    recipe = FAMILIES[family]
    size = recipe.full if full else recipe.small
    for name, content in recipe.texts(size).items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content, encoding="utf-8")
    random = torch.Generator().manual_seed(seed)
    for name, state in recipe.states.items():
        torch.save(state(size, random), root / f"{name}.pt")
    if recipe.speakers is not None:
        torch.save(recipe.speakers(size.codes, random), root / "spk2info.pt")
    draws = np.random.default_rng(seed)
    networks.speech_tokenizer(root / recipe.tokenizer, draws, *recipe.ids)
    networks.speaker_network(root / "campplus.onnx", draws)
    return root


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("directory", type=Path)
    parser.add_argument(
        "--family",
        choices=sorted(FAMILIES),
        default="cosyvoice2",
        help="the generation (default: %(default)s)",
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--full", action="store_true", help="the real sizes instead of small ones")
    args = parser.parse_args()
    root = make(args.directory, args.seed, args.full, args.family)
    print(f"{root}: {sum(f.stat().st_size for f in root.rglob('*') if f.is_file()) / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
