"""The settings of a home: one model, and most of its sections (SPEC 7.4, 7.6). Those on runners, providers,
notifications and retention are in `sections`.

Names in the file are in camel case (`crossPollEnabled`); attributes are the same in snake case. `settings_file` reads
the file and the environment into this model.
"""

from __future__ import annotations

import ipaddress
import os
import re
from dataclasses import field
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal, Protocol
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, StringConstraints, field_validator

from engine.config.sections import (
    AUTO,
    PROVIDERS,
    RUNNER_FORMAT,
    AcpSettings,
    Dollars,
    Hour,
    Milliseconds,
    ModelId,
    Name,
    NotifySettings,
    ProviderSettings,
    RetentionSettings,
    Section,
    WorkspaceRetention,
    find_fallback_problem,
    find_runner_problem,
    find_url_problem,
    refuse_if,
    strip_slash,
)
from engine.frozen import frozen
from engine.model import Refusal, sanitise

MAX_CONTENT_PATTERNS = 200
"""Most patterns in each list of `[content]`."""

MAX_PATTERN_CHARS = 200
"""Most characters of one pattern of `[content]`."""


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
    readable: Annotated[tuple[str, ...], Field(description='a list of folders, for example ["~/data"]')] = ()
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
        if len(value) > MAX_CONTENT_PATTERNS:
            raise ValueError(f"{len(value)} patterns given, at most {MAX_CONTENT_PATTERNS}")
        for text in value:
            problem = _find_pattern_problem(text)
            if problem:
                raise ValueError(f"pattern {text[:80]!r} {problem}")
        return value


def _find_pattern_problem(text: str) -> str:
    """The problem of a pattern of `[content]` in words, "" for none."""
    body = text.removeprefix("prompt:").strip()
    if not body:
        return 'is empty; write a command such as "docker system prune -f"'
    if text != text.strip() or not text.isprintable():
        return "starts or ends with a space, or contains a line break; write one command on one line"
    if len(text) > MAX_PATTERN_CHARS:
        return f"is longer than {MAX_PATTERN_CHARS} characters; use * for the parts that vary"
    first, *rest = body.split()
    if not any(character.isalnum() for character in (body if text.startswith("prompt:") else first)):
        return "would match every command; begin with the name of a program"
    if not text.startswith("prompt:") and (first[0] in "-!@" or "**" in [first, *rest[:-1]]):
        return "must begin with the name of a program, and ** may only be last"
    return ""


class WebSettings(Section):
    """`[web]`: what the web tools of sessions may reach without asking (SPEC 3.8)."""

    search_url: str = ""
    """The address of a search like SearXNG. It answers `?q=…&format=json` with `results` of `title`, `url` and
    `content`. Without it there is no web_search."""
    allow: tuple[Annotated[str, StringConstraints(pattern=r"^(\*\.)?[a-zA-Z0-9_.-]{1,253}(:\d{1,5})?$")], ...] = ()
    """Hosts from which pages are fetched without asking, such as `docs.python.org`, `*.readthedocs.io`,
    `localhost:3000`. Only a host that is named without a `*` may be on this machine or its network."""

    @field_validator("search_url", mode="after")
    @classmethod
    def _check_search_url(cls, value: str) -> str:
        parts = urlsplit(value)
        if value and (parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc):
            raise ValueError('is not an address; write for example "http://127.0.0.1:8888/search"')
        return value


_HOST_NAME = re.compile(r"(?=.{1,253}$)[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*")
_ORIGIN = re.compile(r"https?://[a-z0-9.:\[\]-]{1,260}")


def _find_host_name_problem(name: str) -> str:
    problem = f"{name[:80]!r} is not a host name; write it in lower case, without a port or https://"
    return "" if _HOST_NAME.fullmatch(name) else problem


def _find_origin_problem(origin: str) -> str:
    problem = f"{origin[:80]!r} is not an origin; write, for example, https://phone.example, without a path"
    return "" if _ORIGIN.fullmatch(origin) else problem


class GatewaySettings(Section):
    """`[gateway]`: where other programs reach the engine (SPEC 10.1)."""

    enabled: bool = False
    """Whether the console and `clawpy run` open the gateway too, as `clawpy serve` always does."""
    host: str = "127.0.0.1"
    """An address of this machine. One that other machines reach needs a certificate or a tunnel."""
    port: Annotated[int, Field(ge=0, le=65535)] = 8477
    certificate: str = ""
    certificate_key: str = ""
    """PEM files."""
    tunnel: bool = False
    """You say that something in front of the gateway encrypts."""
    hosts: Annotated[tuple[str, ...], refuse_if(_find_host_name_problem)] = ()
    """Further names under which it is called."""
    origins: Annotated[tuple[str, ...], refuse_if(_find_origin_problem)] = ()
    """The web pages that may call it, such as `["https://phone.example"]`."""

    @field_validator("host", mode="after")
    @classmethod
    def _check_host(cls, value: str) -> str:
        if value == "localhost":
            return "127.0.0.1"
        try:
            return str(ipaddress.ip_address(value.strip("[]")))
        except ValueError as error:
            raise ValueError(
                f"{value[:80]!r} is not an address; write, for example, 127.0.0.1, or 0.0.0.0 for all"
            ) from error


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
    transcripts: tuple[str, ...] = ()
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

    files: tuple[str, ...] = ()


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
    emoji: bool = False


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
    autonomous_mode_enabled: bool = False
    twin_model_enabled: bool = False
    dpo_export_enabled: bool = False
    push_notifications_enabled: bool = True
    watch_complications_enabled: bool = True
    glasses_alerts_enabled: bool = False

    cross_poll_interval_ms: Milliseconds = 600_000
    cross_poll_cost_cap_per_hour: Dollars = 2.00
    cross_poll_cost_cap_per_day: Dollars = 20.00
    cross_poll_cost_cap_per_month: Dollars = 200.00
    cost_per_trigger: Dollars = 0.05
    cross_poll_auto_execute_threshold: Annotated[float, Field(ge=0.8, le=1)] = 0.8
    silence_threshold_ms: Milliseconds = 1_800_000
    quiet_hours_start: Hour = 23
    quiet_hours_end: Hour = 8
    card_cycle_ms: Milliseconds = 600_000
    autonomous_cycle_ms: Milliseconds = 1_800_000
    max_pending_cards: Annotated[int, Field(ge=1, le=50)] = 5
    """In one workspace (SPEC 2.9)."""
    max_pending_cards_in_all: Annotated[int, Field(ge=1, le=200)] = 12
    max_running_sessions: Annotated[int, Field(ge=1, le=32)] = 2

    twin_model_id: str = ""
    tasks_dir: str = ""
    predictions_dir: str = ""

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

    def channel(self, name: str) -> ChannelSettings:
        """The settings of one channel. Raises `Refusal` `unknown_channel`."""
        if name not in self.channels:
            names = ", ".join(self.channels) or "none"
            raise Refusal("unknown_channel", f"there is no channel {sanitise(name)[:60]}", f"one of: {names}")
        return self.channels[name]

    def workspace(self, path: str) -> WorkspaceSettings:
        """The settings of one workspace (its top folder as git says it), the defaults where the file is silent."""
        return self.workspaces.get(path, _DEFAULT_WORKSPACE)

    @property
    def acts_by_itself(self) -> bool:
        """Whether anything may run that no person approved (SPEC 7.4)."""
        return self.autonomous_mode_enabled and any(
            workspace.autonomy is WorkspaceAutonomy.ACT for workspace in self.workspaces.values()
        )

    def kept_days(self, table: str, workspace: str) -> int:
        """For how many days a workspace's rows of a table are kept, 0 for ever. `table` by its name, as `memory_events`
        (SPEC 4.2). Raises AttributeError for a table that has no such setting."""
        own: int | None = getattr(self.workspace(workspace).retention, table)
        return int(getattr(self.retention, table)) if own is None else own

    def provider(self, name: str) -> ProviderSettings | None:
        """A provider that the file names or that is built in, None when it is neither."""
        return self.providers.get(name) or PROVIDERS.get(name)

    def provider_names(self) -> tuple[str, ...]:
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
