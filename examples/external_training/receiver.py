"""Takes Outrider's events and trains when one asks for it: ``python receiver.py``."""

import json
import os
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from standardwebhooks import Webhook, WebhookVerificationError

PORT = int(os.environ.get("PORT", "8492"))
SECRET = Webhook(Path("webhook.secret").read_text().strip())
seen = set()


class Receiver(BaseHTTPRequestHandler):
    """Answers at once: the training goes on in a process of its own."""

    def do_POST(self):
        """Take an event that has the right signature, once."""
        body = self.rfile.read(int(self.headers["content-length"]))
        try:
            event = SECRET.verify(body, dict(self.headers))
        except WebhookVerificationError:
            self.send_response(401)
        else:
            self.send_response(204)
            if self.headers["webhook-id"] not in seen:  # it comes at least once
                seen.add(self.headers["webhook-id"])
                train(event)
        self.end_headers()

    def log_message(self, *_):
        """Say nothing of requests."""


def train(event):
    """Start a training for a job that waits for a version."""
    if event["type"] == "retrain.requested" and "token" in event["data"]:
        environment = os.environ | {"OUTRIDER_EVENT": json.dumps(event)}
        subprocess.Popen([sys.executable, "train.py"], env=environment)


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", PORT), Receiver).serve_forever()
