"""What a fact is."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A fact. `subject` is the id of what it is about, `workspace` the path it belongs to ("" for none).

    A class with `volatile = True` is never stored: it only feeds screens.
    """

    volatile: ClassVar[bool] = False
    subject: str = ""
    workspace: str = ""

    @property
    def kind(self) -> str:
        """The name under which it is stored, for instance `SessionEnded`."""
        return type(self).__name__

    def payload(self) -> dict[str, Any]:
        """All fields besides subject and workspace, JSON-able."""
        return {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.name not in ("subject", "workspace")
        }
