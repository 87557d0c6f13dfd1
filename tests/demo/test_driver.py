import io
import itertools
import json
import queue
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import pytest

from outrider.demo import cards
from outrider.demo.driver import Sender, bursts, flow, play
from outrider.demo.labeller import is_late, late_labels
from outrider.demo.truth import FrameAnswer


def test_bursts_have_the_asked_rate_and_size() -> None:
    pauses = np.array(list(itertools.islice(bursts(np.random.default_rng(0), rate=40.0), 20_000)))
    assert 1 / pauses.mean() == pytest.approx(40.0, rel=0.05)
    assert (pauses == 0).mean() == pytest.approx(0.75, abs=0.02)  # bursts of four on average
    gaps = pauses[pauses > 0]
    assert gaps.std() == pytest.approx(gaps.mean(), rel=0.05)  # exponential


class Production(BaseHTTPRequestHandler):
    """Answers 7 and remembers what it was asked."""

    protocol_version = "HTTP/1.1"
    asked: list[tuple[str, str]]

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.asked.append((body["id"], self.path))
        answer = json.dumps({"label": 7, "version": "2"}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def production() -> Iterator[tuple[int, list[tuple[str, str]]]]:
    asked: list[tuple[str, str]] = []
    handler = type("Handler", (Production,), {"asked": asked})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        server.block_on_close = False
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server.server_address[1], asked
        server.shutdown()
        thread.join()


def test_frames_of_a_track_are_sent_in_order_and_told(
    production: tuple[int, list[tuple[str, str]]],
) -> None:
    port, asked = production
    deck, truth = cards.read_deck(1), io.StringIO()
    sender = Sender(port, truth)
    chosen = list(itertools.islice(cards.tracks(deck, "faulty", 1), 12))
    play(sender, chosen, itertools.repeat(0.0), queue.Queue())
    sender.wait()
    sender.close()
    answers = [FrameAnswer(**json.loads(line)) for line in truth.getvalue().splitlines()]
    assert {a.id for a in answers} == {t.record_id(i) for t in chosen for i in range(cards.FRAMES)}
    for track in chosen:
        sent = [record for record, _ in asked if record.startswith(track.id)]
        assert sent == [track.record_id(frame) for frame in range(cards.FRAMES)]
    assert {path for _, path in asked} == {"/predict"}


def test_final_frames_are_asked_of_both_versions(production: tuple[int, list[tuple[str, str]]]) -> None:
    port, asked = production
    truth = io.StringIO()
    sender = Sender(port, truth)
    sender.send(next(cards.tracks(cards.read_deck(1), "final", 1)))
    sender.wait()
    sender.close()
    assert [path for _, path in asked] == ["/predict", "/predict?version=1"] * cards.FRAMES
    assert all(json.loads(line)["first"] == 7 for line in truth.getvalue().splitlines())


def test_a_service_that_is_away_is_an_error() -> None:
    sender = Sender(1, io.StringIO())  # nobody listens there
    sender.send(next(cards.tracks(cards.read_deck(1), "healthy", 1)))
    with pytest.raises(OSError, match="refused"):
        sender.wait()
    sender.close()


def test_endless_traffic_never_repeats_an_id_and_ends_when_something_is_said(
    production: tuple[int, list[tuple[str, str]]],
) -> None:
    deck = cards.read_deck(1)
    tracks = list(itertools.islice(flow(deck, 1), 1700))
    assert len({track.id for track in tracks}) == 1700
    assert {track.phase for track in tracks} == {"flow"}
    heard: queue.Queue[str] = queue.Queue()
    heard.put("final")
    sender = Sender(production[0], io.StringIO())
    play(sender, flow(deck, 1), itertools.repeat(0.0), heard)
    sender.wait()
    sender.close()
    assert production[1] == []


def test_one_frame_of_one_track_in_twenty_is_labelled_late() -> None:
    answers = [
        FrameAnswer(f"t{t}.{f}", "c", f"t{t}", "cam-1", "healthy", 3, "faulty", 3, "1")
        for t in range(4000)
        for f in range(5)
    ]
    late = late_labels(answers, seed=1)
    assert len(late) / 4000 == pytest.approx(0.05, abs=0.012)
    assert len({record.partition(".")[0] for record in late}) == len(late)
    assert set(late.values()) == {3}
    assert late == {a.id: 3 for a in answers if is_late(a.track, a.id.rpartition(".")[2], 1)}
    assert late_labels(answers, seed=2) != late
