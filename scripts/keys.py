#!/usr/bin/env python
"""API keys of a studio: make, list and revoke them, whether it runs or not.

A running one knows at once.

    python scripts/keys.py create --name robot --scopes speak,jobs
        prints the key, this one time
    python scripts/keys.py list
    python scripts/keys.py revoke key-0123456789ab

From the first key on the studio asks everyone for a key or a login; when the last one is revoked it
is open again, where it was open before.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from webui.errors import KaikouError, NotFound
from webui.settings import load
from webui.store import AccessStore, tighten
from webui.studio import PER_MINUTE, SCOPES, Keys, Used


def main(argv: list[str] | None = None) -> int:
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument(
        "--data-dir",
        metavar="DIR",
        help="where the studio keeps its data (default: as run.sh has it)",
    )
    commands = p.add_subparsers(dest="command", required=True)
    create = commands.add_parser("create", help="make a key and print it")
    create.add_argument("--name", required=True, help="what it is for")
    create.add_argument(
        "--scopes",
        default="speak",
        help=f"of {', '.join(SCOPES)}, with commas between (default speak)",
    )
    create.add_argument(
        "--per-minute",
        type=int,
        default=PER_MINUTE,
        help=f"requests a minute (default {PER_MINUTE})",
    )
    create.add_argument(
        "--account", default="local", help="who makes it: local (default), or user-NAME of a login"
    )
    commands.add_parser("list", help="all keys and what they used")
    commands.add_parser("revoke", help="from now on this key opens nothing").add_argument("id")
    args = p.parse_args(argv)
    try:
        settings = load(["--data-dir", args.data_dir] if args.data_dir else [])
        data = settings.paths.data_dir
        tighten(data)
        store = AccessStore(data)
        keys = Keys(store, cell=settings.server.cell)
        if args.command == "create":
            scopes = [s.strip() for s in args.scopes.split(",")]
            if unknown := [s for s in scopes if s not in SCOPES]:
                p.error(f"no such scope: {', '.join(unknown)}; there are {', '.join(SCOPES)}")
            key, secret = keys.create(f"{args.account}/script", args.name, scopes, args.per_minute)
            print(f"{key.id}\n{secret}")
        elif args.command == "revoke":
            stored_key = next((k for k in store.keys() if k.id == args.id), None)
            if stored_key is None:
                raise NotFound("not_found.key")
            keys.revoke(f"{stored_key.account}/script", stored_key.id)
            print(f"{stored_key.id} revoked")
        else:
            listed(store)
        store.close()
    except KaikouError as error:
        print(f"{error.en}\n{error.zh}", file=sys.stderr)
        return 2
    return 0


def listed(store: AccessStore) -> None:
    used = store.usage()
    for key in store.keys():
        u = used.get(key.id, Used())
        last = (
            time.strftime("%Y-%m-%d %H:%M", time.localtime(u.last_used_at))
            if u.last_used_at
            else "never"
        )
        print(
            f"{key.id}  {'revoked' if key.revoked_at else 'live':7}  {','.join(key.scopes):24} "
            f" {key.per_minute:>6}/min  {u.requests} requests, {u.chars} characters,"
            f" {u.sound_s:.1f} s, last {last}  {key.account}  {key.name}"
        )


if __name__ == "__main__":
    sys.exit(main())
