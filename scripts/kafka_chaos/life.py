"""One life of a consumer that kills itself (-9) at an exact step, and writes down which files it
put in their place.

python -m scripts.kafka_chaos.life --journal FILE [--die-at STEP:N] kafka <flags of webui.cluster>

Steps: spoken (nothing of it stored), renamed (its folder not synced), stored (not announced),
produced (not committed), committing (the commit not sent), committed.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from webui.cluster.__main__ import main as program
from webui.cluster.kafka import consumer as consumer_module
from webui.cluster.kafka import output as output_module

STEPS = ("spoken", "renamed", "stored", "produced", "committing", "committed")


def arrange(journal: Path, die_at: str) -> None:
    """Put the steps into the consumer's own code."""
    step_of_death, _, n = die_at.partition(":")
    counts: Counter[str] = Counter()
    lines = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def pass_step(step: str) -> None:
        counts[step] += 1
        if step == step_of_death and counts[step] == int(n):
            os.kill(os.getpid(), signal.SIGKILL)

    def around(owner, name: str, before: str = "", after: str = "") -> None:
        method: Callable = getattr(owner, name)

        def with_steps(*args, **named):
            if before:
                pass_step(before)
            result = method(*args, **named)
            if after:
                pass_step(after)
            return result

        setattr(owner, name, with_steps)

    def put(part: Path, path: Path) -> None:
        os.replace(part, path)
        os.write(lines, f"{path.name}\n".encode())
        pass_step("renamed")
        output_module.sync_folder(path.parent)

    class Consumer(consumer_module.Consumer):
        def commit(self, **named):
            pass_step("committing")
            return super().commit(**named)

    output_module.put = put
    consumer_module.Consumer = Consumer
    around(output_module.Folder, "keep", before="spoken", after="stored")
    around(consumer_module.BookConsumer, "_on_delivery", after="produced")
    around(consumer_module.BookConsumer, "_on_commit", after="committed")


def main() -> int:
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--journal", type=Path, required=True)
    p.add_argument("--die-at", default="")
    a, rest = p.parse_known_args()
    arrange(a.journal, a.die_at)
    return program(rest)


if __name__ == "__main__":
    sys.exit(main())
