"""The settings of services outside the engine: model providers, coding agents and notifications (SPEC 3.8, 7.6, 10.2).

Only the form of a value is checked here, not whether a provider has a key or an agent is installed. An address of
notifications with a password or a token in it is a key (SPEC 11.1), so it is not in the settings file. `url = "key"`
says that it is stored with the keys, under `notify-SURFACE`.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated
from urllib.parse import parse_qsl, urlsplit

from pydantic import AfterValidator, Field, ValidationInfo, field_validator

from engine.config.section import Section, checked, url_problem, without_slash

AUTO, FLOW, MODEL, ACP = "auto", "flow", "model", "acp:"
"""Names of runners. `ACP` is followed by the name of a coding agent."""

_RUNNER = re.compile(rf"{FLOW}|{MODEL}|{ACP}[a-z][a-z0-9_-]{{0,39}}")
_MODEL_ID = re.compile(r"[a-z][a-z0-9_-]{0,39}:[!-~]{1,200}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_HOST = re.compile(r"(\*\.)?[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*(:\d{1,5})?", re.IGNORECASE)

RUNNERS = 'one of "auto", "flow", "model" or "acp:NAME", where NAME is a coding agent (`clawpy doctor` lists them)'
MODELS = 'provider:model, for example "openai:gpt-6.1-terra"'


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

    Every call carries the key. So `base_url` is https; plain http is accepted only for this machine and private
    networks, or with `insecure`. `keyless` is for servers that need no key.
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
    def _check_address(cls, value: str, info: ValidationInfo) -> str:
        if fault := url_problem(value, insecure=info.data.get("insecure", False)):
            raise ValueError(fault)
        return value.rstrip("/")

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
        tuple[str, ...], checked(_host_problem), Field(description='a list of hosts, for example ["api.anthropic.com"]')
    ] = ()
    env: Annotated[
        tuple[str, ...],
        checked(_variable_problem),
        Field(description='a list of variables, for example ["ANTHROPIC_API_KEY"]'),
    ] = ()

    @field_validator("command", mode="after")
    @classmethod
    def _check_command(cls, value: tuple[str, ...]) -> tuple[str, ...]:
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
    """The problem of a name in `fallback`, where `auto` is not accepted, in words; "" for none."""
    return runner_problem(name, auto=False)


def model_problem(name: str) -> str:
    """The problem of the id of a model in words, "" for none."""
    return "" if _MODEL_ID.fullmatch(name) else f"{name[:80]!r} is not a model; expected {MODELS}"


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


class Surface(StrEnum):
    """A device or service that shows notifications (SPEC 10.2)."""

    PHONE = "phone"
    WATCH = "watch"
    GLASSES = "glasses"
    DISCORD = "discord"
    WEB = "web"
    DESKTOP = "desktop"


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

ADDRESS_FORMAT = (
    'an address, for example "ntfy://ntfy.sh/my-secret-topic" or "desktop://", or "key" for one stored with the keys'
)


def address_key_name(surface: str) -> str:
    """The name under which the address of a surface is stored with the keys."""
    return f"notify-{surface}"


def address_variable(surface: str) -> str:
    """The environment variable for the address of a surface. It comes before the settings."""
    return f"CLAWPY_NOTIFY_{surface.upper()}_URL"


def address_problem(url: str) -> str:
    """Why an address may not be in the settings file, in words that never repeat it; "" if it may."""
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
    """`[notify]`: how notifications are sent.

    A notification that is not urgent waits `digestMinutes`, and is then sent as one with others of its sort. With 0
    nothing waits. `gateway` is the address at which a phone reaches the gateway, such as
    `https://laptop.tailnet.ts.net`. With it, cards on ntfy have buttons.
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
