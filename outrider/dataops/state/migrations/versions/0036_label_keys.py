"""Keys of labels: one that is sent again is stored once."""

import sqlalchemy as sa
from alembic import op

revision = "0036"
down_revision = "0035"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("label", sa.Column("key", sa.String()))
    where = sa.text('"key" IS NOT NULL')
    op.create_index("label_key", "label", ["model", "key"], unique=True, sqlite_where=where)


def downgrade() -> None:
    op.drop_index("label_key", "label")
    op.drop_column("label", "key")
