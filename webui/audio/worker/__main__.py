"""The sound worker: a process of its own that meets strangers' bytes, under limits.

Speaks the framed protocol on stdin and stdout.

Started by path, so it sees only its own folder: it never imports the studio. It ends at the end of
its input.
"""

import os
import sys

# before numpy is loaded: one thread is all a limited process needs, and each further one would
# reserve address space
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"


def main() -> None:
    import limits
    import protocol

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
    limits.confine(int(sys.argv[2]))
    while (job := protocol.receive(source, idle_s=float(sys.argv[3]))) is not None:
        limits.allow_cpu(int(sys.argv[4]))
        protocol.answer(sink, *task.run(*job))


main()
