"""The acceptance table of the player (L1 to I1): real studio, tone engine, real Chromium, real
sockets. Prints id, case, figure, pass.

python scripts/bench_player.py [--rows L1,J2] [--times 10] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
# each adds its rows, in the order of the table
from scripts.player_bench import start, gaps, stop, crowd, whole  # noqa: F401, I001
from scripts.player_bench.bench import FREE, ROWS, Bench
from tests.browser.harness import GESTURES_NEEDED, browser
from tests.serve import running


def main() -> int:
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("--rows", default=",".join(ROWS))
    args.add_argument("--times", type=int, default=10)
    args.add_argument("--json", type=Path)
    options = args.parse_args()
    out = {}
    print(f"{'id':<4}{'case':<52}{'figure':<76}pass")
    with running(env=FREE) as studio, browser(GESTURES_NEEDED) as b:
        for name in options.rows.split(","):
            case, run = ROWS[name]
            try:
                figure, ok, data = run(Bench(studio, b, options.times))
            except Exception as error:  # one row that breaks must not hide the others
                figure, ok, data = (
                    f"{type(error).__name__}: {str(error).splitlines()[0][:120]}",
                    False,
                    {},
                )
            out[name] = {"case": case, "figure": figure, "pass": ok, **data}
            print(f"{name:<4}{case:<52}{figure:<76}{'yes' if ok else 'NO'}", flush=True)
            for context in list(b.contexts):
                context.close()
    if options.json:
        options.json.write_text(json.dumps(out, indent=1))
    return 0 if all(r["pass"] for r in out.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
