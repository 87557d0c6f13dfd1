"""Counts by judged version, histograms of measures, outcomes of labels."""

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None

_RECORDS = ("model", "slice", "minute_us")
_FLAGS = ("model", "slot", "assertion", "revision", "slice", "minute_us")
_MEASURE = ("model", "measure", "minute_us", "version", "slice", "bucket")
_OUTCOME = ("model", "minute_us", "version", "slice", "predicted", "label", "hit", "bucket")
_TYPES = {"minute_us": sa.Integer, "bucket": sa.Integer, "hit": sa.Boolean}


def _create(name: str, key: tuple[str, ...], integers: tuple[str, ...], floats: tuple[str, ...] = ()) -> None:
    op.create_table(
        name,
        *(sa.Column(one, _TYPES.get(one, sa.String)(), primary_key=True) for one in key),
        *(sa.Column(one, sa.Integer(), nullable=False) for one in integers),
        *(sa.Column(one, sa.Float(), nullable=False) for one in floats),
        sqlite_with_rowid=not floats,
    )


def _replace(name: str, columns: tuple[str, ...], numbers: tuple[str, ...], kept: str, given: str) -> None:
    """Make a table of counts anew, with other keys."""
    op.rename_table(name, f"{name}_before")
    _create(name, columns, numbers)
    names = ", ".join((*columns, *numbers))
    op.execute(f"INSERT INTO {name} ({names}) SELECT {given} FROM {name}_before {kept}")
    op.drop_table(f"{name}_before")


def upgrade() -> None:
    op.add_column("record", sa.Column("confidence", sa.Integer(), nullable=True))
    op.drop_index("flag_count_minute", table_name="flag_count")
    for name, key, numbers in (
        ("record_count", _RECORDS, ("records",)),
        ("flag_count", _FLAGS, ("flags", "kept")),
    ):
        given = ", ".join((*key, "''", *numbers))
        _replace(name, (*key, "version"), numbers, "", given)
    op.create_index("flag_count_minute", "flag_count", ["model", "slot", "assertion", "minute_us"])
    op.create_index("flag_count_time", "flag_count", ["model", "slot", "minute_us"])
    op.create_index("record_count_time", "record_count", ["model", "minute_us"])
    _create("measure_count", _MEASURE, ("records",), ("weight", "squares", "total"))
    _create("outcome_count", _OUTCOME, ("records",), ("weight", "squares", "confidence", "brier"))
    op.create_table(
        "minute_block",
        sa.Column("model", sa.String(), primary_key=True),
        sa.Column("seq", sa.Integer(), primary_key=True),
        sa.Column("minute_us", sa.Integer(), nullable=False),
        sqlite_with_rowid=False,
    )


def downgrade() -> None:
    op.drop_table("minute_block")
    op.drop_table("outcome_count")
    op.drop_table("measure_count")
    op.drop_index("record_count_time", table_name="record_count")
    op.drop_index("flag_count_time", table_name="flag_count")
    op.drop_index("flag_count_minute", table_name="flag_count")
    for name, key, numbers in (
        ("record_count", _RECORDS, ("records",)),
        ("flag_count", _FLAGS, ("flags", "kept")),
    ):
        given = ", ".join((*key, *(f"sum({one})" for one in numbers)))
        _replace(name, key, numbers, f"GROUP BY {', '.join(key)}", given)
    op.create_index("flag_count_minute", "flag_count", ["model", "slot", "assertion", "minute_us"])
    op.drop_column("record", "confidence")
