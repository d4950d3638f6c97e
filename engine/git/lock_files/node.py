"""Compares the lock files of npm, pnpm and yarn with their manifests."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from engine.git.lock_files.pair import LockPair, Requirements, describe

_SECTIONS = ("dependencies", "devDependencies", "optionalDependencies")


def compare_npm(pair: LockPair) -> Iterator[str]:
    packages = json.loads(pair.lock).get("packages", {})
    if "" not in packages:
        return  # version 1 keeps no constraints
    sections = (*_SECTIONS, "peerDependencies")
    members = [path for path in packages if "node_modules" not in path.split("/")]
    for path, text, name in pair.member_manifests(members):
        required = _requirements(json.loads(text), sections)
        yield from pair.compare(required, _requirements(packages[path], sections), name)


def compare_pnpm(pair: LockPair) -> Iterator[str]:
    head = pair.lock.split("\npackages:")[0]
    if "\npnpmfileChecksum:" in head or "\npackageExtensionsChecksum:" in head:
        return  # a program changed what the manifests ask for
    lock = _parse_yaml(head)
    overrides = {re.split(r"[>@]", key.rpartition(">")[2].lstrip("@"))[0] for key in lock.get("overrides", {})}
    skips_optional = "\nignoredOptionalDependencies:" in head
    importers = lock.get("importers", {".": lock})
    for path, text, name in pair.member_manifests(importers):
        manifest, importer = json.loads(text), importers[path]
        if "specifiers" in importer:
            locked = _requirements(importer, ("specifiers",))
        else:
            sections = [importer.get(section, {}) for section in _SECTIONS]
            locked = {
                package: _comparable(entry["specifier"]) for section in sections for package, entry in section.items()
            }
        required = _requirements(manifest, _SECTIONS)
        ignored = {package for package in {*required, *locked} if package.lstrip("@") in overrides}
        ignored |= set(manifest.get("peerDependencies") or {}) - set(required)
        ignored |= set(manifest.get("optionalDependencies") or {}) if skips_optional else set()
        yield from pair.compare(required, locked, name, ignored)


def compare_yarn(pair: LockPair) -> Iterator[str]:
    manifest = json.loads(pair.manifest)
    overrides = {key.rpartition("/")[2].split("@")[0] for key in manifest.get("resolutions") or {}}
    if "\n__metadata:" in pair.lock:
        yield from _compare_berry(pair, overrides)
        return
    folders = pair.workspace_folders(_workspace_patterns(manifest))
    if folders is None:
        return
    locked = _yarn_1_packages(pair.lock)
    manifests = {"": manifest} | {name: json.loads(text) for _, text, name in pair.member_manifests(folders)}
    members = {member.get("name") for member in manifests.values()}
    for name, member in manifests.items():
        for package, wanted in _requirements(member, _SECTIONS).items():
            constraints = locked.get(package, set())
            # A lock entry without a constraint was made for any version.
            if wanted is None or wanted & constraints or "" in constraints:
                continue
            if package in members or package.split("/")[-1] in overrides:
                continue
            if constraints:
                yield pair.differing(package, describe(wanted), describe(constraints), name)
            else:
                yield pair.missing(package, describe(wanted), name)


def _yarn_1_packages(lock: str) -> dict[str, set[str]]:
    """The constraints of each package: the headings of the entries have them, as `"ms@^2.0.0", ms@^2.1.0:`."""
    packages: dict[str, set[str]] = {}
    for line in lock.splitlines():
        if line and line[0] not in " #":
            for descriptor in line.removesuffix(":").split(","):
                name, _, constraint = descriptor.strip().strip('"').rpartition("@")
                packages.setdefault(name, set()).add(constraint)
    return packages


def _compare_berry(pair: LockPair, overrides: set[str]) -> Iterator[str]:
    """Yarn 2 and later: an entry for each package of the workspace."""
    for block in pair.lock.split("\n\n"):
        head = re.match(r'\n?"[^"\n]*@workspace:([^",\n]+)":\n', block)
        if head is None:
            continue
        for _, text, name in pair.member_manifests([head[1]]):
            entry = next(iter(_parse_yaml(block).values()))
            required = _requirements(json.loads(text), _SECTIONS)
            locked = _requirements(entry, ("dependencies",))
            ignored = {package for package in {*required, *locked} if package.split("/")[-1] in overrides}
            yield from pair.compare(required, locked, name, ignored)


def _workspace_patterns(manifest: Mapping[str, Any]) -> list[str]:
    """The workspaces of a package.json."""
    workspaces = manifest.get("workspaces") or []
    return list(workspaces.get("packages", []) if isinstance(workspaces, dict) else workspaces)


def _requirements(manifest: Mapping[str, Any], sections: Iterable[str]) -> Requirements:
    """The requirements of a package.json. A name that two sections give different constraints keeps none: the tools
    differ in which of them wins."""
    requirements: Requirements = {}
    for section in sections:
        for name, text in (manifest.get(section) or {}).items():
            constraint = _comparable(text)
            requirements[name] = constraint if requirements.get(name, constraint) == constraint else None
    return requirements


def _comparable(text: str) -> set[str] | None:
    """A constraint as it is compared; None for a path, an address or an alias, which tools write in several ways."""
    text = " ".join(text.split()).removeprefix("npm:")
    return None if re.search(r"[:/@]", text) else {text or "*"}


_YAML_LINE = re.compile(r"""( *)(?:'((?:[^']|'')+)'|"([^"]+)"|([^\s'"#\-?][^:]*?)):(?: +(.*))?""")


def _parse_yaml(text: str) -> dict[str, Any]:
    """The mappings of a lock file in the one plain form that its tool writes; all else in it is passed over."""
    top: dict[str, Any] = {}
    levels: list[tuple[int, dict[str, Any]]] = [(-1, top)]
    for line in text.splitlines():
        if (match := _YAML_LINE.fullmatch(line)) is None:
            continue
        indent, value = len(match[1]), match[5]
        while levels[-1][0] >= indent:
            levels.pop()
        key = match[2].replace("''", "'") if match[2] else match[3] or match[4]
        if value:
            levels[-1][1][key] = _parse_scalar(value)
        else:
            inner: dict[str, Any] = {}
            levels[-1][1][key] = inner
            levels.append((indent, inner))
    return top


def _parse_scalar(text: str) -> str:
    if len(text) > 1 and text[0] == text[-1] == "'":
        return text[1:-1].replace("''", "'")
    return text.strip('"')
