"""The two rails that compare a trigger with earlier ones: the loop detector (SPEC 3.3) and the rate limiter (SPEC 3.2).

The loop detector blocks channels that trigger each other in circles. A trigger makes a link, from the channel or
program whose work caused it to the channel of the trigger. A person's approval or the engine's own prediction makes a
link from `owner`. Such a link begins a chain, and is never blocked. If only the rate limiter blocked the trigger of a
program, its link did not run, and counts as a repeat only.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from math import ceil

from sqlmodel import Field, Session

from engine.frozen import frozen
from engine.model import DecidedBy, RailVerdict, Trigger, TriggerType, Verdict
from engine.storage import Row, as_stored, ask
from engine.storage.database import Transaction
from engine.wording import span

RATE_RAIL, LOOP_RAIL = "rate", "loop"
"""The names of the rails in verdicts."""

OWNER = "owner"
"""The start of a link that no other work caused."""

REVERSE_WINDOW = timedelta(minutes=5)
"""Time after a link ran in which its reverse is a loop."""

PAIR_WINDOW = timedelta(minutes=10)
"""Time in which equal links are counted."""

MAX_EQUAL_LINKS = 2
"""Maximum number of equal links within `PAIR_WINDOW`; one more is a loop."""

MAX_DEPTH = 3
"""Maximum number of channels in a chain: A→B→C passes, →D does not."""

MAX_LINKS = 50
"""Maximum number of links that ran of which a chain is made."""

MAX_READ_LINKS = 500
"""Maximum number of stored links that are read, whether they ran or not."""


_SELECT_LAST_UNATTENDED = """
    SELECT created_at FROM crosspoll_log WHERE unattended IS 1 AND blocked IS 0 ORDER BY created_at DESC LIMIT 1
"""
"""The time of the last trigger that passed without an operator's approval."""

_SELECT_NEWEST_LINKS = f"""
    SELECT from_channel, to_channel, prediction_id, workspace, at, ran FROM chain_links
    ORDER BY at DESC, id DESC LIMIT {MAX_READ_LINKS}
"""
"""The newest links, whether they ran or not."""


def is_by_operator(trigger: Trigger) -> bool:
    """Whether a trigger is an operator's own approval, in the console, by a verb or over the API (SPEC 3.2).

    Both the type and `decided_by` must say so, so that work that runs by itself cannot pass as approved with one of
    them.
    """
    return trigger.type is TriggerType.MANUAL and trigger.decided_by in (DecidedBy.OPERATOR, DecidedBy.API)


def decide_rate(trigger: Trigger, last: datetime | None, now: datetime, interval: timedelta) -> RailVerdict:
    """Block a trigger that comes less than `interval` after `last`, the last trigger that passed without an operator's
    approval. If `last` is in the future because the clock was set back, the rail blocks until `interval` after it.
    """
    if is_by_operator(trigger):
        return RailVerdict(RATE_RAIL, Verdict.ALLOW, "what you approve is not rate-limited")
    if trigger.is_forced:
        return RailVerdict(RATE_RAIL, Verdict.ALLOW, "forced: the rate limit was skipped", "force")
    if last is None:
        return RailVerdict(RATE_RAIL, Verdict.ALLOW, "nothing was triggered before")
    wait = interval - (now - last)
    if wait > timedelta(0):
        reason = f"the last trigger was at {last:%H:%M:%S} UTC; the next is allowed in {_format_span(wait)}"
        return RailVerdict(RATE_RAIL, Verdict.BLOCK, reason, "interval")
    return RailVerdict(RATE_RAIL, Verdict.ALLOW, f"more than {_format_span(interval)} since the last trigger")


def _format_span(length: timedelta) -> str:
    seconds = length.total_seconds()
    return f"{ceil(seconds)} s" if seconds < 120 else f"{ceil(seconds / 60)} min"


def find_last_unattended(session: Session) -> datetime | None:
    """The time of the last trigger that passed without an operator's approval."""
    last = ask(session, _SELECT_LAST_UNATTENDED).scalar()
    return None if last is None else datetime.fromisoformat(last)


@frozen
class Link:
    """One step of a chain, in one workspace."""

    from_channel: str
    to_channel: str
    prediction_id: str
    workspace: str
    at: datetime
    ran: bool = True

    @property
    def pair(self) -> tuple[str, str]:
        """(from channel, to channel)."""
        return self.from_channel, self.to_channel


class ChainLink(Row, table=True):
    """A stored link, so that loops are detected across a restart."""

    __tablename__ = "chain_links"

    id: int | None = Field(default=None, primary_key=True)
    from_channel: str
    to_channel: str
    prediction_id: str
    workspace: str
    at: datetime
    ran: bool = True


def measure_chain_depth(links: Sequence[Link], channel: str) -> int:
    """The number of channels in the chain that ends at `channel`, at least 1. `links` are of one workspace, oldest
    first."""
    channels = 1
    for link in reversed(links):
        if link.to_channel != channel:
            continue
        if link.from_channel == OWNER:
            break
        channel = link.from_channel
        channels += 1
    return channels


def count_repeats(links: Sequence[Link], pair: tuple[str, str], now: datetime) -> int:
    """How many of `links` connect this pair of channels and are younger than `PAIR_WINDOW`."""
    return sum(link.pair == pair and now - link.at < PAIR_WINDOW for link in links)


def decide_loop(link: Link, links: Sequence[Link]) -> RailVerdict:
    """Block a `link` that would close a loop with the last `links` (oldest first, of any workspace).

    Only links of the same workspace make a chain. A link that is exactly as old as a window is outside it.
    """
    if link.from_channel == OWNER:
        return RailVerdict(LOOP_RAIL, Verdict.ALLOW, "no other work started it")
    same_workspace = [earlier for earlier in links if earlier.workspace == link.workspace]
    ran = [earlier for earlier in same_workspace if earlier.ran]
    step = f"{link.from_channel} → {link.to_channel}"
    if any(earlier.pair == link.pair[::-1] and link.at - earlier.at < REVERSE_WINDOW for earlier in ran):
        reason = f"{step} would reverse {link.to_channel} → {link.from_channel} within {span(REVERSE_WINDOW)}"
        return RailVerdict(LOOP_RAIL, Verdict.BLOCK, reason, "reverse")
    channels = measure_chain_depth(ran, link.from_channel) + 1
    if channels > MAX_DEPTH:
        reason = f"{step} would make a chain of {channels} channels; {MAX_DEPTH} are allowed"
        return RailVerdict(LOOP_RAIL, Verdict.BLOCK, reason, "depth")
    repeats = count_repeats(same_workspace, link.pair, link.at)
    if repeats >= MAX_EQUAL_LINKS:
        reason = f"{step} was asked for {repeats} times in {span(PAIR_WINDOW)}, and is asked for again now"
        return RailVerdict(LOOP_RAIL, Verdict.BLOCK, reason, "pair")
    return RailVerdict(LOOP_RAIL, Verdict.ALLOW, f"chain of {channels} channels")


def find_chain_start(trigger: Trigger) -> str:
    """The start of a trigger's link: `owner` for an operator's approval (SPEC 3.3), else the program that asks, or the
    channel whose work caused it."""
    if is_by_operator(trigger):
        return OWNER
    return trigger.asked_by if trigger.asked_by and trigger.from_channel == OWNER else trigger.from_channel


def make_link(trigger: Trigger, now: datetime, *, ran: bool = True) -> Link:
    """The link that `trigger` would add."""
    assignment = trigger.assignment
    return Link(find_chain_start(trigger), assignment.channel, trigger.prediction_id, assignment.workspace, now, ran)


def load_recent_links(session: Session, now: datetime) -> list[Link]:
    """The last 50 links that ran, and all of the last ten minutes, oldest first."""
    newest_first = [
        Link(start, channel, card, workspace, datetime.fromisoformat(at), bool(ran))
        for start, channel, card, workspace, at, ran in ask(session, _SELECT_NEWEST_LINKS)
    ]
    last_that_ran = [link for link in newest_first if link.ran][:MAX_LINKS]
    oldest_at = last_that_ran[-1].at if last_that_ran else now
    links = [link for link in newest_first if now - link.at < PAIR_WINDOW or (link.ran and link.at >= oldest_at)]
    return links[::-1]


def delete_old_links(transaction: Transaction) -> None:
    """Delete links that are neither among the last 50 nor of the last ten minutes; done at start-up."""
    oldest = "SELECT id FROM chain_links WHERE ran ORDER BY id DESC LIMIT 1 OFFSET ?"
    transaction.driver.execute(
        f"DELETE FROM chain_links WHERE id < ({oldest}) AND at <= ?",
        (MAX_LINKS - 1, as_stored(transaction.now - PAIR_WINDOW)),
    )
