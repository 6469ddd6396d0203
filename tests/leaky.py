"""A studio whose engine keeps something of every request: what scripts/soak.py must notice.

As a program: the flags of run.sh.
"""

from __future__ import annotations

import sys
import tempfile
import threading

from tests import serve
from tests.engine.fake import FakeEngine

KEPT: list[object] = []


class Leaky(FakeEngine):
    def _steps(self, request, f0):
        KEPT.append(
            (
                bytearray(b"x" * 2_000_000),
                tempfile.NamedTemporaryFile(),
                threading.Thread(target=self.stop.wait, daemon=True),
            )
        )
        KEPT[-1][2].start()
        return super()._steps(request, f0)


if __name__ == "__main__":
    import tests.engine.fake

    tests.engine.fake.FakeEngine = Leaky
    sys.exit(
        serve._main(
            ["--fake", "--fake-start", "0", "--fake-lanes", "2", "--fake-gate", "", *sys.argv[1:]]
        )
    )
