"""Finds lock files that do not fit their manifests, for example if a package of `package.json` is not in
`package-lock.json`.

Only the two files are read. No tool is started and no version is resolved. A lock file that its own tool calls up to
date must never be reported. So everything that cannot be compared with certainty is left out: a constraint that the
tool rewrites, a manifest that is a program, a requirement for some machines only. Some lock files do not contain the
constraints that they were made from. Of these, Poetry's is compared by names; those of PDM, Bundler and Composer are
not compared. `FORMATS` has a function for each tool, which reads what a manifest asks for and what the lock file has.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final, NamedTuple

from engine.files import read_plain
from engine.frozen import frozen
from engine.model import sanitise

MAX_NAMED: Final = 5
"""Maximum number of differences of a lock file that are named. The others are counted."""
MAX_BYTES: Final = 32_000_000
"""Maximum size of a manifest or lock file. A larger one is not compared."""
MAX_MEMBERS: Final = 300
"""Maximum number of packages of a workspace that are compared."""

_UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError, NotImplementedError)
"""The errors of parsing a file of an unexpected shape."""

Requirements = dict[str, set[str] | None]
"""The constraints of each package; None if they cannot be compared."""

Comparison = tuple[str, Requirements, Requirements]
"""The path of a manifest, what it asks for, and what the lock file has for it."""


@frozen
class LockMismatch:
    """One lock file that does not fit its manifest."""

    folder: str
    """"" for the top."""
    manifest: str
    lock: str
    differences: tuple[str, ...]
    """At most `MAX_NAMED` plain sentences."""
    more: int = 0
    """The number of other differences."""

    @property
    def lock_path(self) -> str:
        """The lock file, relative to the top."""
        return f"{self.folder}/{self.lock}".removeprefix("/")


@frozen
class LockPair:
    """The texts of a manifest and of its lock file, and their folder."""

    folder: Path
    manifest: str
    lock: str
    manifest_name: str

    def members(self, folders: Iterable[str]) -> Iterator[tuple[str, str, str]]:
        """(folder, path, text) of the manifests of a workspace's packages. A manifest is left out if it does not exist,
        is not below the folder, is no plain file or is too large."""
        for folder in islice(folders, MAX_MEMBERS):
            name = self.manifest_name if folder in ("", ".") else f"{folder}/{self.manifest_name}"
            if ".." not in name and (text := read_text(self.folder, name)) is not None:
                yield folder, name, text


def find_mismatches(root: Path, folders: Iterable[str] = ("",)) -> tuple[LockMismatch, ...]:
    """The lock files in `folders` (relative to `root`, "" for itself) that do not fit their manifests.

    Files that do not exist, cannot be read, are outside of `root`, or have an unknown form are left out, so it never
    raises. It takes some ten milliseconds for a lock file of a megabyte.
    """
    top = root.resolve()
    mismatches = []
    for name in dict.fromkeys(folders):
        folder = root / name if name else root
        for manifest, lock, compare in FORMATS:
            if not (folder / lock).is_file() or not folder.resolve().is_relative_to(top):
                continue
            manifest_text, lock_text = read_text(folder, manifest), read_text(folder, lock)
            if manifest_text is None or lock_text is None:
                continue
            try:
                pair = LockPair(folder, manifest_text, lock_text, manifest)
                differences = list(dict.fromkeys(_describe_differences(compare(pair), lock)))
            except _UNREADABLE:
                continue  # half-written, or of a form that is not known yet
            if differences:
                shown = tuple(" ".join(sanitise(sentence).split()) for sentence in differences[:MAX_NAMED])
                mismatches.append(LockMismatch(name, manifest, lock, shown, len(differences) - len(shown)))
    return tuple(mismatches)


def read_text(folder: Path, name: str) -> str | None:
    """The text of a file below the folder; None if it cannot be read, or is elsewhere because of `..` or a link."""
    try:
        file = (folder / name).resolve(strict=True)
        return read_plain(file, MAX_BYTES, follow=False).decode() if file.is_relative_to(folder.resolve()) else None
    except (OSError, ValueError, RuntimeError):  # a loop of links raises RuntimeError before Python 3.13
        return None


def _describe_differences(comparisons: Iterable[Comparison], lock: str) -> Iterator[str]:
    """A sentence for each difference. A constraint of None on either side fits all others."""
    for manifest, required, locked in comparisons:
        for name, wanted in required.items():
            constraint = " and ".join(sorted(wanted or ()))
            if name not in locked:
                yield f"{manifest} asks for {f'{name} {constraint}'.strip()}, but {lock} does not have it"
            elif wanted and (present := locked[name]) and wanted.isdisjoint(present):
                yield f"{manifest} asks for {name} {constraint}, but {lock} has {' and '.join(sorted(present))}"
        for name in locked:
            if name not in required:
                yield f"{lock} has {name}, but {manifest} no longer asks for it"


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


# -- npm, pnpm, yarn


_SECTIONS = ("dependencies", "devDependencies", "optionalDependencies")


def _node_requirements(manifest: Mapping[str, Any], *sections: str) -> Requirements:
    """The requirements in these sections of a package.json. If one is a path, an address or an alias, only its name is
    compared, because tools write these in several ways."""
    entries = [item for section in sections for item in (manifest.get(section) or {}).items()]
    plain = [(name, " ".join(text.split()).removeprefix("npm:") or "*") for name, text in entries]
    return _gather_constraints((name, None if re.search(r"[:/@]", text) else text) for name, text in plain)


def _compare_npm(pair: LockPair) -> Iterator[Comparison]:
    packages = json.loads(pair.lock).get("packages", {})  # version 1 has none, and keeps no constraints
    for path, name, text in pair.members(path for path in packages if "node_modules" not in path.split("/")):
        sections = (*_SECTIONS, "peerDependencies")
        yield name, _node_requirements(json.loads(text), *sections), _node_requirements(packages[path], *sections)


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
    for path, name, text in pair.members(importers):
        manifest = json.loads(text)
        sections = [importers[path].get(section) or {} for section in _SECTIONS]
        specifiers = {key: entry["specifier"] for section in sections for key, entry in section.items()}
        required, locked = (
            _node_requirements(manifest, *_SECTIONS),
            _node_requirements({"specifiers": specifiers}, "specifiers"),
        )
        peers = manifest.get("peerDependencies") or {}  # pnpm installs those, too
        yield name, required, {key: value for key, value in locked.items() if key in required or key not in peers}


def _compare_yarn(pair: LockPair) -> Iterator[Comparison]:
    manifest = json.loads(pair.manifest)
    if "resolutions" in manifest:
        return  # they change what is asked for
    if "\n__metadata:" not in pair.lock:
        if "workspaces" in manifest:
            return  # the lock file says nothing of the packages of the workspace
        # a heading for each entry, as `"ms@^2.0.0", ms@^2.1.0:`
        headings = [line.rstrip(":").split(",") for line in pair.lock.splitlines() if line and line[0] not in " #"]
        parts = [heading.strip().strip('"').rpartition("@") for entry in headings for heading in entry]
        required = _node_requirements(manifest, *_SECTIONS)
        yield (
            pair.manifest_name,
            required,
            _select_required(_gather_constraints((name, text or "*") for name, _, text in parts), required),
        )
        return
    for block in pair.lock.split("\n\n"):
        if head := re.match(r'\n?"[^"\n]*@workspace:([^",\n]+)":\n', block):
            for _, name, text in pair.members([head[1]]):
                entry = next(iter(_parse_yaml(block).values()))
                yield name, _node_requirements(json.loads(text), *_SECTIONS), _node_requirements(entry, "dependencies")


# -- uv, Poetry


_REQUIREMENT = re.compile(r"\s*([A-Za-z0-9][\w.-]*)\s*(?:\[[^\]]*\])?\s*\(?([^;@)]*)\)?\s*(@[^;]*)?(;.*)?", re.DOTALL)
_CLAUSE = re.compile(r"(==|>=|<=|!=|~=|<|>)(\d+(?:\.\d+)*)(\.\*)?")


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


def _python_requirements(entries: Iterable[Any], own: str, *, markers: bool = True) -> Requirements:
    """The requirements of a pyproject.toml, without the project itself. If `markers` is False, requirements for some
    machines only are left out, too. Raises ValueError for a requirement of an unknown form."""
    constraints = []
    for entry in (entry for entry in entries if isinstance(entry, str)):  # others name a group of dependencies
        if (match := _REQUIREMENT.fullmatch(entry)) is None:
            raise ValueError(entry)
        if (markers or not match[4]) and _normalise_name(match[1]) != own:
            constraints.append((_normalise_name(match[1]), None if match[3] else _normalise_specifier(match[2])))
    return _gather_constraints(constraints)


_PLAIN_ENTRY = {"name", "specifier", "marker", "extra", "extras"}
"""The keys of a requirement that comes from the registry."""


def _compare_uv(pair: LockPair) -> Iterator[Comparison]:
    header, *blocks = re.split(r"^\[\[package\]\]\n", pair.lock, flags=re.MULTILINE)
    top = tomllib.loads(header)
    listed = {".", *map(_normalise_name, top.get("manifest", {}).get("members", []))}
    for block in blocks:
        source = re.search(r'^source = \{ (?:editable|virtual) = "([^"\n]+)"', block[:2000], re.MULTILINE)
        if source is None or top["version"] != 1:
            continue  # not ours, or a format that is not known yet
        package = tomllib.loads(f"[[package]]\n{block}")["package"][0]
        own, metadata = package["name"], package.get("metadata", {})
        if {source[1], own}.isdisjoint(listed):
            continue  # no member of the workspace: it has a lock file of its own
        for _, name, text in pair.members([source[1]]):
            manifest = tomllib.loads(text)
            project = manifest.get("project", {})
            if {"dependencies", "optional-dependencies"} & {*project.get("dynamic", ())}:
                continue
            lists = [
                project.get("dependencies", []),
                *project.get("optional-dependencies", {}).values(),
                *manifest.get("dependency-groups", {}).values(),
                manifest.get("tool", {}).get("uv", {}).get("dev-dependencies", []),
            ]
            entries = [metadata.get("requires-dist", []), *metadata.get("requires-dev", {}).values()]
            locked = _gather_constraints(
                (
                    entry["name"],
                    _normalise_specifier(entry.get("specifier", "")) if entry.keys() <= _PLAIN_ENTRY else None,
                )
                for entry in chain(*entries)
                if entry["name"] != own
            )
            named = _normalise_name(project.get("name", own))
            yield name, {**_python_requirements(chain(*lists), named), named: None}, {**locked, own: None}


def _compare_poetry(pair: LockPair) -> Iterator[Comparison]:
    """Compare only names, because a lock file of Poetry contains no constraints. Requirements for some machines only
    are left out."""
    manifest = tomllib.loads(pair.manifest)
    project, table = manifest.get("project", {}), manifest.get("tool", {}).get("poetry", {})
    backend = manifest.get("build-system", {}).get("build-backend", "")
    if not (table or "poetry" in backend) or (pair.folder / "uv.lock").exists():
        return  # the project has moved to another tool
    required = _python_requirements(
        project.get("dependencies", []), _normalise_name(project.get("name", "")), markers=False
    )
    poetry = [(name, entry) for name, entry in table.get("dependencies", {}).items() if name != "python"]
    required = dict.fromkeys([*required, *(_normalise_name(name) for name, entry in poetry if isinstance(entry, str))])
    names = re.findall(r'^name = "(.+)"$', pair.lock, re.MULTILINE)
    yield pair.manifest_name, required, _select_required(dict.fromkeys(map(_normalise_name, names)), required)


# -- Cargo, Go


_CARGO_SECTION = re.compile(r"(?:dev[-_]|build[-_])?dependencies")


def _compare_cargo(pair: LockPair) -> Iterator[Comparison]:
    own: dict[str, dict[str, Any]] = {}
    for block in re.split(r"^\[\[package\]\]\n", pair.lock, flags=re.MULTILINE)[1:]:
        if "\nsource = " not in block:
            package = tomllib.loads(re.split(r"^\[", block, flags=re.MULTILINE)[0])
            own[package["name"]] = package
    top = tomllib.loads(pair.manifest)
    workspace = top.get("workspace", {})
    if "replace" in top:
        return
    patterns = [pattern for pattern in workspace.get("members", []) if "**" not in pattern and ".." not in pattern]
    folders = [folder for pattern in patterns for folder in sorted(pair.folder.glob(pattern))]
    for _, name, text in pair.members(["", *(folder.relative_to(pair.folder).as_posix() for folder in folders)]):
        manifest = tomllib.loads(text)
        package = manifest.get("package", {"name": ""})
        if (locked := own.get(package["name"])) is None:
            continue  # no package, or one that is excluded
        version = package.get("version", "0.0.0")
        if isinstance(version, dict):
            version = workspace.get("package", {}).get("version", locked["version"])
        required: Requirements = {package["name"]: {version}}
        for table in (manifest, *manifest.get("target", {}).values()):
            for section in filter(_CARGO_SECTION.fullmatch, table):
                for key, entry in table[section].items():
                    details = entry if isinstance(entry, dict) else {}
                    if details.get("workspace"):
                        details = workspace["dependencies"][key]
                    required.setdefault(details.get("package", key) if isinstance(details, dict) else key, None)
        dependencies = [entry.split()[0] for entry in locked.get("dependencies", [])]
        yield name, required, {**dict.fromkeys(dependencies), locked["name"]: {locked["version"]}}


def _compare_go(pair: LockPair) -> Iterator[Comparison]:
    if (pair.folder / "vendor").exists() or any((folder / "go.work").exists() for folder in pair.folder.parents):
        return  # go reads another file
    text = re.sub(r"//[^\n]*", "", pair.manifest)
    replaced = {line.split()[0] for line in _go_lines(text, "replace")}
    lines = [line.split() for line in _go_lines(text, "require")]
    required = _gather_constraints((line[0], line[1]) for line in lines if line[0] not in replaced)
    sums = [line.split()[:2] for line in pair.lock.splitlines() if line.strip()]
    locked = _gather_constraints((module, version.removesuffix("/go.mod")) for module, version in sums)
    yield pair.manifest_name, required, _select_required(locked, required)


def _go_lines(text: str, word: str) -> Iterator[str]:
    """The text after the directive `word`, on its line or in its block."""
    for match in re.finditer(rf"^\s*{word}\s*(?:\(([^)]*)\)|([^\n(]+))", text, re.MULTILINE):
        yield from filter(str.strip, (match[1] if match[1] is not None else match[2]).splitlines())


class LockFormat(NamedTuple):
    """The names of the two files of a tool, and the function that compares them."""

    manifest: str
    lock: str
    compare: Callable[[LockPair], Iterator[Comparison]]


FORMATS: Final = (
    LockFormat("package.json", "package-lock.json", _compare_npm),
    LockFormat("package.json", "pnpm-lock.yaml", _compare_pnpm),
    LockFormat("package.json", "yarn.lock", _compare_yarn),
    LockFormat("pyproject.toml", "uv.lock", _compare_uv),
    LockFormat("pyproject.toml", "poetry.lock", _compare_poetry),
    LockFormat("Cargo.toml", "Cargo.lock", _compare_cargo),
    LockFormat("go.mod", "go.sum", _compare_go),
)
