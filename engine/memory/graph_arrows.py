"""Where the arrows of the task graph lead, and whether they go in circles (SPEC 4.6). Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence

from engine.values import GraphEdge, Relation

Out = Mapping[str, Sequence[GraphEdge]]
"""The arrows of each task, by the task that they come from."""


def ahead(out: Out, task_id: str, relation: Relation) -> Iterator[str]:
    """Where arrows that hold lead."""
    return (one.target for one in out.get(task_id, ()) if one.relation is relation and not one.invalidated)


def reaches(out: Out, into: Mapping[str, Sequence[str]], start: str, relation: Relation, goal: str) -> bool:
    """Whether arrows of one relation lead from `start` to `goal`; `into` says from where any arrows lead to a task.

    Looked for from both ends at once, so that a task that nothing points to yet, as every new one, costs nothing
    however deep the graph is.
    """
    forth, back = deque([start]), deque([goal])
    seen_forth, seen_back = {start}, {goal}
    while forth and back:
        for target in ahead(out, forth.popleft(), relation):
            if target in seen_back:
                return True
            if target not in seen_forth:
                seen_forth.add(target)
                forth.append(target)
        reached = back.popleft()
        for source in into.get(reached, ()):
            if reached not in ahead(out, source, relation):
                continue
            if source in seen_forth:
                return True
            if source not in seen_back:
                seen_back.add(source)
                back.append(source)
    return False


def circles(out: Out, relation: Relation) -> Iterator[list[str]]:
    """The circles that arrows of one relation form, each once: the members in their order, the arrow from the last to
    the first being the one that closes it. Without those arrows there is none left. Pure; `out` may be changed in
    between where a circle was found."""
    done: set[str] = set()
    for start in list(out):
        if start in done:
            continue
        path, places = [start], {start: 0}
        ways = [ahead(out, start, relation)]
        while ways:
            target = next(ways[-1], None)
            if target is None:
                ways.pop()
                left = path.pop()
                del places[left]
                done.add(left)
            elif target in places:
                yield path[places[target] :]
            elif target not in done:
                places[target] = len(path)
                path.append(target)
                ways.append(ahead(out, target, relation))
