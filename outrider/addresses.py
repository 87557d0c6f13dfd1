"""Addresses that strangers name, and guards of connections to them.

A name is resolved at every connection and all it is resolved to is checked, so that it cannot lead elsewhere
afterwards; `outrider.http_client.HttpClient` then connects to the checked address and follows no redirect.
"""

import ipaddress
import re
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

ANYWHERE = ("0.0.0.0/0", "::/0")
_URL = re.compile(
    r"(?P<scheme>https?)://(?P<host>\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:(?P<port>[0-9]{1,5}))?([/?][!-\"$-\[\]-~]*)?",
    re.I | re.ASCII,
)
_PLACE = re.compile(r"(?P<host>\[[0-9a-f:.]+\]|[a-z0-9._-]+):(?P<port>[0-9]{1,5})", re.I | re.ASCII)
_UNICAST = ipaddress.IPv6Network("2000::/3")
"""What IANA has given out of IPv6: the rest leads to no one, or holds an IPv4 address (NAT64, compatible)."""
_SPECIAL = tuple(
    ipaddress.ip_network(text)
    for text in (
        "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "168.63.129.16/32", "169.254.0.0/16",
        "172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24",
        "192.88.99.0/24", "192.168.0.0/16", "192.175.48.0/24", "198.18.0.0/15",
        "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
        "2001::/23", "2001:db8::/32", "2002::/16", "2620:4f:8000::/48", "3fff::/20",
    )
)  # fmt: skip
"""Special-purpose addresses of IANA's registries, whatever this Python's ``is_global`` knows of them, and the
host of a machine at Azure, which has a public number."""

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def is_public(text: str) -> bool:
    """Test for an address that everybody can reach.

    An IPv4 address inside an IPv6 one (``::ffff:…``) is judged as IPv4.

    Examples
    --------
    >>> [is_public(text) for text in ("8.8.8.8", "::ffff:8.8.8.8", "2606:4700::1111")]
    [True, True, True]
    >>> [is_public(text) for text in ("64:ff9b::8.8.8.8", "2002:7f00:1::", "::127.0.0.1", "fec0::1")]
    [False, False, False, False]
    """
    address = _plain(text)
    if isinstance(address, ipaddress.IPv6Address) and address not in _UNICAST:
        return False
    return address.is_global and not any(address in network for network in _SPECIAL)


def origin_of(url: str) -> tuple[str, str]:
    """Scheme and ``host:port`` of an http or https address.

    Raises
    ------
    ValueError
        If it is none, holds a user name, or signs that two readers could read differently.

    Examples
    --------
    >>> origin_of("https://Models.example/v2/models/m")
    ('https', 'models.example:443')
    >>> origin_of("http://[::0:1]:80/")
    ('http', '[::1]:80')
    """
    found = _URL.fullmatch(url)
    if found is None:
        raise ValueError(
            "an http:// or https:// address without user name and password expected, "
            "such as https://models.example/v2/models/m"
        )
    scheme = found["scheme"].lower()
    return scheme, _place(found["host"], found["port"] or ("443" if scheme == "https" else "80"))


def place_of(text: str) -> str:
    """``host:port`` in the only form that `origin_of` gives.

    Raises
    ------
    ValueError
        If it is none.
    """
    found = _PLACE.fullmatch(text)
    if found is None:
        raise ValueError(f"host:port expected, such as models.example:443, got {text!r}")
    return _place(found["host"], found["port"])


def literal_of(place: str) -> Address | None:
    """Address that a ``host:port`` states; None for a name."""
    try:
        return ipaddress.ip_address(_host(place))
    except ValueError:
        return None


def looked_up(host: str, port: int) -> list[str]:
    """Addresses of a host, as the operating system orders them.

    Raises
    ------
    OSError
        If it has none.
    """
    try:
        return [str(info[4][0]) for info in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
    except UnicodeError as error:
        raise OSError(f"{host} cannot be resolved: {error}") from error


@dataclass(frozen=True, slots=True)
class AddressGuard:
    """Rule on the addresses that a client may connect to.

    Attributes
    ----------
    networks
        Networks (CIDR) that are allowed as public addresses are.
    place
        The only ``host:port`` that may be asked; None for any.
    remedy
        What allows more, for the message of a refusal.
    look_up
        Resolves host and port.
    """

    networks: tuple[str, ...] = ()
    place: str | None = None
    remedy: str = ""
    look_up: Callable[[str, int], Sequence[str]] = looked_up

    def resolve(self, host: str, port: int) -> str:
        """Resolve a host to one address, after checking all.

        Raises
        ------
        PermissionError
            If it is another host or port than the only one allowed, or an address of it is not allowed.
        OSError
            If it cannot be resolved.
        """
        found = _place(f"[{host}]" if ":" in host else host, str(port))
        if self.place is not None and found != self.place:
            raise PermissionError(f"{found} is not {self.place}, which alone may be asked")
        addresses = self.look_up(host, port)
        for text in addresses:
            if not is_public(text) and not self._is_named(text):
                raise PermissionError(f"{host} is {text}, which is not a public address{self.remedy}")
        return addresses[0]

    def _is_named(self, text: str) -> bool:
        address = _plain(text)
        return any(address in ipaddress.ip_network(network) for network in self.networks)


def _plain(text: str) -> Address:
    """Address without its zone, as IPv4 where it only wraps one."""
    address = ipaddress.ip_address(text.partition("%")[0])
    return getattr(address, "ipv4_mapped", None) or address


def _place(host: str, port: str) -> str:
    if not 1 <= int(port) <= 65535:
        raise ValueError(f"a port from 1 to 65535 expected, got {port}")
    if host.startswith("["):
        return f"[{ipaddress.IPv6Address(host[1:-1])}]:{int(port)}"
    return f"{host.lower()}:{int(port)}"


def _host(place: str) -> str:
    return urlsplit(f"//{place}").hostname or ""
