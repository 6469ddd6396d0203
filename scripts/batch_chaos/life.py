"""One life of a studio without a page: it brings up an engine, goes on with the batch it finds (or
hands one in), and ends when that is done or it is killed.

python -m scripts.batch_chaos.life --data DIR --journal FILE --lines N [--die-at STEP] [--engine
builtin|tone] [--wrong mark_first|no_sync]
"""

from __future__ import annotations

import argparse
import logging
import sys
import threading
from dataclasses import replace
from pathlib import Path

from webui.settings import Paths, Settings
from webui.store import BlobStore, JobStore
from webui.studio import LineRequest, Studio

from .journal import Journal, ToldDisk

ME = "local/chaos"
SEED = 20


def texts(n: int) -> list[str]:
    return [f"Line {i}." for i in range(1, n + 1)]


class MarkFirst(BlobStore):
    """The mistake this is about: a line is marked, and only then its sound goes to the disk."""

    def __init__(self, root: Path, disk: ToldDisk, jobs: JobStore, journal: Journal):
        super().__init__(root, disk)
        self._late: dict[str, bytes] = {}
        mark, self._journal = jobs.mark_done, journal

        def marked(line, key, *more):
            result = mark(line, key, *more)
            journal.tell("mark")
            super(MarkFirst, self).keep(key, self._late.pop(key))
            return result

        jobs.mark_done = marked

    def keep(self, key: str, data: bytes) -> None:
        self._late[key] = data


def arrange(studio: Studio, journal: Journal, wrong: str) -> None:
    """The studio's own batch, on a disk that tells."""
    work = studio.batch.worker
    disk = ToldDisk(journal, is_lazy=wrong == "no_sync")
    if wrong == "mark_first":
        work._sounds = work.synthesiser._sounds = studio.batch._sounds = MarkFirst(
            studio.settings.paths.data_dir, disk, studio.batch._jobs, journal
        )
        return
    work._sounds = work.synthesiser._sounds = studio.batch._sounds = BlobStore(
        studio.settings.paths.data_dir, disk
    )
    mark = studio.batch._jobs.mark_done

    def marked(*line):
        result = mark(*line)
        journal.tell("mark")
        return result

    studio.batch._jobs.mark_done = marked


def maker(engine: str):
    if engine == "tone":
        from tests.engine.fake import FakeEngine

        return FakeEngine
    from webui.engine.espeak import EspeakEngine

    return EspeakEngine


def live(
    data: Path, journal: Path, lines: int, die_at: int = 0, engine: str = "builtin", wrong: str = ""
) -> None:
    """Returns when the batch is over."""
    studio = Studio(Settings(paths=replace(Paths(), data_dir=data)))
    arrange(studio, Journal(journal, die_at), wrong)
    jobs = studio.batch.list(ME)
    job = (
        jobs[0]
        if jobs
        else studio.batch.submit(
            ME, [LineRequest(text, "starter-en-mid") for text in texts(lines)], seed=SEED
        )
    )
    news = threading.Event()
    studio.batch.watch(job.id, news.set)
    studio.start(maker(engine)).join()
    if (failure := studio.engine_manager.failure()) is not None:
        studio.close()
        raise failure  # else the batch would wait for ever, and so would who counts the lives
    print("working", flush=True)
    while studio.batch.get(ME, job.id).state == "running":
        news.wait()
        news.clear()
    studio.close()
    print("over", flush=True)


def main(argv: list[str] | None = None) -> int:
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--data", type=Path, required=True)
    p.add_argument("--journal", type=Path, required=True)
    p.add_argument("--lines", type=int, required=True)
    p.add_argument("--die-at", type=int, default=0)
    p.add_argument("--engine", choices=("builtin", "tone"), default="builtin")
    p.add_argument("--wrong", choices=("mark_first", "no_sync"), default="")
    a = p.parse_args(argv)
    logging.basicConfig(level=logging.WARNING)
    live(a.data, a.journal, a.lines, a.die_at, a.engine, a.wrong)
    return 0


if __name__ == "__main__":
    sys.exit(main())
