"""Counts by declared group, and by class and its score."""

import sqlalchemy as sa
from alembic import op

revision = "0031"
down_revision = "0030"
branch_labels = None
depends_on = None

_KEY = ("model", "minute_us", "attribute", "version", "part", "is_labelled", "predicted", "label", "hit")
_SCORE = ("model", "minute_us", "version", "slice", "of_class", "place", "bucket", "is_label")
_TYPES: dict[str, type[sa.Integer | sa.Boolean]] = {
    "minute_us": sa.Integer,
    "place": sa.Integer,
    "bucket": sa.Integer,
}
_TYPES |= {"is_labelled": sa.Boolean, "hit": sa.Boolean, "is_label": sa.Boolean}


def _create(name: str, key: tuple[str, ...], integers: tuple[str, ...]) -> None:
    op.create_table(
        name,
        *(sa.Column(one, _TYPES.get(one, sa.String)(), primary_key=True) for one in key),
        *(sa.Column(one, sa.Integer(), nullable=False) for one in integers),
        *(sa.Column(one, sa.Float(), nullable=False) for one in ("weight", "squares")),
        sqlite_with_rowid=False,
    )


def upgrade() -> None:
    op.add_column("record", sa.Column("class_scores", sa.LargeBinary(), nullable=True))
    op.add_column("record", sa.Column("groups", sa.String(), nullable=True))
    _create("group_count", _KEY, ("records", "entities"))
    _create("score_count", _SCORE, ("records",))


def downgrade() -> None:
    op.drop_table("score_count")
    op.drop_table("group_count")
    op.drop_column("record", "groups")
    op.drop_column("record", "class_scores")
