"""What the verbs of settings, keys and checks print."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from clawpy_console.cli.printing.style import Document, Lines, bad, dim, good, paint, wants


def config(document: Document) -> Lines:
    """One setting or all."""
    if "settings" in document:
        yield from _flat("", document["settings"])
        yield dim(f"# {document['file']}")
        return
    yield from _flat(document["key"], document["value"])
    yield f"{dim(document['origin'])}; expected {document['accepted']}"


def _flat(key: str, value: Any) -> Lines:
    if isinstance(value, Mapping) and value:
        for name, each in value.items():
            yield from _flat(f"{key}.{_quoted(name)}" if key else name, each)
    elif value is None:
        yield f"# {key} is not set"
    else:
        yield f"{key} = {json.dumps(value, ensure_ascii=False)}"


def _quoted(name: str) -> str:
    return name if name.replace("-", "").replace("_", "").isalnum() else f'"{name}"'


def check(document: Document) -> Lines:
    """The content filter's word."""
    tone = {"allow": "good", "ask": "wants"}.get(document["verdict"], "wrong")
    reason = f"  {document['reason']}" if document["reason"] else ""
    rule = f" ({document['rule']})" if document["rule"] else ""
    yield paint(tone, document["verdict"]) + reason + rule


def key(document: Document) -> Lines:
    """Which keys there are, or what was done with one."""
    if "keys" in document:
        for one in document["keys"]:
            sign = good("✓") if one["usable"] else dim("-")
            yield f"{sign} {one['name']:12}  {one['source'] or one['message']}"
        yield dim(f"keyring: {document['keyring']}")
    else:
        yield document["message"]
        if document.get("next"):
            yield from document["next"].split("; ")
    if document.get("badge"):
        yield wants(f"! {document['badge']}")


def token(document: Document) -> Lines:
    yield document["token"]


HOLDS = {"held": "good", "not held": "wrong"}
"""The tone of what a sandbox holds or does not; it may not have been tried."""


def _rungs(rungs: Sequence[Document]) -> Lines:
    """What each rung of the sandbox ladder holds on this machine, a table."""
    shown = [one for one in rungs if one["works"]]
    names = "  ".join(f"{one['name'] + ('*' if one['inForce'] else ''):11}" for one in shown)
    yield f"  {'tried in each sandbox':24}  {names}".rstrip()
    for what in shown[0]["holds"]:
        line = f"  {what:24}"
        for one in shown:
            held = one["holds"][what]
            line += "  " + paint(HOLDS.get(held, "grey"), held) + " " * (11 - len(held))
        yield line.rstrip()
    yield dim("  * active")


def doctor(document: Document) -> Lines:
    """Every check, how to mend what is not well, and where things are."""
    signs = {"ok": good("✓"), "warn": wants("!"), "fail": bad("✗")}
    yield f"clawpy {document['version']}, Python {document['python']}"
    for one in document["checks"]:
        told = one["message"].replace("\n", "\n               ")
        yield f"{signs[one['state']]} {one['name']:11}  {told}"
        if one["fix"]:
            yield "               " + dim(one["fix"])
    yield from ("", *_rungs(document["rungs"]), "")
    yield from (dim(f"  {name:20} {path}") for name, path in document["paths"].items())
