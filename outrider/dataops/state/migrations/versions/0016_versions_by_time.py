"""Index of the versions of a model's datasets by time."""

from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("dataset_version_made", "dataset_version", ["model", "created_us"])


def downgrade() -> None:
    op.drop_index("dataset_version_made", table_name="dataset_version")
