"""The organisation as a tree of rows: who is under whom, what is folded away, who hangs loose (SPEC 1.1, 1.4). Pure.

From the owner down, each leader with those who report to it. Whom no chain leads to the owner stands below, by what is
wrong: a leader that is not there, a circle, a folder that cannot be read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from engine.values import AgentView

OWNER = "owner"
FOLD = "+"
"""What the id of a row begins with that stands for folded members; a leader's id follows. No agent's id has it."""

GROUP = "="
"""What the id of a row begins with that stands above those who hang loose, or were retired."""

LONG = 8
"""In an organisation of more agents than this, those who never worked are folded (SPEC 6)."""

NAMED = 12
"""So many of those who are folded are named on their row."""


@dataclass(frozen=True, slots=True)
class Node:
    """A row of the tree. `agent` is None for the owner, for folded members and for the heading of a group.

    `open` is None where nothing is below. `text` is what stands beside the name: of an agent why it hangs where it is,
    "" for nothing; of the others all there is. `used` are the tokens of all, on the owner's row.
    """

    id: str
    depth: int
    agent: AgentView | None = None
    open: bool | None = None
    text: str = ""
    matches: bool = True
    used: int = 0


@dataclass(frozen=True, slots=True)
class Folds:
    """What the operator folded (`closed`, by id) and unfolded (`shown`, leaders whose idle members are shown).

    `everyone` shows them everywhere; `kept` are agents that stay in sight whatever they did."""

    closed: frozenset[str] = frozenset()
    shown: frozenset[str] = frozenset()
    everyone: bool = False
    kept: frozenset[str] = frozenset()


def tree(
    agents: Sequence[AgentView], retired: Sequence[AgentView] = (), *, folds: Folds, needle: Sequence[str] = ()
) -> list[Node]:
    """The rows. With `needle` (words in lower case) only agents that have them all, and the leaders above them."""
    return _Tree(agents, retired, folds, needle).rows()


def below(agents: Iterable[AgentView], agent_id: str) -> set[str]:
    """Everyone below an agent."""
    return _reach(_under(agents), agent_id)


def path(agents: Iterable[AgentView], agent_id: str) -> list[str]:
    """The leaders of an agent, from the direct one upward, as far as they are there and not met twice."""
    leader = {one.id: one.reports_to for one in agents}
    found: list[str] = []
    at = leader.get(agent_id, "")
    while at in leader and at not in found and at != agent_id:
        found.append(at)
        at = leader[at]
    return found


def busy(agent: AgentView) -> bool:
    """Whether an agent has anything to show: it worked, works, serves a channel, or wants mending."""
    return bool(agent.sessions or agent.channels or agent.broken or agent.state not in ("idle", "retired"))


def searched(agent: AgentView) -> str:
    """What the words of a filter are looked for in."""
    parts = (agent.id, agent.title, agent.domain, f"tier {agent.tier}", STATES.get(agent.state, agent.state),
             *agent.channels, agent.archetype, agent.broken)  # fmt: skip
    return " ".join(parts).lower()


STATES: Mapping[str, str] = {"running": "working", "queued": "waiting"}
"""Words for states whose name is not how a person says it."""


def _under(agents: Iterable[AgentView]) -> dict[str, list[AgentView]]:
    found: dict[str, list[AgentView]] = {}
    for one in agents:
        found.setdefault(one.reports_to, []).append(one)
    return found


def _reach(under: Mapping[str, Sequence[AgentView]], leader: str) -> set[str]:
    found: set[str] = set()
    todo = [leader]
    while todo:
        for one in under.get(todo.pop(), ()):
            if one.id not in found:
                found.add(one.id)
                todo.append(one.id)
    return found


class _Tree:
    def __init__(
        self, agents: Sequence[AgentView], retired: Sequence[AgentView], folds: Folds, needle: Sequence[str]
    ) -> None:
        self._agents = {one.id: one for one in agents}
        self._retired, self._folds, self._needle = retired, folds, needle
        self._under = _under(agents)
        self._placed: set[str] = set()
        self._groups = self._loose()
        self._matching = {one.id for one in agents if self._matches(one)} if needle else set()
        self._shown = self._with_leaders(self._matching if needle else {one.id for one in agents if self._stays(one)})
        self._folding = not needle and not folds.everyone and len(agents) > LONG

    def rows(self) -> list[Node]:
        used = sum(one.used for one in self._agents.values())
        found = [Node(OWNER, 0, open=OWNER not in self._folds.closed or bool(self._needle), text="you", used=used)]
        if found[0].open:
            found += self._below(OWNER, 1)
        for title, heads in self._groups:
            rows = [row for head, why in heads for row in self._one(head, 1, why)]
            if rows:
                found += [self._group(title, len(heads)), *(rows if self._is_open(f"{GROUP}{title}") else ())]
        gone = [one for one in self._retired if self._matches(one)]
        if gone:
            title = "retired"
            found.append(self._group(title, len(gone)))
            if self._is_open(f"{GROUP}{title}"):
                found += [Node(one.id, 1, one) for one in gone]
        return found

    def _group(self, title: str, count: int) -> Node:
        id = f"{GROUP}{title}"
        return Node(id, 0, open=self._is_open(id), text=f"{title} ({count})")

    def _is_open(self, id: str) -> bool:
        if self._needle:
            return True
        # What was retired is out of sight until it is asked for.
        return id in self._folds.shown if id == f"{GROUP}retired" else id not in self._folds.closed

    def _matches(self, one: AgentView) -> bool:
        text = searched(one)
        return all(word in text for word in self._needle)

    def _stays(self, one: AgentView) -> bool:
        return busy(one) or one.id in self._folds.kept

    def _with_leaders(self, ids: Iterable[str]) -> set[str]:
        found: set[str] = set()
        for one in ids:
            at = one
            while at in self._agents and at not in found:
                found.add(at)
                at = self._agents[at].reports_to
        return found

    def _loose(self) -> list[tuple[str, list[tuple[AgentView, str]]]]:
        """Whom no chain leads to the owner: by what is wrong, the heads of what hangs there, and why."""
        reached = _reach(self._under, OWNER)
        missing: list[tuple[AgentView, str]] = []
        broken: list[tuple[AgentView, str]] = []
        circles: list[tuple[AgentView, str]] = []
        for one in self._agents.values():
            if one.id in reached or one.reports_to in self._agents:
                continue
            if one.broken:
                broken.append((one, ""))
            else:
                missing.append((one, f"reports to {one.reports_to}, who is not there"))
            reached |= {one.id} | _reach(self._under, one.id)
        for one in self._agents.values():
            if one.id not in reached:
                head = self._head_of_circle(one)
                whom = "itself" if head.reports_to == head.id else f"{head.reports_to}, whom it leads"
                circles.append((head, f"reports to {whom}: a circle"))
                reached |= {head.id} | _reach(self._under, head.id)
        return [("leader missing", missing), ("in a circle", circles), ("broken", broken)]

    def _head_of_circle(self, one: AgentView) -> AgentView:
        seen: list[str] = []
        at = one.id
        while at not in seen:
            seen.append(at)
            at = self._agents[at].reports_to
        return self._agents[min(seen[seen.index(at) :])]

    def _one(self, agent: AgentView, depth: int, why: str = "") -> list[Node]:
        """An agent and who is below it. Without recursion: a chain may be as long as there are agents."""
        rows: list[Node] = []
        todo: list[Node | tuple[AgentView, int, str]] = [(agent, depth, why)]
        while todo:
            task = todo.pop()
            if isinstance(task, Node):
                rows.append(task)
                continue
            one, at, said = task
            if one.id in self._placed or (self._needle and one.id not in self._shown):
                continue
            self._placed.add(one.id)
            matches = not self._needle or one.id in self._matching
            tasks = self._tasks(one.id, at + 1)
            if not tasks:
                rows.append(Node(one.id, at, one, None, said, matches))
                continue
            opened = bool(self._needle) or one.id not in self._folds.closed
            rows.append(Node(one.id, at, one, opened, said, matches))
            if opened:
                todo += reversed(tasks)
        return rows

    def _below(self, leader: str, depth: int) -> list[Node]:
        rows: list[Node] = []
        for task in self._tasks(leader, depth):
            rows += [task] if isinstance(task, Node) else self._one(*task)
        return rows

    def _tasks(self, leader: str, depth: int) -> list[Node | tuple[AgentView, int, str]]:
        """Who stands below a leader, then a row for those of them who are folded."""
        members = [one for one in self._under.get(leader, ()) if one.id not in self._placed]
        if self._needle:
            members = [one for one in members if one.id in self._shown]
        idle = [one for one in members if one.id not in self._shown] if self._folding else []
        hidden = sum(1 + len(_reach(self._under, one.id)) for one in idle)
        revealed = leader != OWNER and leader not in self._shown  # itself unfolded: then with all below it
        if hidden < 2 or revealed or leader in self._folds.shown:
            return [(one, depth, "") for one in members]
        names = ", ".join(one.id for one in idle[:NAMED]) + (" …" if len(idle) > NAMED else "")
        fold = Node(f"{FOLD}{leader}", depth, text=f"{hidden:,} not used yet: {names}")
        return [*((one, depth, "") for one in members if one.id in self._shown), fold]
