#!/usr/bin/env python
"""Ends with 0 when an address answers 200, else with 1: the health check of the images.

python scripts/deploy/probe.py http://127.0.0.1:7860/health/live
python scripts/deploy/probe.py http://127.0.0.1:8000/about KAIKOU_FLEET_KEY   # shows the key that
    this variable holds
"""

from __future__ import annotations

import argparse
import http.client
import os
import sys
from urllib.parse import urlsplit

ANSWER_S = 4.0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("url", type=urlsplit, help="http://HOST:PORT/PATH")
    parser.add_argument("variable", nargs="?", help="of the environment, that holds the key")
    args = parser.parse_args()
    key = os.environ.get(args.variable or "", "").partition(",")[0]
    connection = http.client.HTTPConnection(args.url.netloc, timeout=ANSWER_S)
    try:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        connection.request("GET", args.url.path, headers=headers)
        return int(connection.getresponse().status != 200)
    except OSError:
        return 1


if __name__ == "__main__":
    sys.exit(main())
