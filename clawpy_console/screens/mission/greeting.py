"""A few lines above the stack: what happened while nobody looked, and the three optional steps of a first run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from textual.content import Content

from clawpy_console import hiring, words
from clawpy_console.keys import shown_key
from engine.values import Result

if TYPE_CHECKING:
    from engine import Engine


def first_run(engine: Engine, keymap: Mapping[str, str]) -> list[Content]:
    """The first-run lines: what to press and what happens then, optional steps. Escape hides them for good; while no
    agent is found each fits 75 cells. Blocking: call it in a thread."""

    def key(action: str) -> tuple[str, str]:
        return (shown_key(action, keymap), "$accent")

    served = engine.hiring.served()
    models = [] if served else list(engine.hiring.models().ids)
    return [
        Content.assemble(
            ("Each card is useful work: ", "bold $ink"), key("stack.approve"), " runs it, ",
            key("stack.dismiss"), " dismisses it, ", key("stack.snooze"), " snoozes it",
        ),
        Content.assemble(
            "Changes wait as a diff: ", key("app.work"), " shows them, ",
            key("work.land"), " lands them, ", key("work.undo"), " undoes that",
        ),
        Content.assemble(
            key("stack.own"), " writes your own prompt; ",
            hiring.line(served, engine.hiring.found(), models, shown_key("app.hire", keymap)),
        ),
        Content.assemble("--workspace DIR adds folders · nothing runs by itself · ", ("esc", "$accent"), " hides this"),
    ]  # fmt: skip


def since_then(engine: Engine, since: datetime, now: datetime) -> list[Content]:
    """What was done, blocked, approved, rejected, learnt, spent since `since`; nothing when nothing happened.
    Blocking."""
    then = engine.since(since)
    if then.nothing:
        return []
    well = sum(1 for one in then.ran if one.result is Result.SUCCEEDED and not one.discarded_at)
    decisions = then.approved - then.approved_by_itself + then.rejected
    rails = ", ".join(f"{rail} {number}" for rail, number in Counter(one.rail for one in then.blocked).most_common())

    def line(label: str, text: str) -> Content:
        return Content.assemble((f"{label:<9}", "$faint"), (text, "$ink"))

    what = then.learnt
    told = words.learned(what.learnings, what.facts, what.proposed, what.by_itself)
    by = f", from {words.count(decisions, 'decision')}" if decisions else ""
    bad = len(then.ran) - well
    itself = f", {then.approved_by_itself} by itself" if then.approved_by_itself else ""
    return [
        Content.styled(f"While you were away, {words.span(now - since)}", "bold $accent"),
        line("done", f"{words.count(len(then.ran), 'session')}" + (f", {bad} failed" if bad else "")),
        *([line("blocked", f"{len(then.blocked)} by the rails: {rails}")] if then.blocked else []),
        line("approved", f"{then.approved}{itself}"),
        line("rejected", f"{then.rejected}"),
        line("learnt", f"{told or 'nothing new'}{by}"),
        *([line("spent", words.money(then.spent))] if then.spent else []),
    ]
