"""How cross-pollination stands, as `crossPollStatus` says it everywhere (SPEC 9.8, 10.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.api.documents import Document, document, instant

if TYPE_CHECKING:
    from engine.services import Services


def counts(engine: Services) -> Document:
    """Triggers, loops and cost against caps. `enabled` is the settings' word and this run's."""
    triggers, last_trigger = engine.safety.triggers()
    return {
        "enabled": all(not level.thrown for level in engine.safety.levels() if level.name in ("config", "api")),
        "lastTriggerAt": instant(last_trigger),
        "totalTriggers": triggers,
        "loopDetectionCount": engine.safety.loop_detection_count(),
        **document(engine.safety.costs.state()),
    }


def status(engine: Services) -> Document:
    """The same with the state, the holds, each lifted by its own word, and how many cards wait."""
    state = engine.autonomy.state()
    return counts(engine) | {
        "state": str(state.state),
        "cause": state.cause,
        "holds": document(engine.safety.holds()),
        "pending": len(engine.cards.pending()),
    }
