"""The JSON of verbs and API stays the same (SPEC 9.8): a class that gets a new field must not change it by accident.

For an intended change, `python -m tests.api.test_documents` writes `documents.json` again. The name of a
class that verbs answer with is added to that file first.
"""

import dataclasses
import enum
import json
import types
import typing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from engine import activity, installed, model
from engine.api.documents import document
from engine.model import adaptation

FILE = Path(__file__).with_name("documents.json")

PROMISED: dict[str, Any] = json.loads(FILE.read_text())

CLASSES: dict[str, type[Any]] = {
    name: next(getattr(module, name) for module in (model, adaptation, activity, installed) if hasattr(module, name))
    for name in PROMISED
}
"""The classes whose values verbs and the API answer with. Classes of their fields are part of their documents."""


def make_example(kind: Any, name: str = "") -> Any:
    """A value of a type, every field of it filled."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return make_example(inner[0], name)
    if origin is tuple:
        return (
            (make_example(inner[0], name),)
            if inner[-1] is Ellipsis
            else tuple(make_example(item, name) for item in inner)
        )
    if isinstance(origin, type) and issubclass(origin, typing.Mapping):
        return {"some_name": make_example(inner[1], name)}
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        return kind(**{field.name: make_example(hints[field.name], field.name) for field in dataclasses.fields(kind)})
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return next(iter(kind))
    plain = {str: name, bool: True, int: 1_234_567, float: 0.123456789, datetime: datetime(2026, 1, 5, tzinfo=UTC)}
    return plain.get(kind, "anything")


@pytest.mark.parametrize("name", CLASSES)
def test_the_document_of_a_class_is_as_promised(name: str):
    assert json.loads(json.dumps(document(make_example(CLASSES[name])))) == PROMISED[name]


if __name__ == "__main__":
    promised = {name: document(make_example(kind)) for name, kind in CLASSES.items()}
    FILE.write_text(json.dumps(promised, indent=1, ensure_ascii=False, sort_keys=True) + "\n")
