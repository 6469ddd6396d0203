#!/usr/bin/env python
"""Write a whole CosyVoice2 model directory with random weights: the published layout without the download, for tests and trials.

    python scripts/make_small_model.py DIR            small networks, a few megabytes
    python scripts/make_small_model.py DIR --full     the real sizes, 2.6 GB, for measurements

It speaks noise, not words.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import torch

from scripts.small_model import networks, sizes, tensors, words


def make(root: Path, seed: int = 0, full: bool = False) -> Path:
    """Fill `root` (made when missing); returns it."""
    size = sizes.FULL if full else sizes.SMALL
    folder = root / "CosyVoice-BlankEN"
    folder.mkdir(parents=True, exist_ok=True)
    vocab, merges = words.vocabulary()
    for path, content in (
        (root / "cosyvoice2.yaml", sizes.yaml_text(size)),
        (folder / "config.json", sizes.config_json(size)),
        (folder / "vocab.json", vocab),
        (folder / "merges.txt", merges),
    ):
        path.write_text(content, encoding="utf-8")
    random = torch.Generator().manual_seed(seed)
    for name, state in (("llm", tensors.llm_state), ("flow", tensors.flow_state), ("hift", tensors.hift_state)):
        torch.save(state(size, random), root / f"{name}.pt")
    torch.save(tensors.speakers(size.codes, random), root / "spk2info.pt")
    draws = np.random.default_rng(seed)
    networks.speech_tokenizer(root / "speech_tokenizer_v2.onnx", draws)
    networks.speaker_network(root / "campplus.onnx", draws)
    return root


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--full", action="store_true", help="the real sizes instead of small ones")
    args = parser.parse_args()
    made = make(args.directory, args.seed, args.full)
    print(f"{made}: {sum(f.stat().st_size for f in made.rglob('*') if f.is_file()) / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
