"""Encoded images, texts and references from intake to flags, replays and datasets."""

import hashlib
import os
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from outrider.assertions import Batch
from outrider.assertions.loading import load_assertions
from outrider.commands.replay import _run as stored_again
from outrider.dataops.datasets import collect as flagged
from outrider.dataops.datasets.label_fates import LabelScope
from outrider.dataops.payloads.objects import LocalObjects
from outrider.monitor.settings.payloads import open_payloads
from outrider.monitor.worker.objectives import Objectives
from outrider.monitor.worker.replay import judged_until, replay, stretch
from tests.soak import PATIENCE_S

from .payload_project import CHECKS, CONFIG, encoded, feeder, inline, stored_at, write_project
from .workbench import Workbench, workbench


def record(number: int, image: Any, **rest: Any) -> dict[str, Any]:
    return {"id": f"r{number}", "inputs": {"image": image, **rest}, "entity": "e"}


def letters(bench: Workbench) -> dict[str, str]:
    return dict(bench.rows("SELECT record_id, detail FROM dead_letter WHERE reason = 'payload'"))


def objects(bench: Workbench) -> LocalObjects:
    return LocalObjects(bench.settings.data_folder / "objects")


def work(bench: Workbench, records: int) -> None:
    """Step until the worker has judged so many records; it never waits for a fetch itself."""
    deadline = time.monotonic() + PATIENCE_S
    while bench.count("records") < records:
        bench.worker.step()
        assert time.monotonic() < deadline
    bench.work()


def test_images_of_any_size_and_kind_are_judged_as_tensors_of_one(tmp_path: Path) -> None:
    with workbench(write_project(tmp_path)) as bench:
        feed = feeder(bench)
        feed(
            record(0, inline(encoded(0.95))),
            record(1, inline(encoded(0.2, size=(40, 30), kind="JPEG"))),
            record(2, inline(encoded(0.99, size=(1, 1), kind="WEBP")), note="LOUD"),
        )
        bench.work()
        assert bench.flags("glaring") == {"r0", "r2"}
        assert bench.flags("shouted") == {"r2"}
        assert bench.flags("jumps") == {"r1", "r2"}
        assert bench.rows("SELECT id, predicted FROM record ORDER BY id") == [
            ("r0", "1"),
            ("r1", "0"),
            ("r2", "1"),
        ]
        assert not letters(bench)


def test_a_payload_that_cannot_be_opened_costs_its_record_alone(tmp_path: Path) -> None:
    config = write_project(
        tmp_path, CONFIG.replace("fetch_s = 5.0", "payload_pixels = 1000\npayload_bytes = 5000")
    )
    images = tmp_path / "images"
    with workbench(config) as bench:
        good = stored_at(images / "good.png", encoded(0.95))
        gone = stored_at(images / "gone.png", encoded(0.96))
        (images / "gone.png").unlink()
        changed = stored_at(images / "changed.png", encoded(0.97))
        (images / "changed.png").write_bytes(encoded(0.1))
        large = stored_at(images / "large.png", os.urandom(6000))
        secret = tmp_path / "secret.png"
        secret.write_bytes(encoded(0.98))
        linked = stored_at(images / "linked.png", secret.read_bytes())
        (images / "linked.png").unlink()
        (images / "linked.png").symlink_to(secret)
        pipe = stored_at(images / "pipe.png", encoded(0.98))
        (images / "pipe.png").unlink()
        os.mkfifo(images / "pipe.png")
        feeder(bench)(
            record(0, good),
            record(1, gone),
            record(2, changed),
            record(3, large),
            record(4, linked),
            record(5, pipe),
            record(6, inline(b"no image")),
            record(7, inline(encoded(0.9)[:-28])),
            record(8, inline(encoded(0.9, size=(50, 50)))),
            record(9, inline(encoded(0.1)), note=inline(b"\xff\xfe")),
            record(10, inline(encoded(0.1))),
        )
        work(bench, 2)
        assert bench.rows("SELECT id FROM record ORDER BY id") == [("r0",), ("r10",)]
        assert bench.flags("glaring") == {"r0"}
        reasons = {
            "r1": "does not exist",
            "r2": "the record says",
            "r3": "more than 5000 bytes",
            "r4": "leads out of",
            "r5": "no regular file",
            "r6": "no image in PNG, JPEG",
            "r7": "cannot be decoded",
            "r8": "50 x 50 pixels, at most 1000",
            "r9": "inputs.note: text in UTF-8 expected",
        }
        found = letters(bench)
        assert found.keys() == reasons.keys()
        assert [key for key, reason in reasons.items() if reason not in found[key]] == []
        # What was refused may come again, whole.
        feeder(bench)(record(1, inline(encoded(0.96))))
        bench.work()
        assert "r1" in bench.flags("glaring")


def test_a_fetch_that_hangs_holds_up_nothing_but_its_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = write_project(tmp_path, CONFIG.replace("fetch_s = 5.0", "fetch_s = 0.3"))
    with workbench(config) as bench:
        slow = stored_at(tmp_path / "images" / "slow.png", encoded(0.95))
        quick = stored_at(tmp_path / "images" / "quick.png", encoded(0.96))
        store = bench.worker.context.pipelines["toy"].payloads._store
        read = type(store).read

        is_over = threading.Event()

        def hanging(self: Any, uri: str, sha256: str) -> bytes:
            if "slow" in uri:
                is_over.wait(PATIENCE_S)
            return read(self, uri, sha256)

        monkeypatch.setattr(type(store), "read", hanging)
        feeder(bench)(record(0, slow), record(1, quick))
        bench.worker.step()  # does not wait itself: the image would be there, and judged
        work(bench, 1)
        is_over.set()
        assert bench.flags("glaring") == {"r1"}
        assert letters(bench) == {"r0": "inputs.image: not there after 0.3 s (intake.fetch_s of the model)"}


def test_a_replay_decodes_the_same_bytes_and_finds_the_same_flags(tmp_path: Path) -> None:
    config = write_project(tmp_path)
    images = tmp_path / "images"
    with workbench(config) as bench:
        feed = feeder(bench)
        for number in range(12):
            data = encoded((number * 37 % 100) / 100, size=(3 + number, 9))
            by_uri = number % 2
            feed(record(number, stored_at(images / f"{number}.png", data) if by_uri else inline(data)))
        work(bench, 12)
        before = {name: bench.flags(name) for name in ("glaring", "jumps")}
        assert all(before.values())

        found = again(bench, config)
        assert found.unanswered == 0
        assert {name: {key for key, _ in found.fired()[name]} for name in before} == before

        # What was fetched is at hand: the folder may be gone.
        shutil.rmtree(images)
        found = again(bench, config)
        assert {name: {key for key, _ in found.fired()[name]} for name in before} == before

        # Without what was fetched lately, flagged records still have theirs, and the others are counted.
        shutil.rmtree(bench.settings.data_folder / "payloads")
        found = again(bench, config)
        assert {key for key, _ in found.fired()["glaring"]} == before["glaring"]
        assert found.unanswered + found.records == 12
        assert found.unanswered > 0


def test_what_a_replay_flags_anew_keeps_its_payloads(tmp_path: Path) -> None:
    config = write_project(tmp_path)
    (tmp_path / "checks.py").write_text("ASSERTIONS = ()\n")
    data = encoded(0.95)
    with workbench(config) as bench:
        feeder(bench)(record(0, stored_at(tmp_path / "images" / "a.png", data)))
        work(bench, 1)
        digest = hashlib.sha256(data).hexdigest()
        assert not objects(bench).has(digest)
        (tmp_path / "checks.py").write_text(CHECKS)
        judges = load_assertions(tmp_path / "checks.py")
        said = stored_again(bench.settings, "toy", judges, None, 0, "champion", ask_again=False, write=True)
        assert said["written"] == 1
        assert objects(bench).has(digest)


def again(bench: Workbench, config: Path) -> Any:
    judges = load_assertions(config.parent / "checks.py")
    until = judged_until(bench.engine, "toy", "champion")
    which = stretch(bench.journal, judges, since_us=0, until=until)
    settings = bench.settings.models["toy"]
    payloads = open_payloads(bench.settings, "toy")
    return replay(bench.engine, bench.journal, "toy", settings, judges, which, payloads=payloads)


JUDGED = """
[models.toy.judges.taste]
reads = ["inputs.note"]
answer = {fine = "boolean"}
predictor = "taste.py:judge"

[models.toy.latency]
slo_s = 1.0
"""
TASTE = """
def judge(batch):
    return {"fine": [note != "ugly" for note in batch.column("inputs.note")]}
"""
TASTED = """
from outrider.assertions import Window, assertion


@assertion(needs=("judge.taste",))
def ugly(batch):
    return ~batch.answers("judge.taste").column("outputs.fine")


@assertion(window=Window(rows=2, lateness_s=5.0, idle_s=60.0, columns=("inputs.note",)))
def held_back(batch):
    return batch.column("inputs.note") == "held"
"""


def test_what_judges_and_jumps_flag_keeps_its_payloads_too(tmp_path: Path) -> None:
    config = write_project(tmp_path, CONFIG + JUDGED)
    (tmp_path / "taste.py").write_text(TASTE)
    (tmp_path / "checks.py").write_text(TASTED)
    images = tmp_path / "images"
    with workbench(config, objectives=still) as bench:
        feed = feeder(bench)
        notes = ("fine", "ugly", "held")
        data = {note: encoded(0.1 * (at + 1)) for at, note in enumerate(notes)}
        feed(*(record(at, stored_at(images / note, data[note]), note=note) for at, note in enumerate(notes)))
        work(bench, 3)
        deadline = time.monotonic() + PATIENCE_S
        while not bench.flags("ugly"):
            bench.worker.step()
            assert time.monotonic() < deadline
        feed(record(4, inline(encoded(0.1)), note="fine"))
        bench.now_us += 10_000_000
        assert bench.worker._backfills.skip("toy")
        assert bench.flags("held_back") == {"r2"}
        kept = {note for note in notes if objects(bench).has(hashlib.sha256(data[note]).hexdigest())}
        assert kept == {"ugly", "held"}


def test_what_was_skipped_waits_for_its_payloads_and_the_stream_for_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = write_project(tmp_path, CONFIG + "\n[models.toy.latency]\nslo_s = 1.0\n")
    images = tmp_path / "images"
    with workbench(config, objectives=still) as bench:
        store = type(bench.worker.context.pipelines["toy"].payloads._store)
        read, reads, answers = store.read, list[str](), threading.Event()

        def slow(self: Any, uri: str, sha256: str) -> bytes:
            reads.append(Path(uri).name)
            answers.wait(PATIENCE_S)
            return read(self, uri, sha256)

        monkeypatch.setattr(store, "read", slow)
        feed = feeder(bench)
        feed(record(0, stored_at(images / "skipped", encoded(0.95))))
        bench.now_us += 10_000_000
        assert bench.worker._backfills.skip("toy")
        feed(record(1, inline(encoded(0.96))))
        feed(record(2, stored_at(images / "young", encoded(0.97))), record(3, inline(encoded(0.98))))
        deadline = time.monotonic() + PATIENCE_S
        while len(reads) < 2:
            bench.worker.step()
            assert time.monotonic() < deadline
        for _ in range(5):
            bench.worker.step()
        assert sorted(reads) == ["skipped", "young"]
        assert not letters(bench)
        answers.set()
        work(bench, 4)
        assert bench.flags("glaring") == {"r0", "r1", "r2", "r3"}
        assert bench.count("backfilled") == 1


def still(bench: Workbench) -> Objectives:
    """Time stands still while the worker works."""
    return Objectives(bench.settings.models, clock=lambda: bench.now_us / 1e6, timer=lambda: 0.0)


def test_windows_hold_images_across_a_restart(tmp_path: Path) -> None:
    with workbench(write_project(tmp_path)) as bench:
        feed = feeder(bench)
        feed(record(0, inline(encoded(0.9))))
        bench.work()
        bench.restart()
        feed(record(1, inline(encoded(0.1))))
        bench.work()
        assert bench.flags("jumps") == {"r1"}


def test_a_repeat_is_a_duplicate_and_other_bytes_are_a_conflict(tmp_path: Path) -> None:
    with workbench(write_project(tmp_path)) as bench:
        feed = feeder(bench)
        feed(record(0, inline(encoded(0.5))))
        feed(record(0, inline(encoded(0.5))))
        feed(record(0, inline(encoded(0.51))))
        bench.work()
        assert (bench.count("records"), bench.count("duplicates"), bench.count("conflicts")) == (1, 1, 1)


def test_a_dataset_holds_what_the_model_saw(tmp_path: Path) -> None:
    with workbench(write_project(tmp_path)) as bench:
        images = tmp_path / "images"
        feeder(bench)(record(0, stored_at(images / "0.png", encoded(0.95))), record(1, inline(encoded(0.96))))
        work(bench, 2)
        shutil.rmtree(images)
        bench.label({"r0": 1, "r1": 0})
        bench.work()
        with bench.engine.connect() as connection:
            found = flagged.collect(
                connection,
                bench.journal,
                LocalObjects(tmp_path / "objects"),
                LabelScope("toy", "toy-flagged"),
                target="label",
                classes=[0, 1],
                payloads=open_payloads(bench.settings, "toy"),
            )
        assert found.rejected == {}
        assert isinstance(found.batch, Batch)
        assert found.batch.tensor("inputs.image").shape == (2, 4, 4)
        assert found.batch.tensor("inputs.image")[0].mean() == pytest.approx(242 / 255)
