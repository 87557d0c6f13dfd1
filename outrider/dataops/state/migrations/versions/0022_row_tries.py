"""Verdicts of the gate that each held-out row has decided."""

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "row_tries",
        sa.Column("model", sa.String(), primary_key=True),
        sa.Column("row", sa.String(), primary_key=True),
        sa.Column("tries", sa.Integer(), nullable=False),
        sqlite_with_rowid=False,
    )


def downgrade() -> None:
    op.drop_table("row_tries")
