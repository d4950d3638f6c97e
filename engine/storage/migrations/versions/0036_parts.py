"""A change set can be landed in parts, and has comments."""

import json

import sqlalchemy as sa
from alembic import op

revision = "0036"
down_revision = "0035"


def upgrade() -> None:
    for name in ("landings", "comments"):
        op.add_column("change_sets", sa.Column(name, sa.JSON(), nullable=False, server_default="[]"))
    connection = op.get_bind()
    for row in connection.execute(sa.text("SELECT id, result_tree, files, landing FROM change_sets")).fetchall():
        plan = json.loads(row.landing or "null")
        if plan is not None:
            landings = json.dumps([{"tree": row.result_tree, "files": json.loads(row.files), "plan": plan}])
            connection.execute(
                sa.text("UPDATE change_sets SET landings = :landings WHERE id = :id"),
                {"landings": landings, "id": row.id},
            )
    op.drop_column("change_sets", "landing")
