"""Alembic's entry: runs the revisions on the connection, and in the transaction, that it is given."""

from alembic import context

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=context.config.attributes.get("metadata"),
    transactional_ddl=True,
    render_as_batch=True,
)
context.run_migrations()
