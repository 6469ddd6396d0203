#!/usr/bin/env python
"""How often control changes hands on the way of one request: hops between files, and threads.

    python scripts/count_hops.py               # of this working tree
    python scripts/count_hops.py DIR           # of another one, for instance an older commit
    python scripts/count_hops.py DIR --list    # and which they are

A hop is a pair (file that calls, function that is called in another file), both of webui, whatever
lies between the two on the stack; it counts once however often it happens. It counts from the
arrival of the request until the first samples are handed to the socket. A thread counts when a
function of webui was called in it for the request. Entries are the functions that are called from
no file of webui: by the loop, the server, or as a thread's first. The engine's share are the hops
between two files of webui/engine, and the threads in which its code ran.

The studio of the tree is started twice, with the built-in instant voice and with a small random
CosyVoice2 model, and every process of it notes its calls. What happens while nobody asks for
anything is left out, and so is what did not happen at each of several equal requests. No name
inside webui matters but that of webui/engine.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import httpx

from scripts.sample_hashes import studio
from tests.serve import ROOT

TEXT = "今天的风很温柔，我们出去走走吧。晚上七点半在老地方见，别忘了带上那本书。" * 4
VOICE = "starter-zh-low"
IDLE_S = 6.0  # several beats of whatever beats
WARM, MEASURED = 2, 5  # requests
# Loaded by every Python process of the studio before anything else. A call is noted once per phase,
# at once, because a process may be killed. Phase 0: nothing is noted.
HOOK = '''
import asyncio.events, mmap, os, socket, sys, threading, time

TREE, FOLDER = os.environ["HOPS_TREE"], os.environ["HOPS_FOLDER"]
with open(os.path.join(FOLDER, "phase"), "r+b") as file:
    PHASE = mmap.mmap(file.fileno(), 1)
NOTES = open(os.path.join(FOLDER, f"{os.getpid()}.calls"), "ab", buffering=0)
SEEN, NAMES, INTERNET = set(), {}, (socket.AF_INET, socket.AF_INET6)
LOOP = asyncio.events.__file__


def name_of(code):
    """The file below TREE, or "" for code of others."""
    path = code.co_filename
    if path not in NAMES:
        whole = os.path.abspath(path)
        NAMES[path] = whole[len(TREE):] if whole.startswith(TREE) else ""
    return NAMES[path] if code.co_name != "<module>" else ""


def note(*fields):
    try:
        NOTES.write(("\\t".join(map(str, fields)) + "\\n").encode())
    except OSError:  # a process that may write no files
        pass


def hook(frame, event, arg):
    phase = PHASE[0]
    if not phase:
        return
    if event == "c_call":
        sock = getattr(arg, "__self__", None)
        if arg.__name__ == "send" and isinstance(sock, socket.socket) and sock.family in INTERNET:
            note(phase, time.monotonic_ns(), "", 0, "", "sent", "")
        return
    if event != "call" or not (callee := name_of(frame.f_code)):
        return
    back = frame.f_back
    while back is not None and not name_of(back.f_code):
        # behind a callback of the event loop stands who started the loop, and not who asked
        back = back.f_back if back.f_code.co_filename != LOOP else None
    caller = name_of(back.f_code) if back is not None else ""
    thread = threading.get_ident()
    call = thread, caller, callee, frame.f_code.co_qualname
    if (phase, *call) not in SEEN:
        SEEN.add((phase, *call))
        note(phase, time.monotonic_ns(), threading.current_thread().name, *call)


threading.setprofile(hook)
sys.setprofile(hook)
'''


class Call(NamedTuple):
    """caller: a file below webui, "" for none. thread: (process, number)."""

    thread: tuple[str, str]
    caller: str
    callee: str
    function: str

    @property
    def is_hop(self) -> bool:
        return bool(self.caller) and self.caller != self.callee

    @property
    def is_engine(self) -> bool:
        return self.callee.startswith("engine/") and (
            not self.caller or self.caller.startswith("engine/")
        )


class Measured(NamedTuple):
    hops: set[Call]  # their threads left empty
    entries: set[Call]
    threads: dict[tuple[str, str], str]  # -> name
    engine_threads: set[tuple[str, str]]


def read_notes(folder: Path, phase: int) -> Iterator[tuple[int, str, Call]]:
    """(nanoseconds of the system's clock, name of the thread, call); callee "sent": to a socket."""
    for file in folder.glob("*.calls"):
        for line in file.read_text("utf-8").splitlines():
            number, at_ns, name, thread, *call = line.split("\t")
            if int(number) == phase:
                yield int(at_ns), name, Call((file.stem, thread), *call)


def request(client: httpx.Client, model: str) -> int:
    """Speak until the first samples are here; their time in nanoseconds of the system's clock."""
    body = {"input": TEXT, "voice": VOICE, "model": model, "stream": True, "response_format": "pcm"}
    with client.stream("POST", "/v1/audio/speech", json=body) as answer:
        answer.raise_for_status()
        next(answer.iter_raw())
        return time.monotonic_ns()


def measure(tree: Path, folder: Path, model: str, *flags: str) -> Measured:
    """folder: an empty one, for the notes. model: as a request names it."""
    (folder / "sitecustomize.py").write_text(HOOK)
    (folder / "phase").write_bytes(b"\0")

    def enter(phase: int) -> None:
        with (folder / "phase").open("r+b") as file:
            file.write(bytes([phase]))

    env = {"PYTHONPATH": str(folder), "HOPS_FOLDER": str(folder), "HOPS_TREE": f"{tree}/webui/"}
    ends_ns = {}
    with studio(tree, *flags, KAIKOU_PRECISION="fp32", **env) as client:
        for _ in range(WARM):
            request(client, model)
            time.sleep(2)
        enter(1)
        time.sleep(IDLE_S)
        enter(0)
        for phase in range(2, 2 + MEASURED):
            enter(phase)
            ends_ns[phase] = request(client, model)
            enter(0)
            time.sleep(3)  # the request that was broken off ends
    idle = {call for _, _, call in read_notes(folder, 1)}
    runs = [list(_of_request(folder, phase, end_ns, idle)) for phase, end_ns in ends_ns.items()]
    common = set.intersection(
        *({call._replace(thread=("", "")) for _, call in run} for run in runs)
    )
    fewest = min(runs, key=lambda run: len({call.thread for _, call in run}))
    return Measured(
        {call for call in common if call.is_hop},
        {call for call in common if not call.caller},
        {call.thread: name for name, call in fewest},
        {call.thread for _, call in fewest if call.is_engine},
    )


def _of_request(
    folder: Path, phase: int, end_ns: int, idle: set[Call]
) -> Iterator[tuple[str, Call]]:
    notes = list(read_notes(folder, phase))
    sent = [at_ns for at_ns, _, call in notes if call.callee == "sent" and at_ns <= end_ns]
    for at_ns, name, call in notes:
        if call.callee != "sent" and call not in idle and at_ns <= max(sent, default=end_ns):
            yield name, call


def show(name: str, measured: Measured, is_listed: bool) -> None:
    inside = {call for call in measured.hops if call.is_engine}
    print(
        f"{name}: {len(measured.hops)} hops, {len(measured.threads)} threads from click to sound;"
        f" {len(inside)} hops, {len(measured.engine_threads)} threads in the engine;"
        f" {len(measured.entries)} entries",
        flush=True,
    )
    if not is_listed:
        return
    for call in sorted(measured.hops):
        print(f"  {call.caller} -> {call.callee} {call.function}")
    for call in sorted(measured.entries):
        print(f"  entry {call.callee} {call.function}")
    processes = {process: n for n, process in enumerate(sorted({p for p, _ in measured.threads}))}
    for thread, label in sorted(measured.threads.items()):
        suffix = " (engine)" if thread in measured.engine_threads else ""
        print(f"  thread of process {processes[thread[0]]}: {label}{suffix}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tree", nargs="?", type=Path, default=ROOT, metavar="DIR")
    parser.add_argument("--list", action="store_true", help="print every hop, entry and thread")
    args = parser.parse_args()
    tree = args.tree.resolve()
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model"
        maker = [sys.executable, ROOT / "scripts/make_small_model.py", model]
        subprocess.run(maker, check=True, stdout=subprocess.DEVNULL)
        for name, how in {
            "built-in voice": ("builtin-instant", "--engine", "builtin"),
            "CosyVoice2": ("auto", "--engine", "cosyvoice2", "--model-dir", str(model)),
        }.items():
            notes = Path(folder) / name
            notes.mkdir()
            show(name, measure(tree, notes, *how), args.list)


if __name__ == "__main__":
    main()
