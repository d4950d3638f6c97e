"""The verbs of the whole engine: status, stop, resume, dnd (SPEC 3.7, 7.3, 7.5, 9.8)."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from engine.api import crosspoll, wire
from engine.api.arguments import Arguments
from engine.api.wire import Document
from engine.model import Refusal

if TYPE_CHECKING:
    from engine.engine import Engine


def status(engine: Engine, arguments: Arguments) -> Document:
    """State, holds, caps, the last decisions and what waits. `engine` is "none" where none runs but the one that
    answers: the state is then the one that the last engine left."""
    runs = engine.autonomy.scheduled
    last = None if runs else engine.autonomy.left()
    state = last or engine.autonomy.state()
    phase = engine.predictions.phase()
    pending = engine.cards.pending()
    gateway = engine.gateway.state()
    return {
        "engine": "running" if runs else "none",
        "state": str(state.state),
        "cause": state.cause,
        "stateSince": wire.instant(state.since),
        "since": wire.since(engine.since()),
        "nextChange": wire.instant(state.next_change),
        "holds": [wire.hold(one) for one in engine.safety.holds()],
        "crossPollStatus": crosspoll.counts(engine),
        "byItself": wire.by_itself(engine.autonomy.earning(engine.workspaces)),
        "phase": {
            "number": phase.number,
            "decisions": phase.decisions,
            "reason": phase.reason,
            "learning": phase.learning,
        },
        "silenceSeconds": int(engine.autonomy.silence().total_seconds()),
        "nextCycleAt": wire.instant(engine.autonomy.next_cycle() if runs else None),
        "quiet": engine.autonomy.quiet(),
        "dndUntil": wire.instant(engine.autonomy.dnd_until()),
        "pending": len(pending),
        "top": wire.card(pending[0]) if pending else None,
        "running": [wire.session(one) for one in engine.sessions.running()],
        "waiting": [wire.waiting(one) for one in engine.queue()],
        "decisions": [
            {
                "predictionId": one.prediction_id,
                "signal": one.signal,
                "prompt": one.prompt,
                "targetChannel": one.channel,
                "decidedBy": one.decided_by,
                "decidedAt": wire.instant(one.decided_at),
            }
            for one in engine.feedback.recent(5)
        ],
        "workspaces": list(engine.workspaces),
        "keysInFile": engine.keys.badge(),
        "gateway": {"url": gateway.url, "words": gateway.words, "clients": gateway.clients},
    }


def stop(engine: Engine, arguments: Arguments) -> Document:
    """Stop everything and keep it stopped until `resume stop` (SPEC 3.7)."""
    running = [one.id for one in engine.sessions.running()]
    try:
        engine.safety.stop(arguments.text("reason") or "stopped by you", "clawpy stop")
        engine.autonomy.heard("clawpy stop")  # only now: nothing that may fail comes before a stop
    except Refusal as error:
        said = f"everything was stopped, but the stop could not be recorded: {error.message}"
        raise Refusal(
            error.code, said, f"{error.fix}; until then the stop lasts only as long as this engine runs"
        ) from error
    holds = [wire.hold(one) for one in engine.safety.holds()]
    return {"holds": holds, "stopped": running, "reached": True, "killed": 0, "left": []}


def resume(engine: Engine, arguments: Arguments) -> Document:
    """Lift one hold by its word, without one the only one there is. `lifted` says which, `holds` what holds still."""
    word = arguments.text("word")
    before = engine.safety.holds()
    if not word:
        words = [one.word for one in before]
        if len(words) > 1:
            raise Refusal("which_hold", f"{' and '.join(words)} are active", f"name one: clawpy resume {words[0]}")
        if not words:
            thrown = next((one for one in engine.safety.levels() if one.thrown), None)
            if thrown is not None:  # no hold, and so lifted in another way
                raise Refusal(
                    "not_held", f"nothing is stopped or paused, but {thrown.name}: {thrown.words}", thrown.lift
                )
            raise Refusal("not_held", "nothing is stopped or paused", "see `clawpy status`")
        word = words[0]
    engine.safety.resume(word)
    lifted = [wire.hold(one) for one in before if one.word == word]
    return status(engine, Arguments({}, known=frozenset())) | {"lifted": lifted}


def dnd(engine: Engine, arguments: Arguments) -> Document:
    """Do not disturb for `seconds`, 2 h unless said, or `off`: cards are made, nothing executes by itself."""
    seconds = arguments.number("seconds", 7200, least=1, most=30 * 86400)
    until = engine.autonomy.dnd(None if arguments.flag("off") else timedelta(seconds=seconds))
    return {"dndUntil": wire.instant(until), "quiet": engine.autonomy.quiet()}
