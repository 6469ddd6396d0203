"""The first visit over a slow line, on a phone's screen: each request with its bytes, and when the
text and Generate can be used.

python scripts/bench_first_load.py                       # 50 KB/s, 400 ms, a studio of its own
python scripts/bench_first_load.py --url http://127.0.0.1:7860 --kb-per-s 0    # as fast as it goes
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
MARKS = """window.marks = {}; (() => {
  let linked = false;
  document.addEventListener("kk:link", () => (linked = true));
  const seen = q => document.querySelector(q)?.checkVisibility({visibilityProperty: true});
  const mark = (name, is) => { if (is) marks[name] ??= performance.now(); };
  const look = () => {
    mark("text is seen", seen("#kk-text textarea"));
    mark("Generate is seen", seen("#kk-player .kk-go"));
    mark("the first text is there", document.querySelector("#kk-text textarea")?.value);
    mark("both work", document.documentElement?.dataset.kk && linked);
    setTimeout(look, 20);
  };
  look(); })();"""


def visit(page, url: str, conditions: dict) -> dict[str, list]:
    """Requests of the first visit: id -> [address, bytes]."""
    fetched: dict[str, list] = {}
    line = page.context.new_cdp_session(page)
    line.send("Network.enable")
    line.send("Network.emulateNetworkConditions", conditions)
    line.on(
        "Network.requestWillBeSent",
        lambda e: fetched.setdefault(e["requestId"], [e["request"]["url"], 0]),
    )

    def loaded(event) -> None:
        if event["requestId"] in fetched:
            fetched[event["requestId"]][1] = event["encodedDataLength"]

    line.on("Network.loadingFinished", loaded)
    page.add_init_script(MARKS)
    page.goto(f"{url}/?lang=zh", wait_until="commit")
    page.wait_for_function("window.marks['both work']")
    page.wait_for_load_state("networkidle")
    page.wait_for_timeout(1500)
    return fetched


def main() -> None:
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--url", default="", help="a studio that runs; else one is started")
    p.add_argument("--kb-per-s", type=float, default=50, help="0: no limit, no latency")
    p.add_argument("--latency-ms", type=float, default=400)
    args = p.parse_args()
    from bench_first_sound import FLAGS, chromium, studio
    from playwright.sync_api import sync_playwright

    speed = args.kb_per_s * 1024 or -1
    conditions = {
        "offline": False,
        "latency": args.latency_ms if args.kb_per_s else 0,
        "downloadThroughput": speed,
        "uploadThroughput": speed,
    }
    with (
        contextlib.nullcontext(args.url.rstrip("/")) if args.url else studio() as url,
        sync_playwright() as play,
    ):
        browser = play.chromium.launch(
            args=FLAGS, **({"executable_path": chromium()} if chromium() else {})
        )
        page = browser.new_page(
            viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True
        )
        page.set_default_timeout(180000)
        fetched = visit(page, url, conditions)
        marks = page.evaluate("marks")
        browser.close()
    print("| request | bytes |\n|---|---:|")
    sent = [r for r in fetched.values() if not r[0].startswith(("data:", "blob:"))]
    for address, size in sorted(sent, key=lambda r: -r[1]):
        print(f"| `{address.removeprefix(url)[:70]}` | {size:.0f} |")
    print(f"| {len(sent)} requests | {sum(size for _, size in sent):.0f} |")
    for name, ms in marks.items():
        print(f"{name}: {ms / 1000:.1f} s")


if __name__ == "__main__":
    main()
