"""Tags of dataset versions; places of files in shared objects."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "dataset_tag",
        sa.Column("dataset", sa.String(), nullable=False),
        sa.Column("tag", sa.String(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("set_us", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("dataset", "tag"),
    )
    op.add_column("dataset_file", sa.Column("packed", sa.JSON()))


def downgrade() -> None:
    op.drop_column("dataset_file", "packed")
    op.drop_table("dataset_tag")
