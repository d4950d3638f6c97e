"""`wisdom_cascade_config.json` (SPEC 1.11): its keys, defaults and validation errors by file, line and key.

An invalid key is reported and has its default; the others count. `FileCache` reads a file again only when it changed.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from engine.files import read_plain, write_json
from engine.frozen import frozen
from engine.hierarchy.organisation import DEPTH
from engine.model import Refusal, sanitise

Value = TypeVar("Value")
Signature = tuple[int, int, int, int] | None

SETTLED_NS = 50_000_000
"""A file that was changed less than so long ago may change again without showing it: the clock of a file system ticks
in milliseconds. The same reason for which git looks twice."""

MAX_CACHED = 20_000
"""Beyond so many values the cache begins anew."""


def file_signature(path: Path) -> Signature:
    """Tells one state of a file from another; None when it is not there. Raises OSError for other reasons."""
    try:
        stat = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns


class FileCache(Generic[Value]):
    """Values by key, each with the signatures of the files it came from. Thread-safe."""

    def __init__(self) -> None:
        self._cache: dict[Hashable, tuple[tuple[Signature, ...], Value]] = {}
        self._lock = threading.Lock()

    def get(self, key: Hashable, files: tuple[Path, ...], read: Callable[[], Value]) -> Value:
        """The result of `read()` when the files last changed."""
        now = tuple(file_signature(file) for file in files)
        with self._lock:
            cached = self._cache.get(key)
        if cached is not None and cached[0] == now:
            return cached[1]
        value = read()  # a change from here on shows in the next signature: the one that is kept was taken before
        fresh = max((max(stat[2], stat[3]) for stat in now if stat), default=0)
        if time.time_ns() - fresh >= SETTLED_NS:
            with self._lock:
                if len(self._cache) >= MAX_CACHED:
                    self._cache.clear()
                self._cache[key] = (now, value)
        return value


MAX_FILE_BYTES = 256 * 1024


class CascadeConfig(BaseModel):
    """The settings of guidance and findings. Tokens, seconds, hops, and scores from 0 to 1."""

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
    tier_assignments: dict[str, int] = Field(default_factory=dict)

    @property
    def depth(self) -> int:
        """Leaders that are walked at most (SPEC 1.4)."""
        return DEPTH if self.cascade_depth is None else self.cascade_depth


@frozen
class ReadConfig:
    """The values in a file, and its problems in words."""

    config: CascadeConfig
    problems: tuple[str, ...] = ()


def read_config(text: str, name: str) -> ReadConfig:
    """The settings that `text` (JSON) gives; `name` is the file's, for the problems."""
    try:
        written = json.loads(text)
    except json.JSONDecodeError as error:
        return ReadConfig(CascadeConfig(), (f"{name} cannot be read: line {error.lineno}: {error.msg}",))
    except (ValueError, RecursionError) as error:
        return ReadConfig(CascadeConfig(), (f"{name} cannot be read: {error}",))
    if not isinstance(written, dict):
        return ReadConfig(CascadeConfig(), (f"{name} cannot be read: it must be an object, {{…}}",))
    values: dict[str, Any] = {}
    problems = []
    for key, value in written.items():
        if key not in CascadeConfig.model_fields:
            keys = ", ".join(CascadeConfig.model_fields)
            problems.append(f"{_at(text, name, key)}: unknown key; known keys: {keys}")
        elif key == "tier_assignments" and isinstance(value, dict):
            values[key] = {agent: tier for agent, tier in value.items() if type(tier) is int and 1 <= tier <= 5}
            problems += [
                f"{_at(text, name, agent, within=key)}: must be a whole number from 1 to 5"
                for agent in sorted(value.keys() - values[key].keys())
            ]
        else:
            try:
                values[key] = getattr(CascadeConfig.model_validate({key: value}), key)
            except ValidationError as error:
                message = error.errors(include_url=False)[0]["msg"]
                default = json.dumps(CascadeConfig.model_fields[key].get_default(call_default_factory=True))
                problems.append(f"{_at(text, name, key)}: {message}; the default {default} is used")
    return ReadConfig(CascadeConfig(**values), tuple(problems))


class CascadeConfigFile:
    """The file of one home. Thread-safe; `read` looks each time whether it changed, which costs microseconds."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._watched: FileCache[ReadConfig] = FileCache()

    @property
    def current(self) -> CascadeConfig:
        """The settings as they are now."""
        return self.read().config

    def read(self) -> ReadConfig:
        """The settings, and what is wrong with the file."""
        try:
            return self._watched.get("", (self.path,), self._read)
        except OSError as error:
            return self._unreadable(error)

    def assign_tier(self, agent_id: str, tier: int | None) -> None:
        """Write the tier of an agent into the file, or take it out with None. Everything else in it stays.

        Raises `Refusal`: `bad_tier`, `bad_config` when the file as it is cannot be read, `unwritable_home`.
        """
        if tier is not None and not 1 <= tier <= 5:
            raise Refusal("bad_tier", f"there is no tier {tier}", "a tier must be a whole number from 1 to 5")
        written: Any = {}
        if self.path.exists():
            try:
                written = json.loads(_text(self.path))
            except (OSError, ValueError, RecursionError) as error:
                raise Refusal("bad_config", f"{self.path} cannot be read: {error}", "fix it first") from error
        entries = written.get("tier_assignments", {}) if isinstance(written, dict) else None
        if not isinstance(entries, dict):
            raise Refusal("bad_config", f"{self.path}: tier_assignments is not an object", "fix it first")
        if tier is None:
            entries.pop(agent_id, None)
        else:
            entries[agent_id] = tier
        try:
            write_json(self.path, written | {"tier_assignments": entries})
        except OSError as error:
            reason = error.strerror or str(error)
            raise Refusal("unwritable_home", f"{self.path} cannot be written: {reason}", "nothing changed") from error

    def _read(self) -> ReadConfig:
        try:
            return read_config(_text(self.path), self.path.name)
        except FileNotFoundError:
            return ReadConfig(CascadeConfig())
        except (OSError, ValueError) as error:
            return self._unreadable(error)

    def _unreadable(self, error: Exception) -> ReadConfig:
        return ReadConfig(CascadeConfig(), (sanitise(f"{self.path.name} cannot be read: {error}"),))


def _at(text: str, name: str, key: str, *, within: str = "") -> str:
    """Where `key` is set: the file and the line, the last one, for it counts; line 1 where it is written with
    escapes."""
    start = text.find(json.dumps(within)) if within else 0
    at = text.rfind(json.dumps(key), max(0, start))
    at = text.rfind(json.dumps(key, ensure_ascii=False), max(0, start)) if at < 0 else at
    line = text.count("\n", 0, at) + 1 if at >= 0 else 1
    return f"{name}:{line}: {f'{within}.' if within else ''}{sanitise(key)[:60]}"


def _text(file: Path) -> str:
    return read_plain(file, MAX_FILE_BYTES).decode()
