"""What came is what was meant: sizes, checksums, parts of a file that changed meanwhile, and a model read again byte by byte."""

from __future__ import annotations

import hashlib

import pytest

from tests.unit.model_origin import BIG, NoWait, fetcher, files, is_whole
from webui.errors import NotReady


def test_a_file_that_changed_meanwhile_is_not_glued_together(origin, tmp_path):
    origin.cuts = [1_500_000] + [0] * 5
    with pytest.raises(NotReady):
        fetcher(origin, tmp_path).fetch(cancelled=NoWait())
    origin.cuts, origin.tag, origin.content["part/big.pt"] = [], '"v2"', BIG[::-1]
    fetcher(origin, tmp_path).fetch(cancelled=NoWait())
    assert (tmp_path / "part/big.pt").read_bytes() == BIG[::-1]


def test_another_size_without_a_validator_starts_anew(origin, tmp_path):
    origin.tag, origin.cuts = "", [1_500_000] + [0] * 5
    with pytest.raises(NotReady):
        fetcher(origin, tmp_path).fetch(cancelled=NoWait())
    origin.cuts, origin.content["part/big.pt"] = [], BIG[::-1] + b"more"
    fetcher(origin, tmp_path).fetch(cancelled=NoWait())
    assert (tmp_path / "part/big.pt").read_bytes() == BIG[::-1] + b"more"


def test_a_part_longer_than_the_file_is_dropped(origin, tmp_path):
    (tmp_path / "part").mkdir()
    (tmp_path / "part/big.pt.part").write_bytes(BIG + b"x")
    fetcher(origin, tmp_path).fetch(cancelled=NoWait())
    assert is_whole(tmp_path)


@pytest.mark.parametrize("exact", [True, False])
def test_a_wrong_size_is_refused_before_its_bytes_are_fetched(origin, tmp_path, exact):
    origin.content["part/big.pt"] = BIG[:-1] if exact else b"<html>Please log in</html>"
    with pytest.raises(NotReady) as fault:
        fetcher(origin, tmp_path, exact=exact).fetch(cancelled=NoWait())
    assert (
        "part/big.pt" in fault.value.en
        and f"{len(origin.content['part/big.pt']):,}" in fault.value.en
        and fault.value.zh
    )
    assert files(tmp_path) == {"model.yaml"}


def test_without_a_stated_length_too_much_is_refused_too(origin, tmp_path):
    origin.length, origin.content["part/big.pt"] = False, BIG * 3
    with pytest.raises(NotReady):
        fetcher(origin, tmp_path).fetch(cancelled=NoWait())
    assert files(tmp_path) == {"model.yaml"}


def test_a_rounded_size_is_learnt_from_the_server(origin, tmp_path):
    fetcher(origin, tmp_path, size=len(BIG) + 70_000).fetch()
    assert is_whole(tmp_path)
    (tmp_path / "part/big.pt").write_bytes(BIG[:-1])  # within the rounding, but not what came
    assert [s.path for s in fetcher(origin, tmp_path, size=len(BIG) + 70_000).plan().missing] == [
        "part/big.pt"
    ]


def test_a_wrong_checksum_is_refused_and_leaves_nothing(origin, tmp_path):
    with pytest.raises(NotReady) as fault:
        fetcher(origin, tmp_path, sha256="0" * 64).fetch(cancelled=NoWait())
    assert "checksum" in fault.value.en and files(tmp_path) == {"model.yaml"}
    fetcher(origin, tmp_path, sha256=hashlib.sha256(BIG).hexdigest()).fetch()
    assert is_whole(tmp_path)


def test_a_spoilt_part_is_fetched_once_more_in_one_piece(origin, tmp_path):
    (tmp_path / "part").mkdir()
    (tmp_path / "part/big.pt.part").write_bytes(b"spoilt" * 1000)
    fetcher(origin, tmp_path, sha256=hashlib.sha256(BIG).hexdigest()).fetch(cancelled=NoWait())
    assert is_whole(tmp_path) and origin.ranges_asked("big.pt") == ["bytes=6000-", None]


def test_a_part_spoilt_again_is_given_up(origin, tmp_path):
    origin.cuts = [1_500_000, 2_000_000, 1_500_000]
    with pytest.raises(NotReady):
        fetcher(origin, tmp_path, sha256="0" * 64).fetch(cancelled=NoWait())
    assert len(origin.ranges_asked("big.pt")) <= 5


def test_verify_reads_every_byte(origin, tmp_path):
    fetcher(origin, tmp_path).fetch()
    assert fetcher(origin, tmp_path).verify() == []
    spoilt = bytearray(BIG)
    spoilt[1000] ^= 1
    (tmp_path / "part/big.pt").write_bytes(spoilt)
    (tmp_path / "model.yaml").write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    assert [path for path, *_ in fetcher(origin, tmp_path).verify()] == [
        "model.yaml",
        "part/big.pt",
    ]
    fetcher(origin, tmp_path).discard("part/big.pt")
    fetcher(origin, tmp_path).discard("../outside")
    fetcher(origin, tmp_path).fetch()
    assert is_whole(tmp_path)
