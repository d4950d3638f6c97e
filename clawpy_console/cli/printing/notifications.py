"""Notifications as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clawpy_console.cli.printing.style import Document, Style, clean


def notify(document: Document, options: Mapping[str, Any], style: Style) -> str:
    """Where notifications go and what did not arrive, or how a test went."""
    if "message" in document:
        return clean(document["message"])
    if "tested" in document:
        return "\n".join(_tested(one, style) for one in document["tested"])
    lines = []
    for name, verb in (("retried", "tried again"), ("dismissed", "dismissed")):
        if name in document:
            lines.append(f"{document[name]} {verb}")
    lines += [_surface(one, style) for one in document["surfaces"]]
    if document["quiet"]:
        lines.append(style.dim("quiet hours: only urgent notifications are sent until the morning"))
    return "\n".join(lines)


def _tested(one: Document, style: Style) -> str:
    sign = style.good("✓") if one["delivered"] else style.bad("✗")
    fix = style.dim(f"  {clean(one['fix'])}") if one["fix"] else ""
    return f"{sign} {one['surface']:8} {clean(one['message'])}{fix}"


def _surface(one: Document, style: Style) -> str:
    works = bool(one["service"]) and not one["message"]
    sign = style.bad("✗") if one["undelivered"] else style.good("✓") if works else style.dim("-")
    said = f"{one['service']} ({one['source']})" if one["service"] else ""
    said = "; ".join(part for part in (said, one["message"]) if part)
    line = f"{sign} {one['surface']:8} {clean(said)}"
    if one["undelivered"]:
        told = f"{one['undelivered']} not delivered: {one['why']}; clawpy notify retry {one['surface']}, or dismiss"
        return f"{line}  {style.bad(clean(told))}"
    if one["why"]:
        return f"{line}  {style.wants(clean(one['why']))}"
    return line + (style.dim(f"  {clean(one['fix'])}") if one["fix"] else "")
