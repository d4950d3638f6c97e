"""The verbs of training (SPEC 8.3, 8.4, 9.8): export, train."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from engine.api import wire
from engine.api.arguments import Arguments
from engine.api.wire import Document
from engine.learning.decisions.exporting import Exported
from engine.learning.decisions.records import Shape
from engine.learning.decisions.training_runs import TrainingRun
from engine.model import Refusal, dollars

if TYPE_CHECKING:
    from engine.engine import Engine

ACTIONS = ("status", "start", "cancel", "adopt", "back", "import")

SHOWN = 10
"""Runs that are listed."""


def export(engine: Engine, arguments: Arguments) -> Document:
    """`dpo`: preference pairs in the shape `format`; `sft`: conversations."""
    what = arguments.choice("what", ("dpo", "sft"), "dpo")
    shape = Shape(arguments.choice("format", tuple(one.value for one in Shape), Shape.PLAIN.value))
    done = engine.exporter.preferences(shape) if what == "dpo" else engine.exporter.conversations()
    return {"what": what, "format": shape.value if what == "dpo" else "messages"} | _exported(done)


def train(engine: Engine, arguments: Arguments) -> Document:
    """status (brings a run that is under way on by a step), start, cancel, adopt, back, import."""
    action = arguments.choice("action", ACTIONS, "status")
    if action == "import":
        return {"imported": engine.exporter.curate(_lines(arguments.needed("file")))} | _status(engine)
    if action == "start":
        engine.training.launch()
    elif action == "cancel":
        engine.training.cancel()
    elif action == "adopt":
        engine.training.adopt()
    elif action == "back":
        engine.training.put_back()
    else:
        engine.training.step()
    return _status(engine)


def _status(engine: Engine) -> Document:
    settings, named = engine.settings.current, engine.twin.named
    return {
        "twinModel": None if named is None else str(named),
        "enabled": settings.twin_model_enabled,
        "next": engine.training.missing(engine.clock.now()) or "the next training is due: clawpy train start",
        "runs": [_run(one) for one in engine.training.runs(SHOWN)],
    }


def _run(one: TrainingRun) -> Document:
    return {
        "id": one.id,
        "state": one.state,
        "method": one.method,
        "provider": one.provider,
        "baseModel": one.checkpoint or one.base_model,
        "records": one.records,
        "model": one.model,
        "agreement": one.agreement,
        "formerModel": one.former_model,
        "formerAgreement": one.former_agreement,
        "heldBack": one.held_back,
        "cost": dollars(one.cost_microusd),
        "message": one.note,
        "createdAt": wire.instant(one.created_at),
        "updatedAt": wire.instant(one.updated_at),
    }


def _lines(file: str) -> list[str]:
    try:
        return [line for line in Path(file).read_text(encoding="utf-8-sig").splitlines() if line.strip()]
    except (OSError, ValueError) as error:
        raise Refusal("unreadable_file", f"{file}: {error}", "name a file of JSON lines in UTF-8") from error


def _exported(done: Exported) -> Document:
    return {
        "file": str(done.file),
        "weights": str(done.weights) if done.weights else None,
        "records": done.records,
        "new": done.new,
    }
