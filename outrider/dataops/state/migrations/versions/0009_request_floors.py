"""Weights of label requests: floor of each draw, limit of each round."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("label_request", sa.Column("floor", sa.Float(), nullable=True))
    op.add_column("label_round", sa.Column("since_us", sa.Integer(), nullable=True))


def downgrade() -> None:
    op.drop_column("label_round", "since_us")
    op.drop_column("label_request", "floor")
