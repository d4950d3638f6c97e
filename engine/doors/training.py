"""The verbs of training (SPEC 8.3, 8.4, 9.8): export, train."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.doors.arguments import Arguments
from engine.doors.wire import Document
from engine.feedback.exporting import Exported
from engine.feedback.records import Shape

if TYPE_CHECKING:
    from engine.engine import Engine


def export(engine: Engine, arguments: Arguments) -> Document:
    """`dpo`: preference pairs in the shape `format`; `sft`: conversations."""
    what = arguments.choice("what", ("dpo", "sft"), "dpo")
    shape = Shape(arguments.choice("format", tuple(one.value for one in Shape), Shape.PLAIN.value))
    done = engine.exporter.preferences(shape) if what == "dpo" else engine.exporter.conversations()
    return {"what": what, "format": shape.value if what == "dpo" else "messages"} | _exported(done)


def _exported(done: Exported) -> Document:
    return {
        "file": str(done.file),
        "weights": str(done.weights) if done.weights else None,
        "records": done.records,
        "new": done.new,
    }
