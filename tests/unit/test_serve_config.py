"""The fleet's builder for `serve deploy`: what it makes of its arguments, and what it refuses."""

import pytest

from webui.cluster import serve_config
from webui.errors import BadInput


@pytest.fixture
def fleets(monkeypatch):
    """The options of each fleet that would be made."""
    options_of_fleets = []
    monkeypatch.setattr(
        serve_config,
        "application",
        lambda make, stall_s, options: options_of_fleets.append(options),
    )
    monkeypatch.setenv("KAIKOU_FLEET_KEY", "a secret")
    return options_of_fleets


def test_arguments_are_those_of_the_program(fleets):
    serve_config.build({"replicas": "2..5", "gpus_per_replica": 0.5, "streams": 3})
    serve_config.build({})
    few, usual = fleets
    assert (few.min_replicas, few.max_replicas, few.gpus, few.streams) == (2, 5, 0.5, 3)
    assert (usual.min_replicas, usual.max_replicas, usual.gpus) == (1, 1, 0)
    assert few.key == usual.key == "a secret"


@pytest.mark.parametrize(
    "arguments", [{"stream": 8}, {"streams": "many"}, {"replicas": "3..1"}, {"streams": None}]
)
def test_other_arguments_are_refused(fleets, arguments):
    with pytest.raises(BadInput):
        serve_config.build(arguments)
    assert not fleets


def test_without_a_key_there_is_no_fleet(fleets, monkeypatch):
    monkeypatch.delenv("KAIKOU_FLEET_KEY")
    with pytest.raises(BadInput) as error:
        serve_config.build({})
    assert "KAIKOU_FLEET_KEY" in error.value.en and not fleets
