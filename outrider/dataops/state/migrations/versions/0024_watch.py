"""Watches over new champions, and versions that records state."""

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "watch",
        sa.Column("model", sa.String(), primary_key=True),
        sa.Column("version", sa.String(), primary_key=True),
        sa.Column("began_us", sa.Integer(), primary_key=True),
        sa.Column("former", sa.String(), nullable=False),
        sa.Column("after_seq", sa.Integer(), nullable=False),
        sa.Column("until_seq", sa.Integer(), nullable=True),
        sa.Column("records", sa.Integer(), nullable=False),
        sa.Column("proposed_us", sa.Integer(), nullable=True),
        sa.Column("ended_us", sa.Integer(), nullable=True),
        sa.Column("outcome", sa.String(), nullable=False),
        sa.Column("findings", sa.JSON(), nullable=False),
    )
    op.create_table(
        "version_count",
        sa.Column("model", sa.String(), primary_key=True),
        sa.Column("minute_us", sa.Integer(), primary_key=True),
        sa.Column("version", sa.String(), primary_key=True),
        sa.Column("records", sa.Integer(), nullable=False),
        sqlite_with_rowid=False,
    )


def downgrade() -> None:
    op.drop_table("version_count")
    op.drop_table("watch")
