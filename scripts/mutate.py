#!/usr/bin/env python
"""Does the short suite notice? Breaks one place of the code at a time, runs the tests of the short
suite that should see it, and names the first that fails.

    python scripts/mutate.py            # all of them, about ten minutes
    python scripts/mutate.py 3 7        # these only

Each place is put back, whatever happens. Exit code 1 when a fault was not seen.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent


class Mutation(NamedTuple):
    """The text `before` of a file becomes `after`; `tests` are where somebody should notice."""

    fault: str
    file: str
    before: str
    after: str
    tests: str


MUTATIONS = (
    Mutation(
        "repetition rule of the sampler never applies",
        "webui/engine/cosyvoice/llm/sampler.py",
        "if is_repeated(chosen, history, self.rule):",
        "if False and is_repeated(chosen, history, self.rule):",
        "tests/engine/test_cosyvoice_sampler.py tests/engine/test_cosyvoice_lm.py",
    ),
    Mutation(
        "a KV cache that was forked shares its length",
        "webui/engine/cosyvoice/llm/kv_cache.py",
        "twin.length = self.length",
        "twin.length = self.length + 1",
        "tests/engine/test_cosyvoice_lm.py",
    ),
    Mutation(
        "chunks do not say which sentence they belong to",
        "webui/engine/cosyvoice/scheduler/request_state.py",
        "                segment.index,\n",
        "                0,\n",
        "tests/engine/test_cosyvoice_engine.py tests/engine/test_cosyvoice_stages.py",
    ),
    Mutation(
        "a cancelled job goes on in the engine",
        "webui/studio/job_runner.py",
        "        self._scheduler_pool.cancel(job.request.id)\n",
        "",
        "tests/unit/test_studio.py tests/api/test_stream.py",
    ),
    Mutation(
        "a page token never grows old",
        "webui/api/auth.py",
        "self._clock() < int(issued) + age_s",
        "self._clock() < int(issued) + 10**9",
        "tests/unit/test_sessions.py tests/hostile/test_sockets.py",
    ),
    Mutation(
        "a visitor's upload can be named by another visitor",
        "webui/ui/uploads.py",
        "if upload is None or upload.owner != owner:",
        "if upload is None:",
        "tests/hostile/test_uploads.py tests/hostile/test_page_queue.py",
    ),
    Mutation(
        "a line of a batch that failed is done",
        "webui/store/jobs.py",
        '*(["failed"] if is_last else []),',
        '*(["done"] if is_last else []),',
        "tests/unit/test_batch.py tests/api/test_jobs.py",
    ),
    Mutation(
        "a score is read as a range",
        "webui/text/mandarin.py",
        "if _MATCH_AFTER.match(after) or",
        "if False or",
        "tests/unit/test_text_reading.py tests/unit/test_public_readings.py",
    ),
    Mutation(
        "the player gives no credit back",
        "assets/player/transport.js",
        'send({ op: "credit", seq: take.seq, upto });',
        "void upto;",
        "tests/browser/test_player_link.py tests/browser/test_player_sound.py",
    ),
    Mutation(
        "the page forgets the language that was chosen",
        "assets/page/strings.js",
        '    store.get("lang"),\n',
        "",
        "tests/browser/test_page_language.py tests/browser/test_page_strings.py",
    ),
)


def first_failure(tests: str) -> str:
    """The name of the first test that fails, "" when all pass."""
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-m", "not thorough", *tests.split()],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    match = re.search(r"^(?:FAILED|ERROR) (\S+)", run.stdout, re.M)
    return (
        match[1] if match else "" if run.returncode == 0 else f"pytest ended with {run.returncode}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("numbers", nargs="*", type=int, help="of the mutations, from 1 on")
    chosen = parser.parse_args().numbers or range(1, len(MUTATIONS) + 1)
    unseen = 0
    print("| # | fault | noticed by |\n|---|---|---|", flush=True)
    for number in chosen:
        mutation = MUTATIONS[number - 1]
        path = ROOT / mutation.file
        text = path.read_text("utf-8")
        if mutation.before not in text:
            raise SystemExit(f"{mutation.file} no longer holds: {mutation.before}")
        try:
            path.write_text(text.replace(mutation.before, mutation.after), "utf-8")
            failure = first_failure(mutation.tests)
        finally:
            path.write_text(text, "utf-8")
        unseen += not failure
        print(f"| {number} | {mutation.fault} | {failure or '**nobody**'} |", flush=True)
    return int(unseen > 0)


if __name__ == "__main__":
    sys.exit(main())
