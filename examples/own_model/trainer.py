"""A trainer of your own: takes Outrider's events, and trains when one asks for it (docs/events.md)."""

import json
import os
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import SimpleQueue
from threading import Thread

from standardwebhooks import Webhook, WebhookVerificationError

ADDRESS = ("127.0.0.1", 8482)
SECRET = Webhook(Path("webhook.secret").read_text().strip())
events = SimpleQueue()
seen = set()


class Receiver(BaseHTTPRequestHandler):
    """Answers at once: what takes longer than ten seconds counts as not delivered, and comes again."""

    def do_POST(self):
        """Take an event that has the right signature."""
        body = self.rfile.read(int(self.headers["content-length"]))
        try:
            event = SECRET.verify(body, dict(self.headers))
        except WebhookVerificationError:
            self.send_response(401)
        else:
            self.send_response(204)
            if self.headers["webhook-id"] not in seen:  # it comes at least once
                seen.add(self.headers["webhook-id"])
                events.put(event)
        self.end_headers()

    def log_message(self, *_):
        """Say nothing of requests."""


def report_back(data):
    """Train, and put the candidate before the gate."""
    version = Path("outrider.toml").read_text().count("challengers") + 2
    variables = {"MODEL": data["model"], "JOB": data["job"], "VERSION": str(version)}
    variables["URL"] = data["dataset"]["url"]
    subprocess.run(["bash", "-eu", "retrain.sh"], env=os.environ | variables, check=True)


if __name__ == "__main__":
    server = ThreadingHTTPServer(ADDRESS, Receiver)
    Thread(target=server.serve_forever, daemon=True).start()
    sys.stdout.write("waiting for events\n")
    while True:
        event = events.get()
        sys.stdout.write(f"{event['type']} {json.dumps(event['data'])[:120]}\n")
        sys.stdout.flush()
        if event["type"] == "retrain.requested" and event["data"]["dataset"] is not None:
            report_back(event["data"])
