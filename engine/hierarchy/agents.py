"""The service of agents, each of which is a folder (SPEC 1.1, 4.1): it lists, adds, moves and retires them.

The folders are the source of truth. The operator edits them in any editor, so they are read again when they change.
A folder that cannot be read is shown as broken, with the reason. A view of an agent (`AgentView`) is made of its
folder, of the channels in the settings that it serves, and of the activity that the caller of `Agents` counts.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from pydantic import ValidationError

from engine.config.settings import SettingsSource
from engine.events import Event
from engine.events.engine import AgentAdded, AgentMoved, AgentRetired, TierAssigned
from engine.files import GUIDANCE_MARKS, TEMPORARY_PREFIX, FileCache, remove_section, write_json
from engine.frozen import frozen
from engine.hierarchy import (
    AGENT_ID,
    ARCHETYPES,
    OWNER,
    CascadeConfig,
    CascadeConfigFile,
    Lineage,
    climb_chain,
    refuse_if_unwritable,
    resolve_tier,
)
from engine.hierarchy.agent_folders import (
    AgentFolder,
    Comms,
    RetiredFolders,
    Role,
    Tools,
    create_agent_folder,
    create_by_rename,
    find_first_fault,
    find_retired_id,
    load_first_roles,
    read_agent_folder,
    read_agent_text,
)
from engine.hierarchy.profile_text import remove_lessons_from_soul
from engine.model import AgentActivity, AgentView, Refusal
from engine.text import sanitise
from engine.wording import to_microusd

ReadActivity = Callable[[], Mapping[str, AgentActivity]]
"""Reads the activity of agents, by agent id."""


@frozen
class HeartbeatPage:
    """The `heartbeat.md` of an agent, with the first channel that the agent serves, "" for none."""

    agent: str
    text: str
    written: datetime
    channel: str = ""


class Agents:
    """The organisation of one home. `folder` is `data/agents`, `cascade_config` is `wisdom_cascade_config.json`, and
    `record` records an event."""

    def __init__(
        self,
        folder: Path,
        *,
        cascade_config: Path,
        settings: SettingsSource,
        record: Callable[[Event], object],
        read_activity: ReadActivity = dict,
    ) -> None:
        self._folder = folder
        self._retired = RetiredFolders(folder / ".retired")
        self.config = CascadeConfigFile(cascade_config)
        self._settings = settings
        self._record = record
        self._read_activity = read_activity
        self._lock = threading.Lock()
        self._folder_cache: FileCache[AgentFolder] = FileCache()

    def ensure_organisation(self) -> bool:
        """Create the first organisation if there is no agents folder yet. Returns whether it was created."""
        if self._folder.exists():
            for leftover in self._folder.glob(f"{TEMPORARY_PREFIX}*"):
                shutil.rmtree(leftover)
            return False
        with refuse_if_unwritable(self._folder), create_by_rename(self._folder) as unfinished:
            unfinished.mkdir(mode=0o700, parents=True)
            for agent_id, role in load_first_roles().items():
                create_agent_folder(unfinished / agent_id, role)
        return True

    def list_agents(self) -> list[AgentView]:
        """Every agent, leaders before the agents below them, else by id; broken ones last."""
        views = self._load_views()

        def make_sort_key(view: AgentView) -> tuple[bool, Sequence[tuple[int, str]]]:
            chain = (*reversed(climb_chain(view, views.get).leaders), view)
            return bool(view.broken), [(agent.tier, agent.id) for agent in chain]

        return sorted(views.values(), key=make_sort_key)

    def get(self, agent_id: str) -> AgentView:
        """One agent. Raises `Refusal` `unknown_agent`."""
        return self._make_view(self._get_folder(agent_id), self.config.current, self._read_activity())

    def find_lineage(self, agent_id: str, *, under: str | None = None) -> Lineage:
        """An agent and the leaders above it, or as it would be if it reported to the agent `under`. Reads only the
        folders of these agents. Raises `Refusal` `unknown_agent`, and with `under` as `move`.
        """
        config = self.config.current
        agent = self._make_view(self._get_folder(agent_id), config, {})
        if under is not None:
            self._get_readable_folder(agent_id)
            self._check_leader(agent_id, under)
            agent = replace(agent, reports_to=under)
        return climb_chain(agent, self._make_finder(config), depth=config.depth)

    def locate_soul(self, agent_id: str) -> Path:
        """The path of the `soul.md` of an agent that exists."""
        return self._folder / agent_id / "soul.md"

    def list_ids(self) -> Sequence[str]:
        """The ids of all agents whose folder is not broken, sorted."""
        return [agent.id for agent in self._load_folders() if not agent.broken]

    def assign_tier(self, agent_id: str, tier: int | None) -> AgentView:
        """Assign a tier, 1 to 5, to an agent. With None the other rules decide again (SPEC 1.2).

        Raises `Refusal`: `unknown_agent`, `bad_tier`, `bad_config`, `unwritable_home`.
        """
        with self._lock:
            self._get_folder(agent_id)
            self.config.assign_tier(agent_id, tier)
        self._record(TierAssigned(subject=agent_id, tier=tier))
        return self.get(agent_id)

    def read_budget(self, agent_id: str) -> int | None:
        """Micro-dollars the agent may spend in a calendar day; None without a budget, 0 when its folder is broken."""
        agent = self._find_folder(agent_id)
        if agent is None:
            return None
        if agent.broken:
            return 0  # fails closed: an agent with a broken folder may spend nothing
        return None if agent.tools.budget is None else to_microusd(agent.tools.budget.usd_per_day)

    def read_tools(self, agent_id: str) -> Tools:
        """The content of the agent's `tools.json`. Raises `Refusal` `unknown_agent`, `broken_agent`."""
        return self._get_readable_folder(agent_id).tools

    def read_soul(self, agent_id: str) -> str:
        """The text of the agent's `soul.md`, without control characters. Raises `Refusal`: `unknown_agent`,
        `unreadable_file`."""
        self._get_folder(agent_id)
        return sanitise(self._read_file(agent_id, "soul.md"))

    def make_soul_for_prompt(self, agent_id: str, without: frozenset[str] = frozenset()) -> str:
        """The soul for a prompt, without the items that say a lesson in `without`. While M1 is on, the prompt has the
        guidance of the leaders, so the section with it that `teaching` wrote into the soul (M2) is left out."""
        soul = self.read_soul(agent_id)
        soul = remove_section(soul, GUIDANCE_MARKS) if self.config.current.enable_m1 else soul
        return remove_lessons_from_soul(soul, without)

    def find_file_problem(self, agent_id: str, name: str, text: str) -> tuple[tuple[str | int, ...], str] | None:
        """The first problem of `text` as the `comms.json` or `tools.json` of this agent, before it is written: the keys
        that lead to it, and its words. None for no problem. `text` must be JSON."""
        try:
            if name == "tools.json":
                Tools.model_validate_json(text)
            elif name == "comms.json":
                self._check_leader(agent_id, Comms.model_validate_json(text).reports_to)
        except ValidationError as error:
            return find_first_fault(error)
        except Refusal as refusal:
            return ("reports_to",), refusal.message
        return None

    def read_heartbeats(self) -> tuple[Sequence[HeartbeatPage], Sequence[str]]:
        """Every agent's `heartbeat.md` (SPEC 4.1), and the errors of those that cannot be read, in words."""
        pages, faults = [], []
        try:
            agents = self._load_views()
        except Refusal as refusal:  # no heartbeat can be read, but cards have other sources
            return [], [str(refusal)]
        for agent in agents.values():
            try:
                written = (self._folder / agent.id / "heartbeat.md").stat().st_mtime
                text, channel = self._read_file(agent.id, "heartbeat.md"), "".join(agent.channels[:1])
                pages.append(HeartbeatPage(agent.id, text, datetime.fromtimestamp(written, UTC), channel))
            except FileNotFoundError:
                continue
            except (OSError, Refusal) as error:
                faults.append(sanitise(str(error)))
        return pages, faults

    def find_problems(self) -> Sequence[str]:
        """The problems of the organisation, in words: broken folders, souls that cannot be read, channels that no agent
        serves, chains that do not reach the owner, the configuration file."""
        views = self._load_views()
        problems = [f"{agent.id}: {agent.broken}" for agent in views.values() if agent.broken]
        intact = [agent for agent in views.values() if not agent.broken]
        for agent in intact:
            try:
                self.read_soul(agent.id)
            except Refusal as refusal:
                problems.append(refusal.message)
        for name, channel in self._settings.current.channels.items():
            if channel.agent not in views:
                fix = f"clawpy config set channels.{name}.agent OTHER"
                problems.append(f"channel {name} is served by {channel.agent}, which does not exist: {fix}")
        lineages = [climb_chain(agent, views.get) for agent in intact]
        problems += [f"{lineage.agent.id}: its chain {lineage.end}" for lineage in lineages if lineage.is_loose]
        return problems + list(self.config.read().problems)

    def add(
        self, agent_id: str, *, reports_to: str, title: str = "", archetype: str = "", domain: str = ""
    ) -> AgentView:
        """Create an agent. Raises `Refusal`: `bad_id`, `bad_archetype`, `agent_exists`, `unknown_agent` (leader)."""
        _check_new_agent(agent_id, archetype)
        with self._lock:
            if (self._folder / agent_id).exists():
                raise Refusal("agent_exists", f"{agent_id} already exists", "choose another id, or retire it first")
            self._check_leader(agent_id, reports_to)
            name = sanitise(title) or agent_id.replace("_", " ").replace("-", " ").capitalize()
            role = Role(name, reports_to, archetype, sanitise(domain))
            with refuse_if_unwritable(self._folder):
                self._retired.free_name(agent_id)  # a name for `restore` is never the id of an agent
                with create_by_rename(self._folder / agent_id) as unfinished:
                    create_agent_folder(unfinished, role)
        self._record(AgentAdded(subject=agent_id, reports_to=reports_to))
        return self.get(agent_id)

    def move(self, agent_id: str, reports_to: str) -> AgentView:
        """Put an agent under another leader. Raises `Refusal`: `unknown_agent`, `broken_agent`, `circle`."""
        with self._lock:
            agent = self._get_readable_folder(agent_id)
            self._check_leader(agent_id, reports_to)
            before = agent.comms.reports_to
            changed = agent.comms.model_dump(exclude_unset=True) | {"reports_to": reports_to}
            with refuse_if_unwritable(self._folder / agent_id):
                write_json(self._folder / agent_id / "comms.json", changed)
        self._record(AgentMoved(subject=agent_id, before=before, after=reports_to))
        return self.get(agent_id)

    def retire(self, agent_id: str) -> str:
        """Retire an agent: its folder is moved to `.retired`. Returns the name for `restore`.

        Raises as `check_retire`, and `Refusal` `unwritable_home`.
        """
        with self._lock, refuse_if_unwritable(self._folder):
            self.check_retire(agent_id)
            name = self._retired.take_in(self._folder / agent_id)
        self._record(AgentRetired(subject=agent_id))
        return name

    def check_retire(self, agent_id: str) -> None:
        """Check that an agent can be retired now. Raises `Refusal`: `unknown_agent`, `serves_channel`, `has_reports`.
        Each says what to do first."""
        channels = self.get(agent_id).channels
        if channels:
            raise Refusal(
                "serves_channel",
                f"{agent_id} serves {', '.join(channels)}",
                f"give the channel to another agent first: clawpy config set channels.{channels[0]}.agent OTHER",
            )
        # One that is broken cannot be moved away. Once it is mended, `find_problems` names it.
        reports = [
            agent.id for agent in self._load_folders() if agent.comms.reports_to == agent_id and not agent.broken
        ]
        if reports:
            raise Refusal(
                "has_reports",
                f"{', '.join(reports)} report{'s' if len(reports) == 1 else ''} to {agent_id}",
                f"move them first: clawpy agents move {reports[0]} --to OTHER",
            )

    def list_retired(self) -> list[AgentView]:
        """The retired agents. Their ids are the names for `restore`."""
        config, activity = self.config.current, self._read_activity()
        views = []
        for name in self._retired.list_names():
            agent = read_agent_folder(self._retired.folder / name, find_retired_id(name))
            view = self._make_view(replace(agent, id=name), config, activity)
            views.append(replace(view, activity=replace(view.activity, state="retired"), channels=()))
        return views

    def restore(self, name: str) -> AgentView:
        """Bring a retired agent back, its folder as it was. The event is that of a new agent.

        Raises `Refusal`: `unknown_agent`, `agent_exists`, `unwritable_home`.
        """
        agent_id = find_retired_id(name)
        with self._lock, refuse_if_unwritable(self._folder):
            if AGENT_ID.fullmatch(agent_id) and (self._folder / agent_id).exists():
                raise Refusal("agent_exists", f"{agent_id} already exists again", "retire that one first")
            if name not in self._retired.list_names():
                raise Refusal("unknown_agent", f"no {sanitise(name)} was retired", f"see {self._retired.folder}")
            self._retired.give_back(name, self._folder / agent_id)
        view = self.get(agent_id)
        self._record(AgentAdded(subject=agent_id, reports_to=view.reports_to))
        return view

    def _check_leader(self, agent_id: str, reports_to: str) -> None:
        """Check that an agent can report to another. Raises `Refusal`: `unknown_agent`, `broken_agent`, `circle`."""
        if reports_to == OWNER:
            return
        leader = self._get_readable_folder(reports_to)
        if reports_to == agent_id:
            raise Refusal("circle", f"{agent_id} reports to itself", "name another agent")
        config = self.config.current
        above = climb_chain(self._make_view(leader, config, {}), self._make_finder(config)).leaders
        if agent_id in [agent.id for agent in above]:
            raise Refusal(
                "circle",
                f"{agent_id} leads {reports_to}, so it cannot report to it",
                f"move {reports_to} elsewhere first",
            )

    def _read_folder(self, folder: Path) -> AgentFolder:
        files = folder / "comms.json", folder / "tools.json"
        return self._folder_cache.get(folder.name, files, lambda: read_agent_folder(folder, folder.name))

    def _read_file(self, agent_id: str, name: str) -> str:
        """The text of a file of an agent. Raises `Refusal` `unreadable_file`."""
        file = self._folder / agent_id / name
        try:
            return read_agent_text(file)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            message = f"agents/{agent_id}/{name} cannot be read: {reason}"
            raise Refusal("unreadable_file", message, f"fix {file} with an editor") from error

    def _find_folder(self, agent_id: str) -> AgentFolder | None:
        folder = self._folder / agent_id
        return self._read_folder(folder) if agent_id and folder.parent == self._folder and folder.is_dir() else None

    def _get_folder(self, agent_id: str) -> AgentFolder:
        agent = self._find_folder(agent_id)
        if agent is None:
            raise Refusal("unknown_agent", f"there is no agent {sanitise(agent_id)}", "see `clawpy agents list`")
        return agent

    def _get_readable_folder(self, agent_id: str) -> AgentFolder:
        agent = self._get_folder(agent_id)
        if agent.broken:
            raise Refusal("broken_agent", f"{agent.id}: {agent.broken}", "fix the file, then try again")
        return agent

    def _load_folders(self) -> Sequence[AgentFolder]:
        """The agents of all folders, by id. Raises `Refusal` `bad_agents`."""
        try:
            folders = sorted(entry for entry in self._folder.iterdir() if not entry.name.startswith("."))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise Refusal(
                "bad_agents",
                f"{self._folder} cannot be read: {error.strerror or error}",
                "it must be a folder with one folder per agent; move it away, and the first agents are created again",
            ) from error
        return [self._read_folder(folder) for folder in folders if folder.is_dir() or AGENT_ID.fullmatch(folder.name)]

    def _load_views(self) -> dict[str, AgentView]:
        config, activity = self.config.current, self._read_activity()
        return {agent.id: self._make_view(agent, config, activity) for agent in self._load_folders()}

    def _make_finder(self, config: CascadeConfig) -> Callable[[str], AgentView | None]:
        """A function that reads an agent without its activity; it returns None for one that does not exist."""

        def find_agent(agent_id: str) -> AgentView | None:
            agent = self._find_folder(agent_id)
            return None if agent is None else self._make_view(agent, config, {})

        return find_agent

    def _make_view(self, agent: AgentFolder, config: CascadeConfig, activity: Mapping[str, AgentActivity]) -> AgentView:
        """An agent as others see it, with its tier, its channels, and its activity among that of all agents."""
        tier, rule = resolve_tier(
            agent.id, assigned=config.tier_assignments.get(agent.id), archetype=agent.tools.archetype
        )
        agent_activity = activity.get(agent.id, AgentActivity())
        channels = self._settings.current.channels.items()
        return AgentView(
            id=sanitise(agent.id),
            title=sanitise(agent.comms.title),
            reports_to=agent.comms.reports_to,
            tier=tier,
            tier_rule=rule,
            domain=sanitise(agent.comms.domain),
            channels=tuple(name for name, channel in channels if channel.agent == agent.id),
            activity=replace(agent_activity, state="broken") if agent.broken else agent_activity,
            broken=agent.broken,
            archetype=sanitise(agent.tools.archetype),
        )


def _check_new_agent(agent_id: str, archetype: str) -> None:
    """Check the words for a new agent. Raises `Refusal`: `bad_id`, `bad_archetype`."""
    if not AGENT_ID.fullmatch(agent_id):
        fix = "use a lower-case letter, then at most 39 of a-z, 0-9, _ and -; `owner` means you"
        raise Refusal("bad_id", f"{sanitise(agent_id)!r} is not an agent id", fix)
    if archetype and archetype not in ARCHETYPES:
        known = "known archetypes: " + ", ".join(ARCHETYPES)
        raise Refusal("bad_archetype", f"{archetype!r} is not an archetype", known)
