"""`[gateway]`: where the API for a phone, a script or another agent listens, and whom it lets in (SPEC 10.1)."""

from __future__ import annotations

import ipaddress
import re
from typing import Annotated

from pydantic import Field, field_validator

from engine.config.agents import Section, checked

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
