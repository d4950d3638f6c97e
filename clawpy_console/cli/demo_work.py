"""What the demo's agents did before one looks: days summed up, decisions kept, what came of that (SPEC 4.8, 5, 6).

Done by the real engine at its ports: sessions run, what they say is captured, learnt and carried up, a night's drafts
are kept as facts, and what that says becomes a candidate. Nothing here is written past the engine.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from engine.model import Refusal

if TYPE_CHECKING:
    from engine import Engine

log = logging.getLogger(__name__)

TASK = "Summarise the day"
SESSIONS = 3
"""What recurs in so many goes up to the project."""

PATIENCE = 20.0
"""Seconds for one of them."""


def begin(engine: Engine, workspace: str) -> None:
    """Have a fresh home something to show for itself: at once what ran, in a moment what came of it. A demo goes on
    without what a port refuses."""
    try:
        work(engine, workspace)
    except Refusal as refusal:
        log.warning("the demo begins with less: %s", refusal)
    else:
        threading.Thread(target=_learn, args=(engine, workspace), name="demo", daemon=True).start()


def _learn(engine: Engine, workspace: str) -> None:
    try:
        check(engine, workspace)
        learn(engine)
    except Refusal as refusal:
        over = refusal.code == "engine_closed"  # the demo may be left before it is done
        log.log(logging.INFO if over else logging.WARNING, "the demo learnt no more: %s", refusal)
    except Exception:
        log.exception("the demo could not learn what its sessions leave")


def work(engine: Engine, workspace: str) -> None:
    """Sum up the day, as often as it takes to recur. Raises `Refusal` when a port refuses."""
    for _ in range(SESSIONS):
        _run(engine, TASK, workspace)


def check(engine: Engine, workspace: str) -> None:
    """Run the tests of HEAD, one of which fails: what broke it is the first card from then on."""
    _run(engine, "check_clean_head", workspace)
    engine.predictions.run_cycle()


def learn(engine: Engine) -> None:
    """What the engine does with the hours, now: capture, carry up, work through the day, keep its drafts, digest."""
    engine.knowledge.catch_up()
    engine.learnings.catch_up()
    engine.knowledge.nightly.run(engine.clock.local().date())
    for draft in engine.memory.drafts.waiting():
        engine.memory.drafts.promote(draft.id)
    engine.adaptation.digest()


def _run(engine: Engine, prompt: str, workspace: str) -> None:
    card = engine.cards.propose(prompt, workspace=workspace)
    engine.cards.approve(card.id)
    session = engine.sessions.of_prediction(card.id)
    if session is not None:
        engine.sessions.wait(session.id, PATIENCE)
