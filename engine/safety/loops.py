"""The loop detector (SPEC 3.3): blocks channels that trigger each other in circles.

A link leads from the channel, or the program, whose work caused a trigger to the channel of the trigger. Links from
`owner`, made by a person's approvals and the engine's own predictions, begin a chain: they are recorded, never blocked,
and do not count in its depth. A trigger by a program that only the rate blocked is a link that did not run: it only
counts as a repeat.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import sqlalchemy
from sqlmodel import Field, Session, col, delete, desc, select

from engine.frozen import frozen
from engine.model import RailVerdict, Trigger, Verdict
from engine.safety.rates import is_by_operator
from engine.storage.database import Transaction
from engine.storage.rows import Row, ask
from engine.storage.types import shallow_dict, utc_field

RAIL = "loop"
OWNER = "owner"
REVERSE_WINDOW = timedelta(minutes=5)
PAIR_WINDOW = timedelta(minutes=10)
PAIR_LIMIT = 2
"""Maximum number of equal links within `PAIR_WINDOW`; one more is a loop."""
MAX_DEPTH = 3
"""Maximum number of channels in a chain: A→B→C passes, →D does not."""
MAX_LINKS = 50


@frozen
class Link:
    """One step of a chain, in one workspace."""

    from_channel: str
    to_channel: str
    prediction_id: str
    workspace: str
    at: datetime
    ran: bool = True


class ChainLink(Row, table=True):
    """A stored link, so that loops are detected across a restart."""

    __tablename__ = "chain_links"

    id: int | None = Field(default=None, primary_key=True)
    from_channel: str
    to_channel: str
    prediction_id: str
    workspace: str
    at: datetime = utc_field()
    ran: bool = True


_NEWEST_LINKS = (
    sqlalchemy.select(
        col(ChainLink.from_channel),
        col(ChainLink.to_channel),
        col(ChainLink.prediction_id),
        col(ChainLink.workspace),
        col(ChainLink.at),
        col(ChainLink.ran),
    )
    .order_by(col(ChainLink.at).desc(), col(ChainLink.id).desc())
    .limit(500)
)


def chain_depth(links: Sequence[Link], channel: str) -> int:
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


def decide_loop(link: Link, links: Sequence[Link]) -> RailVerdict:
    """Whether `link` would close a loop, after the last `links` (oldest first, any workspace).

    Only links of the same workspace make a chain. A link exactly as old as a window is outside it.
    """
    if link.from_channel == OWNER:
        return RailVerdict(RAIL, Verdict.ALLOW, "a new chain")
    same_workspace = [earlier for earlier in links if earlier.workspace == link.workspace]
    ran = [earlier for earlier in same_workspace if earlier.ran]
    step = f"{link.from_channel} → {link.to_channel}"
    for earlier in ran:
        reverse = (earlier.from_channel, earlier.to_channel) == (link.to_channel, link.from_channel)
        if reverse and link.at - earlier.at < REVERSE_WINDOW:
            return RailVerdict(
                RAIL,
                Verdict.BLOCK,
                f"{step} would reverse {earlier.from_channel} → {earlier.to_channel} within 5 min",
                "reverse",
            )
    channels = chain_depth(ran, link.from_channel) + 1
    if channels > MAX_DEPTH:
        return RailVerdict(
            RAIL, Verdict.BLOCK, f"{step} would make a chain of {channels} channels; {MAX_DEPTH} are allowed", "depth"
        )
    times = sum(
        (earlier.from_channel, earlier.to_channel) == (link.from_channel, link.to_channel)
        and link.at - earlier.at < PAIR_WINDOW
        for earlier in same_workspace
    )
    if times >= PAIR_LIMIT:
        reason = f"{step} was asked for {times} times in 10 min, and is asked for again now"
        return RailVerdict(RAIL, Verdict.BLOCK, reason, "pair")
    return RailVerdict(RAIL, Verdict.ALLOW, f"chain of {channels} channels")


def chain_start(trigger: Trigger) -> str:
    """The start of a trigger's link: `owner` for an operator's approval (SPEC 3.3), else the program that asks, or the
    channel whose work caused it."""
    if is_by_operator(trigger):
        return OWNER
    return trigger.asked_by if trigger.asked_by and trigger.from_channel == OWNER else trigger.from_channel


def make_link(trigger: Trigger, now: datetime, *, ran: bool = True) -> Link:
    """The link that `trigger` would add."""
    assignment = trigger.assignment
    return Link(chain_start(trigger), assignment.channel, trigger.prediction_id, assignment.workspace, now, ran)


def recent_links(session: Session, now: datetime) -> list[Link]:
    """The last 50 links that ran, and all of the last ten minutes, oldest first."""
    links = [Link(*row) for row in ask(session, _NEWEST_LINKS)]
    oldest = [link for link in links if link.ran][:MAX_LINKS][-1:]
    counted = [link for link in links if now - link.at < PAIR_WINDOW or (link.ran and link.at >= oldest[0].at)]
    return counted[::-1]


def record_link(transaction: Transaction, link: Link) -> None:
    """Store `link`."""
    transaction.insert(ChainLink(**shallow_dict(link)))


def forget_links(transaction: Transaction) -> None:
    """Delete links that are neither among the last 50 nor of the last ten minutes; done at start-up."""
    session = transaction.session
    oldest = session.exec(
        select(ChainLink.id).where(col(ChainLink.ran)).order_by(desc(col(ChainLink.id))).offset(MAX_LINKS - 1).limit(1)
    ).first()
    if oldest is not None:
        session.exec(
            delete(ChainLink).where(col(ChainLink.id) < oldest, col(ChainLink.at) <= transaction.now - PAIR_WINDOW)
        )
