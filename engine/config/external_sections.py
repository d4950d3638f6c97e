"""The sections of the settings on other programs and machines: providers, coding agents, the web, the gateway and
notifications (SPEC 3.8, 7.6, 10.1, 10.2). The sections on the engine itself are in `settings`.

Only the form of a value is checked here, not whether a provider has a key or an agent is installed. An address must
have no password or token in it, because secrets are stored with the keys (SPEC 11.1). For an address of notifications
with a token, `url = "key"` says that it is stored there, under `notify-SURFACE`.
"""

from __future__ import annotations

import ipaddress
import re
from enum import StrEnum
from typing import Annotated
from urllib.parse import parse_qsl, urlsplit

from pydantic import AfterValidator, Field, StringConstraints, ValidationInfo, field_validator

from engine.config import PATH_CHECK, Dollars, Section, find_url_problem, refuse_if, strip_slash

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
