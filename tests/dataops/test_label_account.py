"""Every label of a model is accounted for at a commit: a row, or the reason for none."""

from typing import Any

import pytest
from sqlalchemy import Engine, update

from outrider.dataops.datasets import changes, quarantine
from outrider.dataops.datasets import collect as flagged
from outrider.dataops.datasets import versions as datasets
from outrider.dataops.datasets.label_account import LabelAccount, account_words, label_account
from outrider.dataops.datasets.label_fates import LabelScope, Rows
from outrider.dataops.payloads.objects import LocalObjects
from outrider.dataops.state.database import write
from outrider.dataops.state.improvement_tables import Label
from outrider.dataops.state.tables import table_of

from .test_flagged import Blocks, add_label, add_record, block, collect, commit

_LABEL = table_of(Label)


@pytest.fixture
def blocks() -> Blocks:
    return Blocks({1: block("abcd")})


def account(engine: Engine, found: flagged.Collected, rows: Rows = "flagged") -> LabelAccount:
    with engine.connect() as connection:
        return label_account(
            connection,
            LabelScope("m", "d", rows),
            found=found,
            committed=found.provenance,
            rejected=found.rejected,
        )


def change(engine: Engine, seq: int, **values: Any) -> None:
    with write(engine) as connection:
        connection.execute(update(_LABEL).where(_LABEL.c.seq == seq).values(**values))


def test_every_label_is_a_row_or_has_a_reason(engine: Engine, blocks: Blocks) -> None:
    for row, name in enumerate("abcd"):
        add_record(engine, 1, row, name, flags="" if name == "b" else "blurry")
    add_record(engine, 9, 0, "x")  # its block has expired
    for seq, (name, label) in enumerate(
        [("a", 0), ("a", 1), ("b", 1), ("c", 7), ("d", 1), ("x", 1), ("?", 1)]
    ):
        add_label(engine, 10 + seq, name, label)
    change(engine, 14, value=None)  # of another field alone
    add_label(engine, 30, "c", 1)
    change(engine, 30, model="other")
    found = collect(engine, blocks)
    told = account(engine, found)
    assert told == {
        "labels": 7,
        "rows": 1,
        "corrected": 0,
        "removed": 0,
        "left_out": {"no_record": 1, "no_value": 1, "superseded": 1, "not_flagged": 1, "refused": 2},
        "refusals": {
            "its payload has expired": 1,
            "label.label: one of 0, 1 expected, got another number": 1,
        },
        "of_other_models": 1,
    }
    assert told["rows"] + sum(told["left_out"].values()) == told["labels"]
    lines = account_words(told)
    assert lines[0] == "7 labels, 1 new row"
    assert "1 left out: no assertion flagged the record, and nobody was asked about it" in lines
    assert lines[-2].startswith("2 of 3 labelled rows left out: ")
    assert "its payload has expired (1)" in lines[-2]
    assert "not_flagged" not in account(engine, found, rows="labelled")["left_out"]


def test_rows_of_earlier_versions_and_what_was_refused_before_are_told_apart(
    engine: Engine, blocks: Blocks, objects: LocalObjects
) -> None:
    for row, name in enumerate("abc"):
        add_record(engine, 1, row, name)
        add_label(engine, 10 + row, name, 1)
    first = collect(engine, blocks)
    labels = first.labels
    assert account(engine, first)["rows"] == 3
    assert first.batch is not None
    batch, provenance = flagged.keep(first.batch, first.provenance, [0, 1])
    with write(engine) as connection:
        draft = changes.prepare(
            connection, objects, dataset="d", batch=batch, provenance=provenance, append=True
        )
        changes.commit(connection, draft, validation={}, now_us=1, notes={"labels": {"rows": 2}})
        quarantine.hold(connection, "d", {"c": "odd"}, rules="", labels=labels, now_us=1)
        assert datasets.get(connection, "d").manifest["labels"] == {"rows": 2}
    told = account(engine, collect(engine, blocks))
    assert told["left_out"] == {"earlier_version": 2, "quarantined": 1}
    assert (told["labels"], told["rows"]) == (3, 0)


def test_corrected_and_removed_rows_and_what_they_replace_are_accounted_for(
    engine: Engine, blocks: Blocks
) -> None:
    for row, name in enumerate("abc"):
        add_record(engine, 1, row, name)
        add_label(engine, 10 + row, name, 1)
    commit(engine, collect(engine, blocks))
    for seq, (name, label) in enumerate({"a": 0, "b": None, "x": None}.items(), start=20):
        add_label(engine, seq, name, label)
    told = account(engine, collect(engine, blocks))
    assert told["left_out"] == {"no_record": 1, "superseded": 2, "earlier_version": 1}
    assert (told["labels"], told["rows"], told["corrected"], told["removed"]) == (6, 0, 1, 1)
    assert account_words(told)[0] == "6 labels, 0 new rows, 1 corrected, 1 removed"
    commit(engine, collect(engine, blocks))
    assert account(engine, collect(engine, blocks))["left_out"]["withdrawn"] == 1
