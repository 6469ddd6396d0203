"""The program of an engine's process for tests: the table of the real one, and the tone engine with
every way an engine can go wrong.

python -m tests.engine.hosted_child SOCKET BEAT_S
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time

from tests.engine.fake import FakeEngine
from webui.engine.remote import child
from webui.errors import EngineFault, NotReady
from webui.messages import Message

KEPT = "what do you keep?"  # an instruction to which `notes` answers that
OPEN = "how many streams are open?"


class OutOfMemoryError(RuntimeError):
    """Named as the one of torch."""


class WildEngine(FakeEngine):
    """The instruction "do=WHAT at=N" makes the N-th step go wrong. start: what goes wrong in
    starting. marks: a file that counts starts.
    """

    def __init__(self, start: str = "", marks: str = "", **more):
        super().__init__(**more)
        self._trouble, self._marks = start, marks

    def start(self):
        if self._marks:
            with open(self._marks, "a") as file:
                file.write("x")
        n = len(open(self._marks).read()) if self._marks else 0
        if self._trouble == "refuse":
            raise NotReady(
                Message("No weights in this folder.", "目录里没有模型。"),
                code="model_file",
                param="llm.pt",
            )
        if self._trouble == "bug":
            raise ZeroDivisionError("by nothing")
        if (
            self._trouble == "die"
            or (self._trouble == "die once" and n == 1)
            or (self._trouble == "die later" and n > 1)
        ):
            os.kill(os.getpid(), signal.SIGKILL)
        super().start()

    def _steps(self, request, f0):
        options = dict(w.split("=") for w in request.instruction.split() if "=" in w)
        for chunk in super()._steps(request, f0):
            if chunk.number == int(options.get("at", 0)) and "do" in options:
                getattr(self, "do_" + options["do"])()
            yield chunk

    def notes(self, request):
        if request.instruction == OPEN:
            return [(str(self.opened - self.finalised), "")]
        return (
            [(name, "") for name in self.prompts]
            if request.instruction == KEPT
            else super().notes(request)
        )

    def do_segv(self):
        ctypes.string_at(0)

    def do_exit(self):
        os._exit(3)

    def do_bug(self):
        raise KeyError("nothing")

    def do_memory(self):
        raise OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

    def do_device(self):
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    def do_hidden_device(self):
        try:
            self.do_device()
        except RuntimeError as error:
            raise EngineFault() from error

    def do_hang(self):
        time.sleep(3600)

    def do_spin(self):
        while True:
            pass

    def do_crunch(self):
        """Longer than QUICK bears stillness, in one step, but never in one place."""
        end = time.monotonic() + 3
        while time.monotonic() < end:
            sum(n * n for n in range(1000))

    def do_hold(self):
        """Native code that never lets the interpreter go on."""
        ctypes.PyDLL(None).sleep(3600)

    def do_garbage(self):
        os.write(int(sys.argv[1]), b"Loading checkpoint shards: 100%|#####|\n" * 3)

    def do_bring(self):
        """A process of its own that outlives whoever made it."""
        subprocess.Popen(["sleep", "4321"])

    def do_deaf(self):
        self.health = lambda: time.sleep(3600)

    def do_ill(self):
        self.state = "broken"

    def stream_text(self, request, prompt, pieces):
        from dataclasses import replace

        for number, piece in enumerate(pieces):
            for chunk in self.stream(replace(request, text=piece, segments=(piece,)), prompt):
                yield replace(chunk, number=number, last=False)
        yield replace(chunk, number=number + 1)


def calm_cosyvoice(**arguments):
    """On one thread: two that wait for each other by spinning take a busy machine minutes."""
    from tests.engine.tensors import voices_kept

    os.cpu_count = lambda: 1
    engine = child.cosyvoice(**arguments)
    usual = engine.notes
    engine.notes = lambda request: (
        [(str(voices_kept()), str(len(engine._voices._live)))]
        if request.instruction == KEPT
        else usual(request)
    )
    return engine


if __name__ == "__main__":
    child.main({**child.KINDS, "wild": WildEngine, "calm cosyvoice2": calm_cosyvoice})
