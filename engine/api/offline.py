"""Reads a home without an engine: the names that a shell completes, and rows of the database for `clawpy doctor`.

A shell waits for the answer. Therefore ids are read from the database file, and names that only large modules know are
cached in `cache/names.json`. If a home cannot be read, there are no names.

The completion of verbs calls `read_completion_names`.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from engine.home import Home

MAX_IDS = 100
"""Maximum number of ids that are offered, newest first."""

BUSY_TIMEOUT_S = 0.1
"""Seconds to wait for a writer of the database. After that no ids are offered."""

_ID_QUERIES: Mapping[str, str] = {
    "cards": "SELECT id, prompt FROM predictions WHERE status = 'pending' ORDER BY created_at DESC",
    "decided cards": "SELECT id, prompt FROM predictions WHERE status != 'pending' ORDER BY created_at DESC",
    "sessions": "SELECT id, prompt FROM sessions ORDER BY created_at DESC",
    "running sessions": "SELECT id, prompt FROM sessions WHERE state = 'running' ORDER BY created_at DESC",
    "changes": "SELECT id, title FROM change_sets WHERE state IN ('waiting', 'undone') ORDER BY created_at DESC",
    "tasks": "SELECT id, title FROM tasks WHERE state != 'done' ORDER BY created_at DESC",
    "permissions": "SELECT id, title FROM permission_requests WHERE state = 'waiting' ORDER BY asked_at DESC",
    "candidates": "SELECT id, title FROM candidates ORDER BY created_at DESC",
    "drafts": "SELECT id, fact FROM fact_drafts WHERE state = 'waiting' ORDER BY created_at DESC",
    "findings": "SELECT id, text FROM bubbles WHERE state != 'flushed' ORDER BY at DESC",
}


def read_completion_names(home: Home, kind: str) -> Mapping[str, Any]:
    """The names of a `kind`, each with its title. A flow has a mapping with `title` and `parameters` instead. Never
    raises."""
    with contextlib.suppress(OSError, ValueError, sqlite3.Error, RecursionError):
        if kind in _ID_QUERIES:
            records = read_rows(home.database, f"{_ID_QUERIES[kind]} LIMIT {MAX_IDS}", seconds=BUSY_TIMEOUT_S)
            return {id: " ".join(title.split()) for id, title in records}
        match kind:
            case "agents":
                return {folder.name: "agent" for folder in sorted(home.agents.glob("[!.]*")) if folder.is_dir()}
            case "workspaces":
                return dict.fromkeys(home.read_configured_workspaces(), "workspace")
            case "channels" | "providers":
                configured_names = dict.fromkeys(home.read_settings_section(kind), "from your settings")
                return dict(_load_program_names(home)[kind]) | configured_names
            case _:
                return dict(_load_program_names(home)[kind])
    return {}


def read_rows(database: Path, query: str, *, seconds: float = 2) -> list[tuple[Any, ...]]:
    """The rows of a query on a database file, opened read-only. Waits `seconds` for a writer. Raises
    `sqlite3.Error`."""
    with closing(sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True, timeout=seconds)) as connection:
        return connection.execute(query).fetchall()


def _load_program_names(home: Home) -> dict[str, Any]:
    """The names that the program itself defines. They come from the cache, which is written again when a source file
    has changed."""
    if not home.cache.is_dir():
        raise FileNotFoundError(home.cache)
    file, stamp = home.cache / "names.json", [source.stat().st_mtime_ns for source in find_source_files()]
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        cached = json.loads(file.read_text(encoding="utf-8"))
        if cached["stamp"] == stamp:
            return dict(cached)
    cached = _collect_program_names() | {"stamp": stamp}
    from engine.files import write_json

    write_json(file, cached)
    return cached


def find_source_files() -> list[Path]:
    """The files that define what `_collect_program_names` reads. They are found without importing them."""
    engine = Path(__file__).parent.parent
    runners = engine / "execution" / "runners"
    agents = runners / "acp"
    folders = (engine / "config", runners / "flows")
    files = [file for folder in folders for file in sorted(folder.glob("*.py"))]
    return [*files, runners / "flow.py", agents / "__init__.py", agents / "agents.toml"]


def _collect_program_names() -> dict[str, Any]:
    from engine.config.external_sections import PROVIDERS
    from engine.config.settings import Settings
    from engine.config.settings_file import describe_accepted, parse_key
    from engine.execution.runners.acp import KNOWN_AGENTS
    from engine.execution.runners.flows import FLOWS

    flows = {
        name: {
            "title": flow.label,
            "parameters": {key: field.description or "" for key, field in flow.model_fields.items()},
        }
        for name, flow in FLOWS.items()
    }
    settings = Settings()
    keys = _list_setting_keys(settings.model_dump(mode="json", by_alias=True))
    return {
        "flows": flows,
        "settings": {key: describe_accepted(parse_key(key)) for key in keys},
        "channels": {name: channel.specialty for name, channel in settings.channels.items()},
        "providers": dict.fromkeys([*PROVIDERS, "twin"], "model provider"),
        "coding agents": {agent.name: agent.title for agent in KNOWN_AGENTS},
    }


def _list_setting_keys(section: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """The dotted keys of all single values in a document of settings."""
    for name, value in section.items():
        if isinstance(value, dict) and value:
            yield from _list_setting_keys(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"
