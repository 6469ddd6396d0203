"""What a source says of its files sharpens the manifest: exact sizes and checksums when it makes sense, nothing when it does not."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import httpx
import pytest

from tests.unit.model_origin import BIG, CONTENT, SMALL, NoWait, Origin, files, is_whole
from webui.errors import NotReady
from webui.store import models as store
from webui.store.models import Model, ModelFetcher


def listed(sha256: str, size: int = len(BIG)) -> dict[str, object]:
    rows = [
        ("model.yaml", len(SMALL), hashlib.sha256(SMALL).hexdigest()),
        ("part/big.pt", size, sha256),
        ("part", 0, None),
        ("other.bin", 5, None),
    ]
    return {
        "modelscope": {
            "Code": 200,
            "Data": {"Files": [{"Path": p, "Size": n, "Sha256": s} for p, n, s in rows]},
        },
        "hf-mirror": [
            {"type": "file", "path": p, "size": n, **({"lfs": {"oid": s, "size": n}} if s else {})}
            for p, n, s in rows
        ],
    }


def through(
    origin: Origin, listing: object, source: str, root: Path
) -> tuple[ModelFetcher, list[str]]:
    """A fetcher whose addresses lead to the local server, and the addresses that it asked for."""
    asked: list[str] = []

    def opener(url, headers):
        asked.append(url)
        name = next((n for n in CONTENT if url.endswith((n, n.replace("/", "%2F")))), "listing")
        return httpx.stream("GET", f"{origin.url}/{name}", headers=dict(headers))

    origin.content["listing"] = json.dumps(listing).encode()
    repositories = {"modelscope": "us/Some", "hf-mirror": "US/Some"}
    made = Model(
        "Some",
        repositories,
        (store.FileSpec("model.yaml", len(SMALL)), store.FileSpec("part/big.pt", len(BIG) + 9)),
    )
    return ModelFetcher(root, source, made, opener, lambda path: 10**12), asked


@pytest.mark.parametrize("source", ["modelscope", "hf-mirror"])
def test_the_source_names_sizes_and_checksums(origin, tmp_path, source):
    right, wrong = hashlib.sha256(BIG).hexdigest(), "0" * 64
    made, asked = through(origin, listed(wrong)[source], source, tmp_path)
    with pytest.raises(NotReady) as fault:
        made.fetch(cancelled=NoWait())
    assert "checksum" in fault.value.en and files(tmp_path) == {"model.yaml"}
    made, asked = through(origin, listed(right)[source], source, tmp_path)
    seen = []
    made.fetch(seen.append)
    assert is_whole(tmp_path) and len(asked) == 2 and seen[0].total == len(BIG) + len(SMALL), (
        "exact from the first byte on"
    )
    made, asked = through(origin, listed(right)[source], source, tmp_path)
    made.fetch()
    assert asked == [], "nobody is asked when everything is here"


@pytest.mark.parametrize(
    "listing",
    [
        {},
        [],
        {"Data": None},
        {"Data": {"Files": [3, None]}},
        "x",
        {"Data": {"Files": [{"Path": "part/big.pt", "Size": 7, "Sha256": "zz"}]}},
        [{"path": "part/big.pt", "size": True}],
        [{"path": "../x", "size": 5}],
        [{"path": "part/big.pt", "size": "5"}],
    ],
)
def test_a_listing_that_makes_no_sense_changes_nothing(origin, tmp_path, listing):
    made, _ = through(origin, listing, "modelscope", tmp_path)
    made.fetch()
    assert is_whole(tmp_path)


def test_without_a_listing_the_files_come_all_the_same(origin, tmp_path):
    made, asked = through(origin, {}, "modelscope", tmp_path)
    del origin.content["listing"]
    made.fetch()
    assert is_whole(tmp_path) and len(asked) == 3
