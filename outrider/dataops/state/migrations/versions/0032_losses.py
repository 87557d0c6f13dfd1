"""Blocks of labelled observations, for alarms of performance."""

import sqlalchemy as sa
from alembic import op

revision = "0032"
down_revision = "0031"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "loss_block",
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("version", sa.String(), nullable=False),
        sa.Column("block", sa.Integer(), nullable=False),
        sa.Column("begun_us", sa.Integer(), nullable=False),
        sa.Column("ended_us", sa.Integer(), nullable=False),
        sa.Column("record_us", sa.Integer(), nullable=False),
        sa.Column("newest_us", sa.Integer(), nullable=False),
        sa.Column("observations", sa.Integer(), nullable=False),
        sa.Column("entities", sa.String(), nullable=False),
        sa.Column("bound", sa.Integer(), nullable=True),
        sa.PrimaryKeyConstraint("model", "version", "block"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "loss_count",
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("version", sa.String(), nullable=False),
        sa.Column("block", sa.Integer(), nullable=False),
        sa.Column("slice", sa.String(), nullable=False),
        sa.Column("weight", sa.Integer(), nullable=False),
        sa.Column("bucket", sa.Integer(), nullable=False),
        sa.Column("records", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("model", "version", "block", "slice", "weight", "bucket"),
        sqlite_with_rowid=False,
    )


def downgrade() -> None:
    op.drop_table("loss_count")
    op.drop_table("loss_block")
