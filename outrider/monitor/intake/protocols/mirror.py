"""Mirrored requests of a proxy, as opposed to those whose sender wants an answer."""

from collections.abc import Mapping

from outrider.monitor.http.problem import ProblemError, problem

HEADER = "x-outrider-mirror"
_SUFFIX = "-shadow"


def is_mirrored(headers: Mapping[str, str]) -> bool:
    """Test for a Host that ends in ``-shadow`` (Envoy, Istio), or ``x-outrider-mirror: 1``."""
    host = headers.get("host", "").strip().lower()
    name, colon, port = host.rpartition(":")
    if colon and port.isdigit():
        host = name
    return host.endswith(_SUFFIX) or headers.get(HEADER, "").strip() in ("1", "true")


def require_mirror(headers: Mapping[str, str]) -> None:
    """Refuse a request that is no mirrored copy: its sender waits for an answer."""
    if not is_mirrored(headers):
        detail = (
            "Outrider is no model server: it takes copies of requests and answers nobody. Send this to the "
            f"model; a mirrored request has a Host that ends in {_SUFFIX}, or the header {HEADER}: 1"
        )
        raise ProblemError(problem(421, detail))
