"""A real Triton server on an exported repository, compared chunk by chunk with the engine. The
server is that of the package nvidia-pytriton; it runs without a GPU.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import soundfile

from webui.cluster.__main__ import make_engine
from webui.cluster.triton import request_of
from webui.settings import load
from webui.types import Chunk

from .compare import ExportFault
from .stages import CLIP

CLIENT = Path(__file__).with_name("triton_client.py")
SERVE_S = 300  # a server that says neither that it serves nor why not has failed
END_S = 40  # after 30 s it gives up on what is still running
READY = "Started GRPCInferenceService at"
TEXTS = ("Hello there. This is a voice.", "你好。", "One, two, three, four.")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


@contextlib.contextmanager
def served(out: Path, environments: Path) -> Iterator[int]:
    """The gRPC port of a server on the repository `out`. environments: as scripts/export_checks.sh
    makes them. Raises ExportFault with the server's own words when it does not begin.
    """
    (home,) = environments.glob("triton/lib/python3*/site-packages/pytriton/tritonserver")
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="kaikou-triton-") as folder:
        backend = Path(folder) / "python"
        backend.mkdir()
        stub = home / "python_backend_stubs" / version / "triton_python_backend_stub"
        for file in (*(home / "backends" / "python").iterdir(), stub):
            (backend / file.name).symlink_to(file)  # copied, the stub would not find its libraries
        process = subprocess.Popen(
            [
                home / "bin" / "tritonserver",
                f"--model-repository={out}",
                f"--backend-directory={folder}",
                f"--grpc-port={port}",
                f"--http-port={free_port()}",
                "--grpc-address=127.0.0.1",
                "--http-address=127.0.0.1",
                "--allow-metrics=false",
            ],
            # the backend's Python is that of the first environment on PATH
            env={
                **os.environ,
                "PATH": f"{environments / 'backend' / 'bin'}{os.pathsep}{os.environ['PATH']}",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        lines: list[str] = []
        is_decided = threading.Event()
        reader = threading.Thread(target=_read, args=(process, lines, is_decided))
        reader.start()
        try:
            is_decided.wait(SERVE_S)
            if not any(READY in line for line in lines):
                reasons = [line for line in lines if "failed to load" in line or "rror:" in line]
                raise ExportFault(f"Triton does not serve {out}: {(reasons or lines)[0][:600]}")
            yield port
        finally:
            process.terminate()
            try:
                process.wait(END_S)
            except subprocess.TimeoutExpired:  # its backend died while it was loaded
                process.kill()
            reader.join()


def _read(process: subprocess.Popen, lines: list[str], is_decided: threading.Event) -> None:
    """All that the server says, so that it never waits for a reader; decided when it serves, or
    has ended.
    """
    for line in process.stdout:
        lines.append(line.strip())
        if READY in line:
            is_decided.set()
    is_decided.set()


def ask(port: int, environments: Path, requests: Sequence[dict], folder: Path) -> list:
    """(what was answered, chunks) of each request, all asked at once."""
    (folder / "requests.json").write_text(json.dumps(requests), "utf-8")
    program = [environments / "triton" / "bin" / "python", CLIENT, str(port)]
    subprocess.run([*program, folder / "requests.json", folder / "out.npz"], check=True)
    with np.load(folder / "out.npz") as arrays:
        return [
            (
                json.loads(str(arrays[f"{index}.words"])),
                [
                    arrays[f"{index}.{n}"]
                    for n in range(len(arrays.files))
                    if f"{index}.{n}" in arrays
                ],
            )
            for index in range(len(requests))
        ]


def check(out: Path, arguments: Sequence[str], environments: Path) -> float:
    """All chunks of streams beside each other are those of the engine; a voice is known by its key
    afterwards; who leaves harms nobody; errors have their code. Raises ExportFault, KaikouError.
    """
    samples, rate = soundfile.read(CLIP, dtype="float32")
    words = [{"text": t, "mode": "cross_lingual", "seed": i} for i, t in enumerate(TEXTS)]
    expected = _engine_chunks(arguments, samples, rate, words)
    clip = {"rate": rate, "transcript": "", "language": "en"}
    with tempfile.TemporaryDirectory() as name, served(out, environments) as port:
        folder = Path(name)
        (folder / "clip").write_bytes(samples.tobytes())
        first = {"words": json.dumps({"request": words[0], "reference": clip})}
        (first_answer,) = ask(port, environments, [{**first, "body": str(folder / "clip")}], folder)
        _compare("the first stream", first_answer, expected[0])
        key = first_answer[0]["key"]
        beside = [{"words": json.dumps({"request": fields, "key": key})} for fields in words]
        odd = [
            {**beside[0], "take": 1},
            {"words": json.dumps({"request": words[0], "key": "another"})},
            {"words": "no JSON"},
        ]
        answers = ask(port, environments, beside + odd, folder)
        for index, chunks in enumerate(expected):
            _compare(f"stream {index} beside others", answers[index], chunks)
        for title, (answer, _), code in zip(
            ("an unknown voice", "no JSON"), answers[-2:], ("not_found", "bad_body"), strict=True
        ):
            print(f"{title:<36} {answer['error'][:60]}")
            if f'"code": "{code}"' not in answer["error"]:
                raise ExportFault(f"{title} does not end with the error {code}: {answer}")
        (again,) = ask(port, environments, beside[:1], folder)
        _compare("a stream after one that was left", again, expected[0])
    return 0.0


def _engine_chunks(
    arguments: Sequence[str], samples: np.ndarray, rate: int, words: Sequence[dict]
) -> list[list[Chunk]]:
    """By the engine itself, one after the other."""
    engine = make_engine(load(list(arguments)))
    try:
        engine.start()
        prompt = engine.encode(samples, rate, "", "en")
        return [list(engine.stream(request_of(fields, engine), prompt)) for fields in words]
    finally:
        engine.close()


def _compare(name: str, answers: tuple[dict, list[np.ndarray]], expected: list[Chunk]) -> None:
    """Raises ExportFault for the first chunk that differs in anything."""
    answer, chunks = answers
    if answer["error"]:
        raise ExportFault(f"{name} ended with {answer['error']}")
    if answer["numbers"] != [chunk.number for chunk in expected] or answer["lasts"] != [
        chunk.last for chunk in expected
    ]:
        raise ExportFault(f"{name} has other chunks than the engine: {answer}")
    for chunk, samples in zip(expected, chunks, strict=True):
        if not np.array_equal(chunk.samples, samples):
            raise ExportFault(f"{name} differs from the engine in chunk {chunk.number}.")
    print(f"{name:<36} {len(expected)} chunks, equal")
