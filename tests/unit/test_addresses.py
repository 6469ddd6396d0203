"""Which addresses of this machine another device reaches a studio at."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from webui.studio import addresses, reachable


def adapter(name: str, *ips):
    return SimpleNamespace(
        nice_name=name,
        ips=[SimpleNamespace(ip=ip, is_IPv4=isinstance(ip, str)) for ip in ips],
    )


@pytest.fixture
def interfaces(monkeypatch):
    adapters = [
        adapter("lo", "127.0.0.1", ("::1", 0, 0)),
        adapter("docker0", "172.17.0.1"),
        adapter("eth0", "203.0.113.7", ("fd00::2", 0, 0)),
        adapter("usb0", "169.254.3.4"),
        adapter("tun0", "10.8.0.2"),
        adapter("wlan0", "192.168.1.20"),
    ]
    monkeypatch.setattr(addresses.ifaddr, "get_adapters", lambda: adapters)


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_a_studio_that_listens_everywhere_is_reached_at_every_interface_but_the_own_one(
    interfaces, host
):
    assert [(at.name, at.address) for at in reachable(host)] == [
        ("wlan0", "192.168.1.20"),
        ("tun0", "10.8.0.2"),
        ("docker0", "172.17.0.1"),
        ("eth0", "203.0.113.7"),
    ]


@pytest.mark.parametrize(
    ("host", "addresses"),
    [
        ("127.0.0.1", []),
        ("localhost", []),
        ("::1", []),
        ("192.168.1.20", ["192.168.1.20"]),
        ("studio.lan", ["studio.lan"]),
        ("fd00::2", ["fd00::2"]),
    ],
)
def test_one_that_listens_at_one_address_is_reached_there_or_not_at_all(
    interfaces, host, addresses
):
    assert [at.address for at in reachable(host)] == addresses
