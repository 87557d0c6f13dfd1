"""Unnamed versions, last verdicts, first records; counts ordered by time."""

import sqlalchemy as sa
from alembic import op

revision = "0030"
down_revision = "0029"
branch_labels = None
depends_on = None

_TEXTS = {
    "record_count": ("model", "slice", "version"),
    "flag_count": ("model", "slot", "assertion", "revision", "slice", "version"),
}
_COLUMNS = {
    "record_count": ("model", "slice", "minute_us", "version", "records", "entities"),
    "flag_count": (
        "model", "slot", "assertion", "revision", "slice", "minute_us", "version",
        "flags", "kept", "entities",
    ),
}  # fmt: skip
_KEYS = {
    "record_count": ("model", "minute_us", "version", "slice"),
    "flag_count": ("model", "slot", "assertion", "minute_us", "version", "slice", "revision"),
}


def upgrade() -> None:
    for table, key in _KEYS.items():
        _rebuild(table, key, with_rowid=False)
    op.create_index("flag_count_time", "flag_count", ["model", "slot", "minute_us"])
    op.add_column("record", sa.Column("is_unnamed", sa.Boolean(), nullable=True))
    op.create_table(
        "first_seen",
        *(sa.Column(name, sa.String(), nullable=False) for name in ("model", "kind", "name")),
        sa.Column("at_us", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("model", "kind", "name"),
        sqlite_with_rowid=False,
    )
    op.execute(
        "INSERT INTO first_seen SELECT model, 'version', version, min(minute_us) FROM record_count"
        " WHERE version != '' GROUP BY model, version"
    )
    zero = sa.text("0")
    op.add_column("assertion", sa.Column("judged_us", sa.Integer(), nullable=False, server_default=zero))


def _rebuild(table: str, key: tuple[str, ...], *, with_rowid: bool) -> None:
    """Write a table of counts anew, its rows in the order of a key."""
    columns = [
        sa.Column(
            name,
            sa.String() if name in _TEXTS[table] else sa.Integer(),
            nullable=False,
            server_default=sa.text("0") if name == "entities" else None,
        )
        for name in _COLUMNS[table]
    ]
    op.rename_table(table, f"old_{table}")
    op.create_table(table, *columns, sa.PrimaryKeyConstraint(*key), sqlite_with_rowid=with_rowid)
    names = ", ".join(_COLUMNS[table])
    order = ", ".join(key)
    op.execute(f"INSERT INTO {table} ({names}) SELECT {names} FROM old_{table} ORDER BY {order}")
    op.drop_table(f"old_{table}")


def downgrade() -> None:
    for table in _KEYS:
        _rebuild(table, tuple(name for name in _COLUMNS[table] if name in _KEYS[table]), with_rowid=True)
    op.create_index("record_count_time", "record_count", ["model", "minute_us"])
    op.create_index("flag_count_time", "flag_count", ["model", "slot", "minute_us"])
    op.create_index("flag_count_minute", "flag_count", ["model", "slot", "assertion", "minute_us"])
    op.drop_table("first_seen")
    op.drop_column("assertion", "judged_us")
    op.drop_column("record", "is_unnamed")
