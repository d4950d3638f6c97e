"""Compares the lock file of Cargo with its manifest."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

from engine.git.lock_files.pair import LockPair, describe

_CARGO_SECTIONS = frozenset(
    ("dependencies", "dev-dependencies", "dev_dependencies", "build-dependencies", "build_dependencies")
)


def compare_cargo(pair: LockPair) -> Iterator[str]:
    top = tomllib.loads(pair.manifest)
    versions: dict[str, set[str]] = {}
    own: dict[str, dict[str, Any]] = {}
    for block in re.split(r"^\[\[package\]\]\n", pair.lock, flags=re.MULTILINE)[1:]:
        head = re.match(r'name = "([^"\n]+)"\nversion = "([^"\n]+)"\n', block)
        if head is None:
            return
        versions.setdefault(head[1], set()).add(head[2])
        if "\nsource = " not in block:
            own[head[1]] = tomllib.loads(re.split(r"^\[", block, flags=re.MULTILINE)[0])
    workspace = top.get("workspace", {})
    folders = pair.workspace_folders(workspace.get("members", []))
    if folders is None or "replace" in top:
        return
    excluded = [".", *(pattern.rstrip("/") for pattern in workspace.get("exclude", []))]
    members = [folder for folder in folders if not any(fnmatchcase(folder, pattern) for pattern in excluded)]
    manifests = {"": top} if "package" in top else {}
    manifests |= {name: tomllib.loads(text) for _, text, name in pair.member_manifests(members)}
    for name, manifest in manifests.items():
        yield from _compare_cargo_package(pair, manifest, workspace, own, versions, name)


def _compare_cargo_package(
    pair: LockPair,
    manifest: Mapping[str, Any],
    workspace: Mapping[str, Any],
    own: Mapping[str, Mapping[str, Any]],
    versions: Mapping[str, set[str]],
    manifest_name: str,
) -> Iterator[str]:
    package = manifest["package"]
    name = package["name"]
    if name not in own:
        yield f"{manifest_name or pair.manifest_name} is for {name}, but {pair.lock_name} does not have it"
        return
    version = package.get("version", "0.0.0")
    if isinstance(version, dict):
        version = workspace.get("package", {}).get("version", own[name]["version"])
    if version != own[name]["version"]:
        locked_version = own[name]["version"]
        yield f"{manifest_name or pair.manifest_name} is at {version}, but {pair.lock_name} has {name} {locked_version}"
    locked = {entry.split()[0]: entry.split()[1:2] for entry in own[name].get("dependencies", [])}
    required: dict[str, str] = {}
    for table in (manifest, *manifest.get("target", {}).values()):
        for section in _CARGO_SECTIONS & table.keys():
            for key, entry in table[section].items():
                if isinstance(entry, dict) and entry.get("workspace"):
                    entry = workspace.get("dependencies", {}).get(key, {})
                details = entry if isinstance(entry, dict) else {"version": entry}
                required[details.get("package", key)] = details.get("version", "")
    for wanted, constraint in required.items():
        if wanted == name:
            continue
        if wanted not in locked:
            yield pair.missing(wanted, constraint, manifest_name)
        else:
            candidates = set(locked[wanted]) or versions.get(wanted, set())
            if candidates and not any(_cargo_allows(constraint, version) for version in candidates):
                yield pair.differing(wanted, constraint, describe(candidates), manifest_name)
    for wanted in locked:
        if wanted not in required:
            yield pair.left_over(wanted, manifest_name)


def _cargo_allows(constraint: str, version: str) -> bool:
    """Whether a version is one that the constraint allows; True for every constraint but the usual one, a caret."""
    caret = re.fullmatch(r"\s*\^?\s*(\d+)(?:\.(\d+))?(?:\.(\d+))?\s*", constraint)
    exact = re.fullmatch(r"(\d+)\.(\d+)\.(\d+)(?:\+.*)?", version)
    if caret is None or exact is None:
        return True
    lowest = [int(part) for part in caret.groups() if part is not None]
    numbers = [int(part) for part in exact.groups()]
    fixed = next((index for index, part in enumerate(lowest) if part), len(lowest) - 1) + 1
    return numbers[:fixed] == lowest[:fixed] and numbers >= lowest
