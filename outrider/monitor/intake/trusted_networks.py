"""Networks that may send copies of traffic without a key: writes of intakes only, never reads."""

from collections.abc import Sequence
from functools import lru_cache
from ipaddress import IPv6Address, ip_address, ip_network

from outrider.monitor.http.limits import Scope

from .protocols.base import IntakeProtocol


class KeylessWrites:
    """Test for requests that need no key, by the peer of the connection, never by a header."""

    def __init__(self, networks: Sequence[str], intakes: Sequence[IntakeProtocol]) -> None:
        self._networks = [ip_network(text) for text in networks]
        self._intakes = tuple(intakes)
        self._is_inside = lru_cache(1024)(self._contains)

    def __call__(self, scope: Scope) -> bool:
        if not self._networks or scope["method"] != "POST":
            return False
        peer = scope.get("client")
        if not peer or not self._is_inside(peer[0]):
            return False
        headers = dict(scope["headers"])
        return any(one.matches("POST", scope["path"], headers) for one in self._intakes)

    def _contains(self, peer: str) -> bool:
        try:
            address = ip_address(peer.partition("%")[0])
        except ValueError:
            return False
        if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        return any(address in network for network in self._networks)
