"""One day of the ledger, and what rules make of it (SPEC 4.8): drafts of facts, and lines for each agent's `memory.md`.

Pure: `nightly` fetches, calls these, stores.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath

from engine.memory.capturing import digest, nearest
from engine.memory.drafts import CAPTURED
from engine.memory.para import NewFact, group_name
from engine.model import Bucket, Capture, ParaFact, SessionView, Trust, sanitise
from engine.model.text import count
from engine.model.trust import of_names

MOST_FACTS = 8
"""Facts of one night (SPEC 4.8)."""

REPEATED = 2
"""A test that stayed red in so many sessions of a day is worth a fact."""

MOST_LINES = 12
LONGEST_LINE = 200
"""Of one agent's day."""

LONGEST_DIGEST = 12_000
"""Characters of the synthesis."""


@dataclass(frozen=True, slots=True)
class Day:
    """What happened on a local day (`date` as `2026-01-05`): sessions that ended, with how many `files` of each landed;
    `red`: for each session whose healing failed or went in circles, its workspace and the tests that stayed red."""

    date: str
    sessions: tuple[SessionView, ...] = ()
    files: Mapping[str, int] = field(default_factory=dict)
    captures: tuple[Capture, ...] = ()
    red: Mapping[str, tuple[str, tuple[str, ...]]] = field(default_factory=dict)
    approved: int = 0
    rejected: int = 0

    @property
    def empty(self) -> bool:
        """Nothing happened."""
        return not (self.sessions or self.captures or self.red)


def draft(day: Day, known: Sequence[ParaFact]) -> list[NewFact]:
    """By rules, what of the day might be kept: at most 8, corrections first. What `known` facts say already is not."""
    drafted = [
        *_captured(day, "correction"),
        *_captured(day, "decision"),
        *_captured(day, "fact"),
        *_failures(day),
        *_landed(day),
    ]
    said = {digest(fact.fact) for fact in known if not fact.forgotten}
    found: dict[str, NewFact] = {}
    for one in drafted:
        if one.digest not in said:
            found.setdefault(one.digest, _with_former(one, known))
    return list(found.values())[:MOST_FACTS]


def lines_for(day: Day, agent: str) -> list[str]:
    """What an agent is to find in its `memory.md` of this day; [] when it did nothing."""
    lines = []
    for one in day.sessions:
        if one.agent == agent:
            landed = day.files.get(one.id)
            lines.append(f"{one.outcome}: {one.prompt}" + (f" ({count(landed, 'file')} landed)" if landed else ""))
    lines += [
        f"{one.kind}: {one.text}" if one.trust is Trust.OPERATOR else f"somebody said ({one.kind}): “{one.text}”"
        for one in day.captures
        if one.agent == agent
    ]
    if len(lines) > MOST_LINES:
        lines = [*lines[: MOST_LINES - 1], f"and {len(lines) - MOST_LINES + 1} more"]
    return [_short(line, LONGEST_LINE) for line in lines]


def heading(day: str) -> str:
    """The line by which the day is found again in a `memory.md`."""
    return f"## {day}"


def synthesis(day: Day) -> str:
    """The day as a model reads it: one line a thing, bounded; every line begins with its source."""
    lines = [f"Day {day.date}: {count(day.approved, 'card')} approved, {day.rejected} rejected."]
    for one in day.sessions:
        files = day.files.get(one.id)
        landed = f", {count(files, 'file')} landed" if files else ""
        said = f"{one.prompt}: {one.outcome}{landed}. {one.error or one.summary}"
        lines.append(f"[{one.id}] {one.agent} in {_name(one.workspace)}: {said}")
    lines += [f"[{one.source}] {one.kind} said {_by(one)}: {one.text}" for one in day.captures]
    for session, (_, tests) in sorted(day.red.items()):
        lines.append(f"[{session}] still failed: {', '.join(tests[:5])}")
    text = "\n".join(_short(line, 2 * LONGEST_LINE) for line in lines)
    return text if len(text) <= LONGEST_DIGEST else text[: LONGEST_DIGEST - 1] + "…"


def fact_of(day: Day, *, fact: str, category: str, bucket: Bucket, group: str, source: str) -> NewFact:
    """A fact that a model draws from what the synthesis calls `source`: it belongs to the workspace that this is from.
    Whose words it is: those of whoever said it where it was captured word for word, else the model's own. Pure."""
    captures = [one for one in day.captures if one.source == source]
    said = next((one.trust for one in captures if digest(one.text) == digest(fact)), Trust.QUOTED)
    places = {session: place for session, (place, _) in day.red.items()}
    places |= {one.source: one.workspace for one in captures} | {one.id: one.workspace for one in day.sessions}
    origin = f"nightly:{day.date}:{source}"
    return NewFact(fact, category or "fact", bucket, group, origin, places.get(source, ""), trust=said)


def _captured(day: Day, kind: str) -> list[NewFact]:
    found = []
    for one in sorted(day.captures, key=lambda one: (-one.seen, one.at, one.id)):
        if one.kind != kind:
            continue
        preference = "preference" in one.tags
        bucket, group = (Bucket.AREAS, "preferences") if preference else (Bucket.PROJECTS, _name(one.workspace))
        often = f", in {one.seen} sessions" if one.seen > 1 else ""
        category = "preference" if preference else kind
        source = f"{CAPTURED}{one.source}"
        reason = f"said {_by(one)}{often}"
        found.append(NewFact(one.text, category, bucket, group, source, one.workspace, trust=one.trust, reason=reason))
    return found


def _by(one: Capture) -> str:
    if one.trust is Trust.OPERATOR:
        return "by the operator"
    return f"in a session of {one.agent}" if one.agent else "in a session"


def _failures(day: Day) -> list[NewFact]:
    times = Counter((workspace, test) for workspace, tests in day.red.values() for test in set(tests))
    found = []
    for (workspace, test), often in sorted(times.items(), key=lambda pair: (-pair[1], pair[0])):
        if often >= REPEATED:
            sessions = sorted(one for one, (place, tests) in day.red.items() if place == workspace and test in tests)
            fact = NewFact(
                f"{_short(test, 300)} resists being fixed by agents",
                "failure",
                Bucket.RESOURCES,
                _name(workspace),
                "nightly:" + ",".join(sessions[:5]),
                workspace,
                trust=of_names([test]),
                reason=f"it still failed in {often} sessions of {day.date}",
            )
            found.append(fact)
    return found


def _landed(day: Day) -> list[NewFact]:
    found = []
    for one in day.sessions:
        if files := day.files.get(one.id):
            fact = NewFact(
                f"Done on {day.date}: {_short(one.prompt, 300)} ({count(files, 'file')})",
                "change",
                Bucket.ARCHIVES,
                _name(one.workspace),
                f"session:{one.id}",
                one.workspace,
                reason="it was landed",
            )
            found.append(fact)
    return found


def _with_former(new: NewFact, known: Sequence[ParaFact]) -> NewFact:
    """A correction is to take the place of the fact that it corrects, where there is one."""
    if new.category != "correction":
        return new
    near = ((fact.id, fact.fact) for fact in known if fact.active and fact.workspace in ("", new.workspace))
    return replace(new, supersedes=nearest(new.fact, near))


def _name(workspace: str) -> str:
    return group_name(PurePath(workspace).name)


def _short(text: str, longest: int) -> str:
    line = " ".join(sanitise(text).split())
    return line if len(line) <= longest else line[: longest - 1].rstrip() + "…"
