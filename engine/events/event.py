"""The base class of events, and the names in their sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, dataclass_transform


@dataclass_transform(frozen_default=True, kw_only_default=True)
@dataclass(frozen=True, kw_only=True)
class Event:
    """An event. `subject` is the id of the thing that it is about, `workspace` the path of its repository ("" for
    none).

    Every subclass becomes a frozen dataclass with keyword arguments. Its `topics`, separated by spaces, are the parts
    of the screen that must be read again after the event. A `volatile` event is only for screens, and is never stored.
    """

    kinds: ClassVar[dict[str, type[Event]]] = {}
    """Every class of event by its name."""
    volatile: ClassVar[bool] = False
    topics: ClassVar[tuple[str, ...]] = ()
    subject: str = ""
    workspace: str = ""

    def __init_subclass__(cls, *, topics: str = "", volatile: bool = False) -> None:
        cls.topics, cls.volatile = tuple(topics.split()), volatile
        Event.kinds[cls.__name__] = dataclass(frozen=True, kw_only=True)(cls)

    @property
    def kind(self) -> str:
        """The name of its class, under which it is stored, for instance `SessionEnded`."""
        return type(self).__name__

    def payload(self) -> dict[str, Any]:
        """All fields but subject and workspace, as JSON."""
        return {name: value for name, value in vars(self).items() if name not in ("subject", "workspace")}

    def sentence(self) -> str:
        """A sentence about the event, on one line; "" if another event has the sentence."""
        return ""


MAX_NAMES = 3
"""Names that a sentence lists before it counts the others."""


def list_names(names: Sequence[str]) -> str:
    """`a, b, c and 4 more`, each name once; `nobody` for none."""
    unique = list(dict.fromkeys(names))
    more = len(unique) - MAX_NAMES
    return ", ".join(unique[:MAX_NAMES]) + (f" and {more} more" if more > 0 else "") or "nobody"
