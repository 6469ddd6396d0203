"""NaN and the infinities, wherever a number comes in below the routes: refused by name, and where
one was kept it spoils no list.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from tests.unit.test_store import take, voice
from tests.voice_like import voice_like
from webui.api import fields
from webui.client import __main__ as command_line
from webui.errors import BadInput
from webui.settings import load
from webui.store import ChoiceStore, ConsentStore, TakeStore, VoiceStore
from webui.studio.choices import Choices
from webui.studio.drafts import Drafts, wav
from webui.studio.takes import Takes
from webui.types import Consent, finite

ODD = (math.nan, math.inf, -math.inf)
OWNER = "local/a"


def takes_in(root) -> Takes:
    store = TakeStore(root)
    return Takes(store, Choices(ChoiceStore(root), store.has_any), 7, 100, "")


def takes_of(tmp_path) -> Takes:
    TakeStore(tmp_path).add(take(1, first_sound_ms=5.0), b"RIFF")
    return takes_in(tmp_path)


@pytest.mark.parametrize("odd", ODD)
def test_a_measurement_that_is_not_finite_changes_nothing(tmp_path, odd):
    takes = takes_of(tmp_path)
    for change in (
        lambda: takes.note_first_sound(OWNER, "take-1", odd),
        lambda: takes.keep(OWNER, odd),
    ):
        with pytest.raises(BadInput) as refused:
            change()
        assert refused.value.code == "bad_field" and refused.value.param
    assert takes.days(OWNER) == 7
    read_again = TakeStore(tmp_path).list(OWNER)[0].first_sound_ms
    assert takes.list(OWNER)[0].first_sound_ms == read_again == 5.0


def test_measurements_that_are_finite_are_still_kept_within_bounds(tmp_path):
    takes = takes_of(tmp_path)
    assert takes.note_first_sound(OWNER, "take-1", 12.34).first_sound_ms == 12.3
    assert takes.note_first_sound(OWNER, "take-1", -1).first_sound_ms == 0
    assert takes.note_first_sound(OWNER, "take-1", 10**400).first_sound_ms == 1e6
    takes.keep(OWNER, 3)
    assert takes.days(OWNER) == 3


@pytest.mark.parametrize("odd", ODD)
def test_a_draft_is_not_cut_or_cleaned_by_what_is_not_finite(tmp_path, odd):
    drafts = Drafts(VoiceStore(tmp_path, tmp_path / "none"), lambda voice, clip: None, 1 << 26)
    draft = drafts.make(OWNER, wav(voice_like(3)))
    for change in (
        lambda: drafts.change(OWNER, draft.id, window=(odd, 2.0)),
        lambda: drafts.change(OWNER, draft.id, window=(0.0, odd)),
        lambda: drafts.change(OWNER, draft.id, clean=odd),
        lambda: drafts.audio(OWNER, draft.id, odd),
    ):
        with pytest.raises(BadInput) as refused:
            change()
        assert refused.value.code == "bad_field"
    assert drafts.change(OWNER, draft.id, window=(0, 2)).end_s == 2


@pytest.mark.parametrize("name", ["first_sound_ms", "rtf"])
@pytest.mark.parametrize("odd", ODD)
def test_a_kept_take_with_a_poisoned_number_lists_without_it(tmp_path, name, odd):
    store = TakeStore(tmp_path)
    store.add(take(1), b"RIFF")
    store.add(take(2), b"RIFF")
    file = tmp_path / "takes" / "take-1" / "take.json"
    poisoned = {**json.loads(file.read_text()), name: odd, "trace": {"first_ms": odd}}
    file.write_text(json.dumps(poisoned))
    listed = {t.id: t for t in takes_in(tmp_path).list(OWNER)}
    assert set(listed) == {"take-1", "take-2"} and getattr(listed["take-1"], name) is None
    json.dumps([vars(t) | {"request": ""} for t in listed.values()], allow_nan=False)


@pytest.mark.parametrize("name", ["created_at", "n_samples", "sample_rate"])
def test_a_take_that_cannot_be_ordered_or_measured_is_left_out_of_the_list(tmp_path, name):
    store = TakeStore(tmp_path)
    store.add(take(1), b"RIFF")
    store.add(take(2), b"RIFF")
    file = tmp_path / "takes" / "take-1" / "take.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), name: math.nan}))
    assert [t.id for t in TakeStore(tmp_path).list(OWNER)] == ["take-2"]


def test_kept_voices_and_consents_with_a_poisoned_number_are_listed(tmp_path):
    VoiceStore(tmp_path, tmp_path / "none").add(
        replace(voice(), duration_s=math.nan, created_at=math.inf), b"RIFF"
    )
    ConsentStore(tmp_path).add(Consent("consent-1", "x", "en", math.nan, "local"), b"RIFF")
    (listed,) = VoiceStore(tmp_path, tmp_path / "none").list("local")
    assert (listed.duration_s, listed.created_at) == (0.0, 0.0)
    (listed,) = ConsentStore(tmp_path).list("local")
    assert listed.created_at == 0.0


@pytest.mark.parametrize("odd", ["nan", "inf", "-inf", "1e999"])
def test_a_setting_is_finite(tmp_path, odd):
    for name in ("STALL_S", "IDLE_S", "BODY_S", "PORT", "MAX_STREAMS"):
        with pytest.raises(BadInput) as refused:
            load([], {"KAIKOU_" + name: odd})
        assert refused.value.code == "bad_setting"
    for name in ("stall_s", "max_waiting"):
        (tmp_path / "kaikou.toml").write_text(f"[limits]\n{name} = {odd}\n")
        with pytest.raises(BadInput):
            load([], {"KAIKOU_DATA_DIR": str(tmp_path)})


@pytest.mark.parametrize("odd", ["nan", "inf", "0", "-1"])
def test_the_clients_rate_is_finite(tmp_path, odd, capsys):
    assert command_line.main(["batch", "none.txt", str(tmp_path), f"--per-second={odd}"]) == 2
    assert "--per-second" in capsys.readouterr().err


@pytest.mark.parametrize(
    "text",
    ["NaN", '{"t": Infinity}', "[-Infinity]", '{"a": {"b": [1e999]}}', "-1e400", "[" * 10**5],
)
def test_a_message_is_json_and_no_more(text):
    with pytest.raises(ValueError):
        fields.read_json(text)


def test_a_message_that_is_json_is_read():
    assert fields.read_json('{"a": [1, 2.5, "\\ud83d", null, true]}') == {"a": [1, 2.5, "\ud83d",
        None, True]}  # fmt: skip
    assert finite(3, "x") == 3
