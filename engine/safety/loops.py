"""The loop detector (SPEC 3.3): channels that trigger each other in circles are stopped.

A link says which channel's work led to a trigger on which channel. Links from `owner` begin a chain: they are
recorded, never blocked, and do not count in its depth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import sqlalchemy
from sqlalchemy import Index
from sqlmodel import Field, Session, col, delete, desc, select

from engine.storage.database import Transaction
from engine.storage.quick import ask
from engine.storage.rows import Row
from engine.storage.types import flat, utc
from engine.values import RailVerdict, Trigger, Verdict

RAIL = "loop"
OWNER = "owner"
REVERSE_WINDOW = timedelta(minutes=5)
PAIR_WINDOW = timedelta(minutes=10)
PAIR_LIMIT = 2
"""A pair may run so often within `PAIR_WINDOW`; once more is a loop."""
DEEPEST = 3
"""Channels in a chain: A→B→C passes, →D does not."""
REMEMBERED = 50


@dataclass(frozen=True, slots=True)
class Link:
    """One step of a chain, in one workspace."""

    from_channel: str
    to_channel: str
    prediction_id: str
    workspace: str
    at: datetime


class ChainLink(Row, table=True):
    """A link as it is stored, so that a loop is seen across a restart."""

    __tablename__ = "chain_links"
    __table_args__ = (Index("ix_chain_links_at", "at", "id"),)

    id: int | None = Field(default=None, primary_key=True)
    from_channel: str
    to_channel: str
    prediction_id: str
    workspace: str
    at: datetime = Field(sa_column=utc())


_NEWEST = (
    sqlalchemy.select(
        col(ChainLink.from_channel),
        col(ChainLink.to_channel),
        col(ChainLink.prediction_id),
        col(ChainLink.workspace),
        col(ChainLink.at),
    )
    .order_by(col(ChainLink.at).desc(), col(ChainLink.id).desc())
    .limit(500)
)


_RECORD = sqlalchemy.insert(ChainLink)


def depth(links: Sequence[Link], channel: str) -> int:
    """How many channels the chain that ends at `channel` has, at least 1. `links` oldest first, one workspace."""
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
    """Would `link` close a loop, given the last links (oldest first, any workspace)?

    Only links of the same workspace make a chain. A link exactly as old as a window lies outside it.
    """
    if link.from_channel == OWNER:
        return RailVerdict(RAIL, Verdict.ALLOW, "a new chain")
    here = [one for one in links if one.workspace == link.workspace]
    step = f"{link.from_channel} → {link.to_channel}"
    for one in here:
        reverse = (one.from_channel, one.to_channel) == (link.to_channel, link.from_channel)
        if reverse and link.at - one.at < REVERSE_WINDOW:
            return RailVerdict(
                RAIL,
                Verdict.BLOCK,
                f"{step} would answer {one.from_channel} → {one.to_channel} within 5 min",
                "reverse",
            )
    channels = depth(here, link.from_channel) + 1
    if channels > DEEPEST:
        return RailVerdict(
            RAIL, Verdict.BLOCK, f"{step} would make a chain of {channels} channels; {DEEPEST} are allowed", "depth"
        )
    runs = sum(
        (one.from_channel, one.to_channel) == (link.from_channel, link.to_channel) and link.at - one.at < PAIR_WINDOW
        for one in here
    )
    if runs >= PAIR_LIMIT:
        return RailVerdict(RAIL, Verdict.BLOCK, f"{step} would run once more after {runs} times in 10 min", "pair")
    return RailVerdict(RAIL, Verdict.ALLOW, f"chain of {channels} channels")


def link_of(trigger: Trigger, from_channel: str, now: datetime) -> Link:
    """The link that `trigger` would add."""
    return Link(from_channel, trigger.assignment.channel, trigger.prediction_id, trigger.assignment.workspace, now)


def recent(session: Session, now: datetime) -> list[Link]:
    """The last 50 links, and all of the last ten minutes, oldest first."""
    newest = ask(session, _NEWEST)
    links = [Link(*row) for row in newest]
    kept = [link for place, link in enumerate(links) if place < REMEMBERED or now - link.at < PAIR_WINDOW]
    return kept[::-1]


def record(transaction: Transaction, link: Link) -> None:
    """Store `link`."""
    transaction.ask(_RECORD, flat(link))


def forget(transaction: Transaction) -> None:
    """Take away links that are neither among the last 50 nor of the last ten minutes; done at start-up."""
    session = transaction.session
    oldest = session.exec(
        select(ChainLink.id).order_by(desc(col(ChainLink.id))).offset(REMEMBERED - 1).limit(1)
    ).first()
    if oldest is not None:
        session.exec(
            delete(ChainLink).where(col(ChainLink.id) < oldest, col(ChainLink.at) <= transaction.now - PAIR_WINDOW)
        )
