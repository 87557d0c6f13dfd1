"""Alembic's entry: runs the revisions on the connection that ``upgrade`` hands over."""

from alembic import context

from outrider.dataops.state.layout import METADATA

connection = context.config.attributes["connection"]
context.configure(
    connection=connection,
    target_metadata=METADATA,
    render_as_batch=connection.dialect.name == "sqlite",
    transactional_ddl=True,
)
context.run_migrations()
