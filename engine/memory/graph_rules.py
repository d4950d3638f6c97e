"""Numbers and arrows of the task graph (SPEC 4.6): likeness, age, where arrows lead, and circles of them. Pure."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from graphlib import CycleError, TopologicalSorter

from engine.model import GraphEdge, Relation

SEMANTIC_WEIGHT = 0.7
"""Of what is found of tasks likeness counts so much, and recency the rest (SPEC 4.6)."""

DECAY_DAYS = 14.0
SIMILAR = 0.8
"""Cosine from which two tasks are linked by themselves."""

MAX_SIMILAR = 5
"""Links that one new task gets by itself, the closest."""

_DAY = timedelta(days=1)


def recency(at: datetime, now: datetime) -> float:
    """exp(-age in days / 14); 1 for what is new, or from the future."""
    return math.exp(-max(0.0, (now - at) / _DAY) / DECAY_DAYS)


def similar(tasks: Iterable[tuple[str, float]], own_id: str) -> list[tuple[str, float]]:
    """Of tasks with their cosines, those to link to: 0.8 or more, the closest first, each once."""
    best: dict[str, float] = {}
    for task_id, cosine in tasks:
        if task_id != own_id and cosine >= SIMILAR:
            best[task_id] = max(cosine, best.get(task_id, 0.0))
    return sorted(best.items(), key=lambda pair: (-pair[1], pair[0]))[:MAX_SIMILAR]


OutgoingEdges = Mapping[str, Sequence[GraphEdge]]
"""The arrows of each task, by the task that they come from."""


def targets(out: OutgoingEdges, task_id: str, relation: Relation) -> Iterator[str]:
    """Where arrows that hold lead."""
    return (item.target for item in out.get(task_id, ()) if item.relation is relation and not item.invalidated)


def reaches(out: OutgoingEdges, into: Mapping[str, Sequence[str]], start: str, relation: Relation, goal: str) -> bool:
    """Whether arrows of one relation lead from `start` to `goal`; `into` says from where any arrows lead to a task.

    Looked for from both ends at once, so that a task that nothing points to yet, as every new one, costs nothing
    however deep the graph is.
    """
    forward_queue, backward_queue = deque([start]), deque([goal])
    seen_forward, seen_backward = {start}, {goal}
    while forward_queue and backward_queue:
        for target in targets(out, forward_queue.popleft(), relation):
            if target in seen_backward:
                return True
            if target not in seen_forward:
                seen_forward.add(target)
                forward_queue.append(target)
        task_id = backward_queue.popleft()
        for source in into.get(task_id, ()):
            if task_id not in targets(out, source, relation):
                continue
            if source in seen_forward:
                return True
            if source not in seen_backward:
                seen_backward.add(source)
                backward_queue.append(source)
    return False


def find_circle(out: OutgoingEdges, relation: Relation) -> list[str]:
    """The members of a circle that arrows of one relation form, in their order; [] when there is none."""
    try:
        TopologicalSorter({task_id: targets(out, task_id, relation) for task_id in out}).prepare()
    except CycleError as error:
        members: list[str] = error.args[1]  # the first is the last, too; against the arrows
        return members[:0:-1]
    return []
