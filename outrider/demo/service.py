"""Demo's digit reader: copies calls to Outrider, reloads on webhooks.

``python -m outrider.demo.service --folder PROJECT --port N``. It knows ``OUTRIDER_URL``, the key, and the
webhook's secret; of Outrider it uses the client alone. The version it replaced stays loaded, so that the
demo can ask both about the same card (``/predict?version=1``, which is not captured).
"""

import argparse
import asyncio
import importlib
import json
import logging
import os
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import uvicorn
from safetensors.torch import load as load_tensors
from standardwebhooks.webhooks import Webhook, WebhookVerificationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from outrider.monitor.client import Client

log = logging.getLogger("demo.service")
MODEL = "digits"


class DigitReader:
    """The versions that are loaded; ``current`` answers."""

    def __init__(self, architecture: Callable[[], torch.nn.Module]) -> None:
        self._architecture = architecture
        self._loaded: dict[str, torch.nn.Module] = {}
        self.current = ""

    def load(self, version: str, weights: bytes) -> None:
        """Load a version as the current one."""
        net = self._architecture()
        net.load_state_dict(load_tensors(weights))
        self._loaded[version] = net.eval()
        self.current = version

    def has(self, version: str) -> bool:
        """Test for a loaded version."""
        return version in self._loaded

    def read(self, image: list[list[float]], version: str) -> dict[str, Any]:
        """The digit on one image."""
        with torch.inference_mode():
            logits = self._loaded[version](torch.tensor([image], dtype=torch.float32))
        best = logits.softmax(dim=1)[0].topk(2)
        score, second = best.values.tolist()
        return {"label": int(best.indices[0]), "score": score, "margin": score - second}


class Service:
    """The routes."""

    def __init__(self, reader: DigitReader, client: Client, secret: str, key: Callable[[], str]) -> None:
        self._reader = reader
        self._client = client
        self._webhook = Webhook(secret)
        self._key = key
        self._received: dict[str, dict[str, Any]] = {}
        self.app = Starlette(
            routes=[
                Route("/predict", self.predict, methods=["POST"]),
                Route("/hooks", self.hook, methods=["POST"]),
                Route("/hooks", self.hooks, methods=["GET"]),
                Route("/healthz", self.health),
            ]
        )

    async def predict(self, request: Request) -> Response:
        """Read one card."""
        card = json.loads(await request.body())
        asked = request.query_params.get("version")
        version = asked or self._reader.current
        if not self._reader.has(version):
            return JSONResponse({"detail": f"version {version} is not loaded"}, status_code=404)
        answer = self._reader.read(card["image"], version)
        if asked is None:
            self._client.capture(
                {"image": card["image"]},
                answer,
                id=card["id"],
                entity=card["card"],
                attrs={"device": card["device"], "track": card["track"]},
                version=version,
            )
        return JSONResponse({**answer, "version": version})

    async def hook(self, request: Request) -> Response:
        """Handle an event of Outrider's webhook.

        A promotion or a rollback is answered once the version is loaded.
        """
        body = await request.body()
        try:
            self._webhook.verify(body, dict(request.headers))
        except WebhookVerificationError as error:
            return JSONResponse({"detail": str(error)}, status_code=401)
        event, message = json.loads(body), request.headers["webhook-id"]
        if message not in self._received:  # delivery is at least once
            if event["type"] in ("model.promoted", "model.rolled_back"):
                version = event["data"]["version"]
                weights = await asyncio.to_thread(self._fetch, version)
                self._reader.load(version, weights)
                log.info("version %s answers now", version)
            self._received[message] = {"type": event["type"], "at": time.time(), "deliveries": 0}
        self._received[message]["deliveries"] += 1
        return JSONResponse({"status": "taken"})

    async def hooks(self, request: Request) -> Response:  # noqa: ARG002 - a route's signature
        """The events that were taken, by webhook-id."""
        return JSONResponse(self._received)

    async def health(self, request: Request) -> Response:  # noqa: ARG002 - a route's signature
        """Current version, and counts of the copies sent."""
        counts = self._client.counts
        return JSONResponse(
            {
                "version": self._reader.current,
                "offered": counts.offered,
                "acknowledged": counts.acknowledged,
                "queued": counts.queued,
                "lost": counts.shed + counts.error + counts.sampled_out,
            }
        )

    def _fetch(self, version: str) -> bytes:
        url = f"{self._client.url}/v1/models/{MODEL}/versions/{version}/weights"
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {self._key()}"})
        with urllib.request.urlopen(request, timeout=120) as answer:
            weights: bytes = answer.read()
        return weights


def main() -> None:
    """Entry of the process."""
    parser = argparse.ArgumentParser(prog="outrider.demo.service")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--port", type=int, required=True)
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    torch.set_num_threads(1)
    sys.path.insert(0, str(options.folder))
    reader = DigitReader(importlib.import_module("model").DigitNet)
    champion = options.folder / "champion.safetensors"
    while not champion.exists():
        time.sleep(0.05)
    reader.load("1", champion.read_bytes())
    client = Client(model=MODEL)
    service = Service(
        reader,
        client,
        secret=(options.folder / "webhook.secret").read_text().strip(),
        key=lambda: Path(os.environ["OUTRIDER_KEY_FILE"]).read_text().strip(),
    )
    try:
        uvicorn.run(
            service.app,
            port=options.port,
            log_level="warning",
            access_log=False,
            timeout_keep_alive=3600,  # cameras keep their connections
        )
    finally:
        client.close()


if __name__ == "__main__":
    main()
