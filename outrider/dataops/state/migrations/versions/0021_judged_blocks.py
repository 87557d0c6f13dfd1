"""Marks of judged and flagged records, by block, slot and judged version."""

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # Blocks of earlier releases have no marks: their flags were thinned, and nobody can count them any more.
    op.create_table(
        "judged_block",
        sa.Column("model", sa.String(), primary_key=True),
        sa.Column("seq", sa.Integer(), primary_key=True),
        sa.Column("slot", sa.String(), primary_key=True),
        sa.Column("version", sa.String(), primary_key=True),
        sa.Column("marks", sa.LargeBinary(), nullable=False),
        sqlite_with_rowid=False,
    )


def downgrade() -> None:
    op.drop_table("judged_block")
