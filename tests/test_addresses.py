"""What is public, what an address names, and what a guard lets through."""

import ipaddress
import socket
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.addresses import ANYWHERE, AddressGuard, is_public, origin_of, place_of

PUBLIC = ["1.1.1.1", "8.8.8.8", "198.17.255.255", "223.255.255.255", "2606:4700::1111", "2a00:1450::1",
          "::ffff:8.8.8.8", "2001:4860:4860::8888"]  # fmt: skip
CLOSED = {
    "this network": ["0.0.0.0", "0.1.2.3"],
    "private": ["10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1"],
    "carrier-grade NAT": ["100.64.0.1", "100.127.255.255"],
    "loopback": ["127.0.0.1", "127.255.0.1", "::1"],
    "link-local": ["169.254.169.254", "fe80::1", "fe80::1%eth0"],
    "protocol assignments": ["192.0.0.1", "192.0.0.9", "192.0.0.170", "2001:1::1", "2001:20::1"],
    "documentation": ["192.0.2.1", "198.51.100.1", "203.0.113.1", "2001:db8::1", "3fff::1"],
    "anycast of AS112, AMT and 6to4": ["192.31.196.1", "192.52.193.1", "192.175.48.1", "192.88.99.1"],
    "benchmarks": ["198.18.0.1", "198.19.255.255", "2001:2::1"],
    "multicast": ["224.0.0.1", "239.255.255.250", "ff02::1", "ff0e::1"],
    "reserved": ["240.0.0.1", "255.255.255.255"],
    "unspecified": ["::"],
    "IPv4-mapped": ["::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "::ffff:224.0.0.1"],
    "IPv4-compatible": ["::127.0.0.1", "::8.8.8.8", "::ffff:0:127.0.0.1"],
    "NAT64": ["64:ff9b::127.0.0.1", "64:ff9b::8.8.8.8", "64:ff9b:1::10.0.0.1"],
    "6to4": ["2002:7f00:1::", "2002:808:808::1"],
    "Teredo": ["2001:0:4136:e378:8000:63bf:3fff:fdd2", "2001::1"],
    "site-local and unique local": ["fec0::1", "feff::1", "fc00::1", "fd12:3456::1"],
    "host at Azure": ["168.63.129.16", "::ffff:168.63.129.16"],
    "discard and unassigned": ["100::1", "4000::1", "1::1"],
}


@pytest.mark.parametrize("text", PUBLIC)
def test_address_that_everybody_reaches_is_public(text: str) -> None:
    assert is_public(text)


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, texts in CLOSED.items() for text in texts])
def test_special_address_is_not_public(kind: str, text: str) -> None:
    assert not is_public(text), kind


@given(st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6)))
def test_public_address_is_global_and_wraps_none_that_is_not(address: Any) -> None:
    if not is_public(str(address)):
        return
    mapped = getattr(address, "ipv4_mapped", None) or address
    assert mapped.is_global
    kinds = (mapped.is_multicast, mapped.is_private, mapped.is_reserved, mapped.is_unspecified)
    assert not any(kinds)
    assert getattr(mapped, "sixtofour", None) is None
    assert getattr(mapped, "teredo", None) is None


@given(st.ip_addresses(v=4), st.sampled_from(["::ffff:0:0", "64:ff9b::", "64:ff9b:1::", "::"]))
def test_ipv4_inside_ipv6_is_no_more_public_than_alone(inner: Any, prefix: str) -> None:
    outer = ipaddress.IPv6Address(int(ipaddress.IPv6Address(prefix)) | int(inner))
    assert not is_public(str(outer)) or is_public(str(inner))


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("http://a.example", ("http", "a.example:80")),
        ("HTTPS://A.example/v2/models/m?x=1", ("https", "a.example:443")),
        ("http://[0:0::1]:08000/", ("http", "[::1]:8000")),
        ("http://10.0.0.1:9/x", ("http", "10.0.0.1:9")),
    ],
)
def test_origin_has_one_form(url: str, origin: tuple[str, str]) -> None:
    assert origin_of(url) == origin


@pytest.mark.parametrize(
    "url",
    [
        "ftp://a/b", "a.example", "file:///etc/passwd", "http://", "http:///x", "http://user@a.example/",
        "http://user:word@a.example/", "http://:word@a.example/", "http://a.example\\@b.example/",
        "http://a.example:80\\.b.example/", "http://a.example\r\nhost: b/", "http://a.example /x",
        "http://a.example:0/", "http://a.example:99999/", "http://a.example:80:81/", "http://[::1/",
        "http://\uff41.example/", "http://\u212a.example/", "http\u017f://a.example/",
        "http://a.example#@b.example/", "http://a.example/#@b", "http://a%2eexample/",
    ],
)  # fmt: skip
def test_address_that_two_readers_could_read_differently_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"expected|permitted"):
        origin_of(url)


@pytest.mark.parametrize("text", ["a.example", "http://a.example:1", ":80", "a.example:x", "a.example:0", ""])
def test_place_needs_host_and_port(text: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        place_of(text)


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "localhost", "10.0.0.1", "169.254.169.254", "::1", "::ffff:127.0.0.1", "0.0.0.0",
     "100.64.0.1", "127.1", "0x7f.1", "2130706433"],
)  # fmt: skip
def test_guard_refuses_private_address_unless_its_network_is_named(host: str) -> None:
    with pytest.raises(PermissionError, match=r"not a public address; name its network$"):
        AddressGuard(remedy="; name its network").resolve(host, 80)
    assert AddressGuard(ANYWHERE).resolve(host, 80)


def test_guard_passes_public_address_and_named_network_alone() -> None:
    assert AddressGuard().resolve("8.8.8.8", 443) == "8.8.8.8"
    guard = AddressGuard(("10.0.0.0/8", "::1/128"))
    assert [guard.resolve("10.1.2.3", 1), guard.resolve("::1", 1)] == ["10.1.2.3", "::1"]
    with pytest.raises(PermissionError, match=r"^192\.168\.0\.1 is 192\.168\.0\.1"):
        guard.resolve("192.168.0.1", 1)


def test_guard_refuses_name_of_which_one_address_is_private() -> None:
    with pytest.raises(PermissionError, match=r"a\.example is 127\.0\.0\.1"):
        AddressGuard(look_up=lambda _host, _port: ["8.8.8.8", "127.0.0.1"]).resolve("a.example", 80)


@pytest.mark.parametrize(("host", "port"), [("127.0.0.2", 80), ("127.0.0.1", 81), ("localhost", 80)])
def test_guard_of_one_place_refuses_every_other(host: str, port: int) -> None:
    guard = AddressGuard(ANYWHERE, place="127.0.0.1:80")
    assert guard.resolve("127.0.0.1", 80) == "127.0.0.1"
    with pytest.raises(PermissionError, match=r"127\.0\.0\.1:80, which alone may be asked"):
        guard.resolve(host, port)


def test_guard_reports_name_that_cannot_be_resolved_as_system_error() -> None:
    with pytest.raises(socket.gaierror):
        AddressGuard().resolve("no.such.host.invalid", 80)
    with pytest.raises(OSError, match="cannot be resolved"):
        AddressGuard().resolve("a" * 300 + ".invalid", 80)
