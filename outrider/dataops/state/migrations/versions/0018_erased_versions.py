"""Digests of dataset versions before rows were erased, and objects to delete."""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "erased_version",
        sa.Column("dataset", sa.String(), primary_key=True),
        sa.Column("number", sa.Integer(), primary_key=True),
        sa.Column("digest", sa.String(), primary_key=True),
        sa.Column("rows", sa.Integer(), nullable=False),
        sa.Column("at_us", sa.Integer(), nullable=False),
    )
    op.create_index("erased_version_digest", "erased_version", ["digest"])
    op.create_table(
        "erased_object",
        sa.Column("sha256", sa.String(), primary_key=True),
        sa.Column("at_us", sa.Integer(), nullable=False),
    )


def downgrade() -> None:
    op.drop_table("erased_object")
    op.drop_table("erased_version")
