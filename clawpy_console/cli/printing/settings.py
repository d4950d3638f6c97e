"""What the verbs of settings, keys and checks print."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from clawpy_console.cli.printing.style import Document, Style, clean


def config(document: Document, options: Mapping[str, Any], style: Style) -> str:
    """One setting or all."""
    if "settings" in document:
        return "\n".join([*_flat("", document["settings"]), style.dim(f"# {clean(document['file'])}")])
    value = "\n".join(_flat(document["key"], document["value"]))
    accepted = "" if options.get("action") == "set" else f"; accepted is {document['accepted']}"
    return f"{value}\n{style.dim(clean(document['origin']) + accepted)}"


def _flat(key: str, value: Any) -> list[str]:
    if isinstance(value, Mapping) and value:
        return [line for name, each in value.items() for line in _flat(f"{key}.{_quoted(name)}" if key else name, each)]
    if value is None:
        return [f"# {clean(key)} is not set"]
    shown = {True: "true", False: "false"}[value] if isinstance(value, bool) else repr(value).replace("'", '"')
    return [f"{clean(key)} = {clean(shown)}"]


def _quoted(name: str) -> str:
    return name if name.replace("-", "").replace("_", "").isalnum() else f'"{name}"'


def check(document: Document, options: Mapping[str, Any], style: Style) -> str:
    """The content filter's word."""
    paint = {"allow": style.good, "ask": style.wants}.get(document["verdict"], style.bad)
    reason = f"  {clean(document['reason'])}" if document["reason"] else ""
    return paint(document["verdict"]) + reason + (f" ({clean(document['rule'])})" if document["rule"] else "")


def key(document: Document, options: Mapping[str, Any], style: Style) -> str:
    """Which keys there are, or what was done with one."""
    if "keys" not in document:
        lines = [clean(document["message"])]
        if document.get("next"):
            lines += clean(document["next"]).split("; ")
    else:
        lines = []
        for one in document["keys"]:
            sign = style.good("✓") if one["usable"] else style.dim("-")
            lines.append(f"{sign} {clean(one['name']):12}  {clean(one['source'] or one['message'])}")
        lines.append(style.dim(f"keyring: {clean(document['keyring'])}"))
    if document.get("badge"):
        lines.append(style.wants(f"! {clean(document['badge'])}"))
    return "\n".join(lines)


def _rungs(rungs: Sequence[Document], style: Style) -> list[str]:
    """What each rung of the sandbox ladder holds on this machine, a table."""
    shown = [one for one in rungs if one["works"]]
    tried = list(shown[0]["holds"])
    signs = {"held": style.good, "not held": style.bad}
    names = "  ".join(f"{one['name'] + ('*' if one['inForce'] else ''):11}" for one in shown)
    lines = [f"  {'tried in each sandbox':24}  {names}".rstrip()]
    for what in tried:
        cells = [signs.get(one["holds"][what], style.dim)(f"{one['holds'][what]:11}") for one in shown]
        lines.append(f"  {what:24}  {'  '.join(cells)}".rstrip())
    return [*lines, style.dim("  * active")]


def doctor(document: Document, options: Mapping[str, Any], style: Style) -> str:
    """Every check, how to mend what is not well, and where things are."""
    signs = {"ok": style.good("✓"), "warn": style.wants("!"), "fail": style.bad("✗")}
    lines = [f"clawpy {document['version']}, Python {document['python']}"]
    for one in document["checks"]:
        told = clean(one["message"]).replace("\n", "\n               ")
        lines.append(f"{signs[one['state']]} {one['name']:11}  {told}")
        if one["fix"]:
            lines.append("               " + style.dim(clean(one["fix"])))
    lines += ["", *_rungs(document["rungs"], style)]
    lines += ["", *(style.dim(f"  {name:20} {clean(path)}") for name, path in document["paths"].items())]
    return "\n".join(lines)
