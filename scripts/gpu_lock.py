#!/usr/bin/env python
"""Keep the memory that a model needs: a GPU's by holding it, a computer's without one by pinning
the weights' pages in RAM.

    python scripts/gpu_lock.py
        hold what the model needs that the studio would begin with, until Ctrl-C or SIGTERM
    python scripts/gpu_lock.py --gb 6
        hold so much GPU memory, whatever the model
    python scripts/gpu_lock.py --device cpu
        pin the (converted) weight files in RAM; the studio's start finds them there
    python scripts/gpu_lock.py --exclusive -- ./run.sh --engine cosyvoice2
        run the studio as the GPU's only process

While this holds GPU memory nobody else can take it, the studio included: end it when the studio is
to start. To lock for the studio's own use, run it behind `--` as above, or set KAIKOU_LOCK_MEMORY=1
for it: then the engine's process takes the memory itself. Everything is undone when this ends; only
an exclusive GPU stays so when this is killed with SIGKILL (nvidia-smi -c DEFAULT undoes it).
"""

from __future__ import annotations

import argparse
import math
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripts.prewarm import usual
from webui.engine.memory_pinning import GPU_HEADROOM, MemoryLock
from webui.errors import KaikouError, NotReady

STOP = (signal.SIGINT, signal.SIGTERM)


def take(lock: MemoryLock, args: argparse.Namespace) -> None:
    """Raises KaikouError with the reason when nothing can be taken."""
    import torch

    from webui.engine.cosyvoice.device import choose
    from webui.engine.cosyvoice.mapped_files import pin_weights
    from webui.engine.cosyvoice.memory_plan import plan
    from webui.engine.cosyvoice.registry import model_spec_of

    place = choose(args.device, args.precision)
    print(f"{place.device}, {place.precision}: {place.why}")
    needed = int(args.gb * 2**30)
    if needed and place.device != "cuda":
        raise NotReady("no_device.pinning")
    if not needed:
        root = args.model_dir = args.model_dir or usual()
        family = model_spec_of(root)
        memory_plan = plan(family, family.read_spec(root, family.steps[0]), root, place)
        print(f"plan: {memory_plan.describe()}")
        needed = memory_plan.needed
    if args.exclusive:
        uuid = (
            getattr(torch.cuda.get_device_properties(0), "uuid", None)
            if place.device == "cuda"
            else None
        )
        lock.exclusive(f"GPU-{uuid}" if uuid else "0")
    if place.device != "cuda":
        pin_weights(lock, place, args.model_dir, family.components)
    elif not args.command:
        lock.hold_gpu(torch, needed, int(args.headroom_gb * 2**30))


def run(command: Sequence[str]) -> int:
    """The command with the studio's own lock switched on; signals go to it, and its end is ours."""
    try:
        child = subprocess.Popen(command, env={**os.environ, "KAIKOU_LOCK_MEMORY": "1"})
    except OSError as error:
        print(
            f"{command[0]} cannot be run: {error.strerror or error}.\n运行不了"
            f" {command[0]}：{error.strerror or error}。",
            file=sys.stderr,
        )
        return 1
    for number in STOP:
        signal.signal(number, lambda sent, _: child.send_signal(sent))
    code = child.wait()
    return 128 - code if code < 0 else code


def amount(text: str) -> float:
    value = float(text)
    if not (math.isfinite(value) and value >= 0):
        raise ValueError(text)
    return value


def main(argv: Sequence[str] | None = None) -> int:
    arguments = list(sys.argv[1:] if argv is None else argv)
    own, command = (
        (arguments[: arguments.index("--")], arguments[arguments.index("--") + 1 :])
        if "--" in arguments
        else (arguments, [])
    )
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="%(prog)s [options] [-- COMMAND ...]",
    )
    parser.add_argument(
        "--model-dir",
        type=Path,
        help="the model whose plan is followed (default: the one the studio would begin with)",
    )
    parser.add_argument("--device", choices=("auto", "cuda", "cpu"), default="auto")
    parser.add_argument(
        "--precision", choices=("auto", "int8", "fp32", "bf16", "fp16"), default="auto"
    )
    parser.add_argument(
        "--gb",
        type=amount,
        default=0.0,
        help="hold so much GPU memory instead of what the plan says",
    )
    parser.add_argument(
        "--headroom-gb",
        type=amount,
        default=GPU_HEADROOM / 2**30,
        help="GPU memory that must stay free for others (default: %(default)s)",
    )
    parser.add_argument(
        "--exclusive",
        action="store_true",
        help="let one process only use the GPU (needs an administrator's rights)",
    )
    parser.add_argument("--seconds", type=amount, help="let go after so long")
    args = parser.parse_args(own)
    args.command = command
    # not an Event: a signal that comes inside Event.wait would wait for the lock its own thread
    # holds
    stop = SimpleQueue()
    for number in STOP:
        signal.signal(number, lambda *_: stop.put(None))
    with MemoryLock() as lock:
        try:
            take(lock, args)
        except KaikouError as fault:
            print(f"{fault.en}\n{fault.zh}", file=sys.stderr)
            return 1
        for sentence in lock.did:
            print(sentence)
        if command:
            code = run(command)
        else:
            print("Ctrl-C or SIGTERM lets go.", flush=True)
            with suppress(Empty):
                stop.get(timeout=args.seconds)
            code = 0
        for undone in lock.release():
            print(undone)
        return code


if __name__ == "__main__":
    sys.exit(main())
