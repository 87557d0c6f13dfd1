"""A small service's worth of data: digits, faulty cameras, flags, labels, two judged candidates."""

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from sklearn.datasets import load_digits
from sqlalchemy import Connection, Engine, insert, text
from sqlmodel import SQLModel

from outrider.assertions import Batch
from outrider.assertions.statistics.loss_bounds import Excess
from outrider.dataops.datasets.digests import LANES
from outrider.dataops.flags.rate_limit import MinuteEntities
from outrider.dataops.improvement import gate
from outrider.dataops.improvement.paired_labels import LabelledPairs
from outrider.dataops.improvement.watch_evidence import labels_sentence, look_at_labels
from outrider.dataops.journal.journal import Entry, SqliteJournal
from outrider.dataops.ledger.commit import flag_id
from outrider.dataops.ledger.groups import answer_rows, label_rows
from outrider.dataops.ledger.profiles import LayoutBook, ProfileBuffer
from outrider.dataops.ledger.stored_profiles import insert_layouts, insert_profiles
from outrider.dataops.state import improvement_tables, tables
from outrider.dataops.state.database import write
from outrider.dataops.state.rows import add_to_rows
from outrider.dataops.state.series_tables import GroupCount
from tests.databases import migrated
from tests.gate_evidence import kept_evidence
from tests.model_sources import FUNCTION

from .sample_outcomes import add_outcomes

SCHEMA = pa.schema({"id": pa.string(), "label.label": pa.int64()})
MODEL = "digits"
LEAKS: dict[str, object] = {
    "leaks": [
        {
            "kind": "row",
            "between": ["new train rows", "digits-heldout@1"],
            "rows": 3,
            "others": 2,
            "usual": False,
            "pairs": [["card-00001-f0", "h1"]],
        }
    ],
    "repeats": [],
    "moved": {"held_out": 3, "train": 0, "left_out": 0},
    "remaining": [],
}
HOSTILE = "<script>alert(1)</script>/../x"
ASSERTIONS = {
    "track_agrees": ("critical", "Frames of one card get one answer."),
    "margin_is_wide": ("warning", "The two best classes are far apart."),
    "image_is_lively": ("warning", "Pixels are not all dark or all bright."),
    "no_bright_column": ("info", "No column of pixels is stuck at full brightness."),
}
NO_COUNTS: dict[str, dict[str, int]] = {"parts": {}, "label_sources": {}, "assertions": {}}
SAMPLED: dict[str, dict[str, int]] = {
    "parts": {"held_out": 36, "train": 144},
    "label_sources": {"human": 180},
    "assertions": {"margin_is_wide": 90, "no_bright_column": 90, "track_agrees": 90},
}
DEVICES = ("till-1", "till-2", "till-3")


@dataclass(frozen=True, slots=True)
class Sample:
    """Where the data lies."""

    engine: Engine
    journal: SqliteJournal
    start: datetime
    records: int


def build(folder: Path, *, blocks: int = 40, rows: int = 50, seed: int = 3) -> Sample:
    """Fill a journal and a database; the second half of the blocks has faulty cameras."""
    journal = SqliteJournal(folder / "journal.db", max_bytes=None)
    engine = migrated(folder / "state.db")
    rng = np.random.default_rng(seed)
    start = datetime.now(UTC).replace(microsecond=0) - timedelta(seconds=blocks * 3)
    digits = load_digits()
    images = (digits.images / 16.0).astype(np.float32)
    total, gathered = 0, ProfileBuffer()
    with write(engine) as connection:
        _reference(connection, _us(start))
        for block in range(blocks):
            at = start + timedelta(seconds=3 * block)
            batch, truth = _block(images, digits.target, block, rows, at, rng, faulty=block >= blocks // 2)
            seq = journal.append([Entry("records", MODEL, rows, batch.to_ipc())], _us(at))[0]
            _judge(connection, batch, truth, seq, rng)
            told = {"attrs.shop": [HOSTILE if row % 2 else "north" for row in range(rows)]}
            devices = batch.column("attrs.device").tolist()
            gathered.add(batch.with_columns(told), np.full(rows, seq), {seq: _us(at)}, devices)
            total += rows
        _profiles(connection, gathered, _us(start + timedelta(seconds=3 * max(0, blocks - 1))))
        _counters(connection, blocks * rows)
        _minutes(connection)
        _groups(connection)
        _incidents(connection, _us(start))
        add_outcomes(connection, MODEL, _us(start))
        _watch(connection, _us(start))
    return Sample(engine, journal, start, total)


def _profiles(connection: Connection, gathered: ProfileBuffer, at_us: int) -> None:
    """Profiles of all minutes, where there are records enough to fit bins on."""
    book = LayoutBook()
    rows = gathered.drain("champion", book, now_us=at_us, is_last=True)
    insert_layouts(connection, MODEL, book.new_rows())
    insert_profiles(connection, MODEL, rows)


def _watch(connection: Connection, start_us: int) -> None:
    """A watch whose labels prove the new champion worse."""
    n = np.arange(1200)
    worse = np.where(n % 9 == 0, 1.0, np.where(n % 23 == 0, -1.0, 0.0))
    looks = []
    for seen in (300, 600, 1200):
        pairs = LabelledPairs(n[:seen] % 60 + 1, n[:seen] // 60, worse[:seen], seen - 200, seen - 90)
        found = look_at_labels(pairs, error=0.01)
        looks.append({"records": seen, "value": found.difference, "low": found.low, "high": found.high})
    nothing = look_at_labels(LabelledPairs(n[:0], n[:0], worse[:0]), error=0.01)
    told = labels_sentence("2", HOSTILE, found, is_numeric=False)
    add(
        connection, improvement_tables.Watch, model=MODEL, version="2", former=HOSTILE, began_us=start_us,
        after_seq=1, records=2400, proposed_us=start_us + 60, outcome="",
        findings={
            "records": 0, "labelled": 1200, "left_out": {"requested": 3, "flagged": 8}, "proven": [told],
            "sentences": {"flags": "no record was judged of both yet", "labels": told},
            "labels": dataclasses.asdict(found), "flags": dataclasses.asdict(nothing),
            "labels_looks": looks, "flags_looks": [],
        },
    )  # fmt: skip


def _block(
    images: np.ndarray[Any, Any],
    targets: np.ndarray[Any, Any],
    block: int,
    rows: int,
    at: datetime,
    rng: np.random.Generator,
    *,
    faulty: bool,
) -> tuple[Batch, list[int]]:
    records, truth, pictures = [], [], []
    for row in range(rows):
        card = (block * rows + row) // 5
        chosen = (card * 7) % len(images)
        image = images[chosen] + rng.normal(0, 0.02, (8, 8)).astype(np.float32)
        device = DEVICES[card % 3]
        broken = faulty and device == "till-2"
        if broken:
            image = image.copy()
            image[:, 6] = 1.0
        right = int(targets[chosen])
        said = int(rng.integers(10)) if broken and rng.random() < 0.6 else right
        score = float(rng.uniform(0.3, 0.7) if said != right else rng.uniform(0.85, 1.0))
        pictures.append(np.clip(image, 0, 1))
        truth.append(right)
        records.append(
            {
                "id": HOSTILE if block == 0 and row == 0 else f"card-{card:05}-f{row % 5}",
                "ts": at + timedelta(milliseconds=55 * row),
                "entity": f"card-{card:05}",
                "version": "1",
                "outputs": {"label": said, "score": score, "margin": 2 * score - 1},
                "attrs": {"device": device},
            }
        )
    batch = Batch.from_records(records, model=MODEL, received=at)
    return batch.with_columns({"inputs.image": np.stack(pictures).astype(np.float32)}), truth


def _judge(
    connection: Connection, batch: Batch, truth: Sequence[int], seq: int, rng: np.random.Generator
) -> None:
    said, devices = batch.column("outputs.label"), batch.column("attrs.device")
    images, ts = batch.tensor("inputs.image"), batch.column("ts").astype("datetime64[us]").astype(np.int64)
    for row in range(batch.rows):
        identity, at = str(batch.keys[row]), int(ts[row])
        add(
            connection,
            tables.Record,
            model=MODEL,
            id=identity,
            seq=seq,
            row=row,
            ts_us=at,
            digest=0,
            version="1",
            entity=str(batch.column("entity")[row]),
            slice=str(devices[row]),
            groups=json.dumps({"device": f"device={devices[row]}"}),
            predicted=str(said[row]),
            weight=1.0,
        )
        wrong, stuck = said[row] != truth[row], bool(images[row][:, 6].min() > 0.9)
        fires = {
            "track_agrees": wrong and rng.random() < 0.8,
            "margin_is_wide": wrong or rng.random() < 0.01,
            "no_bright_column": stuck,
            "image_is_lively": rng.random() < 0.004,
            "inv_shift": wrong and rng.random() < 0.3,
        }
        for name, fired in fires.items():
            if fired or identity == HOSTILE:
                _flag(connection, name, identity, seq, row, at, images[row], int(said[row]), rng)
        if rng.random() < 0.12 or (stuck and rng.random() < 0.3):
            add(
                connection,
                improvement_tables.Label,
                seq=seq + 10_000,
                row=row,
                model=MODEL,
                record_id=identity,
                source="human" if stuck else "late",
                value=str(truth[row]),
                label={"label": truth[row]},
                ts_us=at,
                received_us=at,
            )


def _flag(
    connection: Connection,
    name: str,
    identity: str,
    seq: int,
    row: int,
    at: int,
    image: np.ndarray[Any, Any],
    said: int,
    rng: np.random.Generator,
) -> None:
    evidence = None
    if name == "inv_shift":
        moved = np.roll(image, 1, axis=1)
        evidence = json.dumps(
            {
                "inputs": {"image": moved.round(3).tolist()},
                "outputs": {"label": (said + 3) % 10, "score": round(float(rng.uniform(0.3, 0.6)), 4)},
                "original": {"label": said, "score": 0.71},
            }
        )
    add(
        connection,
        tables.Flag,
        id=flag_id(MODEL, "1", name, "0f1e2d3c4b5a", identity),
        model=MODEL,
        record_id=identity,
        assertion=name,
        revision="0f1e2d3c4b5a",
        slot="champion",
        version="1",
        severity=float(rng.uniform(0.5, 2.0)),
        level="critical" if name == "inv_shift" else ASSERTIONS[name][0],
        evidence=evidence,
        seq=seq,
        row=row,
        ts_us=at,
    )


def _reference(connection: Connection, at: int) -> None:
    """Assertions, versions, lineage, datasets, jobs and verdicts."""
    for name, (level, told) in {**ASSERTIONS, "inv_shift": ("critical", "A shift by a pixel")}.items():
        add(
            connection,
            tables.AssertionRow,
            model=MODEL,
            name=name,
            revision="0f1e2d3c4b5a",
            kind="live_test" if name == "inv_shift" else "assertion",
            level=level,
            description=told,
            owner="vision",
            active=True,
            suspended_until_us=at + 3_600_000_000 if name == "image_is_lively" else 0,
            first_seen_us=at,
        )
    add(
        connection,
        tables.Strike,
        model=MODEL,
        assertion="image_is_lively",
        at_us=at,
        seq=3,
        reason="deadline",
        detail="no verdict after 2.0 s",
        slot="champion",
    )
    for number, status, note in (
        ("1", "retired", "configured"),
        ("2", "refused", "trained from scratch"),
        ("3", "champion", ""),
    ):
        add(
            connection,
            improvement_tables.ModelVersion,
            model=MODEL,
            version=number,
            status=status,
            weights=number * 64,
            digest=f"{int(number) * 7919:064x}"[::-1],
            created_us=at + int(number),
            changed_us=at + int(number) * 30_000_000,
            note=note,
            source=FUNCTION,
        )
    add(
        connection,
        improvement_tables.ModelVersion,
        model=MODEL,
        version="4",
        status="challenger",
        digest="c0ffee" * 10,
        created_us=at + 9,
        changed_us=at + 100_000_000,
        source=FUNCTION,
    )
    for name, parent, rows in (("digits-train", None, 900), ("digits-flagged", None, 180)):
        add(
            connection,
            improvement_tables.DatasetVersion,
            dataset=name,
            number=1,
            model=MODEL,
            parent=parent,
            digest=f"{rows * 104729:064x}"[::-1],
            rows=rows,
            manifest={
                "bytes": 64 * rows,
                "changes": {"added": rows, "relabelled": 0, "removed": 0},
                "columns": {"id": "string", "label.label": "int64"},
                "counts": SAMPLED if name == "digits-flagged" else NO_COUNTS,
                "validation": {
                    "expectations": [{}] * 3,
                    "quarantined": 2,
                    "warnings": [
                        {
                            "rule": "expect_column_max_to_be_between",
                            "field": "inputs.x",
                            "severity": "warning",
                            "text": "expect_column_max_to_be_between(column='inputs.x', max_value=1)",
                            "rows": 1,
                            "ids": [HOSTILE],
                        }
                    ],
                    "data_docs": "ab" * 32,
                },
            }
            | ({"leaks": LEAKS} if name == "digits-flagged" else {}),
            created_us=at + 40_000_000,
            arrow_schema=SCHEMA.serialize().to_pybytes(),
            state=bytes(2 * LANES),
        )
    for position in range(180):
        add(
            connection,
            improvement_tables.DatasetRow,
            dataset="digits-flagged",
            file=1,
            number=1,
            position=position,
            record_id=f"card-{position:05}-f0",
            assertion="track_agrees,margin_is_wide" if position % 2 else "no_bright_column",
            label_source="human",
            part="held_out" if position % 5 == 0 else "train",
            digest=bytes(64),
        )
    edges = (
        ("model", "digits@3", "model", "digits@1", "weights"),
        ("model", "digits@3", "dataset", "digits-flagged@1", "fresh"),
        ("model", "digits@3", "dataset", "digits-train@1", "replay"),
        ("model", "digits@3", "job", "job-2", "trigger"),
        ("dataset", "digits-flagged@1", "records", "180 labelled records", "rows"),
        ("model", "digits@1", "dataset", "digits-train@1", "fresh"),
    )
    for child_kind, child, parent_kind, parent, role in edges:
        add(
            connection,
            improvement_tables.LineageEdge,
            child_kind=child_kind,
            child=child,
            parent_kind=parent_kind,
            parent=parent,
            role=role,
            created_us=at,
        )
    _jobs(connection, at)


def _evidence(passed: bool) -> dict[str, Any]:
    """Evidence of a verdict, as the trainer keeps it."""
    if not passed:
        worse = Excess(0.566, 0.53, 0.6, 500, 120, 0.024)
        return kept_evidence(
            gate.Evidence(held_out=gate.PairedEvidence("digits-heldout@1", "error rate", 0.022, worse))
        )
    evidence = gate.Evidence(
        held_out=gate.PairedEvidence(
            "digits-heldout@1", "error rate", 0.022, Excess(-0.003, -0.011, 0.006, 1000, 250, 0.024)
        ),
        fresh=gate.PairedEvidence(
            "digits-flagged@1 held out", "error rate", 0.588, Excess(-0.532, -0.7, -0.31, 45, 43, 0.024)
        ),
        shadow=gate.ShadowEvidence(220, 90, 80, 15, 5, 40, 44, -0.045, -0.14, 0.06),
    )
    text = "version = 1\nshadow_rows = 200\n"
    digest = hashlib.sha256(text.encode()).hexdigest()
    policy = gate.Policy(shadow_rows=200, file="gate.toml", digest=digest, text=text)
    return kept_evidence(evidence, policy, passed=True)


def _jobs(connection: Connection, at: int) -> None:
    add(
        connection,
        improvement_tables.Job,
        id="job-0",
        model=MODEL,
        kind="retrain",
        status="waiting",
        stage="shadow",
        params={},
        result={"waits": {"for": "live records", "until_us": 2**60}},
        attempts=0,
        created_us=at,
        started_us=at + 100_000,
    )
    for number, status, candidate in ((1, "refused", "2"), (2, "done", "3")):
        begun = at + number * 20_000_000
        add(
            connection,
            improvement_tables.Job,
            id=f"job-{number}",
            model=MODEL,
            kind="retrain",
            status=status,
            stage="gate",
            params={"reason": "200 labelled flags"} if number == 2 else {"from_scratch": True, "epochs": 1},
            result={"candidate": candidate, "seconds": {"train": 4.1, "gate": 0.9}},
            attempts=1,
            created_us=begun,
            started_us=begun + 100_000,
            finished_us=begun + 5_600_000,
        )
        reasons = (
            ["held-out digits-heldout@1: accuracy 0.412, champion 0.978, a drop of 0.566 > 0.010 allowed"]
            if status == "refused"
            else [
                "held-out digits-heldout@1: accuracy 0.981, champion 0.978",
                "flagged records held out: accuracy 0.944, champion 0.412",
                "suite test_digits: 6 of 6 tests pass, champion 5",
            ]
        )
        add(
            connection,
            improvement_tables.GateVerdict,
            id=f"verdict-{number}",
            model=MODEL,
            candidate=candidate,
            champion="1",
            promoted=status == "done",
            reasons=reasons,
            evidence=_evidence(status == "done"),
            created_us=begun + 5_600_000,
        )
    add(
        connection,
        improvement_tables.Quarantine,
        dataset="digits-flagged",
        record_id="card-00001-f1",
        reasons="label.label: 11 is not in 0..9",
        rules="a rule",
        at_us=at,
    )
    add(
        connection,
        tables.DeadLetter,
        seq=1,
        row=49,
        model=MODEL,
        record_id="card-00009-f4",
        reason="conflict",
        detail="came again with other content",
        at_us=at,
    )


def _minutes(connection: Connection) -> None:
    """Exact counts per minute, as the worker keeps them."""
    for sql in (
        "INSERT INTO record_count SELECT model, slice, ts_us - ts_us % 60000000, coalesce(version, ''), "
        "count(*), count(*) FROM record GROUP BY 1, 2, 3, 4",
        "INSERT INTO flag_count SELECT f.model, f.slot, f.assertion, f.revision, r.slice, "
        "f.ts_us - f.ts_us % 60000000, coalesce(f.version, ''), count(*), count(*), count(*) FROM flag f "
        "JOIN record r ON r.model = f.model AND r.id = f.record_id GROUP BY 1, 2, 3, 4, 5, 6, 7",
    ):
        connection.execute(text(sql))


_SHARES = {
    name: {"share": share, "low": 0.0, "high": 1.0, "flagged": round(200 * share), "seen": 200}
    for name, share in (("before", 0.02), ("now", 0.31))
}
EXPLAINED = {
    "onset": dict.fromkeys(("first", "likeliest", "last"), "2026-01-05T10:00:00Z"),
    **_SHARES,
    "explained_by": [{"assertion": "track_agrees", "slice": "till-2", "weight": 40.0, **_SHARES}],
    "version": "1",
    "event": {"kind": "rolled_back", "name": "1", "at": "2026-01-05T09:58:00Z"},
    "records": ["card-00200-f0"],
    "action": "roll_back",
    "page": "/assertions/m/track_agrees",
    "runbook": "docs/alarms.md",
    "guarantee": None,
}


def _groups(connection: Connection) -> None:
    """Counts by device, of all records and of the labelled ones."""
    rows = connection.exec_driver_sql(
        "SELECT groups, predicted, is_other_class, entity, weight, ts_us - ts_us % 60000000 AS minute_us,"
        " (SELECT value FROM label WHERE record_id = record.id ORDER BY seq DESC LIMIT 1) AS label"
        " FROM record"
    ).all()
    seen = MinuteEntities()
    answers = answer_rows(
        MODEL, [row[:5] for row in rows], versions=["1"] * len(rows), minutes=[row[5] for row in rows],
        is_first=seen.add,
    )  # fmt: skip
    labelled = [row for row in rows if row.label is not None]
    cells = [
        (row.minute_us, "1", row.groups, row.predicted, row.label, row.predicted == row.label)
        for row in labelled
    ]
    ones = np.ones(len(cells))
    labels = label_rows(MODEL, cells, sign=ones, weight=ones)
    add_to_rows(connection, GroupCount, [*answers, *labels])


def _incidents(connection: Connection, at: int) -> None:
    for number, status in ((1, "resolved"), (2, "open")):
        add(
            connection,
            tables.Incident,
            id=f"inc_{number}",
            model=MODEL,
            assertion="track_agrees",
            slice="till-2",
            status=status,
            opened_us=at + number * 30_000_000,
            last_flag_us=at + number * 40_000_000,
            muted_until_us=0,
            resolved_us=at + 50_000_000 if status == "resolved" else None,
            flags=12 * number,
            level="critical",
            first_record="card-00200-f0",
            note="quiet for 900 s" if status == "resolved" else "",
            details=EXPLAINED if status == "open" else {},
        )


def _counters(connection: Connection, records: int) -> None:
    flags = tables.Flag.__table__  # type: ignore[attr-defined]  # SQLModel adds it
    fired = connection.execute(flags.select()).all()
    names = [row.assertion for row in fired]
    values: Mapping[str, int] = {
        "records": records,
        "duplicates": 12,
        "conflicts": 1,
        "flagged": len({row.record_id for row in fired}),
        **{f"flags:{name}": names.count(name) for name in dict.fromkeys(names)},
        "live:inv_shift:passed": 160,
        "live:inv_shift:failed": names.count("inv_shift"),
        "live:inv_shift:not_applicable": 4,
        "live:inv_shift:shed": 9,
    }
    challenger = {"records": records // 2, "flags:track_agrees": 20, "flags:margin_is_wide": 31}
    for slot, counts in (("champion", values), ("4", challenger)):
        for name, value in counts.items():
            add(connection, tables.Counter, model=MODEL, slot=slot, name=name, value=value)
    for slot, seq in (("champion", 38), ("4", 20)):
        add(connection, tables.Cursor, model=MODEL, slot=slot, seq=seq)


def add(connection: Connection, table: type[SQLModel], **values: object) -> None:
    """Insert one row."""
    connection.execute(insert(table.__table__), values)  # type: ignore[attr-defined]  # SQLModel adds it


def _us(at: datetime) -> int:
    return int(at.timestamp() * 1e6)
