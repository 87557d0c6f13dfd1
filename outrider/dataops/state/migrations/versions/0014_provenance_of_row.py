"""Judged version, flags, reviewer and weight of dataset rows."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

_COLUMNS = {"model_version": sa.String, "flags": sa.String, "reviewer": sa.String, "weight": sa.Float}


def upgrade() -> None:
    for name, kind in _COLUMNS.items():
        op.add_column("dataset_row", sa.Column(name, kind()))


def downgrade() -> None:
    for name in _COLUMNS:
        op.drop_column("dataset_row", name)
