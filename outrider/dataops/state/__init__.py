"""``state.db``: tables, migrations, rows, connections and pauses.

May import no other room.
"""
