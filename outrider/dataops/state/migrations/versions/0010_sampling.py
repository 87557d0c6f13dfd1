"""Sampling rotations of an overloaded model, and sampling state at the cursor."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "rotation",
        sa.Column("model", sa.String(), primary_key=True),
        sa.Column("seq", sa.Integer(), primary_key=True),
        sa.Column("at_us", sa.Integer(), nullable=False),
    )
    op.create_table(
        "admission",
        sa.Column("model", sa.String(), primary_key=True),
        sa.Column("carried", sa.Float(), nullable=False),
        *(sa.Column(name, sa.Integer(), nullable=False) for name in ("since_us", "until_us")),
    )


def downgrade() -> None:
    op.drop_table("admission")
    op.drop_table("rotation")
