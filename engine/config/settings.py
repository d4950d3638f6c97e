"""The settings of a home: one model, and its sections on the engine itself (SPEC 4.2, 7.4, 7.6). The sections on other
programs and machines are in `external_sections`.

Names in the file are in camel case (`crossPollEnabled`); attributes are the same in snake case. `settings_file` reads
the file and the environment into this model.
"""

from __future__ import annotations

import os
from dataclasses import field
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol

from pydantic import AfterValidator, Field, ValidationInfo, field_validator

from engine.config import (
    AUTO,
    PATH_CHECK,
    RUNNER_FORMAT,
    Dollars,
    Hour,
    Milliseconds,
    ModelId,
    Name,
    Section,
    find_fallback_problem,
    find_runner_problem,
    find_url_problem,
    refuse_if,
    strip_slash,
)
from engine.config.external_sections import (
    PROVIDERS,
    AcpSettings,
    GatewaySettings,
    NotifySettings,
    ProviderSettings,
    WebSettings,
)
from engine.frozen import frozen
from engine.model import Refusal
from engine.text import sanitise

MAX_DAYS = 36_500
"""Maximum number of days that a setting accepts. 0 keeps rows forever."""


@frozen
class MinimumRetention:
    """The fewest days for which the rows of a table may be kept, and the reason."""

    days: int
    reason: str


MINIMUM_RETENTION = {
    "memory_events": MinimumRetention(35, "agents' work of the last 30 days is analysed"),
    "learning_records": MinimumRetention(90, "candidates are drafted from the last 90 days"),
    "validation_runs": MinimumRetention(35, "recent test failures are needed"),
    "cost_entries": MinimumRetention(35, "the monthly caps are computed from them"),
    "crosspoll_log": MinimumRetention(35, "the rails need their recent blocks"),
}
"""The minimum of each table."""


def _make_retention_field(table: str, default: int | None) -> Any:
    """The field with the days of one table."""
    days = MINIMUM_RETENTION[table].days
    return Field(default, description=f"0 (keep forever) or days from {days} to {MAX_DAYS}")


class _RetentionDays(Section):
    """Days by table. Each is 0, or at least the minimum of its table."""

    @field_validator("*")
    @classmethod
    def _check(cls, value: int | None, info: ValidationInfo) -> int | None:
        minimum = MINIMUM_RETENTION[info.field_name or ""]
        if value and not minimum.days <= value <= MAX_DAYS:
            accepted = f"0 (keep forever) or {minimum.days} to {MAX_DAYS} days: {minimum.reason}"
            raise ValueError(f"{value} is not accepted; expected {accepted}")
        return value


class RetentionSettings(_RetentionDays):
    """`[retention]`: for how many days the rows of each table are kept; 0 is forever. Sums by day are always kept.

    Rows that the program still needs are kept, whatever their age: see `engine.retention`.
    """

    memory_events: int = _make_retention_field("memory_events", 0)
    learning_records: int = _make_retention_field("learning_records", 180)
    validation_runs: int = _make_retention_field("validation_runs", 0)
    cost_entries: int = _make_retention_field("cost_entries", 0)
    crosspoll_log: int = _make_retention_field("crosspoll_log", 0)


class WorkspaceRetention(_RetentionDays):
    """`[workspaces."/path".retention]`: the same for one workspace. None: as in `[retention]`."""

    memory_events: int | None = _make_retention_field("memory_events", None)
    learning_records: int | None = _make_retention_field("learning_records", None)
    validation_runs: int | None = _make_retention_field("validation_runs", None)
    cost_entries: int | None = _make_retention_field("cost_entries", None)
    crosspoll_log: int | None = _make_retention_field("crosspoll_log", None)


class WorkspaceAutonomy(StrEnum):
    """The freedom of the engine in a workspace (SPEC 7.4)."""

    OFF = "off"  # no cards
    CARDS = "cards"  # cards, nothing runs by itself
    ACT = "act"  # may act by itself, within the rails


class WorkspaceSettings(Section):
    """`[workspaces."/path"]`"""

    autonomy: WorkspaceAutonomy = WorkspaceAutonomy.CARDS
    setup: str = ""
    """Command that prepares a fresh worktree, for instance `npm ci`."""
    prepare: bool = False
    """Whether a fresh worktree of an agent gets the project's packages first, with the network that this needs."""
    network: bool = False
    """Whether sandboxed sessions may reach any public host."""
    hosts: Annotated[tuple[str, ...], Field(description='a list of hosts, for example ["localhost:5432"]')] = ()
    """Hosts that sandboxed sessions may reach besides, "name" or "name:port", those on this machine among them."""
    readable: Annotated[
        tuple[str, ...], PATH_CHECK, Field(description='a list of folders, for example ["~/data"]')
    ] = ()
    """Folders that sandboxed sessions may read besides the system, installed tools and the workspace."""
    environment: Annotated[tuple[str, ...], Field(description='a list of names, for example ["CFLAGS"]')] = ()
    """Environment variables that sandboxed sessions inherit besides the usual ones."""
    without_sandbox: bool = False
    """Whether an approval alone lets work run here where no sandbox works; else that is confirmed each time."""
    retention: WorkspaceRetention = WorkspaceRetention()


class ChannelSettings(Section):
    """`[channels.NAME]`: a line of work and the agent that serves it (SPEC 1.1, 2.4)."""

    agent: Name
    specialty: str = ""
    runner: Annotated[str, refuse_if(find_runner_problem), Field(description=RUNNER_FORMAT)] = AUTO
    """What carries work out. `auto` is a flow where the work names one, else a model when a provider is usable."""
    fallback: Annotated[
        tuple[str, ...], refuse_if(find_fallback_problem), Field(description='a list of runners, for example ["model"]')
    ] = ()
    """Runners to take, in order, when that one is absent."""
    model: ModelId = ""
    """Its default model, "" for the provider's."""
    session_minutes: Annotated[float, Field(gt=0, le=24 * 60)] = 45
    session_silence_minutes: Annotated[float, Field(gt=0, le=24 * 60)] = 10
    session_cost_cap: Annotated[float, Field(gt=0)] = 1.00


class ProductionSettings(Section):
    """`[production]`: glob patterns of what always needs approval (SPEC 3.6)."""

    branches: tuple[str, ...] = ("main", "master", "prod*")
    remotes: tuple[str, ...] = ("prod*",)
    contexts: tuple[str, ...] = ("prod*", "*-prod", "*production*")
    hosts: tuple[str, ...] = ("prod*", "*.prod.*", "*production*")
    paths: tuple[str, ...] = ()


MAX_PATTERN_CHARS = 200
"""Maximum number of characters of a pattern of `[content]`."""


class ContentSettings(Section):
    """`[content]`: the operator's own rules of the content filter (SPEC 3.5).

    `block = ["terraform apply", "make deploy --env=prod", "prompt: *customer data*"]`: program, words that follow each
    other, options that must be there. `allow = ["docker system prune -f", "rm -rf scratch/*", "make destroy **"]`: a
    whole command, `*` within one word, a last `**` for any further words.
    """

    allow: tuple[str, ...] = ()
    block: tuple[str, ...] = ()

    @field_validator("allow", "block", mode="after")
    @classmethod
    def _check_patterns(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for text in value:
            if problem := _find_pattern_problem(text):
                raise ValueError(f"pattern {text[:80]!r} {problem}")
        return value


def _find_pattern_problem(text: str) -> str:
    """The problem of a pattern of `[content]` in words, "" for none."""
    if text != text.strip() or not text.isprintable() or len(text) > MAX_PATTERN_CHARS:
        return f"is not one line of at most {MAX_PATTERN_CHARS} characters without spaces at its ends"
    body, is_prompt = text.removeprefix("prompt:"), text.startswith("prompt:")
    first, *rest = body.split() or [""]
    if not any(map(str.isalnum, body if is_prompt else first)):
        return 'would match everything; write a command such as "docker system prune -f"'
    if not is_prompt and (first[0] in "-!@" or "**" in [first, *rest[:-1]]):
        return "must begin with the name of a program, and ** may only be last"
    return ""


class ValidationSettings(Section):
    """`[validation]`: the loop around an agent's work that tests can judge (SPEC 4.9).

    `tries` after the first run of the tests, `costCap` dollars for all of them together.
    """

    enabled: bool = True
    tries: Annotated[int, Field(ge=0, le=10)] = 3
    cost_cap: Annotated[float, Field(ge=0, le=1_000)] = 0.50


class SandboxSettings(Section):
    """`[sandbox]`: how much of the machine a session may take (SPEC 3.8). `memoryGb`: memory of all its processes
    together, in GiB; 0 is half of the machine's."""

    memory_gb: Annotated[float, Field(ge=0, le=4096)] = 0


class MemorySettings(Section):
    """`[memory]`: what is remembered, and how much of it goes into a prompt."""

    embedder: ModelId = ""
    """Makes the vectors (SPEC 4.3). "" is the model that comes with the program. `"PROVIDER:MODEL"` is an
    OpenAI-compatible endpoint; everything that is remembered and asked then goes there."""
    model: ModelId = ""
    """Sums sessions up, and says at night which facts of the day are kept (SPEC 4.5, 4.8). With "" rules sum up, and
    only the operator keeps facts."""
    recall_tokens: Annotated[int, Field(ge=0, le=20_000)] = 600
    """The most that recall puts into a prompt (SPEC 4.4); 0 is nothing."""
    learnings_tokens: Annotated[int, Field(ge=0, le=20_000)] = 300
    """The most that learnings of the project and of all projects do (SPEC 6); 0 is nothing."""
    chroma_url: Annotated[
        str,
        refuse_if(find_url_problem, optional=True),
        AfterValidator(strip_slash),
        Field(description='an address, for example "http://127.0.0.1:8000"'),
    ] = ""
    """A Chroma server that holds the index; "" is a folder of the home."""
    transcripts: Annotated[tuple[str, ...], PATH_CHECK] = ()
    """Folders with transcripts of other agents, which are imported, such as `["~/.claude/projects"]`."""


class AdaptationMode(StrEnum):
    """The decider on a change of behaviour that evidence supports (SPEC 5.6)."""

    MANUAL = "manual"  # the operator
    AUTONOMOUS = "autonomous"  # the engine, from phase 1 on and while nothing is held; and it rolls back what does harm


class AdaptationSettings(Section):
    """`[adaptation]`: who activates candidates, and how they are measured (SPEC 5.6, 5.7).

    `mode` is "manual" (the operator activates them) or "autonomous" (the engine does). `withheld` is the share of runs
    that go without an active fragment or repair, by chance, so that its lift can be measured; with 0 nothing is
    measured. `fragmentTokens` is the most that active fragments put into a prompt.
    """

    mode: AdaptationMode = AdaptationMode.MANUAL
    withheld: Annotated[float, Field(ge=0, le=0.5)] = 0.2
    fragment_tokens: Annotated[int, Field(ge=0, le=4_000)] = 400


class CalendarSettings(Section):
    """`[calendar]`: `.ics` files whose meetings are prepared for (SPEC 2.1), for instance `["~/work.ics"]`."""

    files: Annotated[tuple[str, ...], PATH_CHECK] = ()


class TrainingSettings(Section):
    """`[training]`: where a Twin model is trained (SPEC 8.4), from which model, and the most dollars that one run may
    cost. `api` is what the provider speaks: "together" or "openai". `automatic`: begin by itself when it is due.
    """

    provider: Name = "together"
    api: Literal["together", "openai"] = "together"
    base_model: str = ""
    cost_cap: Dollars = 1.00  # half of what an hour may cost: beside it other work goes on
    automatic: bool = False


class ConsoleSettings(Section):
    """`[console]`: how the screen looks and alerts."""

    theme: str = "clawpy-dark"
    mouse: bool = True
    bell: bool = True


def _make_first_channels() -> dict[str, ChannelSettings]:
    return {
        "koji-core": ChannelSettings(agent="backend_builder", specialty="code, builds, tests"),
        "chronicle-hub": ChannelSettings(agent="chronicler", specialty="documentation, writing"),
        "dream-weaver": ChannelSettings(agent="dreamer", specialty="creative exploration"),
        "research": ChannelSettings(agent="researcher", specialty="analysis"),
        "garden": ChannelSettings(agent="gardener", specialty="knowledge graph, memory"),
    }


class Settings(Section):
    """Every setting with its default. Unknown keys are refused."""

    cross_poll_enabled: bool = True
    """False for the state DISABLED, in which nothing runs (SPEC 7.1)."""
    autonomous_mode_enabled: bool = False
    """Whether cards may run without an approval, in workspaces that are set to `act` (SPEC 7.4)."""
    twin_model_enabled: bool = False
    """Whether `twin_model_id` proposes cards, besides the embedded Twin (SPEC 2.3)."""
    dpo_export_enabled: bool = False
    """Whether new training pairs are exported once a day (SPEC 8.3)."""
    push_notifications_enabled: bool = True
    """Whether the other surfaces, such as a phone, are sent notifications (SPEC 10.2)."""
    watch_complications_enabled: bool = True
    """Whether a watch is a surface (SPEC 10.2)."""
    glasses_alerts_enabled: bool = False
    """Whether glasses are a surface (SPEC 10.2)."""

    cross_poll_interval_ms: Milliseconds = 600_000
    """The least time between two triggers that no person approved (SPEC 3.2)."""
    cross_poll_cost_cap_per_hour: Dollars = 2.00
    cross_poll_cost_cap_per_day: Dollars = 20.00
    cross_poll_cost_cap_per_month: Dollars = 200.00
    """Nothing starts that would pass one of the three caps (SPEC 3.4)."""
    cost_per_trigger: Dollars = 0.05
    """The estimate for work of which no cost is known."""
    cross_poll_auto_execute_threshold: Annotated[float, Field(ge=0.8, le=1)] = 0.8
    """The least confidence of a card that runs by itself (SPEC 3.6)."""
    silence_threshold_ms: Milliseconds = 1_800_000
    """After this time without a sign of the operator (SPEC 2.2) the operator counts as inactive (SPEC 7.1)."""
    quiet_hours_start: Hour = 23
    quiet_hours_end: Hour = 8
    """Hours of the day between which nothing runs by itself, and only urgent notifications are sent (SPEC 7.3)."""
    card_cycle_ms: Milliseconds = 600_000
    """The time between two checks for cards; a change of files is noticed earlier."""
    autonomous_cycle_ms: Milliseconds = 1_800_000
    """The time between two attempts to run a card by itself, while the operator is inactive."""
    max_pending_cards: Annotated[int, Field(ge=1, le=50)] = 5
    """In one workspace (SPEC 2.9)."""
    max_pending_cards_in_all: Annotated[int, Field(ge=1, le=200)] = 12
    max_running_sessions: Annotated[int, Field(ge=1, le=32)] = 2
    """Sessions that run at the same time; others wait."""

    twin_model_id: str = ""
    """The model that `twin_model_enabled` asks."""
    tasks_dir: Annotated[str, PATH_CHECK] = ""
    """A folder of task files that other programs write, "" for none."""
    predictions_dir: Annotated[str, PATH_CHECK] = ""
    """The folder of `predictions.jsonl` (SPEC 2.8), "" for the data folder of the home."""

    console: ConsoleSettings = ConsoleSettings()
    keys: dict[str, str] = Field(default_factory=dict)
    """Key bindings by id, comma-separated keys."""
    production: ProductionSettings = ProductionSettings()
    content: ContentSettings = ContentSettings()
    web: WebSettings = WebSettings()
    validation: ValidationSettings = ValidationSettings()
    sandbox: SandboxSettings = SandboxSettings()
    memory: MemorySettings = MemorySettings()
    training: TrainingSettings = TrainingSettings()
    adaptation: AdaptationSettings = AdaptationSettings()
    calendar: CalendarSettings = CalendarSettings()
    gateway: GatewaySettings = GatewaySettings()
    notify: NotifySettings = NotifySettings()
    retention: RetentionSettings = RetentionSettings()
    channels: dict[Name, ChannelSettings] = Field(default_factory=_make_first_channels)
    providers: dict[Name, ProviderSettings] = Field(default_factory=dict)
    """Those that the file names; `provider` knows the built-in ones too."""
    acp: dict[Name, AcpSettings] = Field(default_factory=dict)
    workspaces: dict[str, WorkspaceSettings] = Field(default_factory=dict)

    @field_validator("channels", mode="after")
    @classmethod
    def _check_channel_names(cls, value: dict[str, ChannelSettings]) -> dict[str, ChannelSettings]:
        """A channel of that name would count as a person, or as any program, where loops are looked for (SPEC 3.3)."""
        if reserved := sorted({"owner", "gateway"} & value.keys()):
            raise ValueError(f"a channel may not be called {reserved[0]!r}: the loop detector uses names like it")
        return value

    @field_validator("workspaces", mode="after")
    @classmethod
    def _check_workspace_paths(cls, value: dict[str, WorkspaceSettings]) -> dict[str, WorkspaceSettings]:
        names: dict[str, str] = {}
        for name in value:
            path = resolve_workspace_path(name)
            if not path:
                raise ValueError(f'workspace {name!r} is not an absolute path; write [workspaces."/full/path"]')
            if path in names:
                raise ValueError(f"workspaces {names[path]!r} and {name!r} are the same folder; keep one of them")
            names[path] = name
        return {path: value[name] for path, name in names.items()}

    def get_channel(self, name: str) -> ChannelSettings:
        """The settings of one channel. Raises `Refusal` `unknown_channel`."""
        if name not in self.channels:
            names = ", ".join(self.channels) or "none"
            raise Refusal("unknown_channel", f"there is no channel {sanitise(name)[:60]}", f"one of: {names}")
        return self.channels[name]

    def get_workspace(self, path: str) -> WorkspaceSettings:
        """The settings of one workspace (its top folder as git says it), the defaults where the file is silent."""
        return self.workspaces.get(path, _DEFAULT_WORKSPACE)

    @property
    def acts_by_itself(self) -> bool:
        """Whether anything may run that no person approved (SPEC 7.4)."""
        return self.autonomous_mode_enabled and any(
            workspace.autonomy is WorkspaceAutonomy.ACT for workspace in self.workspaces.values()
        )

    def get_retention_days(self, table: str, workspace: str) -> int:
        """For how many days a workspace's rows of a table are kept, 0 for ever. `table` by its name, as `memory_events`
        (SPEC 4.2). Raises AttributeError for a table that has no such setting."""
        own: int | None = getattr(self.get_workspace(workspace).retention, table)
        return int(getattr(self.retention, table)) if own is None else own

    def get_provider(self, name: str) -> ProviderSettings | None:
        """A provider that the file names or that is built in, None when it is neither."""
        return self.providers.get(name) or PROVIDERS.get(name)

    def list_providers(self) -> tuple[str, ...]:
        """Every provider: those that the file names, in its order, then the other built-in ones."""
        return tuple(dict.fromkeys((*self.providers, *PROVIDERS)))


_DEFAULT_WORKSPACE = WorkspaceSettings()


def resolve_workspace_path(name: str) -> str:
    """The folder that `name` leads to, `~` and links resolved as git resolves them; "" when it is not absolute."""
    try:
        path = Path(name).expanduser()
    except RuntimeError:  # the home of an unknown user
        return ""
    return os.path.realpath(path) if path.is_absolute() else ""


class SettingsSource(Protocol):
    """Gives services the settings as they are now; they can change while the engine runs."""

    @property
    def current(self) -> Settings: ...


@frozen
class FixedSettings:
    """Settings that do not change, for tests, and for verbs that run without an engine."""

    current: Settings = field(default_factory=Settings)
