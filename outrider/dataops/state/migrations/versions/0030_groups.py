"""Counts by declared group."""

import sqlalchemy as sa
from alembic import op

revision = "0030"
down_revision = "0029"
branch_labels = None
depends_on = None

_KEY = ("model", "minute_us", "attribute", "version", "part", "is_labelled", "predicted", "label", "hit")
_TYPES = {"minute_us": sa.Integer, "is_labelled": sa.Boolean, "hit": sa.Boolean}


def upgrade() -> None:
    op.add_column("record", sa.Column("groups", sa.String(), nullable=True))
    op.create_table(
        "group_count",
        *(sa.Column(one, _TYPES.get(one, sa.String)(), primary_key=True) for one in _KEY),
        *(sa.Column(one, sa.Integer(), nullable=False) for one in ("records", "entities")),
        *(sa.Column(one, sa.Float(), nullable=False) for one in ("weight", "squares")),
        sqlite_with_rowid=False,
    )


def downgrade() -> None:
    op.drop_table("group_count")
    op.drop_column("record", "groups")
