"""Demo traffic: cards pass cameras, frames go to the production service.

``python -m outrider.demo.driver --port N --seed S --truth FILE``. Told by lines on stdin what to send:
``healthy``, ``faulty``, ``final`` or ``watched`` (a phase, once), ``flow`` (faulty traffic until the next
line). Tells by lines on stdout when a phase has been answered. The truth file gets a line for every answer.
"""

import argparse
import http.client
import json
import queue
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from .cards import PHASES, Deck, Track, read_deck, tracks

TRACKS_PER_S = 40.0
FLOW_TRACKS_PER_S = 12.0
"""Less between the phases, where the cores are wanted for training."""
BURST = 4.0
"""Mean number of tracks in a burst."""
IN_FLIGHT = 4


def bursts(rng: np.random.Generator, *, rate: float, burst: float = BURST) -> Iterator[float]:
    """Seconds before each track: none in bursts, exponential between bursts.

    Burst sizes are geometric with mean ``burst``; on average ``rate`` tracks come in a second.
    """
    while True:
        yield float(rng.exponential(burst / rate))
        for _ in range(int(rng.geometric(1.0 / burst)) - 1):
            yield 0.0


class Sender:
    """Sender of a track's frames in order, several tracks at once."""

    def __init__(self, port: int, truth: TextIO) -> None:
        self._port = port
        self._truth = truth
        self._lock = threading.Lock()
        self._tracks: queue.Queue[Track | None] = queue.Queue(maxsize=IN_FLIGHT)
        self._failure: BaseException | None = None
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(IN_FLIGHT)]
        for thread in self._threads:
            thread.start()

    def send(self, track: Track) -> None:
        """Hand a track to the next free camera, or wait."""
        while True:
            if self._failure is not None:
                raise self._failure
            try:
                self._tracks.put(track, timeout=0.5)
            except queue.Full:
                continue
            return

    def wait(self) -> None:
        """Wait until everything handed over is answered."""
        self._tracks.join()
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        """End the threads; nothing can be sent afterwards."""
        for _ in self._threads:
            self._tracks.put(None)
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=600)
        while (track := self._tracks.get()) is not None:
            try:
                if self._failure is None:
                    self._play(connection, track)
            except BaseException as error:  # noqa: BLE001 - told to the main thread, which raises it
                self._failure = error
            finally:
                self._tracks.task_done()
        connection.close()

    def _play(self, connection: http.client.HTTPConnection, track: Track) -> None:
        for frame, image in enumerate(track.frames):
            record = {
                "id": track.record_id(frame),
                "card": track.card,
                "track": track.id,
                "device": track.device,
            }
            body = record | {"image": image.astype(float).round(3).tolist()}
            answer = _ask(connection, "/predict", body)
            line = record | {
                "fault": track.fault,
                "digit": track.digit,
                "phase": track.phase,
                "answer": answer["label"],
                "version": answer["version"],
            }
            if track.phase == "final":
                line["first"] = _ask(connection, "/predict?version=1", body)["label"]
            self._write(line)

    def _write(self, line: dict[str, Any]) -> None:
        with self._lock:
            self._truth.write(json.dumps(line) + "\n")
            self._truth.flush()


def _ask(connection: http.client.HTTPConnection, path: str, body: dict[str, Any]) -> dict[str, Any]:
    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    response = connection.getresponse()
    content = response.read()
    if response.status != 200:
        raise RuntimeError(f"the service answered {response.status} to {path}: {content[:200]!r}")
    answer: dict[str, Any] = json.loads(content)
    return answer


def wait_for_service(port: int) -> None:
    """Until the service answers."""
    while True:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        try:
            connection.request("GET", "/healthz")
            if connection.getresponse().status == 200:
                return
        except OSError:
            time.sleep(0.05)
        finally:
            connection.close()


def flow(deck: Deck, seed: int) -> Iterator[Track]:
    """Endless rounds of the faulty phase, each with tracks of its own."""
    round_number = 1
    while True:
        for track in tracks(deck, "faulty", seed + 1_000_000 * round_number):
            yield replace(track, phase="flow", number=1000 * round_number + track.number)
        round_number += 1


def play(sender: Sender, of: Iterable[Track], pauses: Iterable[float], heard: "queue.Queue[str]") -> None:
    """Send tracks with pauses; endless traffic ends at a command."""
    due = time.monotonic()
    for track, pause in zip(of, pauses, strict=False):
        # Late by more than a second, the schedule starts anew: a slow machine gets no flood.
        due = max(due + pause, time.monotonic() - 1.0)
        time.sleep(max(0.0, due - time.monotonic()))
        if track.phase == "flow" and not heard.empty():
            return
        sender.send(track)


def _listen(heard: "queue.Queue[str]") -> None:
    for line in sys.stdin:
        heard.put(line.strip())
    heard.put("")


def main() -> None:
    """Entry of the process."""
    parser = argparse.ArgumentParser(prog="outrider.demo.driver")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--truth", type=Path, required=True)
    options = parser.parse_args()
    deck = read_deck(options.seed)
    heard: queue.Queue[str] = queue.Queue()
    threading.Thread(target=_listen, args=(heard,), daemon=True).start()
    wait_for_service(options.port)
    with options.truth.open("a", encoding="utf-8") as truth:
        sender = Sender(options.port, truth)
        rng = np.random.default_rng([options.seed, 5])
        while command := heard.get():
            phase = next(phase for phase in PHASES if phase == command)
            of = flow(deck, options.seed) if phase == "flow" else tracks(deck, phase, options.seed)
            rate = FLOW_TRACKS_PER_S if phase == "flow" else TRACKS_PER_S
            play(sender, of, bursts(rng, rate=rate), heard)
            sender.wait()
            truth.write(json.dumps({"done": command}) + "\n")
            truth.flush()


if __name__ == "__main__":
    main()
