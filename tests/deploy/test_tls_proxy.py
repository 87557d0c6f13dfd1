"""TLS in front of a service: the configuration of `deploy/` in a real nginx, with a certificate."""

import re
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.end_to_end.service import CONFIG, Service, write_project
from tests.nginx import free_port, nginx
from tests.soak import PATIENCE_S

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "install.md"
NAME = "outrider.example"
CHANGES = {
    "server 127.0.0.1:8470;": "server 127.0.0.1:{port};",
    "listen 443 ssl;": "listen 127.0.0.1:{tls} ssl;",
    "/etc/ssl/outrider/fullchain.pem": "{folder}/fullchain.pem",
    "/etc/ssl/outrider/privkey.pem": "{folder}/privkey.pem",
}
"""Where the test differs from the file: port, and place of the certificate."""


def write_certificate(folder: Path) -> None:
    """A certificate for the proxy's name, signed by itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, NAME)])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(NAME)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    (folder / "fullchain.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "privkey.pem").write_bytes(private)


def site(folder: Path, *, port: int, tls: int) -> str:
    """The file of `deploy/`, with the test's own ports and certificate."""
    text = (ROOT / "deploy" / "nginx-tls.conf").read_text(encoding="utf-8")
    for before, after in CHANGES.items():
        assert text.count(before) == 1, before
        text = text.replace(before, after.format(port=port, tls=tls, folder=folder))
    return text


def test_records_and_pages_pass_through_tls(tmp_path: Path) -> None:
    write_certificate(tmp_path)
    tls = free_port()
    [named] = re.findall(r"```toml\n\[server\]\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    config = CONFIG.replace("[server]\n", f"[server]\n{named}")
    with Service(write_project(tmp_path / "project", config=config)) as service:
        port = service.client.base_url.port
        assert port is not None
        trusted = ssl.create_default_context(cafile=str(tmp_path / "fullchain.pem"))
        key = service.client.headers["Authorization"]
        with (
            nginx(tmp_path / "nginx", site(tmp_path, port=port, tls=tls)),
            httpx.Client(
                verify=trusted,
                base_url=f"https://127.0.0.1:{tls}",
                timeout=PATIENCE_S,
                headers={"Host": NAME},
            ) as client,
        ):

            def ask(method: str, path: str, content: bytes = b"", **headers: str) -> httpx.Response:
                """Answer to the name of the certificate, on the address of the test."""
                told = {"sni_hostname": NAME}
                return client.request(method, path, content=content, headers=headers, extensions=told)

            assert ask("GET", "/healthz").json() == {"status": "ok"}
            assert ask("GET", "/v1/overview").status_code == 401
            record = b'{"model": "toy", "id": "a", "inputs": {"x": 0.95}}'
            sent = ask("POST", "/v1/records", record, authorization=key)
            assert sent.json() == {"accepted": 1, "rejected": []}
            page = ask("GET", "/m/toy", authorization=key)
            assert page.status_code == 200
            assert page.headers["strict-transport-security"].startswith("max-age=")
            assert ask("GET", "/metrics", authorization=key).status_code == 200
            link = ask("POST", "/v1/logins", b"{}", authorization=key).text
            token = re.findall(r"token=([\w.-]+)", link)[0]
            form = {"content-type": "application/x-www-form-urlencoded"}
            browser = ask("POST", "/login", f"token={token}".encode(), **form)
            assert browser.status_code == 303
            assert "; Secure" in browser.headers["set-cookie"]
            # A body above the limits is refused by the service, with its reason.
            large = b'{"model": "toy", "inputs": {"x": "' + b"x" * 11_000_000 + b'"}}'
            refused = ask("POST", "/v1/records", large, authorization=key)
            assert refused.status_code == 413
            assert "limits.body_bytes" in refused.json()["detail"]
        service.wait_judged(1)


@pytest.mark.parametrize("header", ["X-Forwarded-For", "X-Forwarded-Proto", "Host"])
def test_every_place_of_the_proxy_sets_what_a_client_could_forge(header: str) -> None:
    text = (ROOT / "deploy" / "nginx-tls.conf").read_text(encoding="utf-8")
    assert text.count(f"proxy_set_header {header} ") == text.count("proxy_pass ")
