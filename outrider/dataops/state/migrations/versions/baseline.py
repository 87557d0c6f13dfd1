"""Tables of this layout, all at once."""

from alembic import op
from sqlmodel import SQLModel

from outrider.dataops.state.migrations import HEAD

revision = HEAD
down_revision = None
branch_labels = None
depends_on = None
_LOG = "the log of writes is only added to"
_CHANGE = "champion_change is append-only"
_KEPT = 'seq, model, version, replaced, action, "by", verdict, at_us'
"""An erasure may clean a reason."""
_REFUSED = (
    ("write_log", "UPDATE", _LOG),
    ("write_log", "DELETE", _LOG),
    ("champion_change", f"UPDATE OF {_KEPT}", _CHANGE),
    ("champion_change", "DELETE", _CHANGE),
)


def upgrade() -> None:
    """Create tables, indexes and triggers."""
    SQLModel.metadata.create_all(op.get_bind(), checkfirst=False)
    for table, change, why in _REFUSED:
        op.execute(
            f"CREATE TRIGGER {table}_{change.partition(' ')[0].lower()} BEFORE {change} ON {table} "
            f"BEGIN SELECT RAISE(ABORT, '{why}'); END"
        )
