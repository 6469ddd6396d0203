"""The addresses at which other devices may reach this machine.

Asks the machine's interfaces; sends nothing. Blind to who may know them.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass

import ifaddr

EVERY = ("0.0.0.0", "::")  # hosts that mean all interfaces
HOMES = ("192.168.0.0/16", "10.0.0.0/8")  # where a phone on the same Wi-Fi usually is


@dataclass(frozen=True)
class Interface:
    """name: as the machine calls it; "" where the studio was told the address."""

    name: str
    address: str


def reachable(host: str) -> list[Interface]:
    """The IPv4 addresses that a studio listening on `host` answers at from outside, those of homes
    and offices first; [] on loopback.
    """
    if host in EVERY:
        return sorted(_interfaces(), key=_rank)
    return [Interface("", host)] if _is_outside(host) else []


def _interfaces() -> Iterable[Interface]:
    for adapter in ifaddr.get_adapters():
        for ip in adapter.ips:
            if ip.is_IPv4 and _is_outside(ip.ip):
                yield Interface(adapter.nice_name, ip.ip)


def _is_outside(host: str) -> bool:
    """A name is taken at its word, but for localhost."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host != "localhost"
    return not (address.is_loopback or address.is_link_local or address.is_unspecified)


def _rank(interface: Interface) -> int:
    address = ipaddress.ip_address(interface.address)
    inside = [n for n, net in enumerate(HOMES) if address in ipaddress.ip_network(net)]
    return inside[0] if inside else len(HOMES)
