"""Asks a Triton server for several streams at once, as a program of somebody else would: needs
tritonclient and numpy only.

    python triton_client.py PORT REQUESTS.json OUT.npz

REQUESTS.json: a list of {words, body, take}; body: a file's path or none; take: chunks until it
leaves, or none.
OUT.npz: what came for request i: i.words, and the sound of its chunk n as i.n.
"""

from __future__ import annotations

import json
import queue
import sys
import threading
from pathlib import Path

import numpy as np
import tritonclient.grpc as grpc

ANSWER_S = 120


def tensor(name: str, data: bytes) -> grpc.InferInput:
    tensor_in = grpc.InferInput(name, [len(data)], "UINT8")
    tensor_in.set_data_from_numpy(np.frombuffer(data, np.uint8))
    return tensor_in


def ask(port: int, request: dict) -> tuple[dict, list[np.ndarray]]:
    """({numbers, lasts, rates, key, error}, chunks)"""
    inputs = [tensor("REQUEST", request["words"].encode())]
    if request.get("body"):
        inputs.append(tensor("BODY", Path(request["body"]).read_bytes()))
    responses: queue.SimpleQueue = queue.SimpleQueue()
    answer = {"numbers": [], "lasts": [], "rates": [], "key": "", "error": ""}
    chunks: list[np.ndarray] = []
    with grpc.InferenceServerClient(f"127.0.0.1:{port}") as client:
        client.start_stream(lambda result, error: responses.put((result, error)))
        client.async_stream_infer("kaikou", inputs)
        while len(chunks) != request.get("take"):
            try:
                result, error = responses.get(timeout=ANSWER_S)
            except queue.Empty:
                answer["error"] = f"nothing for {ANSWER_S} s"
                break
            if error is not None:
                answer["error"] = f"{error.status() or ''} {error.message()}"
                break
            chunks.append(result.as_numpy("PCM"))
            number, last, rate = map(int, result.as_numpy("ABOUT"))
            answer["numbers"].append(number)
            answer["lasts"].append(bool(last))
            answer["rates"].append(rate)
            answer["key"] = result.as_numpy("KEY").tobytes().decode()
            if answer["lasts"][-1]:
                break
        client.stop_stream(cancel_requests=True)
    return answer, chunks


def main() -> None:
    port, requests = int(sys.argv[1]), json.loads(Path(sys.argv[2]).read_text("utf-8"))
    arrays: dict[str, np.ndarray] = {}

    def run(index: int, request: dict) -> None:
        answer, chunks = ask(port, request)
        arrays[f"{index}.words"] = np.array(json.dumps(answer))
        arrays.update({f"{index}.{n}": chunk for n, chunk in enumerate(chunks)})

    threads = [threading.Thread(target=run, args=numbered) for numbered in enumerate(requests)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    np.savez(sys.argv[3], **arrays)


if __name__ == "__main__":
    main()
