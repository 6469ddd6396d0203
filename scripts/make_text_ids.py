#!/usr/bin/env python
"""Write down the ids that the published tokenizers give the doctor's sentences, for its item B.

    python scripts/make_text_ids.py qwen.tiktoken [FOLDER]

qwen.tiktoken: Qwen's vocabulary with ranks, as the package dashscope brings it. CosyVoice 2 and 3
  have Qwen2's vocabulary and its merges
except those that join more than one Chinese character, or one and a blank. Both files are made from
the ranks and compared with the published checksums: nothing is written where they differ. FOLDER:
keep them there. The first generation's vocabulary comes with the studio.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripts.small_model.words import byte_letters
from webui.engine.cosyvoice.doctor.text import IDS, MERGES, SENTENCES, VOCAB
from webui.engine.cosyvoice.frontend.tokenizer import TextTokenizer
from webui.engine.cosyvoice.frontend.tokenizer_v3 import TokenizerV3
from webui.engine.cosyvoice.frontend.whisper_tokenizer import WhisperTokenizer
from webui.files import ROOT
from webui.store.model_files import read_manifest

MARKS = {
    "cosyvoice1": ("<|endoftext|>", "<|en|>", "<|zh|>", "<|yue|>"),
    "cosyvoice2": ("<|endofprompt|>", "[breath]", "[laughter]"),
    "cosyvoice3": "<|endofprompt|> [breath] [laughter] [mn] <|endofsystem|> [AA] [a] [ǜ]".split(),
}


def ranks_of(path: Path) -> dict[bytes, int]:
    """Token -> rank, in the order of the ranks."""
    rows = (line.split() for line in path.read_text("ascii").splitlines() if line)
    return {base64.b64decode(token): int(rank) for token, rank in rows}


def halves(ranks: dict[bytes, int], token: bytes) -> list[bytes]:
    """The two tokens that `token` is made of, by merging its bytes with the ranks below its own."""
    parts = [token[i : i + 1] for i in range(len(token))]
    while True:
        pairs = [ranks.get(parts[i] + parts[i + 1], 1 << 30) for i in range(len(parts) - 1)]
        best = min(pairs, default=1 << 30)
        if best >= ranks[token]:
            return parts
        at = pairs.index(best)
        parts[at : at + 2] = [parts[at] + parts[at + 1]]


def is_masked(token: bytes) -> bool:
    """More than one Chinese character, or one and a blank: the published model cuts them apart."""
    try:
        text = token.decode()
    except UnicodeDecodeError:
        return False
    words = text.strip()
    return len(text) > 1 and bool(words) and all("\u4e00" <= c <= "\u9fff" for c in words)


def files_of(ranks: dict[bytes, int]) -> dict[str, bytes]:
    """The published vocab.json and merges.txt by their paths.

    Raises ValueError where they are others.
    """
    letters = byte_letters()

    def vocab_text(token: bytes) -> str:
        return "".join(letters[byte] for byte in token)

    merges = [
        " ".join(map(vocab_text, halves(ranks, token)))
        for token in ranks
        if len(token) > 1 and not is_masked(token)
    ]
    vocab = {vocab_text(token): rank for token, rank in ranks.items()}
    files = {
        VOCAB: json.dumps(vocab, ensure_ascii=False, separators=(",", ":")).encode(),
        MERGES: "".join(f"{line}\n" for line in merges).encode(),
    }
    published = read_manifest(ROOT / "pretrained_models" / "MANIFEST.json")["CosyVoice2-0.5B"]
    for spec in published.files:
        if spec.path in files and hashlib.sha256(files[spec.path]).hexdigest() != spec.sha256:
            raise ValueError(f"{spec.path} made of these ranks is not the published one")
    return files


def table(root: Path) -> dict[str, dict]:
    """root: holds the files of `files_of`."""
    tokenizers = {
        "cosyvoice1": WhisperTokenizer(root),
        "cosyvoice2": TextTokenizer(root),
        "cosyvoice3": TokenizerV3(root),
    }
    return {
        engine: {
            "size": tokenizer.size,
            "ids": {line: tokenizer.encode(line) for line in ("你好", *SENTENCES, *MARKS[engine])},
        }
        for engine, tokenizer in tokenizers.items()
    }


def written_out(ids_by_engine: dict[str, dict]) -> str:
    """As JSON, a text in each line."""
    end, engines = ",\n", []
    for engine, entry in ids_by_engine.items():
        lines = [f"   {json.dumps(t, ensure_ascii=False)}: {i}" for t, i in entry["ids"].items()]
        head = f' "{engine}": {{"size": {entry["size"]}, "ids": {{\n'
        engines.append(f"{head}{end.join(lines)}}}}}")
    return f"{{\n{end.join(engines)}\n}}\n"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("ranks", type=Path)
    parser.add_argument("folder", type=Path, nargs="?")
    args = parser.parse_args(arguments)
    try:
        files = files_of(ranks_of(args.ranks))
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as scratch:
        root = args.folder or Path(scratch)
        for name, data in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(data)
        ids_by_engine = table(root)
    IDS.write_text(written_out(ids_by_engine), "utf-8")
    print(f"{len(SENTENCES)} sentences in {IDS.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
