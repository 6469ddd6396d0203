"""What is told of the consent of a voice: the box of the page, a recording, a program's words, or
nothing.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from webui.store import ConsentStore, VoiceStore
from webui.studio.consents import BY_PAGE, ConsentInfo, Consents
from webui.types import Consent, Voice

VOICE = Voice("voice-1", "V", "en", "", "f", 4.0, 100.0, owner="user-bob")


@pytest.fixture
def consents(tmp_path):
    store = ConsentStore(tmp_path)
    store.add(Consent("consent-1", "Lin Wan", "zh", 50.0, "user-bob"), b"RIFF")
    return Consents(store, VoiceStore(tmp_path, tmp_path / "none"))


@pytest.mark.parametrize(
    ("expected", "owner", "consent"),
    [
        (BY_PAGE, "user-bob", ConsentInfo("page", "bob", 100.0)),
        (BY_PAGE, "local", ConsentInfo("page", "", 100.0)),
        ("consent-1 An older name", "user-bob", ConsentInfo("recording", "Lin Wan", 50.0)),
        ("consent-1 Lin Wan", "user-eve", ConsentInfo("recording", "Lin Wan", 100.0)),
        ("consent-9 Gone", "user-bob", ConsentInfo("recording", "Gone", 100.0)),
        ("me, my own voice", "user-bob", ConsentInfo("words", "me, my own voice", 100.0)),
        ("", "user-bob", ConsentInfo("", "", 100.0)),
    ],
)
def test_what_was_written_down_is_told(consents, expected, owner, consent):
    assert consents.of(replace(VOICE, consent=expected, owner=owner)) == consent


def test_the_name_that_a_recording_has_now_is_told(consents):
    consents.rename("user-bob/1", "consent-1", "Lin Wan-Meier")
    assert consents.of(replace(VOICE, consent="consent-1 Lin Wan")).who == "Lin Wan-Meier"
