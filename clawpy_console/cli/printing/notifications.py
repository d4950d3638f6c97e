"""Notifications as text."""

from __future__ import annotations

from clawpy_console.cli.printing.style import Document, Lines, bad, dim, good, wants


def notify(document: Document) -> Lines:
    """Where notifications go and what did not arrive, or how a test went."""
    if "message" in document:
        yield document["message"]
    elif "tested" in document:
        for one in document["tested"]:
            sign = good("✓") if one["delivered"] else bad("✗")
            yield f"{sign} {one['surface']:8} {one['message']}{_fix(one)}"
    else:
        for name, verb in (("retried", "tried again"), ("dismissed", "dismissed")):
            if name in document:
                yield f"{document[name]} {verb}"
        yield from map(_surface, document["surfaces"])
        if document["quiet"]:
            yield dim("quiet hours: only urgent notifications are sent until the morning")


def _fix(one: Document) -> str:
    return dim(f"  {one['fix']}") if one["fix"] else ""


def _surface(one: Document) -> str:
    works = bool(one["service"]) and not one["message"]
    sign = bad("✗") if one["undelivered"] else good("✓") if works else dim("-")
    service = f"{one['service']} ({one['source']})" if one["service"] else ""
    line = f"{sign} {one['surface']:8} {'; '.join(filter(None, [service, one['message']]))}"
    if one["undelivered"]:
        told = f"{one['undelivered']} not delivered: {one['why']}; clawpy notify retry {one['surface']}, or dismiss"
        return f"{line}  {bad(told)}"
    return f"{line}  {wants(one['why'])}" if one["why"] else line + _fix(one)
