"""Sections of the settings about what is outside of the engine: model providers, coding agents, the web, the gateway,
and notifications; and about how long rows are kept.

Only the form of a value is checked here, not whether a provider has a key or an agent is installed. An address with a
password or a token in it is a key (SPEC 11.1), so it does not stand in the file. `url = "key"` says that it is stored
with the keys, under `notify-SURFACE`.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Any
from urllib.parse import parse_qsl, urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, ValidationInfo, field_validator
from pydantic.alias_generators import to_camel
from pydantic.fields import FieldInfo

# Model providers, coding agents, and the names of runners and models (SPEC 3.8, 7.6)

Name = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_-]{0,39}$")]
"""An id: a small letter, then at most 39 of a-z, 0-9, _ and -."""

AUTO, FLOW, MODEL, ACP = "auto", "flow", "model", "acp:"
"""Names of runners; `ACP` begins one that a coding agent's name ends."""

_RUNNER = re.compile(rf"{FLOW}|{MODEL}|{ACP}[a-z][a-z0-9_-]{{0,39}}")
_MODEL_ID = re.compile(r"[a-z][a-z0-9_-]{0,39}:[!-~]{1,200}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_HOST = re.compile(r"(\*\.)?[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*(:\d{1,5})?", re.IGNORECASE)

RUNNERS = 'one of "auto", "flow", "model" or "acp:NAME", where NAME is a coding agent (`clawpy doctor` lists them)'
MODELS = 'provider:model, for example "openai:gpt-6.1-terra"'


def checked(problem_of: Callable[[str], str], *, optional: bool = False) -> AfterValidator:
    """Refuses a text, or a list of texts, in which `problem_of` finds a problem. `optional`: "" is accepted."""

    def check(value: Any) -> Any:
        for text in (value,) if isinstance(value, str) else value:
            if (text or not optional) and (problem := problem_of(text)):
                raise ValueError(problem)
        return value

    return AfterValidator(check)


class Section(BaseModel):
    """A section of the settings: names in camel case, unknown keys refused, values fixed."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True, allow_inf_nan=False
    )


def _model_name_problem(name: str) -> str:
    fault = "the name of a model must have no spaces and at most 200 characters"
    return "" if re.fullmatch(r"[!-~]{1,200}", name) else fault


def _host_problem(host: str) -> str:
    fault = f'{host[:80]!r} is not a host; write "api.example.com", without https:// and without a path'
    return "" if _HOST.fullmatch(host) else fault


def _variable_problem(name: str) -> str:
    # The value is not shown: it may be `NAME=secret`.
    return "" if _VARIABLE.fullmatch(name) else "write only the names of variables here, never their values"


class ProviderKind(StrEnum):
    """The API of a provider."""

    OPENAI = "openai"
    ANTHROPIC = "anthropic"


class ProviderSettings(Section):
    """`[providers.NAME]`: where a model is reached. Its key is never here (SPEC 11.1): `clawpy key set NAME`.

    `base_url` is https; plain http only to this machine or a private network, or with `insecure`, for a key travels
    with every call. `keyless` is for servers that want none.
    """

    kind: ProviderKind
    insecure: bool = False
    base_url: Annotated[str, Field(description='an address, for example "http://127.0.0.1:8000/v1"')]
    model: Annotated[
        str,
        checked(_model_name_problem, optional=True),
        Field(description="the name of a model as the provider calls it, in quotes"),
    ] = ""
    keyless: bool = False

    @field_validator("base_url", mode="after")
    @classmethod
    def _reachable(cls, value: str, info: ValidationInfo) -> str:
        if fault := url_problem(value, insecure=info.data.get("insecure", False)):
            raise ValueError(fault)
        return value.rstrip("/")

    @property
    def host(self) -> str:
        """The host, with its port where that is not the usual one."""
        return urlsplit(self.base_url).netloc


class AcpSettings(Section):
    """`[acp.NAME]`: a coding agent that speaks the Agent Client Protocol.

    `command` starts it; `hosts` are what its own provider needs of the network; `env` names the variables that are
    handed to it, and no others are.
    """

    command: Annotated[tuple[str, ...], Field(description='a list of words, for example ["claude-agent-acp"]')]
    hosts: Annotated[
        tuple[str, ...], checked(_host_problem), Field(description='a list of hosts, for example ["api.anthropic.com"]')
    ] = ()
    env: Annotated[
        tuple[str, ...],
        checked(_variable_problem),
        Field(description='a list of variables, for example ["ANTHROPIC_API_KEY"]'),
    ] = ()

    @field_validator("command", mode="after")
    @classmethod
    def _runnable(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not value or not value[0].strip() or any("\0" in word for word in value):
            raise ValueError('a command begins with a program, for example ["claude-agent-acp"]')
        return value


def runner_problem(name: str, *, auto: bool = True) -> str:
    """The problem of the name of a runner in words, "" for none."""
    if _RUNNER.fullmatch(name) or (auto and name == AUTO):
        return ""
    accepted = RUNNERS if auto else RUNNERS.replace('"auto", ', "")
    return f"{name[:80]!r} is not a runner; expected {accepted}"


def fallback_problem(name: str) -> str:
    """The problem of the name of a runner that another falls back on in words, "" for none."""
    return runner_problem(name, auto=False)


def without_slash(url: str) -> str:
    """An address without a slash at its end."""
    return url.rstrip("/")


def model_problem(name: str) -> str:
    """The problem of the id of a model in words, "" for none."""
    return "" if _MODEL_ID.fullmatch(name) else f"{name[:80]!r} is not a model; expected {MODELS}"


def url_problem(url: str, *, insecure: bool = False) -> str:
    """The problem of the address of a provider, in words that never repeat it, "" for none."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return "is not an address; write, for example, https://api.example.com/v1"
    if "@" in parts.netloc:
        return "an address must not contain a user name or password; set the key with: clawpy key set NAME"
    if parts.scheme not in ("http", "https") or not host or port == 0 or not re.fullmatch(r"[!-~]+", url):
        return "is not an address; write, for example, https://api.example.com/v1"
    if parts.query or parts.fragment:
        return "an address must end with its path, without ? or #; set the key with: clawpy key set NAME"
    if parts.scheme == "http" and not insecure and not _is_nearby_host(host):
        return "plain http sends the key unencrypted; write https://, or add insecure = true"
    return ""


def _is_nearby_host(host: str) -> bool:
    """Whether a host is this machine or in a private network, by its name alone."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return "." not in host or host.endswith((".localhost", ".local", ".internal", ".lan", ".home.arpa"))
    return address.is_loopback or (address.is_private and not address.is_unspecified)


ModelId = Annotated[str, checked(model_problem, optional=True), Field(description=MODELS)]
"""`provider:model`, or "" for none."""

PROVIDERS: dict[str, ProviderSettings] = {
    "openai": ProviderSettings(kind=ProviderKind.OPENAI, base_url="https://api.openai.com/v1", model="gpt-6.1-terra"),
    "anthropic": ProviderSettings(
        kind=ProviderKind.ANTHROPIC, base_url="https://api.anthropic.com", model="claude-sonnet-5-5"
    ),
    "together": ProviderSettings(
        kind=ProviderKind.OPENAI, base_url="https://api.together.xyz/v1", model="zai-org/GLM-5.3"
    ),
    "ollama": ProviderSettings(kind=ProviderKind.OPENAI, base_url="http://127.0.0.1:11434/v1", keyless=True),
}
"""The providers that are built in. A keyless one is used only when the settings name it: it may not be running."""


class WebSettings(Section):
    """`[web]`: what the web tools of sessions may reach without asking (SPEC 3.8).

    `search_url` is the address of a search like SearXNG. It answers `?q=…&format=json` with `results` of `title`, `url`
    and `content`. Without it there is no web_search. `allow` are hosts from which pages are fetched without asking,
    such as `docs.python.org`, `*.readthedocs.io`, `localhost:3000`. Only a host that is named without a `*` may be on
    this machine or its network.
    """

    search_url: str = ""
    allow: tuple[Annotated[str, StringConstraints(pattern=r"^(\*\.)?[a-zA-Z0-9_.-]{1,253}(:\d{1,5})?$")], ...] = ()

    @field_validator("search_url", mode="after")
    @classmethod
    def _reachable(cls, value: str) -> str:
        parts = urlsplit(value)
        if value and (parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc):
            raise ValueError('is not an address; write for example "http://127.0.0.1:8888/search"')
        return value


# The gateway (SPEC 10.1)

PORT = 8477
"""The default port."""

_NAME = re.compile(r"(?=.{1,253}$)[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*")
_ORIGIN = re.compile(r"https?://[a-z0-9.:\[\]-]{1,260}")


def _name_problem(name: str) -> str:
    fault = f"{name[:80]!r} is not a host name; write it in lower case, without a port or https://"
    return "" if _NAME.fullmatch(name) else fault


def _origin_problem(origin: str) -> str:
    fault = f"{origin[:80]!r} is not an origin; write, for example, https://phone.example, without a path"
    return "" if _ORIGIN.fullmatch(origin) else fault


class GatewaySettings(Section):
    """`[gateway]`. With `enabled` the console and `clawpy run` open it too; `clawpy serve` opens it anyway.

    `host` is an address of this machine. One that others reach needs `certificate` and `certificateKey` (PEM files),
    or `tunnel = true`: your word that something in front of it encrypts. `hosts` are further names it is called by,
    `origins` the web pages that may call it, as `["https://phone.example"]`.
    """

    enabled: bool = False
    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = PORT
    certificate: str = ""
    certificate_key: str = ""
    tunnel: bool = False
    hosts: Annotated[tuple[str, ...], checked(_name_problem)] = ()
    origins: Annotated[tuple[str, ...], checked(_origin_problem)] = ()

    @field_validator("host", mode="after")
    @classmethod
    def _an_address(cls, value: str) -> str:
        if value == "localhost":
            return "127.0.0.1"
        try:
            return str(ipaddress.ip_address(value.strip("[]")))
        except ValueError as error:
            raise ValueError(
                f"{value[:80]!r} is not an address; write, for example, 127.0.0.1, or 0.0.0.0 for all"
            ) from error


# Notifications (SPEC 10.2)


class Surface(StrEnum):
    """A device or service that shows notifications (SPEC 10.2)."""

    PHONE = "phone"
    WATCH = "watch"
    GLASSES = "glasses"
    DISCORD = "discord"
    WEB = "web"
    DESKTOP = "desktop"


STORED_WITH_KEYS = "key"
"""In the place of an address: it is kept with the keys."""

DESKTOP, SPEAK = "desktop", "speak"
"""Schemes of our own: a notification of this machine's desktop, and this machine's voice."""

OPEN_SCHEMES = frozenset(
    {"ntfy", "ntfys", "json", "jsons", "dbus", "glib", "gnome", "macosx", "windows", DESKTOP, SPEAK}
)
"""Addresses of these services need no secret; those of all others have one in them."""

_SECRET_PARAMETER = re.compile(r"(?i)token|auth|pass|pwd|secret|key|^[+:-]")
"""Parameters that may carry one; the last are headers and fields."""

ADDRESS_FORMAT = (
    'an address, for example "ntfy://ntfy.sh/my-secret-topic" or "desktop://", or "key" for one stored with the keys'
)


def key_name(surface: str) -> str:
    """Under which name the keys hold the address of a surface."""
    return f"notify-{surface}"


def variable(surface: str) -> str:
    """The variable of the environment that holds it."""
    return f"CLAWPY_NOTIFY_{surface.upper()}_URL"


def address_problem(url: str) -> str:
    """Why an address may not stand in the settings, in words that never repeat it; "" when it may."""
    if url in ("", STORED_WITH_KEYS):
        return ""
    try:
        parts = urlsplit(url)
        named = parse_qsl(parts.query, keep_blank_values=True)
    except ValueError:
        return f"is not an address; expected {ADDRESS_FORMAT}"
    if not re.fullmatch(r"[a-z][a-z0-9+.-]*://[!-~]*", url):
        return f"is not an address; expected {ADDRESS_FORMAT}"
    has_secret_parameter = any(_SECRET_PARAMETER.search(name) for name, _ in named)
    if parts.scheme not in OPEN_SCHEMES or "@" in parts.netloc or has_secret_parameter:
        return 'this address may contain a secret: store it with `clawpy notify set SURFACE`, which writes "key" here'
    return ""


class SurfaceSettings(Section):
    """`[notify.SURFACE]`"""

    url: Annotated[str, checked(address_problem), Field(description=ADDRESS_FORMAT)] = ""


class NotifySettings(Section):
    """`[notify]`: what is not urgent waits `digestMinutes` for the like and then goes with it as one; 0: it does not.

    `gateway` is the address by which a phone reaches the gateway, as `https://laptop.tailnet.ts.net`: with it cards on
    ntfy have buttons.
    """

    digest_minutes: Annotated[float, Field(ge=0, le=24 * 60)] = 5
    gateway: Annotated[
        str,
        checked(url_problem, optional=True),
        AfterValidator(without_slash),
        Field(description='an address, for example "https://laptop.tailnet.ts.net"'),
    ] = ""
    phone: SurfaceSettings = SurfaceSettings()
    watch: SurfaceSettings = SurfaceSettings()
    glasses: SurfaceSettings = SurfaceSettings()
    discord: SurfaceSettings = SurfaceSettings()
    web: SurfaceSettings = SurfaceSettings()
    desktop: SurfaceSettings = SurfaceSettings()

    def of(self, surface: Surface) -> SurfaceSettings:
        """The section of one surface."""
        section: SurfaceSettings = getattr(self, surface.value)
        return section


# Retention (SPEC 4.2)

MAX_DAYS = 36_500
"""Days; for longer than this, keep forever with 0."""


def _days(minimum: int, reason: str) -> FieldInfo:
    """The days that a table accepts: 0, or at least `minimum`, for this `reason`."""

    def check(value: int | None) -> int | None:
        if value and not minimum <= value <= MAX_DAYS:
            raise ValueError(
                f"{value} is not accepted; expected 0 (keep forever) or {minimum} to {MAX_DAYS} days: {reason}"
            )
        return value

    kind: FieldInfo = Field(description=f"0 (keep forever) or days from {minimum} to {MAX_DAYS}")
    kind.metadata.append(AfterValidator(check))
    return kind


EVENT_DAYS = _days(35, "agents' work of the last 30 days is analysed")
RECORD_DAYS = _days(90, "candidates are drafted from the last 90 days")
RUN_DAYS = _days(35, "recent test failures are needed")
COST_DAYS = _days(35, "the monthly caps are computed from them")
TRIGGER_DAYS = _days(35, "the rails need their recent blocks")


class RetentionSettings(Section):
    """`[retention]`: days that rows are kept, by table; 0 is for ever. Sums by day are kept always.

    What the program still needs is kept however old it is: see `engine.retention`.
    """

    memory_events: Annotated[int, EVENT_DAYS] = 0
    learning_records: Annotated[int, RECORD_DAYS] = 180
    validation_runs: Annotated[int, RUN_DAYS] = 0
    cost_entries: Annotated[int, COST_DAYS] = 0
    crosspoll_log: Annotated[int, TRIGGER_DAYS] = 0


class WorkspaceRetention(Section):
    """`[workspaces."/path".retention]`: the same for one workspace. What is not named is as in `[retention]`."""

    memory_events: Annotated[int | None, EVENT_DAYS] = None
    learning_records: Annotated[int | None, RECORD_DAYS] = None
    validation_runs: Annotated[int | None, RUN_DAYS] = None
    cost_entries: Annotated[int | None, COST_DAYS] = None
    crosspoll_log: Annotated[int | None, TRIGGER_DAYS] = None
