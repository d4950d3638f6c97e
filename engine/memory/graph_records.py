"""Tasks of the graph as JSON, as the files have them, and back (SPEC 4.6). Pure."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime

from engine.memory.graph_file import Record
from engine.values import GraphEdge, GraphNode, sanitise

LONGEST_TITLE = 200
LONGEST_DESCRIPTION = 600
"""Characters of a task that the graph holds in memory; the session's own record has it whole."""


def snapshot(nodes: Sequence[GraphNode], out: Mapping[str, Sequence[GraphEdge]]) -> Iterator[Record]:
    """A record for each task, with its arrows."""
    for node in nodes:
        edges = [
            [edge.relation.value, edge.target, edge.weight, *(["invalidated"] if edge.invalidated else [])]
            for edge in out.get(node.task_id, ())
        ]
        yield {"task": task_record(node), "edges": edges}


def task_record(node: GraphNode) -> Record:
    """A task as JSON."""
    return {
        "task_id": node.task_id,
        "title": node.title,
        "timestamp": node.timestamp.timestamp(),
        "success": node.success,
        "description": node.description,
        "workspace": node.workspace,
        "agent": node.agent,
        "invalidated_at": node.invalidated_at.timestamp() if node.invalidated_at else None,
        "why": node.why,
    }


def node_of(record: Record) -> GraphNode:
    """The inverse. Raises ValueError, KeyError and TypeError for what is no task."""
    success, ended = record.get("success"), record.get("invalidated_at")
    if not isinstance(record["task_id"], str) or not record["task_id"]:
        raise ValueError("a task without an id")
    if success not in (True, False, None):
        raise ValueError(f"success is {success!r}, not true, false or null")
    return GraphNode(
        task_id=record["task_id"],
        title=short(str(record.get("title", "")), LONGEST_TITLE),
        timestamp=_instant(record["timestamp"]),
        success=success,
        description=short(str(record.get("description", "")), LONGEST_DESCRIPTION),
        workspace=sys.intern(str(record.get("workspace", ""))),
        agent=sys.intern(str(record.get("agent", ""))),
        invalidated_at=None if ended is None else _instant(ended),
        why=str(record.get("why", "")),
    )


def _instant(stamp: float) -> datetime:
    try:
        return datetime.fromtimestamp(stamp, UTC)
    except (OverflowError, OSError) as error:
        raise ValueError(f"{stamp} is no time") from error


def short(text: str, longest: int) -> str:
    """Harmless, and at most `longest` characters."""
    clean = sanitise(text).strip()
    return clean if len(clean) <= longest else clean[: longest - 1].rstrip() + "…"
