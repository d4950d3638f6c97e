"""The settings of a home (SPEC 7.6); here what their sections are made of: `Section`, and the types of their values.

`external_sections` are those on other programs and machines. `settings` are those on the engine itself, and the model
of all. `settings_file` reads it from the file and the environment, and says what a key accepts. They may import
engine.model, home, text and frozen.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints
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


AUTO = "auto"
FLOW = "flow"
MODEL = "model"
ACP_PREFIX = "acp:"
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
