"""The program of an engine's process: python -m webui.engine.remote.child SOCKET BEAT_S.

Sets the process up; `desk` does the talking.

It ends with the studio, whatever happens to the studio, and takes everything it has started with
it.
"""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from ...logs import to_stderr
from ..base import Engine
from ..registry import GENERATIONS
from .rpc_server import RpcServer

PR_SET_PDEATHSIG = 1
# threads that talk must not wait the usual 5 ms behind one that computes in Python
SWITCH_S = 0.0005
# Compiled kernels that torch and oneDNN keep, one per shape; their own limits of 1024 fill with
# half a gigabyte as texts of new lengths come. A piece of sound needs some forty shapes. Read when
# torch is imported.
KEPT_KERNELS = {"LRU_CACHE_CAPACITY": "128", "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "128"}
Build = Callable[..., Engine]


def cosyvoice(root: str, **more) -> Engine:
    """Of any generation: the directory tells which."""
    from ..cosyvoice.engine import CosyVoiceEngine  # imports torch: seconds, and only here

    return CosyVoiceEngine(Path(root), **more)


KINDS: Mapping[str, Build] = dict.fromkeys(
    (generation.engine for generation in GENERATIONS.values()), cosyvoice
)


def main(kinds: Mapping[str, Build] = KINDS) -> None:
    sock = socket.socket(fileno=int(sys.argv[1]))
    sock.set_inheritable(False)
    end_with_the_studio()
    die_first_when_memory_is_short()
    os.dup2(2, 1)  # what libraries print goes to the log
    to_stderr()
    sys.setswitchinterval(SWITCH_S)
    for name, most in KEPT_KERNELS.items():
        os.environ.setdefault(name, most)
    code = 1
    try:
        code = RpcServer(sock, kinds, float(sys.argv[2])).serve()
    except Exception:  # a bug of ours: the studio starts another process
        logging.getLogger(__name__).exception("the engine's process failed")
    finally:
        sys.stderr.flush()
        os._exit(code)  # threads that hang must not keep it alive


def end_with_the_studio() -> None:
    """The end of the socket tells us, in a thread that needs the interpreter; where that is stuck,
    the kernel does. What we have started is ended by a shell of a megabyte that waits for our own
    end: its standard input closes whatever we die of.
    """
    if os.getpgrp() == os.getpid():
        read_end, _ = os.pipe()  # the other end stays open as long as we live
        subprocess.Popen(
            ["/bin/sh", "-c", "read _; kill -KILL 0"],
            stdin=read_end,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(read_end)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def die_first_when_memory_is_short() -> None:
    """Of the studio's processes the kernel shall take this one."""
    try:
        Path("/proc/self/oom_score_adj").write_text("500")
    except OSError:
        return  # not Linux, or not allowed


if __name__ == "__main__":
    main()
