"""Guard of addresses that strangers name, against private networks."""

import ipaddress
import socket
from urllib.parse import urlsplit


def private_address(url: str, *, allow_private: bool) -> str:
    """Reason against an address; empty for none.

    Examples
    --------
    >>> private_address("http://127.0.0.1:9/v2/models/m", allow_private=False)
    '127.0.0.1 is 127.0.0.1, which is not a public address'
    >>> private_address("http://127.0.0.1:9/v2/models/m", allow_private=True)
    ''
    >>> private_address("file:///etc/passwd", allow_private=True)
    'an http:// or https:// address without user name and password expected'
    """
    try:
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        return "an http:// or https:// address expected"
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.password:
        return "an http:// or https:// address without user name and password expected"
    if allow_private:
        return ""
    try:
        told = socket.getaddrinfo(parts.hostname, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        return f"{parts.hostname} cannot be resolved: {error}"
    for text in (str(info[4][0]) for info in told):
        if not is_public(text):
            return f"{parts.hostname} is {text}, which is not a public address"
    return ""


def is_public(text: str) -> bool:
    """Test for an address that everybody can reach."""
    address = ipaddress.ip_address(text.partition("%")[0])
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_global) and not address.is_multicast
