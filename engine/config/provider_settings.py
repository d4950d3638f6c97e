"""The settings of model providers and coding agents, and the names of runners and models (SPEC 3.8, 7.6).

Only the form of a value is checked here, not whether a provider has a key or an agent is installed.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import Field, ValidationInfo, field_validator

from engine.config.section import Section, checked, url_problem

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
