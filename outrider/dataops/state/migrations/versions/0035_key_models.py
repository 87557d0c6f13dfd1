"""Models that a key is for alone."""

import sqlalchemy as sa
from alembic import op

revision = "0035"
down_revision = "0034"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("api_key", sa.Column("models", sa.String(), nullable=False, server_default=sa.text("''")))


def downgrade() -> None:
    op.drop_column("api_key", "models")
