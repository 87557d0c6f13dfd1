"""Shadow targets for mirrored requests of a proxy.

Told apart from requests of somebody who wants an answer.
"""

from collections.abc import Mapping

from outrider.monitor.http.problem import ProblemError, problem

HEADER = "x-outrider-mirror"
_SUFFIX = "-shadow"


def is_mirrored(headers: Mapping[str, str]) -> bool:
    """Test for a mirrored request.

    Its Host ends in ``-shadow``, or it says ``x-outrider-mirror: 1``.

    Envoy, Istio and the load balancers made of them add the suffix to the Host (before the port) of the
    copies that they send.

    Examples
    --------
    >>> is_mirrored({"host": "models.internal-shadow:8080"}), is_mirrored({"host": "models.internal"})
    (True, False)
    """
    host = headers.get("host", "").strip().lower()
    name, colon, port = host.rpartition(":")
    if colon and port.isdigit():
        host = name
    return host.endswith(_SUFFIX) or headers.get(HEADER, "").strip() in ("1", "true")


def require_mirror(headers: Mapping[str, str]) -> None:
    """Refuse a request that is no mirrored copy.

    Its sender waits for an answer that is not given here.

    Raises
    ------
    ProblemError
        421.
    """
    if not is_mirrored(headers):
        detail = (
            "Outrider is no model server: it takes copies of requests and answers nobody. Send this to the "
            f"model; a mirrored request has a Host that ends in {_SUFFIX}, or the header {HEADER}: 1"
        )
        raise ProblemError(problem(421, detail))
