"""The operation `status`: what the engine does, and what waits for you (SPEC 9.3, 9.8)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.api.crosspoll import trigger_figures
from engine.api.documents import Document, document, instant
from engine.api.operations.operation import operation

if TYPE_CHECKING:
    from engine.api.services import ApiServices


@operation()
def status(engine: ApiServices) -> Document:
    """State, holds, caps, the last decisions and what waits. `engine` is "none" when the one that answers was opened
    for this question: the state is then that of the last engine."""
    autonomy = engine.autonomy
    runs = autonomy.scheduled
    state = autonomy.state() if runs else autonomy.last_state() or autonomy.state()
    phase = engine.predictions.phase()
    pending = engine.cards.pending()
    gateway = engine.gateway.state()
    earning = autonomy.requirements(engine.workspaces)
    return {
        "engine": "running" if runs else "none",
        "state": str(state.state),
        "cause": state.cause,
        "stateSince": instant(state.since),
        "since": document(engine.since()),
        "nextChange": instant(state.next_change),
        "holds": document(engine.safety.holds()),
        "crossPollStatus": trigger_figures(engine),
        "byItself": {"missing": list(earning.missing), "words": earning.words},
        "phase": {
            "number": phase.number,
            "decisions": phase.decisions,
            "reason": phase.reason,
            "learning": phase.learning,
        },
        "silenceSeconds": int(autonomy.silence().total_seconds()),
        "nextCycleAt": instant(autonomy.next_cycle() if runs else None),
        "quiet": autonomy.quiet(),
        "dndUntil": instant(autonomy.dnd_until()),
        "pending": len(pending),
        "top": document(pending[0]) if pending else None,
        "running": document(engine.sessions.running()),
        "waiting": document(engine.queue()),
        "decisions": [
            {
                "predictionId": decision.prediction_id,
                "signal": decision.signal,
                "prompt": decision.prompt,
                "targetChannel": decision.channel,
                "decidedBy": decision.decided_by,
                "decidedAt": instant(decision.decided_at),
            }
            for decision in engine.decisions.load_newest(5)
        ],
        "workspaces": list(engine.workspaces),
        "keysInFile": engine.keys.badge(),
        "gateway": {"url": gateway.url, "words": gateway.words, "clients": gateway.clients},
    }
