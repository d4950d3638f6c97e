"""Lock files that are out of step with their manifest: `package.json` asks for what `package-lock.json` does not have.

Read off the two files alone; no tool is started and nothing is resolved. What cannot be compared for certain (a
constraint in a form that the tool rewrites, a manifest that is a program, an option that changes what is asked for) is
left out: a lock file that the tool itself calls up to date is never named here.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import threading
import tomllib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

from engine.frozen import frozen
from engine.model import sanitise
from engine.plain_files import read_plain

LARGEST: Final = 32_000_000
"""Bytes of a file that is read; a larger one is taken for up to date."""
MOST_MEMBERS: Final = 300
LARGEST_MEMBER: Final = 1_000_000
"""So many packages of one workspace are looked at, and bytes of the manifest of each."""
NAMED: Final = 5
"""So many differences are named of one lock file."""

Seen = dict[Path, tuple[int, int]]
"""When the files that were read had been written (nanoseconds), and how large they were."""

Asked = dict[str, set[str] | None]
"""What is asked for, by name; None where the constraint cannot be compared."""


@frozen
class LockMismatch:
    """One lock file that does not fit its manifest. `folder` is "" for the top, `tool` who writes the lock, and
    `differences` has one plain sentence each, at most `NAMED`; `more` counts the rest."""

    folder: str
    tool: str
    manifest: str
    lock: str
    differences: tuple[str, ...]
    more: int = 0

    @property
    def lock_path(self) -> str:
        """The lock file, relative to the top."""
        return f"{self.folder}/{self.lock}".removeprefix("/")


@frozen
class _Pair:
    """A manifest and its lock file, as text, and the folder they lie in."""

    folder: Path
    manifest: str
    lock: str
    manifest_name: str
    lock_name: str
    seen: Seen

    def file(self, name: str) -> str | None:
        """The manifest of a member; None when it is not there, not below the folder, no plain file or too large."""
        return _text(self.folder, name, self.seen, LARGEST_MEMBER)

    def missing(self, name: str, constraint: str = "", by: str = "") -> str:
        asked = f"{name} {constraint}".strip()
        return f"{by or self.manifest_name} asks for {asked}, but {self.lock_name} does not have it"

    def differing(self, name: str, asked: str, locked: str, by: str = "") -> str:
        return f"{by or self.manifest_name} asks for {name} {asked}, but {self.lock_name} has {locked}"

    def left_over(self, name: str, by: str = "") -> str:
        return f"{self.lock_name} has {name}, but {by or self.manifest_name} no longer asks for it"


Look = Callable[[_Pair], Iterator[str]]


class LocksRead:
    """Compares lock files anew when one of the files that it read was written. Safe to call from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[Path, tuple[tuple[str, ...], Seen, tuple[LockMismatch, ...]]] = {}

    def out_of_step(
        self, root: Path, folders: Iterable[str], manifests: Iterable[str] = ()
    ) -> tuple[LockMismatch, ...]:
        """See `locks_out_of_step`. `manifests`: the manifests of all packages, relative to `root`; a new one may be
        that of a new member."""
        folders, manifests = tuple(folders), tuple(manifests)
        with self._lock:
            known = self._known.get(root)
        if known and known[0] == (*folders, *manifests) and all(_written(file) == at for file, at in known[1].items()):
            return known[2]
        seen = {file: _written(file) for file in (root / name for name in manifests)}
        found = locks_out_of_step(root, folders, seen)
        with self._lock:
            self._known[root] = ((*folders, *manifests), seen, found)
        return found


def locks_out_of_step(root: Path, folders: Iterable[str] = ("",), seen: Seen | None = None) -> tuple[LockMismatch, ...]:
    """The lock files in `folders` (relative to `root`, "" for itself) that do not fit their manifests.

    Files that are not there or cannot be read, that lie elsewhere, and what is not understood, are passed over: it
    never raises. Costs the reading of both files, a few milliseconds for a lock file of a megabyte. What was read is
    noted in `seen`.
    """
    found = []
    seen = {} if seen is None else seen
    for folder in dict.fromkeys(folders):
        for tool, manifest, lock, look in _LOOKS:
            place = root / folder if folder else root
            if not (place / lock).is_file() or not place.resolve().is_relative_to(root.resolve()):
                continue
            texts = _text(place, manifest, seen), _text(place, lock, seen)
            if texts[0] is None or texts[1] is None:
                continue
            try:
                told = list(dict.fromkeys(look(_Pair(place, texts[0], texts[1], manifest, lock, seen))))
            except _UNREADABLE:
                continue  # half-written, or of a form that nobody knows yet
            if told:
                shown = tuple(" ".join(sanitise(one).split()) for one in told[:NAMED])
                found.append(LockMismatch(folder, tool, manifest, lock, shown, len(told) - len(shown)))
    return tuple(found)


_UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError)
"""What parsing raises on a file whose shape is another than expected."""


def _text(folder: Path, name: str, seen: Seen, most: int = LARGEST) -> str | None:
    """A file below the folder; None for one that lies elsewhere, by its name or through a link."""
    try:
        seen[folder / name] = _written(folder / name)
        file = (folder / name).resolve(strict=True)
        return read_plain(file, most, follow=False).decode() if file.is_relative_to(folder.resolve()) else None
    except (OSError, ValueError, RuntimeError):  # a loop of links raises RuntimeError before Python 3.13
        return None


def _written(file: Path) -> tuple[int, int]:
    """When a file was written and how large it is; zeros when it is not there."""
    try:
        found = file.stat()
    except (OSError, ValueError):
        return 0, 0
    return found.st_mtime_ns, found.st_size


def _manifests(pair: _Pair, paths: Iterable[str], name: str) -> Iterator[tuple[str, str, str]]:
    """Path, text and name of the manifests that a lock file's packages have in folders below its own; the name is ""
    for the one beside it."""
    for path in itertools.islice(paths, MOST_MEMBERS):
        if path in ("", "."):
            yield path, pair.manifest, ""
        elif not path.startswith("..") and (text := pair.file(f"{path}/{name}")) is not None:
            yield path, text, f"{path}/{name}"


def _compared(
    pair: _Pair, asked: Asked, locked: Asked, by: str = "", spare: Collection[str] = frozenset()
) -> Iterator[str]:
    """Where the two differ, but for the names `spare`; a constraint of None on either side is any."""
    for name, wanted in asked.items():
        if name in spare:
            continue
        if name not in locked:
            yield pair.missing(name, _listed(wanted), by)
        elif wanted is not None and (has := locked[name]) is not None and wanted != has:
            yield pair.differing(name, _listed(wanted), _listed(has), by)
    for name in locked:
        if name not in asked and name not in spare:
            yield pair.left_over(name, by)


def _listed(constraints: set[str] | None) -> str:
    return " and ".join(sorted(constraint or "any version" for constraint in constraints)) if constraints else ""


# -- Node -----------------------------------------------------------------------------------------------------------

_NODE_SECTIONS = ("dependencies", "devDependencies", "optionalDependencies")


def _node_asked(manifest: Mapping[str, Any], sections: Iterable[str]) -> Asked:
    """What a package.json asks for. A name that two sections give different constraints keeps none: the tools differ
    in which of them wins."""
    found: Asked = {}
    for section in sections:
        for name, text in (manifest.get(section) or {}).items():
            constraint = _node_constraint(text)
            if name in found and (constraint is None or found[name] != {constraint}):
                found[name] = None
            else:
                found[name] = None if constraint is None else {constraint}
    return found


def _node_constraint(text: str) -> str | None:
    """A constraint as it is compared; None for a place or an alias, which tools write in several ways."""
    text = " ".join(text.split()).removeprefix("npm:")
    return None if re.search(r"[:/@]", text) else text or "*"


def _npm(pair: _Pair) -> Iterator[str]:
    packages = json.loads(pair.lock).get("packages", {})
    if "" not in packages:
        return  # version 1 keeps no constraints
    sections = (*_NODE_SECTIONS, "peerDependencies")
    members = [path for path in packages if "node_modules" not in path.split("/")]
    for path, manifest, by in _manifests(pair, members, "package.json"):
        asked = _node_asked(json.loads(manifest), sections)
        yield from _compared(pair, asked, _node_asked(packages[path], sections), by)


def _pnpm(pair: _Pair) -> Iterator[str]:
    head = pair.lock.split("\npackages:")[0]
    if "\npnpmfileChecksum:" in head or "\npackageExtensionsChecksum:" in head:
        return  # a program changed what the manifests ask for
    lock = _yaml(head)
    changed = {re.split(r"[>@]", key.rpartition(">")[2].lstrip("@"))[0] for key in lock.get("overrides", {})}
    ignored = "\nignoredOptionalDependencies:" in head
    importers = lock.get("importers", {".": lock})
    for path, text, by in _manifests(pair, importers, "package.json"):
        manifest, importer = json.loads(text), importers[path]
        locked: Asked = {}
        if "specifiers" in importer:
            locked = _node_asked(importer, ("specifiers",))
        else:
            for section in _NODE_SECTIONS:
                for name, entry in importer.get(section, {}).items():
                    constraint = _node_constraint(entry["specifier"])
                    locked[name] = None if constraint is None else {constraint}
        asked = _node_asked(manifest, _NODE_SECTIONS)
        spare = {name for name in {*asked, *locked} if name.lstrip("@") in changed}
        spare |= set(manifest.get("peerDependencies") or {}) - set(asked)
        spare |= set(manifest.get("optionalDependencies") or {}) if ignored else set()
        yield from _compared(pair, asked, locked, by, spare)


def _yarn(pair: _Pair) -> Iterator[str]:
    manifest = json.loads(pair.manifest)
    resolved = {key.rpartition("/")[2].split("@")[0] for key in manifest.get("resolutions") or {}}
    if "\n__metadata:" in pair.lock:
        yield from _yarn_berry(pair, resolved)
        return
    descriptors = {
        part.strip().strip('"')
        for line in pair.lock.splitlines()
        if line and line[0] not in " #"
        for part in line.removesuffix(":").split(",")
    }
    locked: dict[str, set[str]] = {}
    for one in descriptors:
        name, _, constraint = one.rpartition("@")
        locked.setdefault(name, set()).add(constraint)
    folders = _members(pair.folder, _patterns(manifest))
    if folders is None:
        return
    manifests = {"": manifest}
    for folder in folders:
        if (text := pair.file(f"{folder}/package.json")) is not None:
            manifests[f"{folder}/package.json"] = json.loads(text)
    own = {one.get("name") for one in manifests.values()}
    for by, one in manifests.items():
        for name, wanted in _node_asked(one, _NODE_SECTIONS).items():
            if wanted is None or wanted & locked.get(name, set()) or name in own or name.split("/")[-1] in resolved:
                continue
            if "" in locked.get(name, set()):
                continue  # it asks for any version
            if name in locked:
                yield pair.differing(name, _listed(wanted), _listed(locked[name]), by)
            else:
                yield pair.missing(name, _listed(wanted), by)


def _yarn_berry(pair: _Pair, resolved: set[str]) -> Iterator[str]:
    for block in pair.lock.split("\n\n"):
        head = re.match(r'\n?"[^"\n]*@workspace:([^",\n]+)":\n', block)
        if head is None:
            continue
        for _, text, by in _manifests(pair, [head[1]], "package.json"):
            entry = next(iter(_yaml(block).values()))
            asked = _node_asked(json.loads(text), _NODE_SECTIONS)
            locked = _node_asked(entry, ("dependencies",))
            spare = {name for name in {*asked, *locked} if name.split("/")[-1] in resolved}
            yield from _compared(pair, asked, locked, by, spare)


def _patterns(manifest: Mapping[str, Any]) -> list[str]:
    """The workspaces of a package.json."""
    named = manifest.get("workspaces") or []
    return list(named.get("packages", []) if isinstance(named, dict) else named)


def _members(folder: Path, patterns: Iterable[str]) -> list[str] | None:
    """The folders that the patterns of a workspace name, as far as they are there; None when a pattern is none that
    is understood for certain."""
    found: dict[str, None] = {}
    for pattern in patterns:
        pattern = pattern.removeprefix("./").rstrip("/")
        if re.search(r"\*\*|[!{\[]|^/|\.\.", pattern):
            return None
        places = folder.glob(pattern) if pattern else ()
        for place in places:
            if place.is_dir() and not place.is_symlink():
                found[place.relative_to(folder).as_posix()] = None
                if len(found) > MOST_MEMBERS:
                    return None
    return list(found)


_YAML_LINE = re.compile(r"""( *)(?:'((?:[^']|'')+)'|"([^"]+)"|([^\s'"#\-?][^:]*?)):(?: +(.*))?""")


def _yaml(text: str) -> dict[str, Any]:
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
            levels[-1][1][key] = _scalar(value)
        else:
            inner: dict[str, Any] = {}
            levels[-1][1][key] = inner
            levels.append((indent, inner))
    return top


def _scalar(text: str) -> str:
    if len(text) > 1 and text[0] == text[-1] == "'":
        return text[1:-1].replace("''", "'")
    return text.strip('"')


# -- Python ---------------------------------------------------------------------------------------------------------

_REQUIREMENT = re.compile(r"\s*([A-Za-z0-9][\w.-]*)\s*(\[[^\]]*\])?\s*\(?([^;@)]*)\)?\s*(@[^;]*)?(?:;.*)?", re.DOTALL)
_CLAUSE = re.compile(r"(==|>=|<=|!=|~=|<|>)(\d+(?:\.\d+)*)(\.\*)?")


def _python_name(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _specifier(text: str) -> str | None:
    """A version specifier as it is compared; None for one that a tool may write differently, as pre-releases are."""
    clauses = []
    for clause in filter(None, ("".join(part.split()) for part in text.split(","))):
        if (match := _CLAUSE.fullmatch(clause)) is None:
            return None
        version = ".".join(str(int(part)) for part in match[2].split("."))
        clauses.append(f"{match[1]}{version}{match[3] or ''}")
    return ",".join(sorted(clauses, reverse=True))


def _add(found: Asked, name: str, specifier: str | None) -> None:
    known = found.setdefault(name, set())
    if specifier is None or known is None:
        found[name] = None
    else:
        known.add(specifier)


def _requirements(entries: Iterable[Any], found: Asked) -> Asked:
    for entry in entries:
        match = _REQUIREMENT.fullmatch(entry)
        if match is None:
            raise ValueError(entry)
        _add(found, _python_name(match[1]), None if match[4] else _specifier(match[3]))
    return found


def _group(groups: Mapping[str, Any], name: str, seen: tuple[str, ...] = ()) -> Iterator[str]:
    """The requirements of a dependency group, with those of the groups that it includes."""
    if name in seen:
        raise ValueError(name)
    for entry in groups[name]:
        if isinstance(entry, str):
            yield entry
        else:
            yield from _group(groups, _python_name(entry["include-group"]), (*seen, name))


def _uv(pair: _Pair) -> Iterator[str]:
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
    listed = {_python_name(name) for name in top.get("manifest", {}).get("members", [])}
    # What is no member asks for its own, not for this lock's.
    own = [path for path, package in members.items() if path == "." or package["name"] in listed]
    for path, text, by in _manifests(pair, own, "pyproject.toml"):
        yield from _uv_member(pair, tomllib.loads(text), members[path], by)
    if "." not in members and "members" not in top.get("manifest", {}):
        project = tomllib.loads(pair.manifest).get("project", {})
        if "name" in project:
            yield f"pyproject.toml is for {project['name']}, but {pair.lock_name} does not have it"


def _uv_member(pair: _Pair, manifest: dict[str, Any], package: dict[str, Any], by: str) -> Iterator[str]:
    project, uv = manifest.get("project", {}), manifest.get("tool", {}).get("uv", {})
    name = package["name"]
    if "name" in project and _python_name(project["name"]) != name:
        yield f"{by or pair.manifest_name} is for {project['name']}, but {pair.lock_name} has {name}"
        return
    metadata = package.get("metadata", {})
    dynamic = set(project.get("dynamic", []))
    if not dynamic & {"dependencies", "optional-dependencies"}:
        asked = _requirements(project.get("dependencies", []), {})
        for entries in project.get("optional-dependencies", {}).values():
            _requirements(entries, asked)
        locked = _uv_locked(metadata.get("requires-dist", []))
        yield from _compared(pair, asked, locked, by, {name})
    groups = {_python_name(key): entries for key, entries in manifest.get("dependency-groups", {}).items()}
    asked = {}
    for key in groups:
        _requirements(_group(groups, key), asked)
    _requirements(uv.get("dev-dependencies", []), asked)
    locked = _uv_locked(entry for entries in metadata.get("requires-dev", {}).values() for entry in entries)
    yield from _compared(pair, asked, locked, by, {name})


def _uv_locked(entries: Iterable[Mapping[str, Any]]) -> Asked:
    found: Asked = {}
    places = {"git", "url", "path", "directory", "editable", "virtual", "workspace"}
    for entry in entries:
        _add(found, entry["name"], None if places & entry.keys() else _specifier(entry.get("specifier", "")))
    return found


def _digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _poetry(pair: _Pair) -> Iterator[str]:
    manifest = tomllib.loads(pair.manifest)
    kept = re.search(r'^content-hash = "([0-9a-f]{64})"', pair.lock, re.MULTILINE)
    writer = re.match(r"# This file is automatically @generated by Poetry ([12])\.", pair.lock)
    backend = manifest.get("build-system", {}).get("build-backend", "")
    if kept is None or not _is_of(manifest, "poetry", pair) or (writer is None and "poetry" not in backend):
        return
    if kept[1] not in _poetry_hashes(manifest):
        yield _changed(pair)


def _is_of(manifest: Mapping[str, Any], tool: str, pair: _Pair) -> bool:
    """Whether `tool` looks after the project, and its lock file is not a leftover beside that of another."""
    backend = manifest.get("build-system", {}).get("build-backend", "")
    return (tool in manifest.get("tool", {}) or tool in backend) and not (pair.folder / "uv.lock").exists()


def _poetry_hashes(manifest: Mapping[str, Any]) -> Iterator[str]:
    """The hashes that releases 1 and 2 of Poetry would write for this manifest."""
    project, poetry = manifest.get("project", {}), manifest.get("tool", {}).get("poetry", {})
    of_project = {
        key: project[key] for key in ("requires-python", "dependencies", "optional-dependencies") if key in project
    }
    legacy = ("dependencies", "source", "extras", "dev-dependencies")
    nothing: dict[str, Any] = {}
    for groups in (manifest.get("dependency-groups", nothing), nothing):
        for own in (of_project, {}):
            content: dict[str, Any] = {}
            of_poetry = {
                key: poetry.get(key)
                for key in (*legacy, "group")
                if key in poetry or (key in legacy and not own and not groups)
            }
            if own:
                content["project"] = own
            if groups:
                content["dependency-groups"] = groups
            yield _digest(content | {"tool": {"poetry": of_poetry}} if content else of_poetry)


def _pdm(pair: _Pair) -> Iterator[str]:
    manifest = tomllib.loads(pair.manifest)
    kept = re.search(r'^content_hash = "sha256:([0-9a-f]{64})"', pair.lock, re.MULTILINE)
    version = re.search(r'^lock_version = "4\.[45]', pair.lock, re.MULTILINE)
    if kept is None or version is None or not _is_of(manifest, "pdm", pair):
        return
    if kept[1] not in _pdm_hashes(manifest):
        yield _changed(pair)


def _pdm_hashes(manifest: Mapping[str, Any]) -> Iterator[str]:
    """The hashes that releases 2.8 and later of PDM would write for this manifest."""
    project, pdm = manifest.get("project", {}), manifest.get("tool", {}).get("pdm", {})
    older = {key: list(entries) for key, entries in pdm.get("dev-dependencies", {}).items()}
    groups: dict[str, list[Any]] = {
        _python_name(key): list(entries) for key, entries in manifest.get("dependency-groups", {}).items()
    }
    for key, entries in older.items():
        groups.setdefault(_python_name(key), []).extend(entries)
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


def _changed(pair: _Pair) -> str:
    return f"what {pair.manifest_name} asks for has changed since {pair.lock_name} was written"


# -- Rust, Go, Ruby, PHP --------------------------------------------------------------------------------------------

_CARGO_SECTIONS = frozenset(
    ("dependencies", "dev-dependencies", "dev_dependencies", "build-dependencies", "build_dependencies")
)


def _cargo(pair: _Pair) -> Iterator[str]:
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
    folders = _members(pair.folder, workspace.get("members", []))
    if folders is None or "replace" in top:
        return
    manifests = {"": top} if "package" in top else {}
    for folder in folders:
        if any(fnmatchcase(folder, one.rstrip("/")) for one in workspace.get("exclude", [])):
            continue
        if (text := pair.file(f"{folder}/Cargo.toml")) is not None and folder != ".":
            manifests[f"{folder}/Cargo.toml"] = tomllib.loads(text)
    for by, manifest in manifests.items():
        yield from _cargo_package(pair, manifest, workspace, own, versions, by)


def _cargo_package(
    pair: _Pair,
    manifest: Mapping[str, Any],
    workspace: Mapping[str, Any],
    own: Mapping[str, Mapping[str, Any]],
    versions: Mapping[str, set[str]],
    by: str,
) -> Iterator[str]:
    package = manifest["package"]
    name = package["name"]
    if name not in own:
        yield f"{by or pair.manifest_name} is for {name}, but {pair.lock_name} does not have it"
        return
    version = package.get("version", "0.0.0")
    if isinstance(version, dict):
        version = workspace.get("package", {}).get("version", own[name]["version"])
    if version != own[name]["version"]:
        yield f"{by or pair.manifest_name} is at {version}, but {pair.lock_name} has {name} {own[name]['version']}"
    locked = {entry.split()[0]: entry.split()[1:2] for entry in own[name].get("dependencies", [])}
    asked: dict[str, str] = {}
    for table in (manifest, *manifest.get("target", {}).values()):
        for section in _CARGO_SECTIONS & table.keys():
            for key, one in table[section].items():
                if isinstance(one, dict) and one.get("workspace"):
                    one = workspace.get("dependencies", {}).get(key, {})
                details = one if isinstance(one, dict) else {"version": one}
                asked[details.get("package", key)] = details.get("version", "")
    for wanted, constraint in asked.items():
        if wanted == name:
            continue
        if wanted not in locked:
            yield pair.missing(wanted, constraint, by)
        else:
            has = set(locked[wanted]) or versions.get(wanted, set())
            if has and not any(_cargo_fits(constraint, one) for one in has):
                yield pair.differing(wanted, constraint, _listed(has), by)
    for wanted in locked:
        if wanted not in asked:
            yield pair.left_over(wanted, by)


def _cargo_fits(constraint: str, version: str) -> bool:
    """Whether a version is one that the constraint allows; True for every constraint but the usual one, a caret."""
    asked = re.fullmatch(r"\s*\^?\s*(\d+)(?:\.(\d+))?(?:\.(\d+))?\s*", constraint)
    has = re.fullmatch(r"(\d+)\.(\d+)\.(\d+)(?:\+.*)?", version)
    if asked is None or has is None:
        return True
    given = [int(part) for part in asked.groups() if part is not None]
    numbers = [int(part) for part in has.groups()]
    fixed = next((at for at, part in enumerate(given) if part), len(given) - 1) + 1
    return numbers[:fixed] == given[:fixed] and numbers >= given


def _go(pair: _Pair) -> Iterator[str]:
    places = [pair.folder, *pair.folder.parents]
    if any((place / "go.work").exists() for place in places[:6]) or (pair.folder / "vendor" / "modules.txt").exists():
        return
    text = re.sub(r"//[^\n]*", "", pair.manifest)
    lines = [line.split() for line in _go_lines(text, "require")]
    replaced: dict[tuple[str, str], list[str]] = {}
    for line in _go_lines(text, "replace"):
        left, _, right = line.partition("=>")
        module, version = (*left.split(), "")[:2]
        replaced[module, version] = right.split()
    sums = {tuple(line.split()[:2]) for line in pair.lock.splitlines() if line.strip()}
    known: dict[str, set[str]] = {}
    for module, version in sums:
        known.setdefault(module, set()).add(version.removesuffix("/go.mod"))
    for module, version in (line for line in lines if len(line) == 2):
        other = replaced.get((module, version)) or replaced.get((module, ""))
        if other is not None:
            if len(other) != 2:
                continue  # a folder
            module, version = other
        if (module, f"{version}/go.mod") not in sums and (module, version) not in sums:
            has = known.get(module)
            yield pair.differing(module, version, _listed(has)) if has else pair.missing(module, version)


def _go_lines(text: str, word: str) -> Iterator[str]:
    """What stands behind `word`, on its line or in its block."""
    for match in re.finditer(rf"^\s*{word}\s*(?:\(([^)]*)\)|([^\n(]+))", text, re.MULTILINE):
        yield from filter(str.strip, (match[1] if match[1] is not None else match[2]).splitlines())


_GEM = re.compile(r"""\s*gem[ (]\s*(["'])([\w.-]+)\1((?:\s*,\s*(["'])[^"'\n]*\4)*)\s*(?:[,)#].*)?""")
_UNCERTAIN_GEMFILE = re.compile(
    r"^\s*(if|unless|case|eval\w*|instance_eval|plugin|def|while|for)\b|\.each\b|\bENV\b|\s(if|unless)\s", re.MULTILINE
)


def _bundler(pair: _Pair) -> Iterator[str]:
    manifest = re.sub(r"(^|\s)#[^\"'\n]*$|^\s*#.*$", "", pair.manifest, flags=re.MULTILINE)
    if _UNCERTAIN_GEMFILE.search(manifest):
        return  # which gems it asks for is decided when it runs
    section = re.search(r"^DEPENDENCIES\n((?:  .+\n?)*)", pair.lock, re.MULTILINE)
    if section is None:
        return
    locked: Asked = {}
    for line in section[1].splitlines():
        match = re.fullmatch(r"  (\S+?)!?(?: \((.*)\))?!?", line)
        if match is None:
            return
        locked[match[1]] = {_gem_constraint((match[2] or "").split(","))}
    asked: Asked = {}
    for line in manifest.splitlines():
        if match := _GEM.fullmatch(line):
            constraint = _gem_constraint(re.findall(r"[\"']([^\"']*)[\"']", match[3]))
            located = re.search(r"\b(git|github|gist|bitbucket|path|source)\b", line)
            # Twice the same gem, and a gem beside a gemspec that names it too: bundler says which counts.
            asked[match[2]] = None if located or match[2] in asked else {constraint}
        elif re.match(r"\s*gem\b", line):
            return  # written in a way that is not understood
    if re.search(r"^\s*gemspec\b", manifest, re.MULTILINE):
        locked = {name: constraint for name, constraint in locked.items() if name in asked}
        asked = dict.fromkeys(asked, None)
    yield from _compared(pair, asked, locked)


def _gem_constraint(clauses: Iterable[str]) -> str:
    found = [" ".join(clause.split()) for clause in clauses if clause.strip()]
    whole = [clause if re.match(r"[=<>!~]", clause) else f"= {clause}" for clause in found]
    spaced = [re.sub(r"^([=<>!~]+) *", r"\1 ", clause) for clause in whole]
    return ", ".join(sorted(spaced)) if spaced != [">= 0"] else ""


_COMPOSER_KEYS = (
    "name", "version", "require", "require-dev", "conflict", "replace", "provide", "minimum-stability",
    "prefer-stable", "repositories", "extra",
)  # fmt: skip


def _composer(pair: _Pair) -> Iterator[str]:
    manifest, lock = json.loads(pair.manifest, parse_float=_refused), json.loads(pair.lock)
    kept = lock.get("content-hash")
    if not kept:
        return
    content = {key: manifest[key] for key in _COMPOSER_KEYS if key in manifest}
    if "platform" in manifest.get("config", {}):
        content["config"] = {"platform": manifest["config"]["platform"]}
    ordered = _as_php({key: content[key] for key in sorted(content)})
    text = json.dumps(ordered, separators=(",", ":")).replace("/", "\\/")
    if hashlib.md5(text.encode(), usedforsecurity=False).hexdigest() == kept:
        return
    packages = [*lock.get("packages", []), *lock.get("packages-dev", [])]
    has = {
        name.lower()
        for package in packages
        for name in (package["name"], *(package.get("replace") or {}), *(package.get("provide") or {}))
    }
    named = False
    for section in ("require", "require-dev"):
        for name, constraint in (manifest.get(section) or {}).items():
            if "/" in name and name.lower() not in has:
                named = True
                yield pair.missing(name, constraint)
    if not named:
        yield _changed(pair)


def _refused(number: str) -> float:
    """PHP writes fractions in its own way, so that no hash of them can be compared."""
    raise ValueError(number)


def _as_php(value: Any) -> Any:
    """A value as PHP writes it after reading: an empty object, and one with the keys 0, 1, 2, is a list to it."""
    if isinstance(value, dict):
        items = {key: _as_php(one) for key, one in value.items()}
        return list(items.values()) if list(items) == [str(at) for at in range(len(items))] else items
    return [_as_php(one) for one in value] if isinstance(value, list) else value


_LOOKS: tuple[tuple[str, str, str, Look], ...] = (
    ("npm", "package.json", "package-lock.json", _npm),
    ("pnpm", "package.json", "pnpm-lock.yaml", _pnpm),
    ("yarn", "package.json", "yarn.lock", _yarn),
    ("uv", "pyproject.toml", "uv.lock", _uv),
    ("poetry", "pyproject.toml", "poetry.lock", _poetry),
    ("pdm", "pyproject.toml", "pdm.lock", _pdm),
    ("cargo", "Cargo.toml", "Cargo.lock", _cargo),
    ("go", "go.mod", "go.sum", _go),
    ("bundler", "Gemfile", "Gemfile.lock", _bundler),
    ("composer", "composer.json", "composer.lock", _composer),
)
"""Who writes the lock, the manifest, the lock file, and how the two are compared."""
