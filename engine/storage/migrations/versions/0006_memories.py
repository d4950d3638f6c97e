"""Memories of layers C and E: rows, chunks, vectors, full text."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"

FULL_TEXT = (
    "CREATE VIRTUAL TABLE memories_fts USING fts5("
    "text, content='memories', content_rowid='seq', tokenize='porter unicode61 remove_diacritics 2')",
    "CREATE TRIGGER memories_fts_insert AFTER INSERT ON memories BEGIN "
    "INSERT INTO memories_fts(rowid, text) VALUES (new.seq, new.text); END",
    "CREATE TRIGGER memories_fts_delete AFTER DELETE ON memories BEGIN "
    "INSERT INTO memories_fts(memories_fts, rowid, text) VALUES ('delete', old.seq, old.text); END",
    "CREATE TRIGGER memories_fts_update AFTER UPDATE OF text ON memories BEGIN "
    "INSERT INTO memories_fts(memories_fts, rowid, text) VALUES ('delete', old.seq, old.text); "
    "INSERT INTO memories_fts(rowid, text) VALUES (new.seq, new.text); END",
)


def upgrade() -> None:
    op.create_table(
        "memories",
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("ref", sa.String(), nullable=False),
        sa.Column("layer", sa.String(), nullable=False),
        sa.Column("text", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("speaker", sa.String(), nullable=False),
        sa.Column("session", sa.String(), nullable=False),
        sa.Column("agent", sa.String(), nullable=False),
        sa.Column("workspace", sa.String(), nullable=False),
        sa.Column("source", sa.String(), nullable=False),
        sa.Column("tags", sa.JSON(), nullable=False),
        sa.Column("retention", sa.String(), nullable=False),
        sa.Column("at", sa.String(length=32), nullable=False),
        sa.Column("created_at", sa.String(length=32), nullable=False),
        sa.Column("superseded_by", sa.String(), nullable=False),
        sa.Column("forgotten", sa.Boolean(), nullable=False),
        sa.Column("model", sa.String(), nullable=False),
        sa.CheckConstraint("layer IN ('C', 'E')", name="ck_memories_layer"),
        sa.CheckConstraint("retention IN ('session', 'month', 'forever')", name="ck_memories_retention"),
        sa.PrimaryKeyConstraint("seq"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_memories_id", "memories", ["id"], unique=True)
    op.create_index("ix_memories_session", "memories", ["session", "seq"], unique=False)
    op.create_index("ix_memories_layer", "memories", ["layer", "seq"], unique=False)
    op.create_index("ix_memories_model", "memories", ["model", "seq"], unique=False)
    op.create_index("ix_memories_retention", "memories", ["retention", "created_at"], unique=False)
    op.create_index("ix_memories_speaker", "memories", ["speaker"], unique=False)
    op.create_table(
        "memory_chunks",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("start", sa.Integer(), nullable=False),
        sa.Column("stop", sa.Integer(), nullable=False),
        sa.Column("tokens", sa.LargeBinary(), nullable=True),
        sa.ForeignKeyConstraint(["seq"], ["memories.seq"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_memory_chunks_seq", "memory_chunks", ["seq", "ordinal"], unique=False)
    op.create_table(
        "memory_vectors",
        sa.Column("chunk_id", sa.Integer(), nullable=False),
        sa.Column("vector", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["chunk_id"], ["memory_chunks.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("chunk_id"),
    )
    for statement in FULL_TEXT:
        op.execute(statement)
