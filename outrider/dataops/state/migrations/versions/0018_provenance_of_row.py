"""Judged version, flags, reviewer, weight of dataset rows; an index of versions."""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0013"
branch_labels = None
depends_on = None

_COLUMNS = {"model_version": sa.String, "flags": sa.String, "reviewer": sa.String, "weight": sa.Float}


def upgrade() -> None:
    for name, kind in _COLUMNS.items():
        op.add_column("dataset_row", sa.Column(name, kind()))
    op.create_index("dataset_version_made", "dataset_version", ["model", "created_us"])


def downgrade() -> None:
    op.drop_index("dataset_version_made", table_name="dataset_version")
    for name in _COLUMNS:
        op.drop_column("dataset_row", name)
