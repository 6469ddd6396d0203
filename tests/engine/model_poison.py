"""Forty model files that try to run code, each of which would leave a canary file if it could."""

from __future__ import annotations

import pickle
import pkgutil
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import torch


class Call:
    """Pickles as a call of `name(*args)`."""

    def __init__(self, name: str, *args):
        self.name, self.args = name, args

    def __reduce__(self):
        return pkgutil.resolve_name(self.name), self.args


def calls(canary: Path) -> list[Call]:
    code = f"open({str(canary)!r}, 'w').close()"
    return [
        Call("os.system", f"touch {canary}"),
        Call("builtins.exec", code),
        Call("builtins.eval", f"open({str(canary)!r}, 'w')"),
        Call("builtins.open", str(canary), "w"),
        Call("subprocess.call", ["touch", str(canary)]),
        Call("subprocess.Popen", ["touch", str(canary)]),
        Call("os.mkdir", str(canary)),
        Call("pathlib.Path.touch", canary),
    ]


def _zip_of(data: bytes) -> Callable[[Path], None]:
    """A container as `torch.save` writes it, with a pickle of our own inside."""

    def write(path: Path) -> None:
        with zipfile.ZipFile(path, "w") as z:
            for name, content in (
                ("data.pkl", data),
                ("version", b"3\n"),
                ("byteorder", b"little"),
                (".format_version", b"1"),
            ):
                z.writestr(f"{path.stem}/{name}", content)

    return write


def poisoned(canary: Path) -> Iterator[tuple[str, str, Callable[[Path], None]]]:
    """(label, file in the model directory, writer of that file)."""
    tensor = torch.zeros(2)
    for i, call in enumerate(calls(canary)):
        yield (
            f"value {call.name}",
            "llm.pt",
            lambda path, c=call: torch.save({"llm_embedding.weight": tensor, "x": c}, path),
        )
        yield f"whole {call.name}", "flow.pt", _zip_of(pickle.dumps(call, protocol=2))
        yield (
            f"bare {call.name}",
            "hift.pt",
            lambda path, c=call, p=i % 5: path.write_bytes(pickle.dumps(c, protocol=p)),
        )
    call = calls(canary)[0]
    yield (
        "legacy container",
        "flow.pt",
        lambda path: torch.save({"x": call}, path, _use_new_zipfile_serialization=False),
    )
    yield "speaker entry", "spk2info.pt", lambda path: torch.save({"a": {"embedding": call}}, path)
    yield "speaker table", "spk2info.pt", lambda path: torch.save(call, path)
    yield (
        "step counter",
        "hift.pt",
        lambda path: torch.save({"step": call, "generator.x": tensor}, path),
    )
    shell = f'"touch {canary}"'
    for i, line in enumerate(
        (
            f"a: !!python/object/apply:os.system [{shell}]",
            f"__set_seed1: !apply:os.system [{shell}]",
            f"a: !new:subprocess.Popen\n    args: [touch, {canary}]\n",
            f"a: !!python/object/new:os.system [{shell}]",
            f"a: !!python/object/apply:builtins.exec [\"open('{canary}', 'w')\"]",
            f"? !!python/object/apply:os.system [{shell}]\n: 1",
            f"a: &x !apply:os.system [{shell}]\nb: *x",
            f"sample_rate: !apply:os.system [{shell}]",
            f"llm: !include {canary}",
            f"!!python/object/apply:os.system [{shell}]",
        )
    ):
        yield (
            f"yaml {i}",
            "cosyvoice2.yaml",
            lambda path, text=line: path.write_text(text + "\n", encoding="utf-8"),
        )
    yield (
        "json",
        "CosyVoice-BlankEN/config.json",
        lambda path: path.write_text(f'{{"__import__": "os.system", "x": {shell}}}'),
    )
    yield (
        "merges",
        "CosyVoice-BlankEN/merges.txt",
        lambda path: path.write_text(f"!apply:os.system touch\n$(touch {canary})\n"),
    )
