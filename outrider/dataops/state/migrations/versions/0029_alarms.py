"""Entities beside flags and records of a minute; details of incidents."""

import sqlalchemy as sa
from alembic import op

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for table, counted in (("flag_count", "flags"), ("record_count", "records")):
        op.add_column(table, sa.Column("entities", sa.Integer(), nullable=False, server_default=sa.text("0")))
        op.execute(f"UPDATE {table} SET entities = {counted}")
    op.add_column("incident", sa.Column("details", sa.JSON(), nullable=False, server_default=sa.text("'{}'")))


def downgrade() -> None:
    op.drop_column("incident", "details")
    for table in ("record_count", "flag_count"):
        op.drop_column(table, "entities")
