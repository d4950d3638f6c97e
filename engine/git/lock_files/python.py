"""Compares the lock files of uv, Poetry and PDM with their manifests."""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from engine.git.lock_files.pair import LockPair, Requirements

_REQUIREMENT = re.compile(r"\s*([A-Za-z0-9][\w.-]*)\s*(\[[^\]]*\])?\s*\(?([^;@)]*)\)?\s*(@[^;]*)?(?:;.*)?", re.DOTALL)
_CLAUSE = re.compile(r"(==|>=|<=|!=|~=|<|>)(\d+(?:\.\d+)*)(\.\*)?")


def _normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _comparable(text: str) -> str | None:
    """A version specifier as it is compared; None for one that a tool may write differently, as pre-releases are."""
    clauses = []
    for clause in filter(None, ("".join(part.split()) for part in text.split(","))):
        if (match := _CLAUSE.fullmatch(clause)) is None:
            return None
        version = ".".join(str(int(part)) for part in match[2].split("."))
        clauses.append(f"{match[1]}{version}{match[3] or ''}")
    return ",".join(sorted(clauses, reverse=True))


def _add(requirements: Requirements, name: str, constraint: str | None) -> None:
    constraints = requirements.setdefault(name, set())
    if constraint is None or constraints is None:
        requirements[name] = None
    else:
        constraints.add(constraint)


def _add_all(entries: Iterable[Any], requirements: Requirements) -> None:
    """Add requirements as pyproject.toml writes them. Raises ValueError for one of another form."""
    for entry in entries:
        match = _REQUIREMENT.fullmatch(entry)
        if match is None:
            raise ValueError(entry)
        _add(requirements, _normalised(match[1]), None if match[4] else _comparable(match[3]))


def compare_uv(pair: LockPair) -> Iterator[str]:
    header, *blocks = re.split(r"^\[\[package\]\]\n", pair.lock, flags=re.MULTILINE)
    top = tomllib.loads(header)
    if top.get("version") != 1:
        return  # a format that is not known yet
    members = {}
    for block in blocks:
        if re.search(r"^source = \{ (editable|virtual) = ", block[:2000], re.MULTILINE):
            package = tomllib.loads(f"[[package]]\n{block}")["package"][0]
            source = package["source"]
            members[source.get("editable") or source["virtual"]] = package
    listed = {_normalised(name) for name in top.get("manifest", {}).get("members", [])}
    # A package that is no member of the workspace has a lock file of its own.
    own = [path for path, package in members.items() if path == "." or package["name"] in listed]
    for path, text, name in pair.member_manifests(own):
        yield from _compare_uv_member(pair, tomllib.loads(text), members[path], name)
    if "." not in members and "members" not in top.get("manifest", {}):
        project = tomllib.loads(pair.manifest).get("project", {})
        if "name" in project:
            yield f"pyproject.toml is for {project['name']}, but {pair.lock_name} does not have it"


def _compare_uv_member(
    pair: LockPair, manifest: dict[str, Any], package: dict[str, Any], manifest_name: str
) -> Iterator[str]:
    project, uv = manifest.get("project", {}), manifest.get("tool", {}).get("uv", {})
    name = package["name"]
    if "name" in project and _normalised(project["name"]) != name:
        yield f"{manifest_name or pair.manifest_name} is for {project['name']}, but {pair.lock_name} has {name}"
        return
    metadata = package.get("metadata", {})
    dynamic = set(project.get("dynamic", []))
    if not dynamic & {"dependencies", "optional-dependencies"}:
        required: Requirements = {}
        _add_all(project.get("dependencies", []), required)
        for entries in project.get("optional-dependencies", {}).values():
            _add_all(entries, required)
        locked = _uv_requirements(metadata.get("requires-dist", []))
        yield from pair.compare(required, locked, manifest_name, {name})
    required = {}
    for entries in manifest.get("dependency-groups", {}).values():  # a group that one includes is among them
        _add_all((entry for entry in entries if isinstance(entry, str)), required)
    _add_all(uv.get("dev-dependencies", []), required)
    locked = _uv_requirements(entry for entries in metadata.get("requires-dev", {}).values() for entry in entries)
    yield from pair.compare(required, locked, manifest_name, {name})


def _uv_requirements(entries: Iterable[Mapping[str, Any]]) -> Requirements:
    requirements: Requirements = {}
    sources = {"git", "url", "path", "directory", "editable", "virtual", "workspace"}
    for entry in entries:
        _add(requirements, entry["name"], None if sources & entry.keys() else _comparable(entry.get("specifier", "")))
    return requirements


def _digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def compare_poetry(pair: LockPair) -> Iterator[str]:
    manifest = tomllib.loads(pair.manifest)
    stored_hash = re.search(r'^content-hash = "([0-9a-f]{64})"', pair.lock, re.MULTILINE)
    writer = re.match(r"# This file is automatically @generated by Poetry ([12])\.", pair.lock)
    backend = manifest.get("build-system", {}).get("build-backend", "")
    if stored_hash is None or not _uses(manifest, "poetry", pair) or (writer is None and "poetry" not in backend):
        return
    if stored_hash[1] not in _poetry_hashes(manifest):
        yield pair.changed()


def _uses(manifest: Mapping[str, Any], tool: str, pair: LockPair) -> bool:
    """Whether the project uses `tool`, and its lock file is not left over from before a move to uv."""
    backend = manifest.get("build-system", {}).get("build-backend", "")
    return (tool in manifest.get("tool", {}) or tool in backend) and not (pair.folder / "uv.lock").exists()


def _poetry_hashes(manifest: Mapping[str, Any]) -> Iterator[str]:
    """The hashes that releases 1 and 2 of Poetry would write for this manifest."""
    project, poetry = manifest.get("project", {}), manifest.get("tool", {}).get("poetry", {})
    project_content = {
        key: project[key] for key in ("requires-python", "dependencies", "optional-dependencies") if key in project
    }
    legacy = ("dependencies", "source", "extras", "dev-dependencies")
    nothing: dict[str, Any] = {}
    for groups in (manifest.get("dependency-groups", nothing), nothing):
        for own_project in (project_content, {}):
            content: dict[str, Any] = {}
            poetry_content = {
                key: poetry.get(key)
                for key in (*legacy, "group")
                if key in poetry or (key in legacy and not own_project and not groups)
            }
            if own_project:
                content["project"] = own_project
            if groups:
                content["dependency-groups"] = groups
            yield _digest(content | {"tool": {"poetry": poetry_content}} if content else poetry_content)


def compare_pdm(pair: LockPair) -> Iterator[str]:
    manifest = tomllib.loads(pair.manifest)
    stored_hash = re.search(r'^content_hash = "sha256:([0-9a-f]{64})"', pair.lock, re.MULTILINE)
    version = re.search(r'^lock_version = "4\.[45]', pair.lock, re.MULTILINE)
    if stored_hash is None or version is None or not _uses(manifest, "pdm", pair):
        return
    if stored_hash[1] not in _pdm_hashes(manifest):
        yield pair.changed()


def _pdm_hashes(manifest: Mapping[str, Any]) -> Iterator[str]:
    """The hashes that releases 2.8 and later of PDM would write for this manifest."""
    project, pdm = manifest.get("project", {}), manifest.get("tool", {}).get("pdm", {})
    older = {key: list(entries) for key, entries in pdm.get("dev-dependencies", {}).items()}
    groups: dict[str, list[Any]] = {
        _normalised(key): list(entries) for key, entries in manifest.get("dependency-groups", {}).items()
    }
    for key, entries in older.items():
        groups.setdefault(_normalised(key), []).extend(entries)
    resolution = pdm.get("resolution", {})
    for development in (groups, older):
        for last in ({"resolution": resolution}, {"overrides": resolution.get("overrides", {})}):
            yield _digest(
                {
                    "sources": pdm.get("source", []),
                    "dependencies": project.get("dependencies", []),
                    "dev-dependencies": development,
                    "optional-dependencies": project.get("optional-dependencies", {}),
                    "requires-python": project.get("requires-python", ""),
                    **last,
                }
            )
