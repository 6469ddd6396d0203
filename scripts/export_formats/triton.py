"""A model repository for Triton Inference Server: its Python backend runs this engine, responses
are decoupled, so that chunks come as they are made.
"""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path

from .compare import ExportFault

NAME, STREAMS = "kaikou", 8  # streams: open at once
SOURCE = Path(__file__).with_name("triton_repository") / "model.py"
INPUTS = {"REQUEST": "TYPE_UINT8", "BODY": "TYPE_UINT8"}
OUTPUTS = {
    "PCM": ("TYPE_FP32", -1),  # samples of one chunk
    "ABOUT": ("TYPE_INT32", 3),  # number of the chunk, 1 for the last one, sample rate
    "KEY": ("TYPE_UINT8", -1),  # of the voice, for later requests
}


def config(arguments: Sequence[str], streams: int = STREAMS) -> str:
    """config.pbtxt. arguments: flags of run.sh. Bytes travel as UINT8: the backend was seen to end
    with an input of strings.
    """
    inputs = (
        f'input {{ name: "{name}" data_type: {kind} dims: [ -1 ]'
        f"{' optional: true' if name == 'BODY' else ''} }}"
        for name, kind in INPUTS.items()
    )
    outputs = (
        f'output {{ name: "{name}" data_type: {kind} dims: [ {size} ] }}'
        for name, (kind, size) in OUTPUTS.items()
    )
    values = {"arguments": shlex.join(arguments), "streams": str(streams)}
    parameters = (
        f'parameters {{ key: "{key}" value {{ string_value: {_quoted(value)} }} }}'
        for key, value in values.items()
    )
    return "\n".join(
        (
            f'name: "{NAME}"',
            'backend: "python"',
            "max_batch_size: 0",
            "model_transaction_policy { decoupled: true }",
            "instance_group [ { kind: KIND_CPU count: 1 } ]",
            *inputs,
            *outputs,
            *parameters,
            "",
        )
    )


def _quoted(text: str) -> str:
    """A string of a .pbtxt. Raises ExportFault for what cannot stand in one line."""
    if not text.isprintable():
        raise ExportFault(f"{text!r} cannot be an argument.")
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def write(out: Path, arguments: Sequence[str], streams: int = STREAMS) -> Path:
    """The repository, in `out`."""
    version = out / NAME / "1"
    version.mkdir(parents=True, exist_ok=True)
    (out / NAME / "config.pbtxt").write_text(config(arguments, streams), "utf-8")
    shutil.copyfile(SOURCE, version / "model.py")
    return out


def check(out: Path, arguments: Sequence[str], streams: int = STREAMS) -> None:
    """Whether the repository is what this version writes. Raises ExportFault naming the line."""
    expected = {"config.pbtxt": config(arguments, streams), "1/model.py": SOURCE.read_text("utf-8")}
    for name, text in expected.items():
        path = out / NAME / name
        if not path.is_file():
            raise ExportFault(f"{out} has no {NAME}/{name}.")
        actual, lines = path.read_text("utf-8").splitlines(), text.splitlines()
        for number, line in enumerate(lines, 1):
            if number > len(actual) or actual[number - 1] != line:
                raise ExportFault(f"{NAME}/{name} differs in line {number}: it should be {line!r}.")
        if len(actual) > len(lines):
            raise ExportFault(f"{NAME}/{name} goes on behind line {len(lines)}.")
