"""What the sections of the settings share: their base class, types of values, and checks of names and addresses.

The checks look only at the form of a value. An address must have no password or token in it, because secrets are stored
with the keys (SPEC 11.1).
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints
from pydantic.alias_generators import to_camel

Name = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_-]{0,39}$")]
"""A name in the settings: a lower-case letter, then at most 39 of a-z, 0-9, _ and -."""

Hour = Annotated[int, Field(ge=0, le=23)]
"""An hour of the day, local time."""

Dollars = Annotated[float, Field(ge=0, le=1_000_000)]

Milliseconds = Annotated[int, Field(ge=1_000, le=366 * 24 * 3_600_000)]
"""A time span from one second to a leap year."""


class Section(BaseModel):
    """A section of the settings: names in camel case, unknown keys refused, values fixed."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True, allow_inf_nan=False
    )


def checked(problem_of: Callable[[str], str], *, optional: bool = False) -> AfterValidator:
    """Refuses a text, or a list of texts, in which `problem_of` finds a problem. `optional`: "" is accepted."""

    def check(value: Any) -> Any:
        for text in (value,) if isinstance(value, str) else value:
            if (text or not optional) and (problem := problem_of(text)):
                raise ValueError(problem)
        return value

    return AfterValidator(check)


def url_problem(url: str, *, insecure: bool = False) -> str:
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


def without_slash(url: str) -> str:
    """An address without a slash at its end."""
    return url.rstrip("/")
