"""The document `crossPollStatus`, the same in every answer that has it (SPEC 9.8, 10.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.api.documents import Document, document, instant

if TYPE_CHECKING:
    from engine.services import Services


def trigger_figures(engine: Services) -> Document:
    """Triggers, loops and costs against caps. `enabled` says what the settings and this run say."""
    triggers, last_trigger = engine.safety.triggers()
    return {
        "enabled": all(not level.thrown for level in engine.safety.levels() if level.name in ("config", "api")),
        "lastTriggerAt": instant(last_trigger),
        "totalTriggers": triggers,
        "loopDetectionCount": engine.safety.loop_detection_count(),
        **document(engine.safety.costs.state()),
    }


def status(engine: Services) -> Document:
    """The figures with the state, the holds, and the number of pending cards."""
    state = engine.autonomy.state()
    return trigger_figures(engine) | {
        "state": str(state.state),
        "cause": state.cause,
        "holds": document(engine.safety.holds()),
        "pending": len(engine.cards.pending()),
    }
