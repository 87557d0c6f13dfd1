"""Rounds of label selection, and the weights of requests."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

COLUMNS = ("position", "population", "is_audit")


def upgrade() -> None:
    op.create_table(
        "label_round",
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("round", sa.Integer(), nullable=False),
        sa.Column("policy", sa.String(), nullable=False),
        sa.Column("upto_seq", sa.Integer(), nullable=False),
        sa.Column("records", sa.Integer(), nullable=False),
        sa.Column("fires", sa.JSON(), nullable=False),
        sa.Column("created_us", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("model", "round"),
    )
    # The table is made anew: SQLite adds no column that is NOT NULL without a default, and none is wanted.
    # Earlier requests have no known population, so 0: their labels get no weight.
    op.rename_table("label_request", "label_request_before")
    op.create_table(
        "label_request",
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("record_id", sa.String(), nullable=False),
        sa.Column("policy", sa.String(), nullable=False),
        sa.Column("reason", sa.String(), nullable=False),
        sa.Column("probability", sa.Float(), nullable=False),
        sa.Column("round", sa.Integer(), nullable=False),
        sa.Column("created_us", sa.Integer(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("population", sa.Integer(), nullable=False),
        sa.Column("is_audit", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("model", "record_id"),
    )
    known = "model, record_id, policy, reason, probability, round, created_us"
    op.execute(
        f"INSERT INTO label_request ({known}, position, population, is_audit) "
        f"SELECT {known}, 0, 0, {sa.false().compile(dialect=op.get_bind().dialect)} FROM label_request_before"
    )
    op.drop_table("label_request_before")


def downgrade() -> None:
    with op.batch_alter_table("label_request") as table:
        for name in COLUMNS:
            table.drop_column(name)
    op.drop_table("label_round")
