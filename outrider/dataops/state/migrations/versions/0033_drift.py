"""State of the watch over columns."""

import sqlalchemy as sa
from alembic import op

revision = "0033"
down_revision = "0032"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "drift_state",
        sa.Column("model", sa.String(), primary_key=True),
        sa.Column("width_s", sa.Integer(), nullable=False),
        sa.Column("streams", sa.String(), nullable=False),
        sa.Column("payload", sa.LargeBinary(), nullable=False),
    )


def downgrade() -> None:
    op.drop_table("drift_state")
