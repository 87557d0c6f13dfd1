"""Hashes of expired records' ids, and receive times of blocks."""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "expired_record",
        sa.Column("hash", sa.LargeBinary(), primary_key=True),
        sa.Column("day", sa.Integer(), nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "block_age",
        sa.Column("model", sa.String(), primary_key=True),
        sa.Column("seq", sa.Integer(), primary_key=True),
        sa.Column("received_us", sa.Integer(), nullable=False),
    )


def downgrade() -> None:
    op.drop_table("block_age")
    op.drop_table("expired_record")
