"""Skipped ranges of the journal, pauses, and labels of entities."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "backfill",
        sa.Column("id", sa.Integer(), primary_key=True),
        *(sa.Column(name, sa.String(), nullable=False) for name in ("model", "slot", "reason")),
        *(
            sa.Column(name, sa.Integer(), nullable=False)
            for name in ("after_seq", "until_seq", "records", "at_seq", "passed", "created_us")
        ),
        sa.Column("version", sa.String(), nullable=True),
        sa.Column("done_us", sa.Integer(), nullable=True),
    )
    op.create_index("backfill_open", "backfill", ["model", "slot", "done_us"])
    op.create_table(
        "freshness",
        sa.Column("model", sa.String(), primary_key=True),
        sa.Column("slo_s", sa.Float(), nullable=True),
        sa.Column("records", sa.Integer(), nullable=False),
        *(sa.Column(name, sa.Float(), nullable=False) for name in ("p50_s", "p99_s", "share")),
        sa.Column("measure", sa.String(), nullable=False),
        sa.Column("at_us", sa.Integer(), nullable=False),
    )
    op.create_table(
        "pause",
        *(sa.Column(name, sa.String(), nullable=False) for name in ("model", "what", "who")),
        sa.Column("since_us", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("model", "what"),
    )
    op.add_column("label", sa.Column("entity", sa.String(), nullable=True))
    for table in ("label", "record"):
        op.create_index(
            f"{table}_entity", table, ["model", "entity", "ts_us"], sqlite_where=sa.text("entity IS NOT NULL")
        )


def downgrade() -> None:
    for table in ("label", "record"):
        op.drop_index(f"{table}_entity", table)
    op.drop_column("label", "entity")
    op.drop_table("pause")
    op.drop_table("freshness")
    op.drop_index("backfill_open", "backfill")
    op.drop_table("backfill")
