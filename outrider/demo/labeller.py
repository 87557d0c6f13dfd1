"""Human labeller: queued cards, a few misread, and some late, unasked.

``python -m outrider.demo.labeller --seed S --truth FILE``; it knows ``OUTRIDER_URL`` and the key. What is on
a card it reads from the driver's truth file, as a human would from the card.
"""

import argparse
import hashlib
import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .truth import FrameAnswer, Truth

MODEL = "digits"
LATE_SHARE = 0.05
LATE_S = 1.0
"""Late labels come this long after the card."""
MISREAD = 3
"""Cards of the queue that are read wrongly at the first look."""
LOOKS_LIKE = {0: 6, 1: 7, 2: 7, 3: 5, 4: 9, 5: 3, 6: 0, 7: 1, 8: 3, 9: 4}
"""What a digit is taken for."""
LOOK_S = 1.0
"""Time taken over the cards of the queue."""
POLL_S = 0.2


class LabellingApi:
    """Client of Outrider's HTTP API for a labeller."""

    def __init__(self, url: str, key_file: Path) -> None:
        self._url = url
        self._key_file = key_file

    def ask(self, path: str, body: object = None) -> dict[str, Any]:
        """GET, or POST when there is a body."""
        request = urllib.request.Request(
            self._url + path,
            data=None if body is None else json.dumps(body).encode(),
            headers={
                "Authorization": f"Bearer {self._key_file.read_text().strip()}",
                "Content-Type": "application/json",
            },
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            found: dict[str, Any] = json.loads(answer.read())
        return found

    def label(self, digits: dict[str, int], source: str) -> None:
        """Post labels as one block."""
        labels = [
            {"model": MODEL, "id": record, "label": {"label": digit}, "source": source}
            for record, digit in digits.items()
        ]
        if labels:
            answer = self.ask("/v1/labels", labels)
            if answer["accepted"] != len(labels):
                raise RuntimeError(f"{len(labels)} labels sent, but {answer}")


def is_late(track: str, frame: str, seed: int) -> bool:
    """True for unasked looks: one frame of 5 % of tracks."""
    digest = hashlib.blake2b(track.encode(), digest_size=8, salt=str(seed).encode()[:16]).digest()
    number = int.from_bytes(digest, "big")
    return number % 10_000 < LATE_SHARE * 10_000 and number // 10_000 % 5 == int(frame)


def late_labels(answers: Iterable[FrameAnswer], seed: int) -> dict[str, int]:
    """Records that get a late label, with their digit."""
    return {
        answer.id: answer.digit
        for answer in answers
        if answer.phase == "faulty" and is_late(answer.track, answer.id.rpartition(".")[2], seed)
    }


def misread(records: Iterable[str], seed: int) -> list[str]:
    """Queued records that get a wrong label, the same each time."""
    salt = str(seed).encode()[:16]

    def draw(record: str) -> bytes:
        return hashlib.blake2b(record.encode(), digest_size=8, salt=salt, person=b"misread").digest()

    return sorted(records, key=draw)[:MISREAD]


def main() -> None:
    """Entry of the process."""
    parser = argparse.ArgumentParser(prog="outrider.demo.labeller")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--truth", type=Path, required=True)
    options = parser.parse_args()
    server = LabellingApi(os.environ["OUTRIDER_URL"], Path(os.environ["OUTRIDER_KEY_FILE"]))
    truth = Truth(options.truth)
    digits: dict[str, int] = {}
    waiting: list[tuple[float, str, int]] = []
    while True:
        seen = len(truth.answers)
        truth.read()
        new = truth.answers[seen:]
        digits |= {answer.id: answer.digit for answer in new}
        now = time.monotonic()
        late = late_labels(new, options.seed)
        waiting += [(now + LATE_S, record, digit) for record, digit in late.items()]
        due = {record: digit for when, record, digit in waiting if when <= now}
        waiting = [item for item in waiting if item[0] > now]
        try:
            server.label(due, "inspection")
            answer_queue(server, digits, options.seed)
        except OSError as error:  # no key: not up yet; or it takes its time
            if isinstance(error, urllib.error.HTTPError) and error.code < 500:
                raise
            waiting += [(now, record, digit) for record, digit in due.items()]  # the server is away for now
        time.sleep(POLL_S)


def answer_queue(server: LabellingApi, digits: dict[str, int], seed: int) -> None:
    """Label all queued cards as one block, a few of them wrongly."""
    found = server.ask(f"/v1/label-requests?model={MODEL}&status=open")
    wanted = [request["record_id"] for request in found["requests"]]
    if wanted:
        time.sleep(LOOK_S)
        said = {record: digits[record] for record in wanted}
        said |= {record: LOOKS_LIKE[digits[record]] for record in misread(wanted, seed)}
        server.label(said, "labeller")


if __name__ == "__main__":
    main()
