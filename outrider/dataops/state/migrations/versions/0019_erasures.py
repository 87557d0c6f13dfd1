"""Erasures, keyed hashes of erased records, and windows that held some."""

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "erasure",
        sa.Column("id", sa.String(), primary_key=True),
        sa.Column("asked_us", sa.Integer(), nullable=False),
        sa.Column("who", sa.String(), nullable=False),
        sa.Column("found", sa.JSON(), nullable=False),
        sa.Column("done_us", sa.Integer(), nullable=False),
    )
    op.create_table(
        "erased_hash",
        sa.Column("hash", sa.LargeBinary(), primary_key=True),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("erasure", sa.String(), nullable=False),
        sa.Column("at_us", sa.Integer(), nullable=False),
    )
    op.create_table(
        "erased_context",
        *(sa.Column(name, sa.String(), primary_key=True) for name in ("model", "by")),
        *(sa.Column(name, sa.Integer(), primary_key=True) for name in ("seq", "row")),
        *(sa.Column(name, sa.Integer(), nullable=False) for name in ("like_seq", "like_row")),
    )
    op.add_column(
        "assertion", sa.Column("window_by", sa.String(), nullable=False, server_default=sa.text("''"))
    )


def downgrade() -> None:
    op.drop_column("assertion", "window_by")
    for table in ("erased_context", "erased_hash", "erasure"):
        op.drop_table(table)
