"""Names of the service, and proxies that are believed."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from ipaddress import IPv6Address, ip_address, ip_network

from .limits import Scope

ANY = "*"
_LOCAL = frozenset(["localhost", "ip6-localhost"])
_MOST_HOPS = 32


class HostNames:
    """Test of the ``Host`` header against DNS rebinding.

    A stranger's page may resolve its own name to this machine and ask from a reader's browser, but cannot
    change ``Host``; a bare address cannot be rebound.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._is_any = ANY in names
        self._names = _LOCAL | {name.lower().rstrip(".") for name in names}
        self.has = lru_cache(256)(self._has)

    def _has(self, header: bytes) -> bool:
        if self._is_any:
            return True
        host = header.decode("latin-1").strip().lower()
        if host.startswith("["):
            name, _, port = host[1:].partition("]")
            port = port.removeprefix(":") if port.startswith(":") or not port else "no port"
        else:
            name, _, port = host.partition(":")
        if port and not port.isdecimal():
            return False
        return name.rstrip(".") in self._names or _is_address(name)


class TrustedProxies:
    """Proxies whose word on the sender and on TLS is taken; ``networks`` are in CIDR notation."""

    def __init__(self, networks: Sequence[str]) -> None:
        self._networks = [ip_network(text) for text in networks]

    def sender(self, scope: Scope, headers: Mapping[bytes, bytes]) -> str:
        """Address of the sender: the nearest that is no proxy of ours."""
        peer = _peer(scope)
        if not self._contains(peer):
            return peer
        hops = headers.get(b"x-forwarded-for", b"").decode("latin-1").split(",")[-_MOST_HOPS:]
        for hop in reversed([hop.strip() for hop in hops]):
            if not _is_address(hop):
                break
            peer = hop
            if not self._contains(hop):
                break
        return peer

    def is_tls(self, scope: Scope, headers: Mapping[bytes, bytes]) -> bool:
        said = headers.get(b"x-forwarded-proto", b"").rpartition(b",")[2].strip().lower()
        return said == b"https" and self._contains(_peer(scope))

    def _contains(self, peer: str) -> bool:
        if not self._networks or not _is_address(peer):
            return False
        address = ip_address(peer)
        if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        return any(address in network for network in self._networks)


def is_loopback(host: str) -> bool:
    return host == "localhost" or (_is_address(host) and ip_address(host).is_loopback)


def _peer(scope: Scope) -> str:
    peer = scope.get("client")
    return str(peer[0]) if peer else ""


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
