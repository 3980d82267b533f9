"""Which network addresses a tool may reach.

Python's ``is_global`` is not the measure: 3.11 calls NAT64, 6to4, multicast and a cloud's
metadata address global. So IPv4 has its own block list, and of IPv6 only global unicast is open.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

_CLOSED_V4 = tuple(
    ip_network(text)
    for text in (
        "0.0.0.0/8",  # this network
        "10.0.0.0/8",
        "100.64.0.0/10",  # carrier-grade NAT
        "127.0.0.0/8",
        "168.63.129.16/32",  # a cloud's metadata and DNS
        "169.254.0.0/16",  # link-local, most clouds' metadata
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, broadcast
    )
)
_OPEN_V6 = ip_network("2000::/3")
_CLOSED_V6 = tuple(
    ip_network(text)
    for text in (
        "2001::/23",  # IETF assignments, Teredo among them
        "2001:db8::/32",
        "2002::/16",  # 6to4 carries an IPv4 address
        "3fff::/20",
    )
)


def is_public(text: str) -> bool:
    """Whether a numeric address lies in the open internet; False for anything unreadable."""
    try:
        address = ip_address(text)
    except ValueError:
        return False
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _CLOSED_V4)
    return _is_public_v6(address)


def _is_public_v6(address: IPv6Address) -> bool:
    if address.scope_id is not None or address not in _OPEN_V6:
        return False
    return not any(address in network for network in _CLOSED_V6)
