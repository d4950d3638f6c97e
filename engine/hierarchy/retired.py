"""Agents that were retired: their folders stand under `.retired` and can come back (SPEC 1.1)."""

from __future__ import annotations

from pathlib import Path

from engine.hierarchy.folders import Member, read_member
from engine.model import Refusal, sanitise
from engine.storage.files import sync_folder

RETIRED = ".retired"


def retired(agents: Path) -> list[tuple[str, Member]]:
    """What was retired from the folder `agents`, by name: the folder's, `cfo` or, for a second of that id, `cfo.2`."""
    try:
        folders = sorted(one for one in (agents / RETIRED).iterdir() if one.is_dir() and not one.name.startswith("."))
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [(one.name, read_member(one, name=_id(one.name))) for one in folders]


def retire(agents: Path, agent_id: str) -> str:
    """Put the folder of an agent away; returns the name it has there. Raises OSError."""
    target, number = agents / RETIRED / agent_id, 2
    while target.exists():
        target = agents / RETIRED / f"{agent_id}.{number}"
        number += 1
    target.parent.mkdir(mode=0o700, exist_ok=True)
    (agents / agent_id).rename(target)
    sync_folder(agents)
    return target.name


def bring_back(agents: Path, name: str) -> str:
    """Put the folder `name` back among the agents; returns its id. Raises OSError, and `Refusal`: `unknown_agent`,
    `agent_exists`."""
    if name not in [one for one, _ in retired(agents)]:
        raise Refusal("unknown_agent", f"no {sanitise(name)} was retired", f"see {agents / RETIRED}")
    agent_id = _id(name)
    if (agents / agent_id).exists():
        raise Refusal("agent_exists", f"{agent_id} already exists again", "retire that one first")
    (agents / RETIRED / name).rename(agents / agent_id)
    sync_folder(agents)
    return agent_id


def _id(name: str) -> str:
    return name.partition(".")[0]
