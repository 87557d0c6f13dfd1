"""History of champions.

What earlier releases kept of it: which version replaced which, and the reason of the last change.
"""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "champion_change",
        sa.Column("seq", sa.Integer(), primary_key=True),
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("version", sa.String(), nullable=False),
        sa.Column("replaced", sa.String(), nullable=True),
        sa.Column("action", sa.String(), nullable=False),
        sa.Column("by", sa.String(), nullable=False),
        sa.Column("reason", sa.String(), nullable=False),
        sa.Column("verdict", sa.String(), nullable=True),
        sa.Column("at_us", sa.Integer(), nullable=False),
    )
    op.create_index("champion_change_model", "champion_change", ["model", "seq"])
    _keep_what_is_known(op.get_bind())
    kept = 'seq, model, version, replaced, action, "by", verdict, at_us'  # an erasure may clean a reason
    for change in (f"UPDATE OF {kept}", "DELETE"):
        op.execute(
            f"CREATE TRIGGER champion_change_{change.partition(' ')[0].lower()} "
            f"BEFORE {change} ON champion_change "
            "BEGIN SELECT RAISE(ABORT, 'champion_change is append-only'); END"
        )


def downgrade() -> None:
    op.drop_table("champion_change")


def _keep_what_is_known(connection: sa.Connection) -> None:
    """Promotions, by the edges that they left, and the champions of today."""
    versions = connection.execute(
        sa.text("SELECT model, version, status, note, created_us, changed_us FROM model_version")
    ).all()
    edges = connection.execute(
        sa.text("SELECT child, parent, created_us FROM lineage_edge WHERE role = 'replaced'")
    ).all()
    of_model = {f"{row.model}@{row.version}": row for row in versions}
    found: list[dict[str, Any]] = []
    replaced = {edge.child for edge in edges}
    for edge in edges:
        new, old = of_model.get(edge.child), of_model.get(edge.parent)
        if new is None or old is None:
            continue
        if edge.parent not in replaced:  # the first one: by no promotion
            found.append(_change(old, None, "registered", old.created_us))
            replaced.add(edge.parent)
        found.append(_change(new, old.version, "promoted", edge.created_us))
    last: dict[str, str] = {}
    for change in sorted(found, key=_time):
        last[str(change["model"])] = str(change["version"])
    champions = [row for row in versions if row.status == "champion"]
    for row in champions:
        if row.model not in last:
            found.append(_change(row, None, "registered", row.created_us))
        elif last[row.model] != row.version:
            found.append(_change(row, last[row.model], "rolled_back", row.changed_us))
    found.sort(key=_time)
    newest = {change["model"]: change for change in found}
    for row in champions:
        newest[row.model]["reason"] = row.note
    for change in found:
        connection.execute(
            sa.text(
                'INSERT INTO champion_change (model, version, replaced, action, "by", reason, at_us) '
                "VALUES (:model, :version, :replaced, :action, '', :reason, :at_us)"
            ),
            change,
        )


def _time(change: dict[str, Any]) -> int:
    return int(change["at_us"])


def _change(row: sa.Row[Any], replaced: str | None, action: str, at_us: int) -> dict[str, Any]:
    change = {"model": row.model, "version": row.version, "replaced": replaced, "action": action}
    return change | {"reason": "", "at_us": at_us}
