"""The settings of guidance and findings, `wisdom_cascade_config.json` (SPEC 1.11).

An invalid key is reported with its file, line and name. Its default value is used instead, and the other keys are
valid.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from engine.files import FileCache, read_plain, write_json
from engine.frozen import frozen
from engine.hierarchy.organisation import MAX_FILE_BYTES, writing
from engine.hierarchy.tiers import DEPTH
from engine.model import Refusal, sanitise


class CascadeConfig(BaseModel):
    """The settings of guidance and findings, in tokens, seconds, hops, and scores from 0 to 1."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)

    enable_m1: bool = True
    enable_m2: bool = False
    cascade_depth: Annotated[int, Field(ge=1, le=100)] | None = None
    m1_token_budget: Annotated[int, Field(ge=0, le=32_000)] = 800
    m1_cache_ttl_seconds: Annotated[int, Field(ge=0, le=86_400)] = 300
    m2_interval_seconds: Annotated[int, Field(ge=60, le=30 * 86_400)] = 21_600
    enable_upward_bubbling: bool = True
    bubble_min_confidence: Annotated[float, Field(ge=0, le=1)] = 0.75
    bubble_min_importance: Annotated[float, Field(ge=0, le=1)] = 0.6
    bubble_max_per_cycle: Annotated[int, Field(ge=0, le=1_000)] = 3
    tier_assignments: dict[str, Annotated[int, Field(ge=1, le=5)]] = Field(default_factory=dict)

    @property
    def depth(self) -> int:
        """The maximum number of leaders in a chain (SPEC 1.4)."""
        return DEPTH if self.cascade_depth is None else self.cascade_depth


@frozen
class ReadConfig:
    """The values in a file, and its problems in words."""

    config: CascadeConfig
    problems: tuple[str, ...] = ()


def read_config(text: str, name: str) -> ReadConfig:
    """Read the settings from `text`, which is JSON. `name` is the file's name, for the problems."""
    try:
        written = json.loads(text)
        if not isinstance(written, dict):
            raise ValueError("it must be an object, {…}")
    except (ValueError, RecursionError) as error:
        return ReadConfig(CascadeConfig(), (f"{name} cannot be read: {error}",))
    problems: list[str] = []
    while True:
        try:
            return ReadConfig(CascadeConfig.model_validate(written), tuple(problems))
        except ValidationError as error:
            for fault in error.errors(include_url=False):
                *within, key = map(str, fault["loc"][:2])
                line = text.count("\n", 0, max(0, text.rfind(json.dumps(key)))) + 1
                message = f"{fault['msg']}; the default is used"
                if fault["type"] == "extra_forbidden":
                    message = f"unknown key; known keys: {', '.join(CascadeConfig.model_fields)}"
                problems.append(f"{name}:{line}: {'.'.join([*within, sanitise(key)[:60]])}: {message}")
                (written[within[0]] if within else written).pop(key)


class CascadeConfigFile:
    """The file of one home. Thread-safe. `read` checks each time whether the file changed, which takes microseconds."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._watched: FileCache[ReadConfig] = FileCache()

    @property
    def current(self) -> CascadeConfig:
        """The present settings."""
        return self.read().config

    def read(self) -> ReadConfig:
        """The present settings, with the problems of the file."""
        try:
            return self._watched.get("", (self.path,), lambda: read_config(self._text(), self.path.name))
        except (OSError, ValueError) as error:
            return ReadConfig(CascadeConfig(), (sanitise(f"{self.path.name} cannot be read: {error}"),))

    def assign_tier(self, agent_id: str, tier: int | None) -> None:
        """Write the tier of an agent into the file; None removes it. Everything else in the file stays.

        Raises `Refusal`: `bad_tier`, `bad_config` if the present file cannot be read, `unwritable_home`.
        """
        if tier is not None and not 1 <= tier <= 5:
            raise Refusal("bad_tier", f"there is no tier {tier}", "a tier must be a whole number from 1 to 5")
        try:
            written: dict[str, Any] = json.loads(self._text())
            entries = {**written.get("tier_assignments", {}), agent_id: tier}
        except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
            raise Refusal("bad_config", f"{self.path} cannot be read: {error}", "fix it first") from error
        assigned = {agent: tier for agent, tier in entries.items() if tier is not None}
        with writing(self.path):
            write_json(self.path, written | {"tier_assignments": assigned})

    def _text(self) -> str:
        return read_plain(self.path, MAX_FILE_BYTES).decode() if self.path.exists() else "{}"
