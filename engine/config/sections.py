"""What the settings are made of, and the sections on other programs and machines: providers, coding agents, the web,
the gateway and notifications (SPEC 3.8, 7.6, 10.1, 10.2). The sections on the engine itself are in `settings`.

Only the form of a value is checked here, not whether a provider has a key or an agent is installed. An address must
have no password or token in it, because secrets are stored with the keys (SPEC 11.1). For an address of notifications
with a token, `url = "key"` says that it is stored there, under `notify-SURFACE`.
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

from engine.home import expand_user
from engine.model import Refusal

NAME_PATTERN = r"[a-z][a-z0-9_-]{0,39}"
"""The name of an agent, a channel, a provider …: a lower-case letter, then at most 39 of a-z, 0-9, _ and -."""

Name = Annotated[str, StringConstraints(pattern=rf"^{NAME_PATTERN}$")]
"""A name in the settings."""

Hour = Annotated[int, Field(ge=0, le=23)]
"""An hour of the day, local time."""

Dollars = Annotated[float, Field(ge=0, le=1_000_000)]
"""An amount of dollars."""

Milliseconds = Annotated[int, Field(ge=1_000, le=366 * 24 * 3_600_000)]
"""A time span from one second to a leap year."""


class Section(BaseModel):
    """A section of the settings: names in camel case, unknown keys refused, values fixed."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True, allow_inf_nan=False
    )


def refuse_if(problem_of: Callable[[str], str], *, optional: bool = False) -> AfterValidator:
    """Refuses a text, or a list of texts, in which `problem_of` finds a problem. `optional`: "" is accepted."""

    def check(value: Any) -> Any:
        for text in (value,) if isinstance(value, str) else value:
            if (text or not optional) and (problem := problem_of(text)):
                raise ValueError(problem)
        return value

    return AfterValidator(check)


def find_url_problem(url: str, *, insecure: bool = False) -> str:
    """The problem of the address of a server, in words that never repeat the address; "" for none."""
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
    """Whether a host is this machine or in a private network, judged by the name alone."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return "." not in host or host.endswith((".localhost", ".local", ".internal", ".lan", ".home.arpa"))
    return address.is_loopback or (address.is_private and not address.is_unspecified)


def is_loopback_host(host: str) -> bool:
    """Whether a host is this machine, judged by the name alone."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def strip_slash(url: str) -> str:
    """An address without a slash at its end."""
    return url.rstrip("/")


def _find_path_problem(path: str) -> str:
    """The problem of a path in words, "" for none: it may begin with `~` or `~USER`."""
    try:
        expand_user(path)
    except Refusal as refusal:
        return f"{refusal.message}; {refusal.fix}"
    return ""


PATH_CHECK = refuse_if(_find_path_problem)
"""Refuses a path in the home of a user that does not exist."""


# -- runners and models

AUTO, FLOW, MODEL, ACP_PREFIX = "auto", "flow", "model", "acp:"
"""Names of runners. `ACP_PREFIX` is followed by the name of a coding agent."""

_RUNNER = re.compile(rf"{FLOW}|{MODEL}|{ACP_PREFIX}{NAME_PATTERN}")
_MODEL_ID = re.compile(NAME_PATTERN + r":[!-~]{1,200}")
RUNNER_FORMAT = (
    'one of "auto", "flow", "model" or "acp:NAME", where NAME is a coding agent (`clawpy doctor` lists them)'
)
"""The accepted names of a runner, in words."""

MODEL_FORMAT = 'provider:model, for example "openai:gpt-6.1-terra"'
"""The accepted ids of a model, in words."""


def find_runner_problem(name: str, *, auto: bool = True) -> str:
    """The problem of the name of a runner in words, "" for none."""
    if _RUNNER.fullmatch(name) or (auto and name == AUTO):
        return ""
    accepted = RUNNER_FORMAT if auto else RUNNER_FORMAT.replace('"auto", ', "")
    return f"{name[:80]!r} is not a runner; expected {accepted}"


def find_fallback_problem(name: str) -> str:
    """The problem of a name in `fallback`, where `auto` is not accepted, in words; "" for none."""
    return find_runner_problem(name, auto=False)


def find_model_problem(name: str) -> str:
    """The problem of the id of a model in words, "" for none."""
    return "" if _MODEL_ID.fullmatch(name) else f"{name[:80]!r} is not a model; expected {MODEL_FORMAT}"


ModelId = Annotated[str, refuse_if(find_model_problem, optional=True), Field(description=MODEL_FORMAT)]
"""`provider:model`, or "" for none."""


# -- providers and coding agents

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_HOST = re.compile(r"(\*\.)?[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*(:\d{1,5})?", re.IGNORECASE)


def _find_model_name_problem(name: str) -> str:
    problem = "the name of a model must have no spaces and at most 200 characters"
    return "" if re.fullmatch(r"[!-~]{1,200}", name) else problem


def _find_host_problem(host: str) -> str:
    problem = f'{host[:80]!r} is not a host; write "api.example.com", without https:// and without a path'
    return "" if _HOST.fullmatch(host) else problem


def _find_variable_problem(name: str) -> str:
    # The value is not shown: it may be `NAME=secret`.
    return "" if _VARIABLE.fullmatch(name) else "write only the names of variables here, never their values"


class ProviderKind(StrEnum):
    """The API of a provider."""

    OPENAI = "openai"
    ANTHROPIC = "anthropic"


class TokenPrice(Section):
    """`price` of a provider: the dollars that a million tokens of prompt and of answer cost."""

    input: Dollars
    output: Dollars


class ProviderSettings(Section):
    """`[providers.NAME]`: where a model is reached. Its key is never here (SPEC 11.1): `clawpy key set NAME`.

    Every call carries the key. So `base_url` is https; plain http is accepted only for this machine and private
    networks, or with `insecure`. `keyless` is for servers that need no key. `price` replaces the listed price of each
    of its models.
    """

    kind: ProviderKind
    insecure: bool = False
    base_url: Annotated[str, Field(description='an address, for example "http://127.0.0.1:8000/v1"')]
    model: Annotated[
        str,
        refuse_if(_find_model_name_problem, optional=True),
        Field(description="the name of a model as the provider calls it, in quotes"),
    ] = ""
    keyless: bool = False
    price: TokenPrice | None = None

    @field_validator("base_url", mode="after")
    @classmethod
    def _check_address(cls, value: str, info: ValidationInfo) -> str:
        if problem := find_url_problem(value, insecure=info.data.get("insecure", False)):
            raise ValueError(problem)
        return strip_slash(value)

    @property
    def host(self) -> str:
        """The host, with the port if the address has one."""
        return urlsplit(self.base_url).netloc


class AcpSettings(Section):
    """`[acp.NAME]`: a coding agent that speaks the Agent Client Protocol.

    `command` starts it. `hosts` are the hosts that its own provider needs. `env` names the environment variables that
    the agent gets besides the basic ones.
    """

    command: Annotated[tuple[str, ...], Field(description='a list of words, for example ["claude-agent-acp"]')]
    hosts: Annotated[
        tuple[str, ...],
        refuse_if(_find_host_problem),
        Field(description='a list of hosts, for example ["api.anthropic.com"]'),
    ] = ()
    env: Annotated[
        tuple[str, ...],
        refuse_if(_find_variable_problem),
        Field(description='a list of variables, for example ["ANTHROPIC_API_KEY"]'),
    ] = ()

    @field_validator("command", mode="after")
    @classmethod
    def _check_command(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not value or not value[0].strip() or any("\0" in word for word in value):
            raise ValueError('a command begins with a program, for example ["claude-agent-acp"]')
        return value


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


# -- the web and the gateway


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
    certificate: Annotated[str, PATH_CHECK] = ""
    certificate_key: Annotated[str, PATH_CHECK] = ""
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


# -- notifications

STORED_WITH_KEYS = "key"
"""Stands in the place of an address that is stored with the keys."""

DESKTOP_SCHEME, SPEAK_SCHEME = "desktop", "speak"
"""Schemes that only this program knows: notifications on this machine's desktop, and this machine's voice."""

OPEN_SCHEMES = frozenset(
    {"ntfy", "ntfys", "json", "jsons", "dbus", "glib", "gnome", "macosx", "windows", DESKTOP_SCHEME, SPEAK_SCHEME}
)
"""Services whose addresses need no secret. The address of any other service contains one."""

_SECRET_PARAMETER = re.compile(r"(?i)token|auth|pass|pwd|secret|key|^[+:-]")
"""Names of parameters that may carry a secret. Names that begin with a sign are headers and fields."""

SERVICE_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s\x00-\x1f\x7f-\x9f]*")
"""The form of an address of any service."""

ADDRESS_FORMAT = (
    'an address, for example "ntfy://ntfy.sh/my-secret-topic" or "desktop://", or "key" for one stored with the keys'
)
"""The accepted addresses of a surface, in words."""


class Surface(StrEnum):
    """A device or service that shows notifications (SPEC 10.2)."""

    PHONE = "phone"
    WATCH = "watch"
    GLASSES = "glasses"
    DISCORD = "discord"
    WEB = "web"
    DESKTOP = "desktop"


def make_address_key_name(surface: str) -> str:
    """The name under which the address of a surface is stored with the keys."""
    return f"notify-{surface}"


def make_address_variable(surface: str) -> str:
    """The environment variable for the address of a surface. It comes before the settings."""
    return f"CLAWPY_NOTIFY_{surface.upper()}_URL"


def find_address_problem(url: str) -> str:
    """Why an address may not be in the settings file, in words that never repeat it; "" if it may."""
    if url in ("", STORED_WITH_KEYS):
        return ""
    try:
        parts = urlsplit(url)
        named = parse_qsl(parts.query, keep_blank_values=True)
    except ValueError:
        return f"is not an address; expected {ADDRESS_FORMAT}"
    if not SERVICE_ADDRESS.fullmatch(url):
        return f"is not an address; expected {ADDRESS_FORMAT}"
    has_secret_parameter = any(_SECRET_PARAMETER.search(name) for name, _ in named)
    if parts.scheme not in OPEN_SCHEMES or "@" in parts.netloc or has_secret_parameter:
        return 'this address may contain a secret: store it with `clawpy notify set SURFACE`, which writes "key" here'
    return ""


class SurfaceSettings(Section):
    """`[notify.SURFACE]`"""

    url: Annotated[str, refuse_if(find_address_problem), Field(description=ADDRESS_FORMAT)] = ""


class NotifySettings(Section):
    """`[notify]`: how notifications are sent.

    A notification that is not urgent waits `digestMinutes`, and is then sent as one with others of its sort. With 0
    nothing waits. `gateway` is the address at which a phone reaches the gateway, such as
    `https://laptop.tailnet.ts.net`. With it, cards on ntfy have buttons.
    """

    digest_minutes: Annotated[float, Field(ge=0, le=24 * 60)] = 5
    gateway: Annotated[
        str,
        refuse_if(find_url_problem, optional=True),
        AfterValidator(strip_slash),
        Field(description='an address, for example "https://laptop.tailnet.ts.net"'),
    ] = ""
    phone: SurfaceSettings = SurfaceSettings()
    watch: SurfaceSettings = SurfaceSettings()
    glasses: SurfaceSettings = SurfaceSettings()
    discord: SurfaceSettings = SurfaceSettings()
    web: SurfaceSettings = SurfaceSettings()
    desktop: SurfaceSettings = SurfaceSettings()

    def get_surface(self, surface: Surface) -> SurfaceSettings:
        """The section of one surface."""
        section: SurfaceSettings = getattr(self, surface.value)
        return section
