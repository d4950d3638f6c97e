"""The JSON of verbs and API stays the same: a class that gets a new field must not change it by accident.

For an intended change, `python -m tests.api.test_documents` writes `documents.json` again. For another class,
add its name there first.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import types
import typing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from engine import activity, model
from engine.api.documents import document
from engine.model import adaptation

FILE = Path(__file__).with_name("documents.json")

MODULES = (model, adaptation, activity)


def class_of(name: str) -> type[Any]:
    return next(getattr(module, name) for module in MODULES if hasattr(module, name))


def example(kind: Any, name: str = "") -> Any:
    """A value of a type, every field of it filled."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return example(inner[0], name)
    if origin is tuple:
        return (example(inner[0], name),) if inner[-1] is Ellipsis else tuple(example(item, name) for item in inner)
    if isinstance(origin, type) and issubclass(origin, typing.Mapping):  # type: ignore[arg-type]
        return {"some_name": example(inner[1], name)}
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        return kind(**{field.name: example(hints[field.name], field.name) for field in dataclasses.fields(kind)})  # type: ignore[operator]
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return next(iter(kind))
    plain = {str: name, bool: True, int: 1_234_567, float: 0.123456789, datetime: datetime(2026, 1, 5, tzinfo=UTC)}
    return plain.get(kind, "anything")


PROMISED: dict[str, Any] = json.loads(FILE.read_text())


@pytest.mark.parametrize("name", PROMISED)
def test_the_document_of_a_class_is_as_promised(name: str) -> None:
    assert json.loads(json.dumps(document(example(class_of(name))))) == PROMISED[name]


if __name__ == "__main__":
    documents = {name: document(example(class_of(name))) for name in PROMISED}
    FILE.write_text(json.dumps(documents, indent=1, ensure_ascii=False, sort_keys=True) + "\n")
