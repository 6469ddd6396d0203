"""The sound worker: a process of its own that meets strangers' bytes, under limits.

Speaks the framed protocol on stdin and stdout.

Started by path, so it sees its own folder first: of the studio it imports webui/frames.py, which
imports nothing. It ends at the end of its input.
"""

import os
import select
import sys
from pathlib import Path

# before numpy is loaded: one thread is all a limited process needs, and each further one would
# reserve address space
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"


def main() -> None:
    sys.path.append(str(Path(__file__).resolve().parents[3]))
    import limits

    from webui.frames import Closed, receive, send

    source, sink = sys.stdin.buffer, os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(
        sys.stderr.fileno(), sys.stdout.fileno()
    )  # a library that prints must not write into the answer
    if sys.argv[1] == "read":
        import decode as task
    elif sys.argv[1] == "encode":
        import encode as task
    else:
        import denoise as task
    memory_bytes, idle_s, cpu_s = int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
    limits.confine(memory_bytes)
    while not idle_s or select.select([source], [], [], idle_s)[0]:
        try:
            header, payload = receive(source.read, memory_bytes)
        except Closed:
            return
        limits.allow_cpu(cpu_s)
        answer = task.run(header["kind"], header["numbers"], payload)
        send(sink.write, *framed(*answer), memory_bytes)
        sink.flush()


def framed(state, rate=0, source_hz=0, channels=0, body=b""):
    return {"answer": [state, rate, source_hz, channels]}, body


main()
