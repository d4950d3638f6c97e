"""Finds lock files that do not fit their manifests, for example if a package of `package.json` is not in
`package-lock.json`.

Only the two files are read. No tool is started and no version is resolved. A lock file that its own tool calls up to
date must never be reported. So everything that cannot be compared with certainty is left out: a constraint that the
tool rewrites, a manifest that is a program, a requirement for some machines only. Some lock files do not contain the
constraints that they were made from. Of these, Poetry's is compared by names; those of PDM, Bundler and Composer are
not compared. `LOCK_FORMATS` has a function for each tool, which reads what a manifest asks for and what its lock file
has.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, islice, product
from pathlib import Path
from typing import Any, NamedTuple

from engine.files import read_plain
from engine.frozen import frozen
from engine.text import one_line

MAX_NAMED_DIFFERENCES = 5
"""Maximum number of differences of a lock file that are named. The others are counted."""

MAX_LOCK_FILE_BYTES = 32_000_000
"""Maximum size of a manifest or lock file. A larger one is not compared."""

MAX_MEMBERS = 300
"""Maximum number of packages of a workspace that are compared."""

_FORM_ERRORS = (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError, NotImplementedError)
"""The errors of parsing a file of an unexpected shape."""

Requirements = dict[str, set[str] | None]
"""The constraints of each package; None if they cannot be compared."""

_PACKAGE_BLOCK = re.compile(r"^\[\[package\]\]\n", re.MULTILINE)
"""The beginning of each package in the lock files of uv and Cargo."""


# -- comparing


@frozen
class Comparison:
    """What one manifest asks for, and what the lock file has for it."""

    manifest: str
    """The path of the manifest."""
    required: Requirements
    locked: Requirements

    def describe_differences(self, lock: str) -> Iterator[str]:
        """A sentence for each difference from the lock file with the name `lock`. A constraint of None on either side
        fits all others."""
        for name, required in self.required.items():
            constraint = " and ".join(sorted(required or ()))
            locked = self.locked.get(name)
            if name not in self.locked:
                yield f"{self.manifest} asks for {f'{name} {constraint}'.strip()}, but {lock} does not have it"
            elif required and locked and required.isdisjoint(locked):
                yield f"{self.manifest} asks for {name} {constraint}, but {lock} has {' and '.join(sorted(locked))}"
        for name in self.locked:
            if name not in self.required:
                yield f"{lock} has {name}, but {self.manifest} no longer asks for it"


@frozen
class LockMismatch:
    """One lock file that does not fit its manifest."""

    folder: str
    """"" for the top."""
    manifest: str
    lock: str
    differences: tuple[str, ...]
    """At most `MAX_NAMED_DIFFERENCES` plain sentences."""
    unnamed_count: int
    """The number of other differences."""

    @property
    def lock_path(self) -> str:
        """The lock file, relative to the top."""
        return f"{self.folder}/{self.lock}".removeprefix("/")


@frozen
class MemberManifest:
    """The manifest of one package of a workspace."""

    folder: str
    path: str
    text: str


@frozen
class LockPair:
    """The texts of a manifest and of its lock file, and their folder."""

    folder: Path
    manifest: str
    lock: str
    manifest_name: str

    def read_members(self, folders: Iterable[str]) -> Iterator[MemberManifest]:
        """The manifests of the packages in `folders`. One is left out if it does not exist, is not below the folder, is
        no plain file or is too large."""
        for folder in islice(folders, MAX_MEMBERS):
            path = self.manifest_name if folder in ("", ".") else f"{folder}/{self.manifest_name}"
            if ".." not in path and (text := read_file_below(self.folder, path)) is not None:
                yield MemberManifest(folder, path, text)


class LockFormat(NamedTuple):
    """The names of the two files of a tool, and the function that compares them."""

    manifest: str
    lock: str
    compare: Callable[[LockPair], Iterator[Comparison]]


def find_mismatches(root: Path, folders: Iterable[str] = ("",)) -> tuple[LockMismatch, ...]:
    """The lock files in `folders` (relative to `root`, "" for itself) that do not fit their manifests.

    Files that do not exist, cannot be read, are outside of `root`, or have an unknown form are left out, so it never
    raises. It takes some ten milliseconds for a lock file of a megabyte.
    """
    pairs = product(dict.fromkeys(folders), LOCK_FORMATS)
    mismatches = (_find_mismatch(root, folder, lock_format) for folder, lock_format in pairs)
    return tuple(mismatch for mismatch in mismatches if mismatch is not None)


def _find_mismatch(root: Path, name: str, lock_format: LockFormat) -> LockMismatch | None:
    """The mismatch of one format in the folder `name`; None if its files fit, or cannot be compared."""
    folder = root / name
    if not (folder / lock_format.lock).is_file() or not folder.resolve().is_relative_to(root.resolve()):
        return None
    manifest, lock = read_file_below(folder, lock_format.manifest), read_file_below(folder, lock_format.lock)
    if manifest is None or lock is None:
        return None
    try:
        comparisons = lock_format.compare(LockPair(folder, manifest, lock, lock_format.manifest))
        sentences = chain.from_iterable(comparison.describe_differences(lock_format.lock) for comparison in comparisons)
        differences = list(dict.fromkeys(sentences))
    except _FORM_ERRORS:
        return None  # half-written, or of a form that is not known yet
    if not differences:
        return None
    shown_differences = tuple(map(one_line, differences[:MAX_NAMED_DIFFERENCES]))
    return LockMismatch(
        name, lock_format.manifest, lock_format.lock, shown_differences, len(differences) - len(shown_differences)
    )


def read_file_below(folder: Path, name: str) -> str | None:
    """The text of a file below the folder; None if it cannot be read, or is elsewhere because of `..` or a link."""
    try:
        file = (folder / name).resolve(strict=True)
        if not file.is_relative_to(folder.resolve()):
            return None
        return read_plain(file, MAX_LOCK_FILE_BYTES, follow=False).decode()
    except (OSError, ValueError, RuntimeError):  # a loop of links raises RuntimeError before Python 3.13
        return None


def _gather_constraints(entries: Iterable[tuple[str, str | None]]) -> Requirements:
    """The constraints of each name. A name may have several entries."""
    gathered: dict[str, set[str | None]] = {}
    for name, constraint in entries:
        gathered.setdefault(name, set()).add(constraint)
    return {name: None if None in texts else {*filter(None, texts)} for name, texts in gathered.items()}


def _select_required(locked: Mapping[str, set[str] | None], required: Requirements) -> Requirements:
    """The part of `locked` that the manifest asks for. The lock file also contains the dependencies of these packages,
    and does not mark them."""
    return {name: locked[name] for name in required if name in locked}


# -- Node

_SECTIONS = ("dependencies", "devDependencies", "optionalDependencies")
"""The sections of a package.json whose packages are always installed."""


def _read_node_requirements(manifest: Mapping[str, Any], *sections: str) -> Requirements:
    """The requirements in these sections of a package.json. If one is a path, an address or an alias, only its name is
    compared, because tools write these in several ways."""
    entries = [item for section in sections for item in (manifest.get(section) or {}).items()]
    normalised = [(name, " ".join(constraint.split()).removeprefix("npm:") or "*") for name, constraint in entries]
    return _gather_constraints(
        (name, None if re.search(r"[:/@]", constraint) else constraint) for name, constraint in normalised
    )


def _compare_npm(pair: LockPair) -> Iterator[Comparison]:
    packages = json.loads(pair.lock).get("packages", {})  # version 1 has none, and keeps no constraints
    sections = (*_SECTIONS, "peerDependencies")
    for member in pair.read_members(path for path in packages if "node_modules" not in path.split("/")):
        required = _read_node_requirements(json.loads(member.text), *sections)
        yield Comparison(member.path, required, _read_node_requirements(packages[member.folder], *sections))


def _parse_yaml(text: str) -> dict[str, Any]:
    import yaml

    try:
        document = yaml.load(text, Loader=getattr(yaml, "CBaseLoader", yaml.BaseLoader))  # every value is text
    except yaml.YAMLError as error:
        raise ValueError("no YAML") from error
    return document if isinstance(document, dict) else {}


def _compare_pnpm(pair: LockPair) -> Iterator[Comparison]:
    lock = _parse_yaml(pair.lock.split("\npackages:")[0])
    if {"overrides", "pnpmfileChecksum", "packageExtensionsChecksum", "ignoredOptionalDependencies"} & lock.keys():
        return  # what the manifests ask for was changed
    importers = lock.get("importers", {".": lock})
    for member in pair.read_members(importers):
        manifest = json.loads(member.text)
        sections = [importers[member.folder].get(section) or {} for section in _SECTIONS]
        specifiers = {name: entry["specifier"] for section in sections for name, entry in section.items()}
        required = _read_node_requirements(manifest, *_SECTIONS)
        locked = _read_node_requirements({"specifiers": specifiers}, "specifiers")
        peers = manifest.get("peerDependencies") or {}  # pnpm installs those, too
        asked_for = {name: texts for name, texts in locked.items() if name in required or name not in peers}
        yield Comparison(member.path, required, asked_for)


def _compare_yarn(pair: LockPair) -> Iterator[Comparison]:
    manifest = json.loads(pair.manifest)
    if "resolutions" in manifest:
        return  # they change what is asked for
    if "\n__metadata:" in pair.lock:
        yield from _compare_yarn_2(pair)
    elif "workspaces" not in manifest:  # the lock file of yarn 1 says nothing of the packages of a workspace
        required = _read_node_requirements(manifest, *_SECTIONS)
        # The heading of each entry is as `"ms@^2.0.0", ms@^2.1.0:`.
        headings = [line.rstrip(":").split(",") for line in pair.lock.splitlines() if line and line[0] not in " #"]
        parts = [part.strip().strip('"').rpartition("@") for heading in headings for part in heading]
        locked = _gather_constraints((name, constraint or "*") for name, _, constraint in parts)
        yield Comparison(pair.manifest_name, required, _select_required(locked, required))


def _compare_yarn_2(pair: LockPair) -> Iterator[Comparison]:
    """Read the entry of each package of the workspace."""
    for block in pair.lock.split("\n\n"):
        if head := re.match(r'\n?"[^"\n]*@workspace:([^",\n]+)":\n', block):
            for member in pair.read_members([head[1]]):
                entry = next(iter(_parse_yaml(block).values()))
                required = _read_node_requirements(json.loads(member.text), *_SECTIONS)
                yield Comparison(member.path, required, _read_node_requirements(entry, "dependencies"))


# -- Python

_REQUIREMENT = re.compile(r"\s*([A-Za-z0-9][\w.-]*)\s*(?:\[[^\]]*\])?\s*\(?([^;@)]*)\)?\s*(@[^;]*)?(;.*)?", re.DOTALL)
"""A requirement of Python: its name, its version specifier, its address, its environment marker."""

_CLAUSE = re.compile(r"(==|>=|<=|!=|~=|<|>)(\d+(?:\.\d+)*)(\.\*)?")
"""One clause of a version specifier: operator, version, ".*"."""

_PLAIN_ENTRY = {"name", "specifier", "marker", "extra", "extras"}
"""The keys of a requirement that comes from the registry."""


def _normalise_name(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _normalise_specifier(text: str) -> str | None:
    """A version specifier in a form that can be compared. None if a tool may write it in another way, as with
    pre-releases."""
    clauses = []
    for clause in filter(None, ("".join(part.split()) for part in text.split(","))):
        if (match := _CLAUSE.fullmatch(clause)) is None:
            return None
        clauses.append(match[1] + ".".join(str(int(part)) for part in match[2].split(".")) + (match[3] or ""))
    return ",".join(sorted(clauses, reverse=True)) or "any version"


def _parse_python_requirements(entries: Iterable[Any], own: str, *, markers: bool = True) -> Requirements:
    """The requirements of a pyproject.toml, without the project itself. If `markers` is False, requirements for some
    machines only are left out, too. Raises ValueError for a requirement of an unknown form."""
    constraints = []
    for entry in (entry for entry in entries if isinstance(entry, str)):  # others name a group of dependencies
        if (match := _REQUIREMENT.fullmatch(entry)) is None:
            raise ValueError(entry)
        if (markers or not match[4]) and _normalise_name(match[1]) != own:
            constraints.append((_normalise_name(match[1]), None if match[3] else _normalise_specifier(match[2])))
    return _gather_constraints(constraints)


def _compare_uv(pair: LockPair) -> Iterator[Comparison]:
    header, *blocks = _PACKAGE_BLOCK.split(pair.lock)
    top = tomllib.loads(header)
    if top["version"] != 1:
        return  # a format that is not known yet
    members = {".", *map(_normalise_name, top.get("manifest", {}).get("members", []))}
    for block in blocks:
        source = re.search(r'^source = \{ (?:editable|virtual) = "([^"\n]+)"', block[:2000], re.MULTILINE)
        if source is None:
            continue  # no package of the workspace
        package = tomllib.loads(f"[[package]]\n{block}")["package"][0]
        if {source[1], package["name"]}.isdisjoint(members):
            continue  # no member of the workspace: it has a lock file of its own
        for member in pair.read_members([source[1]]):
            manifest = tomllib.loads(member.text)
            if not {"dependencies", "optional-dependencies"} & {*manifest.get("project", {}).get("dynamic", ())}:
                yield _compare_uv_member(member.path, manifest, package)


def _compare_uv_member(path: str, manifest: Mapping[str, Any], package: Mapping[str, Any]) -> Comparison:
    """Compare a manifest with the entry of its package in the lock file."""
    project, own, metadata = manifest.get("project", {}), package["name"], package.get("metadata", {})
    requirements = chain(
        project.get("dependencies", []),
        *project.get("optional-dependencies", {}).values(),
        *manifest.get("dependency-groups", {}).values(),
        manifest.get("tool", {}).get("uv", {}).get("dev-dependencies", []),
    )
    entries = chain(metadata.get("requires-dist", []), *metadata.get("requires-dev", {}).values())
    locked = _gather_constraints(
        (entry["name"], _normalise_specifier(entry.get("specifier", "")) if entry.keys() <= _PLAIN_ENTRY else None)
        for entry in entries
        if entry["name"] != own
    )
    project_name = _normalise_name(project.get("name", own))
    return Comparison(
        path, {**_parse_python_requirements(requirements, project_name), project_name: None}, {**locked, own: None}
    )


def _compare_poetry(pair: LockPair) -> Iterator[Comparison]:
    """Compare only names, because a lock file of Poetry contains no constraints. Requirements for some machines only
    are left out."""
    manifest = tomllib.loads(pair.manifest)
    project, table = manifest.get("project", {}), manifest.get("tool", {}).get("poetry", {})
    backend = manifest.get("build-system", {}).get("build-backend", "")
    if not (table or "poetry" in backend) or (pair.folder / "uv.lock").exists():
        return  # the project has moved to another tool
    required = _parse_python_requirements(
        project.get("dependencies", []), _normalise_name(project.get("name", "")), markers=False
    )
    poetry = [(name, entry) for name, entry in table.get("dependencies", {}).items() if name != "python"]
    required = dict.fromkeys([*required, *(_normalise_name(name) for name, entry in poetry if isinstance(entry, str))])
    names = re.findall(r'^name = "(.+)"$', pair.lock, re.MULTILINE)
    locked = _select_required(dict.fromkeys(map(_normalise_name, names)), required)
    yield Comparison(pair.manifest_name, required, locked)


# -- Rust and Go

_CARGO_SECTION = re.compile(r"(?:dev[-_]|build[-_])?dependencies")
"""The name of a section of Cargo.toml with dependencies."""


def _compare_cargo(pair: LockPair) -> Iterator[Comparison]:
    top = tomllib.loads(pair.manifest)
    if "replace" in top:
        return
    workspace = top.get("workspace", {})
    own_blocks = [block for block in _PACKAGE_BLOCK.split(pair.lock)[1:] if "\nsource = " not in block]
    tables = [tomllib.loads(re.split(r"^\[", block, flags=re.MULTILINE)[0]) for block in own_blocks]
    locked_packages = {table["name"]: table for table in tables}
    patterns = [pattern for pattern in workspace.get("members", []) if "**" not in pattern and ".." not in pattern]
    folders = [folder for pattern in patterns for folder in sorted(pair.folder.glob(pattern))]
    for member in pair.read_members(["", *(folder.relative_to(pair.folder).as_posix() for folder in folders)]):
        manifest = tomllib.loads(member.text)
        package = manifest.get("package", {"name": ""})
        own, locked = package["name"], locked_packages.get(package["name"])
        if locked is None:
            continue  # no package, or one that is excluded
        version = package.get("version", "0.0.0")
        if isinstance(version, dict):  # that of the workspace
            version = workspace.get("package", {}).get("version", locked["version"])
        required: Requirements = dict.fromkeys([own, *_read_cargo_dependencies(manifest, workspace)])
        required[own] = {version}
        dependencies = [entry.split()[0] for entry in locked.get("dependencies", [])]
        yield Comparison(member.path, required, {**dict.fromkeys(dependencies), own: {locked["version"]}})


def _read_cargo_dependencies(manifest: Mapping[str, Any], workspace: Mapping[str, Any]) -> Iterator[str]:
    """The names of the packages that a manifest asks for, on any machine. It may call a package by another name."""
    for table in (manifest, *manifest.get("target", {}).values()):
        for section in filter(_CARGO_SECTION.fullmatch, table):
            for name, entry in table[section].items():
                is_inherited = isinstance(entry, dict) and entry.get("workspace")
                details = workspace["dependencies"][name] if is_inherited else entry
                yield details.get("package", name) if isinstance(details, dict) else name


def _compare_go(pair: LockPair) -> Iterator[Comparison]:
    if (pair.folder / "vendor").exists() or any((folder / "go.work").exists() for folder in pair.folder.parents):
        return  # go reads another file
    manifest = re.sub(r"//[^\n]*", "", pair.manifest)
    replaced = {line.split()[0] for line in _find_go_lines(manifest, "replace")}
    lines = [line.split() for line in _find_go_lines(manifest, "require")]
    required = _gather_constraints((line[0], line[1]) for line in lines if line[0] not in replaced)
    sums = [line.split()[:2] for line in pair.lock.splitlines() if line.strip()]
    locked = _gather_constraints((module, version.removesuffix("/go.mod")) for module, version in sums)
    yield Comparison(pair.manifest_name, required, _select_required(locked, required))


def _find_go_lines(text: str, word: str) -> Iterator[str]:
    """The text after the directive `word`, on its line or in its block."""
    for match in re.finditer(rf"^\s*{word}\s*(?:\(([^)]*)\)|([^\n(]+))", text, re.MULTILINE):
        yield from filter(str.strip, (match[1] if match[1] is not None else match[2]).splitlines())


LOCK_FORMATS = (
    LockFormat("package.json", "package-lock.json", _compare_npm),
    LockFormat("package.json", "pnpm-lock.yaml", _compare_pnpm),
    LockFormat("package.json", "yarn.lock", _compare_yarn),
    LockFormat("pyproject.toml", "uv.lock", _compare_uv),
    LockFormat("pyproject.toml", "poetry.lock", _compare_poetry),
    LockFormat("Cargo.toml", "Cargo.lock", _compare_cargo),
    LockFormat("go.mod", "go.sum", _compare_go),
)
