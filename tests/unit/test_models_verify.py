"""What came is what was meant: sizes, checksums, parts of a file that changed meanwhile, and a
model read again byte by byte.
"""

from __future__ import annotations

import hashlib

import pytest

from tests.unit.model_origin import BIG, NoWait, fetcher, files, is_whole
from webui.errors import NotReady

WRONG = "0" * 64


@pytest.mark.parametrize("more", [b"", b"more"], ids=["as long", "longer"])
def test_a_file_that_changed_meanwhile_is_not_glued_together(origin, tmp_path, source, more):
    """Told by the hub's checksum, and on a plain folder by the expected one."""
    origin.cuts = [1_500_000] + [0] * 40
    with pytest.raises(NotReady):
        fetcher(origin, tmp_path, source=source).fetch(cancelled=NoWait())
    new = BIG[::-1] + more
    origin.cuts, origin.content["part/big.pt"] = [], new
    expected = hashlib.sha256(new).hexdigest()
    fetcher(origin, tmp_path, source=source, sha256=expected).fetch(cancelled=NoWait())
    assert (tmp_path / "part/big.pt").read_bytes() == new


def test_a_part_longer_than_the_file_is_dropped(origin, tmp_path, source):
    (tmp_path / "part").mkdir()
    (tmp_path / "part/big.pt.incomplete").write_bytes(BIG + b"x")
    fetcher(origin, tmp_path, source=source).fetch(cancelled=NoWait())
    assert is_whole(tmp_path)


@pytest.mark.parametrize("exact", [True, False])
def test_a_wrong_size_is_refused_and_leaves_nothing(origin, tmp_path, source, exact):
    origin.content["part/big.pt"] = BIG[:-1] if exact else b"<html>Please log in</html>"
    with pytest.raises(NotReady) as fault:
        fetcher(origin, tmp_path, exact=exact, source=source).fetch(cancelled=NoWait())
    size = f"{len(origin.content['part/big.pt'])}"
    assert "part/big.pt" in fault.value.en and size in fault.value.en.replace(",", "")
    assert fault.value.zh.endswith("。") and files(tmp_path) == {"model.yaml"}


def test_without_a_stated_length_too_much_is_refused_too(origin, tmp_path, source):
    origin.length, origin.content["part/big.pt"] = False, BIG * 3
    with pytest.raises(NotReady):
        fetcher(origin, tmp_path, source=source).fetch(cancelled=NoWait())
    assert files(tmp_path) == {"model.yaml"}


def test_a_size_known_by_hearsay_is_learnt_from_the_server(origin, tmp_path, source):
    fetcher(origin, tmp_path, size=len(BIG) + 70_000, source=source).fetch()
    assert is_whole(tmp_path)
    (tmp_path / "part/big.pt").write_bytes(BIG[:-1])  # plausible, but not what came
    assert [s.path for s in fetcher(origin, tmp_path, size=len(BIG) + 70_000).plan().missing] == [
        "part/big.pt"
    ]


def test_an_exact_checksum_that_is_wrong_is_refused_and_leaves_nothing(origin, tmp_path):
    with pytest.raises(NotReady) as fault:
        fetcher(origin, tmp_path, exact=True, sha256=WRONG).fetch(cancelled=NoWait())
    assert "checksum" in fault.value.en and files(tmp_path) == {"model.yaml"}
    fetcher(origin, tmp_path, exact=True, sha256=hashlib.sha256(BIG).hexdigest()).fetch()
    assert is_whole(tmp_path)


def test_an_expected_checksum_that_differs_is_a_warning(origin, tmp_path, source, caplog):
    model_fetcher = fetcher(origin, tmp_path, sha256=WRONG, source=source)
    model_fetcher.fetch(cancelled=NoWait())
    assert (
        is_whole(tmp_path)
        and model_fetcher.verify() == []
        and model_fetcher.unexpected() == ["part/big.pt"]
    )
    assert "part/big.pt" in caplog.text and len(origin.ranges_asked("big.pt")) == 1


@pytest.mark.parametrize("hub", ["modelscope", "hf-mirror"])
def test_bytes_that_are_not_what_the_hub_states_are_refused(origin, tmp_path, hub):
    origin.sums["part/big.pt"], origin.redirect = WRONG, origin.base + "/cdn/{path}"
    with pytest.raises(NotReady) as fault:
        fetcher(origin, tmp_path, source=hub).fetch(cancelled=NoWait())
    assert "checksum" in fault.value.en and "校验和" in fault.value.zh
    assert files(tmp_path) == {"model.yaml"} and len(origin.ranges_asked("big.pt")) <= 3


def test_a_spoilt_part_is_fetched_once_more_in_one_piece(origin, tmp_path, source):
    (tmp_path / "part").mkdir()
    (tmp_path / "part/big.pt.incomplete").write_bytes(b"spoilt" * 1000)
    sha256 = hashlib.sha256(BIG).hexdigest()
    fetcher(origin, tmp_path, sha256=sha256, source=source).fetch(cancelled=NoWait())
    assert is_whole(tmp_path) and origin.ranges_asked("big.pt") == ["bytes=6000-", None]


def test_verify_reads_every_byte(origin, tmp_path, source):
    fetcher(origin, tmp_path, source=source).fetch()
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
    fetcher(origin, tmp_path, source=source).fetch()
    assert is_whole(tmp_path)
