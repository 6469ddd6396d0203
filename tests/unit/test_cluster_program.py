"""`python -m webui.cluster serve`: what it refuses before any engine is loaded."""

import importlib.util
import sys
from types import ModuleType

import pytest

from webui.cluster.__main__ import main, replicas
from webui.errors import BadInput


@pytest.fixture
def fleets(monkeypatch) -> list:
    """The options of each fleet that the program starts, instead of starting it."""
    module, started = ModuleType("webui.cluster.serve"), []

    class FleetOptions:
        def __init__(self, host, port, low, high, **others):
            self.__dict__.update(others, host=host, port=port, low=low, high=high)

    module.FleetOptions = FleetOptions
    module.run = lambda make, settings, options: started.append((make, settings, options))
    monkeypatch.setitem(sys.modules, "webui.cluster.serve", module)
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name == "ray" or find_spec(name))
    return started


@pytest.mark.parametrize(("text", "bounds"), [("1", (1, 1)), ("1..3", (1, 3)), ("4..4", (4, 4))])
def test_replicas_are_a_number_or_a_range(text, bounds):
    assert replicas(text) == bounds


@pytest.mark.parametrize("text", ["", "0", "0..2", "3..1", "many", "1..", "..2", "-1", "1.5"])
def test_other_numbers_of_replicas_are_refused(text, fleets, capsys):
    with pytest.raises(BadInput):
        replicas(text)
    assert main(["serve", f"--replicas={text}"]) == 2 and not fleets
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("host", ["0.0.0.0", "10.0.0.7", "::"])
def test_a_fleet_that_others_reach_needs_a_key(host, fleets, capsys, monkeypatch):
    assert main(["serve", "--host", host]) == 2 and not fleets
    assert "key" in capsys.readouterr().err
    monkeypatch.setenv("KAIKOU_FLEET_KEY", "a long secret of the fleet")
    assert main(["serve", "--host", host]) == 0
    assert fleets[0][2].key == "a long secret of the fleet"


def test_the_flags_reach_the_fleet(fleets):
    argv = "serve --engine builtin --port 8123 --replicas 1..3 --gpus-per-replica .5 --streams 4"
    argv += " --downscale-after 12 --cpus-per-replica .25"
    assert main([*argv.split(), "--address", "auto"]) == 0
    make, settings, options = fleets[0]
    assert callable(make) and settings.engine.name == "builtin"
    assert (options.port, options.low, options.high) == (8123, 1, 3)
    assert (options.gpus, options.streams, options.address) == (0.5, 4, "auto")
    assert (options.downscale_s, options.cpus) == (12, 0.25)


def test_without_ray_it_names_the_command_that_installs_it(capsys, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert main(["serve"]) == 2
    assert "requirements-cluster.txt" in capsys.readouterr().err


def test_one_replica_without_ray_takes_no_number_of_replicas(fleets, capsys):
    assert main(["serve", "--without-ray", "--replicas", "2"]) == 2 and not fleets
    assert "--without-ray" in capsys.readouterr().err


def test_a_flag_that_does_not_exist_is_refused(fleets):
    with pytest.raises(SystemExit):
        main(["serve", "--no-such-flag"])
    assert not fleets
