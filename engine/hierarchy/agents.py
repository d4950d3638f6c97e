"""Agents as folders (SPEC 1.1, 4.1): list, add, move, retire.

The folders are the truth and the operator edits them in any editor, so they are read anew each time; a folder that
cannot be read is shown as broken, with the reason, and harms no other. Whole folders appear and go by one rename.
"""

from __future__ import annotations

import builtins
import json
import re
import shutil
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from engine.config import SettingsSource
from engine.events import AgentAdded, AgentMoved, AgentRetired, Event
from engine.hierarchy import organisation
from engine.hierarchy.chain import OWNER, Chain, walk
from engine.hierarchy.organisation import Role
from engine.hierarchy.tiers import ARCHETYPES, resolve_tier
from engine.storage.database import Database
from engine.storage.files import sync_folder, write_atomic, write_json
from engine.values import AgentView, Refusal, microusd, sanitise

ID = re.compile(r"[a-z][a-z0-9_-]{0,39}")
LARGEST_FILE = 256 * 1024
RETIRED = ".retired"
BIRTH = ".clawpy-tmp-"
"""Folders with this prefix are being made; one that a crash left is swept at the next start."""

Activity = Callable[[], Mapping[str, tuple[str, int]]]
"""What agents are doing now: state ("idle", "running", ...) and tokens, by agent id."""


Model = TypeVar("Model", bound=BaseModel)


class Comms(BaseModel):
    """`comms.json`. Keys this version does not know are kept as they are."""

    model_config = ConfigDict(extra="allow", strict=True)

    reports_to: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]{0,39}$")]
    title: Annotated[str, Field(max_length=200)] = ""
    domain: Annotated[str, Field(max_length=200)] = ""


class Budget(BaseModel):
    """`budget` of `tools.json`: dollars this agent may spend in a calendar day (SPEC 3.4)."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    usd_per_day: Annotated[float, Field(ge=0, le=1_000_000)]


class Tools(BaseModel):
    """`tools.json`: permissions, archetype, model routing, budget. Unknown keys are kept as they are."""

    model_config = ConfigDict(extra="allow", strict=True)

    archetype: str = ""
    allow: list[str] = Field(default_factory=lambda: ["read", "write", "edit", "exec"])
    deny: list[str] = Field(default_factory=list)
    models: dict[str, str] = Field(default_factory=dict)
    budget: Budget | None = None


@dataclass(frozen=True, slots=True)
class Member:
    """An agent as its folder says. `broken` holds the reason when it cannot be read; the rest is then default."""

    id: str
    comms: Comms
    tools: Tools
    broken: str = ""


@dataclass(frozen=True, slots=True)
class HeartbeatFile:
    """An agent's `heartbeat.md`: its text, when it was last written, and the first channel the agent serves."""

    agent: str
    text: str
    written: datetime
    channel: str


class Agents:
    """The organisation of one home. `folder` is `data/agents`, `cascade_config` is `wisdom_cascade_config.json`."""

    def __init__(
        self,
        folder: Path,
        *,
        cascade_config: Path,
        settings: SettingsSource,
        database: Database | None,
        activity: Activity | None = None,
    ) -> None:
        self._folder = folder
        self._cascade_config = cascade_config
        self._settings = settings
        self._database = database
        self._activity = activity
        self._lock = threading.Lock()

    def ensure_organisation(self) -> bool:
        """Create the first organisation when there is no agents folder yet; True when it was created."""
        if self._folder.exists():
            for left in self._folder.glob(f"{BIRTH}*"):
                shutil.rmtree(left)
            return False
        unborn = self._folder.with_name(f"{BIRTH}agents")
        if unborn.exists():
            shutil.rmtree(unborn)
        try:
            unborn.mkdir(mode=0o700, parents=True)
            for role in organisation.FIRST:
                _create(unborn / role.id, role)
            unborn.rename(self._folder)
            sync_folder(self._folder.parent)
        except OSError as error:
            raise _unwritable(self._folder, error) from error
        return True

    def list(self) -> list[AgentView]:
        """Every agent, leaders before those who report to them, then by id; broken ones last."""
        members = self._members()
        assigned, _ = self._assignments()
        doing = self._activity() if self._activity else {}
        reports_to = {member.id: member.comms.reports_to for member in members.values() if not member.broken}
        views = [self._view(member, assigned, doing) for member in members.values()]
        tiers = {view.id: view.tier for view in views}

        def rank(view: AgentView) -> tuple[bool, tuple[tuple[int, str], ...]]:
            above = (*reversed(walk(view.id, reports_to).leaders), view.id)
            return bool(view.broken), tuple((tiers[one], one) for one in above)

        return sorted(views, key=rank)

    def get(self, agent_id: str) -> AgentView:
        """One agent. Raises `Refusal` `unknown_agent`."""
        member = self._member(agent_id)
        assigned, _ = self._assignments()
        return self._view(member, assigned, self._activity() if self._activity else {})

    def chain(self, agent_id: str) -> tuple[builtins.list[str], str]:
        """Leaders from the direct one upward, and in words why the chain ends (SPEC 1.4)."""
        chain = self._chain(agent_id)
        return list(chain.leaders), chain.words

    def budget(self, agent_id: str) -> int | None:
        """Micro-dollars the agent may spend in a calendar day; None without a budget, 0 when its folder is broken."""
        member = self._find(agent_id)
        if member is None:
            return None
        if member.broken:
            return 0  # fail closed: what cannot be read may spend nothing
        return None if member.tools.budget is None else microusd(member.tools.budget.usd_per_day)

    def tools(self, agent_id: str) -> Tools:
        """What `tools.json` of the agent says. Raises `Refusal` `unknown_agent`, `broken_agent`."""
        return self._sound(agent_id).tools

    def soul(self, agent_id: str) -> str:
        """The text of the agent's `soul.md`, without control characters."""
        self._member(agent_id)
        return sanitise(_text(self._folder / agent_id / "soul.md"))

    def heartbeats(self) -> tuple[builtins.list[HeartbeatFile], builtins.list[str]]:
        """Every agent's `heartbeat.md` (SPEC 4.1), and in words what could not be read."""
        found: builtins.list[HeartbeatFile] = []
        unread: builtins.list[str] = []
        for member in self._members().values():
            file = self._folder / member.id / "heartbeat.md"
            try:
                written = datetime.fromtimestamp(file.stat().st_mtime, UTC)
                channel = next(iter(self._channels(member.id)), "")
                found.append(HeartbeatFile(member.id, _text(file), written, channel))
            except FileNotFoundError:
                continue
            except (OSError, ValueError) as error:
                unread.append(sanitise(f"{member.id}: heartbeat.md cannot be read: {error}"))
        return found, unread

    def problems(self) -> builtins.list[str]:
        """What is wrong in the organisation, in words: broken folders, channels nobody serves, loose chains."""
        members = self._members()
        found = [f"{member.id}: {member.broken}" for member in members.values() if member.broken]
        for name, channel in self._settings.current.channels.items():
            if channel.agent not in members:
                found.append(f"channel {name} is served by {channel.agent}, who is not there")
        reports_to = {member.id: member.comms.reports_to for member in members.values() if not member.broken}
        for agent_id in reports_to:
            chain = walk(agent_id, reports_to)
            if chain.stop in ("cycle", "missing") and (chain.stop != "missing" or not chain.leaders):
                found.append(f"{agent_id}: its chain {chain.words}")
        return found + self._assignments()[1]

    def add(
        self, agent_id: str, *, reports_to: str, title: str = "", archetype: str = "", domain: str = ""
    ) -> AgentView:
        """Create an agent. Raises `Refusal`: `bad_id`, `bad_archetype`, `agent_exists`, `unknown_agent` (leader)."""
        _check_id(agent_id)
        if archetype and archetype not in ARCHETYPES:
            raise Refusal("bad_archetype", f"{archetype!r} is no archetype", "known are " + ", ".join(ARCHETYPES))
        with self._lock:
            if (self._folder / agent_id).exists():
                raise Refusal("agent_exists", f"{agent_id} is there already", "choose another id, or retire it first")
            self._check_leader(reports_to)
            name = sanitise(title) or agent_id.replace("_", " ").replace("-", " ").capitalize()
            role = Role(agent_id, name, reports_to, archetype, sanitise(domain), "", ())
            unborn = self._folder / f"{BIRTH}{agent_id}"
            try:
                if unborn.exists():
                    shutil.rmtree(unborn)
                _create(unborn, role)
                unborn.rename(self._folder / agent_id)
                sync_folder(self._folder)
            except OSError as error:
                raise _unwritable(self._folder, error) from error
        self._record(AgentAdded(subject=agent_id, reports_to=reports_to))
        return self.get(agent_id)

    def move(self, agent_id: str, reports_to: str) -> AgentView:
        """Put an agent under another leader. Raises `Refusal`: `unknown_agent`, `broken_agent`, `circle`."""
        with self._lock:
            member = self._sound(agent_id)
            self._check_leader(reports_to)
            if reports_to == agent_id or (reports_to != OWNER and agent_id in self._chain(reports_to).leaders):
                raise Refusal(
                    "circle",
                    f"{agent_id} leads {reports_to}, so it cannot report to it",
                    f"move {reports_to} elsewhere first",
                )
            before = member.comms.reports_to
            changed = member.comms.model_dump(exclude_unset=True) | {"reports_to": reports_to}
            try:
                write_json(self._folder / agent_id / "comms.json", changed)
            except OSError as error:
                raise _unwritable(self._folder / agent_id, error) from error
        self._record(AgentMoved(subject=agent_id, before=before, after=reports_to))
        return self.get(agent_id)

    def retire(self, agent_id: str) -> None:
        """Take an agent out; its folder is kept under `.retired`.

        Raises `Refusal`: `unknown_agent`, `serves_channel`, `has_reports`, each saying what to do first.
        """
        with self._lock:
            self._member(agent_id)
            serves = self._channels(agent_id)
            if serves:
                raise Refusal(
                    "serves_channel",
                    f"{agent_id} serves {', '.join(serves)}",
                    f"give the channel to another agent first: clawpy config set channels.{serves[0]}.agent OTHER",
                )
            reports = sorted(m.id for m in self._members().values() if not m.broken and m.comms.reports_to == agent_id)
            if reports:
                raise Refusal(
                    "has_reports",
                    f"{', '.join(reports)} report{'s' if len(reports) == 1 else ''} to {agent_id}",
                    f"move them first: clawpy agents move {reports[0]} --to OTHER",
                )
            target = self._folder / RETIRED / agent_id
            number = 2
            while target.exists():
                target = self._folder / RETIRED / f"{agent_id}.{number}"
                number += 1
            try:
                target.parent.mkdir(mode=0o700, exist_ok=True)
                (self._folder / agent_id).rename(target)
                sync_folder(self._folder)
            except OSError as error:
                raise _unwritable(self._folder, error) from error
        self._record(AgentRetired(subject=agent_id))

    def _record(self, event: Event) -> None:
        if self._database is not None:
            self._database.write(lambda tx: tx.record(event))

    def _chain(self, agent_id: str) -> Chain:
        self._member(agent_id)
        return walk(agent_id, {m.id: m.comms.reports_to for m in self._members().values() if not m.broken})

    def _check_leader(self, reports_to: str) -> None:
        if reports_to != OWNER:
            self._sound(reports_to)

    def _find(self, agent_id: str) -> Member | None:
        folder = self._folder / agent_id
        return _read(folder) if agent_id and folder.parent == self._folder and folder.is_dir() else None

    def _member(self, agent_id: str) -> Member:
        member = self._find(agent_id)
        if member is None:
            raise Refusal("unknown_agent", f"there is no agent {sanitise(agent_id)}", "see `clawpy agents list`")
        return member

    def _sound(self, agent_id: str) -> Member:
        member = self._member(agent_id)
        if member.broken:
            raise Refusal("broken_agent", f"{member.id}: {member.broken}", "mend the file, then try again")
        return member

    def _members(self) -> dict[str, Member]:
        try:
            folders = sorted(entry for entry in self._folder.iterdir() if not entry.name.startswith("."))
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise Refusal(
                "bad_agents",
                f"{self._folder} cannot be read: {error.strerror or error}",
                "it must be a folder with one folder an agent; move away what is there, the first ones are made again",
            ) from error
        return {folder.name: _read(folder) for folder in folders if folder.is_dir() or ID.fullmatch(folder.name)}

    def _channels(self, agent_id: str) -> tuple[str, ...]:
        return tuple(name for name, channel in self._settings.current.channels.items() if channel.agent == agent_id)

    def _assignments(self) -> tuple[dict[str, int], builtins.list[str]]:
        """`tier_assignments`, and what is wrong with them in words."""
        name = self._cascade_config.name
        try:
            written = json.loads(_text(self._cascade_config))
            entries = written.get("tier_assignments", {}) if isinstance(written, dict) else None
        except FileNotFoundError:
            return {}, []
        except (OSError, ValueError) as error:
            return {}, [f"{name} cannot be read: {error}"]
        if not isinstance(entries, dict):
            return {}, [f"{name}: tier_assignments must be an object of agent ids and tiers"]
        good = {key: tier for key, tier in entries.items() if type(tier) is int and 1 <= tier <= 5}
        bad = sorted(key for key in entries if key not in good)
        return good, [f"{name}: the tier of {sanitise(key)} must be a whole number from 1 to 5" for key in bad]

    def _view(self, member: Member, assigned: Mapping[str, int], doing: Mapping[str, tuple[str, int]]) -> AgentView:
        decision = resolve_tier(member.id, assigned=assigned.get(member.id), archetype=member.tools.archetype)
        state, tokens = doing.get(member.id, ("idle", 0))
        view = AgentView(
            id=sanitise(member.id),
            title=sanitise(member.comms.title),
            reports_to=member.comms.reports_to,
            tier=decision.tier,
            tier_rule=decision.rule,
            domain=sanitise(member.comms.domain),
            channels=self._channels(member.id),
            state=state,
            tokens=tokens,
        )
        return replace(view, state="broken", reports_to="", broken=member.broken) if member.broken else view


def _check_id(agent_id: str) -> None:
    if agent_id == OWNER or not ID.fullmatch(agent_id):
        raise Refusal(
            "bad_id",
            f"{sanitise(agent_id)!r} is no agent id",
            "a small letter, then at most 39 of a-z, 0-9, _ and -; `owner` is the operator",
        )


def _read(folder: Path) -> Member:
    """The agent in `folder`; whatever is wrong with it becomes `broken`, so that the others are still shown."""
    unknown = Comms.model_construct(reports_to="", title="", domain="")
    if not ID.fullmatch(folder.name) or folder.name == OWNER:
        return Member(folder.name, unknown, Tools(), "its folder's name is no agent id")
    comms, tools = unknown, Tools()
    try:
        comms = _parse(folder / "comms.json", Comms)
        if (folder / "tools.json").exists():
            tools = _parse(folder / "tools.json", Tools)
    except Refusal as error:
        return Member(folder.name, comms, tools, error.message)
    return Member(folder.name, comms, tools)


def _parse(file: Path, model: type[Model]) -> Model:
    """The file as `model`. Raises `Refusal` that says which key, what is wrong and what was expected."""
    try:
        return model.model_validate_json(_text(file))
    except FileNotFoundError:
        reason = "is missing"
    except (OSError, UnicodeDecodeError) as error:
        reason = f"cannot be read: {error}"
    except ValidationError as error:
        entry = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in entry["loc"])
        reason = f"{where}: {entry['msg']}" if where else entry["msg"]
    except ValueError as error:
        reason = str(error)
    raise Refusal("broken_agent", sanitise(f"{file.name}: {reason}"), f"mend {file}")


def _text(file: Path) -> str:
    if file.stat().st_size > LARGEST_FILE:
        raise ValueError(f"larger than {LARGEST_FILE} bytes")
    return file.read_text(encoding="utf-8")


def _create(folder: Path, role: Role) -> None:
    folder.mkdir(mode=0o700)
    tools: dict[str, Any] = {
        "archetype": role.archetype,
        "allow": Tools().allow,
        "deny": [],
        "models": {},
        "budget": None,
    }
    comms = {"reports_to": role.reports_to, "title": role.title, "domain": role.domain}
    write_atomic(folder / "soul.md", organisation.soul(role).encode())
    write_atomic(folder / "memory.md", organisation.MEMORY.encode())
    write_atomic(folder / "heartbeat.md", organisation.HEARTBEAT.encode())
    write_json(folder / "comms.json", comms)
    write_json(folder / "tools.json", tools)


def _unwritable(path: Path, error: OSError) -> Refusal:
    reason = error.strerror or str(error)
    return Refusal(
        "unwritable_home", f"{path} cannot be written: {reason}", "make the folder writable; nothing changed"
    )
