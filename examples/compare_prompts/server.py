"""A language model to try prompts on: it routes letters to a department, in the form of OpenAI's API.

A stand-in of forty lines for what runs behind your gateway. Like one it draws its answers: at a temperature
above 0 it takes the second best department once in fifty times. ``python server.py 8900`` serves it.
"""

import json
import random
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

DEPARTMENTS = {
    "billing": "invoice charged refund payment price card money bill twice",
    "shipping": "parcel delivery late arrived courier address lost track package",
    "returns": "broken return exchange wrong size damaged replace faulty",
    "account": "password login email account locked sign name profile",
}


def answer(body):
    """Text of an answer: the department, in the form that the system prompt asks for."""
    system = " ".join(m["content"] for m in body["messages"] if m["role"] == "system")
    words = set(body["messages"][-1]["content"].lower().replace(".", " ").split())
    best = sorted(DEPARTMENTS, key=lambda name: -len(words & set(DEPARTMENTS[name].split())))
    if "short letters are about the account" in system.lower() and len(words) < 6:
        best.insert(0, "account")
    second = random.random() < 0.02 and body.get("temperature", 1.0) > 0
    name = best[1] if second else best[0]
    return json.dumps({"department": name}) if "JSON" in system else name


class Handler(BaseHTTPRequestHandler):
    """Answers ``POST /v1/chat/completions``."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1  # an answer leaves in one piece

    def do_POST(self):
        """One question, one answer."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        text = answer(body)
        message = {"role": "assistant", "content": text}
        usage = {"prompt_tokens": len(str(body["messages"])) // 4, "completion_tokens": len(text) // 4 + 1}
        choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
        found = {"id": f"a{random.getrandbits(64):x}", "object": "chat.completion", "choices": choices}
        payload = json.dumps(found | {"usage": usage}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    def log_message(self, *_):
        """Nothing is logged."""


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
