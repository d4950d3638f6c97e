"""How the console writes times, money and counts: short, always the same width for the same kind of thing."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import PurePath
from typing import TypeVar

from rich.cells import cell_len, set_cell_size

from engine.model import MICRO, PROBLEM_FOUND, Card, RailVerdict, Verdict
from engine.model.text import count as count
from engine.model.text import failures

T = TypeVar("T")

VERDICT_SIGNS = {Verdict.ALLOW: ("✓", "grey"), Verdict.ASK: ("▲", "wants"), Verdict.BLOCK: ("✗", "wrong")}
"""Sign and tone of each verdict of a rail."""


def span(length: timedelta) -> str:
    """An age in one unit: `now`, `4m`, `3h`, `2d`."""
    minutes = int(length.total_seconds() // 60)
    if minutes < 1:
        return "now"
    if minutes < 60:
        return f"{minutes}m"
    if minutes < 48 * 60:
        return f"{minutes // 60}h"
    return f"{minutes // 1440}d"


def duration(length: timedelta) -> str:
    """How long something took, or has run: `<1s`, `14s`, `4m 12s`, `1h 02m`, `2d 3h`. Ages are a `span`."""
    seconds = max(0, int(length.total_seconds()))
    if seconds < 60:
        return f"{seconds}s" if seconds else "<1s"
    if seconds < 3600:
        return f"{seconds // 60}m {seconds % 60:02}s"
    hours, rest = divmod(seconds, 3600)
    return f"{hours}h {rest // 60:02}m" if hours < 48 else f"{hours // 24}d {hours % 24}h"


def clock_time(moment: datetime) -> str:
    """Local hour and minute: `14:30`."""
    return moment.astimezone().strftime("%H:%M")


def moment(at: datetime, now: datetime) -> str:
    """`14:30` today, `Mon 14:30` within a week, else `5 Jan`."""
    local, today = at.astimezone(), now.astimezone()
    if local.date() == today.date():
        return local.strftime("%H:%M")
    return local.strftime("%a %H:%M") if abs(today - local) < timedelta(days=6) else f"{local.day} {local:%b}"


def money(amount: int) -> str:
    """Micro-dollars as `$0.05`; below a cent `<$0.01`; nothing is `$0`."""
    if amount == 0:
        return "$0"
    return f"${amount / MICRO:.2f}" if amount >= MICRO // 100 else "<$0.01"


def cap(amount: int) -> str:
    """A cap without cents where it has none: `2`, `20`, `0.50`."""
    whole, rest = divmod(amount, MICRO)
    return str(whole) if rest == 0 else f"{amount / MICRO:.2f}"


def tokens(number: int) -> str:
    """`940`, `3.2k`, `1.4M`."""
    if number < 1000:
        return str(number)
    return f"{number / 1000:.1f}k" if number < 1_000_000 else f"{number / 1_000_000:.1f}M"


def workspace_name(workspace: str) -> str:
    """A workspace by the last part of its path."""
    return PurePath(workspace).name or workspace


def next_choice(choices: Sequence[T], choice: T) -> T:
    """The choice that follows `choice`: the first one after the last, and after a value that is no choice."""
    return choices[(choices.index(choice) + 1) % len(choices)] if choice in choices else choices[0]


def one_line(text: str) -> str:
    """`text` with every run of white space as one space."""
    return " ".join(text.split())


def crop(text: str, width: int) -> str:
    """`text` cut to `width` cells, with an ellipsis; counts cells, so that emoji never shift a column."""
    if cell_len(text) <= width:
        return text
    return set_cell_size(text, width - 1).rstrip() + "…" if width > 1 else "…"[:width]


def fit_to_width(text: str, width: int) -> str:
    """`text` cropped or padded to exactly `width` cells."""
    return set_cell_size(crop(text, width), width)


SESSION_STATES = {"succeeded": "finished", "cannot_run": "could not run", "cancelled": "stopped"}
"""States of sessions and results of cards whose stored name is not a word that you would use."""

CARD_STATES = {"confirmed": "approved", "rejected": "dismissed", "executed": "finished"}
"""The same for cards."""


DECISIONS = {"original": "edited", "did_himself": "done by you"}
"""The same for what you decided."""


SESSION_SIGNS = {
    "queued": ("○", "faint"), "running": ("◐", "accent"), "succeeded": ("✓", "grey"), "failed": ("✗", "wrong"),
    "cannot_run": ("○", "wants"), "cancelled": ("✗", "grey"), "blocked": ("✗", "wrong"),
    "interrupted": ("✗", "wants"), "discarded": ("✗", "grey"),
}  # fmt: skip
"""Sign and tone of each state of a session."""


PROBLEM_SIGN = ("▲", "wants")
"""Sign and tone of a session that ran to its end and found a problem."""


def session_state(name: str) -> str:
    return SESSION_STATES.get(name, name)


TEST_RUNS = (None, "run_tests")
"""The flow of sessions whose outcome is the number of tests that failed; None is an agent's work. Of others, tests are
only a means."""


def session_outcome(state: str, result: str | None, failed: tuple[int, int] | None) -> tuple[str, str, str]:
    """Sign, tone and words of how a session stands. `failed`: the number of tests that failed, and of errors."""
    if state == "succeeded" and result == "failed":
        return (*PROBLEM_SIGN, failures(*failed) if failed and any(failed) else PROBLEM_FOUND)
    return (*SESSION_SIGNS[state], session_state(state))


TOUCHES = {
    "keep_commits": "makes a branch", "prepare_environment": "installs packages",
    "undo_landing": "undoes a landing", "reclaim_space": "deletes what is not needed any more",
}  # fmt: skip
"""What a flow changes that changes something else than files which wait to be landed."""


def touches(flow: str, check_only: bool, without_sandbox: bool) -> str:
    """What a card may change. Nothing that runs without a sandbox is called read-only."""
    if check_only:
        return "only checks, without a sandbox" if without_sandbox else "read-only"
    return TOUCHES.get(flow, "you land the changes")


NO_SANDBOX = "no sandbox on this machine"


def approval_risk(card: Card) -> str:
    """What makes a card risky, in words, "" when nothing does: no sandbox works here, the content filter asks, or it
    touches production.

    Approving such a card needs a second, distinct key.
    """
    return "; ".join(part for part in (NO_SANDBOX if card.needs_confirmation else "", _asking_reason(card)) if part)


def _asking_reason(card: Card) -> str:
    for verdict in card.verdicts:
        if verdict.rail == "content" and verdict.verdict is Verdict.ASK:
            return one_line(verdict.reason)
        if "production" in verdict.rule.split(","):
            reasons = (part for part in verdict.reason.split("; ") if "production" in part)
            return one_line(next(reasons, verdict.reason))
    return ""


def blocking_verdict(card: Card) -> RailVerdict | None:
    """The first rail that would block the card now."""
    return next((verdict for verdict in card.verdicts if verdict.verdict is Verdict.BLOCK), None)
