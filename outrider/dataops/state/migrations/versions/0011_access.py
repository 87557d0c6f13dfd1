"""Keys, sessions, one-time links and the log of writes."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "api_key",
        sa.Column("id", sa.Integer(), primary_key=True),
        *(sa.Column(name, sa.String(), nullable=False) for name in ("name", "digest", "scopes", "file")),
        sa.Column("created_us", sa.Integer(), nullable=False),
        sa.Column("created_by", sa.String(), nullable=False),
        sa.Column("revoked_us", sa.Integer()),
        sa.Column("revoked_by", sa.String(), nullable=False),
        sa.Column("used_us", sa.Integer()),
        sa.Column("records_per_s", sa.Float()),
        sa.Column("burst_records", sa.Integer()),
        sa.Column("bytes_per_day", sa.Integer()),
        *(sa.Column(name, sa.Integer(), nullable=False) for name in ("day", "day_bytes")),
        sa.UniqueConstraint("digest"),
    )
    op.create_index(
        "api_key_name", "api_key", ["name"], unique=True, sqlite_where=sa.text("revoked_us IS NULL")
    )
    op.create_table(
        "browser_session",
        sa.Column("id", sa.String(), primary_key=True),
        sa.Column("digest", sa.String(), nullable=False),
        *(sa.Column(f"{name}_us", sa.Integer(), nullable=False) for name in ("created", "until", "used")),
        sa.Column("key_id", sa.Integer(), nullable=False),
        *(sa.Column(name, sa.String(), nullable=False) for name in ("address", "agent")),
        sa.UniqueConstraint("digest"),
    )
    op.create_table(
        "login_link",
        sa.Column("digest", sa.String(), primary_key=True),
        sa.Column("key_id", sa.Integer(), nullable=False),
        sa.Column("until_us", sa.Integer(), nullable=False),
        sa.Column("used_us", sa.Integer()),
    )
    op.create_table(
        "write_log",
        sa.Column("id", sa.Integer(), primary_key=True),
        *(sa.Column(name, sa.Integer(), nullable=False) for name in ("at_us", "status")),
        *(
            sa.Column(name, sa.String(), nullable=False)
            for name in ("key", "action", "path", "address", "session")
        ),
    )
    for change in ("UPDATE", "DELETE"):
        op.execute(
            f"CREATE TRIGGER write_log_no_{change.lower()} BEFORE {change} ON write_log "
            "BEGIN SELECT RAISE(ABORT, 'the log of writes is only added to'); END"
        )


def downgrade() -> None:
    for table in ("write_log", "login_link", "browser_session", "api_key"):
        op.drop_table(table)
