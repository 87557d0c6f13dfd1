"""Gateway configurations that mirror requests to an address."""

from urllib.parse import urlsplit

_NGINX = """\
# nginx: in http. A copy that is not answered in time holds up the next request of its connection: one such,
# and for five seconds copies go to a socket that nobody made, where they fail at once
upstream outrider {{
    zone outrider 64k;
    server {address} max_fails=1 fail_timeout=5s;
    server unix:/outrider-nobody max_fails=0 backup;
    keepalive 16;
}}
# nginx: beside the proxy_pass of what is to be copied
mirror /outrider-copy;
location = /outrider-copy {{
    internal;
    error_log /dev/null;
    proxy_pass http://outrider$request_uri;
    proxy_http_version 1.1;
    proxy_next_upstream off;
    proxy_set_header Connection "";
    proxy_set_header X-Request-Id $request_id;
    proxy_set_header Authorization "";
    proxy_set_header Cookie "";
    proxy_connect_timeout 100ms;
    proxy_send_timeout 200ms;
    proxy_read_timeout 200ms;
}}"""
_ENVOY = """\
# Envoy: in the route's action; a cluster named outrider with a connect_timeout of 0.1s is {address}
request_mirror_policies:
  - cluster: outrider
    runtime_fraction: {{default_value: {{numerator: 100}}}}"""
_GATEWAY = """\
# Gateway API: in the rule of an HTTPRoute; a Service named outrider leads to port {port} of this machine
filters:
  - type: RequestMirror
    requestMirror: {{backendRef: {{name: outrider, port: {port}}}}}"""


def snippets(url: str) -> str:
    """Configurations of nginx, Envoy and Gateway API that mirror to ``url``."""
    parts = urlsplit(url)
    forms = (_NGINX, _ENVOY, _GATEWAY)
    return "\n\n".join(form.format(address=parts.netloc, port=parts.port) for form in forms)
