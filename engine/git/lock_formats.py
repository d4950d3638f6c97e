"""Compares the lock files of uv, Poetry and PDM with their manifests."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

from engine.files import read_plain
from engine.frozen import frozen

# A manifest with its lock file, and the comparison that most package managers share.
#
# Nothing outside the folder is read, by a name or through a link, and nothing large.


MAX_BYTES: Final = 32_000_000
"""A larger manifest or lock file is taken for up to date."""
MAX_MEMBERS: Final = 300
"""Packages of one workspace that are looked at."""
MAX_MEMBER_BYTES: Final = 1_000_000
"""A larger manifest of a workspace's package is passed over."""

FileStamps = dict[Path, tuple[int, int]]
"""When the files that were read had been written (nanoseconds), and how large they were; zeros where there was none."""

Requirements = dict[str, set[str] | None]
"""Constraints by package name; None where the constraint cannot be compared."""


@frozen
class LockPair:
    """A manifest and its lock file, as text, and the folder they lie in. What is read is noted in `stamps`."""

    folder: Path
    manifest: str
    lock: str
    manifest_name: str
    lock_name: str
    stamps: FileStamps

    def missing(self, name: str, constraint: str = "", manifest: str = "") -> str:
        required = f"{name} {constraint}".strip()
        return f"{manifest or self.manifest_name} asks for {required}, but {self.lock_name} does not have it"

    def differing(self, name: str, required: str, locked: str, manifest: str = "") -> str:
        return f"{manifest or self.manifest_name} asks for {name} {required}, but {self.lock_name} has {locked}"

    def left_over(self, name: str, manifest: str = "") -> str:
        return f"{self.lock_name} has {name}, but {manifest or self.manifest_name} no longer asks for it"

    def changed(self) -> str:
        return f"what {self.manifest_name} asks for has changed since {self.lock_name} was written"

    def member_manifests(self, paths: Iterable[str]) -> Iterator[tuple[str, str, str]]:
        """Path, text and name of the manifests of a workspace's packages; the name is "" for the one beside the lock
        file. What is absent, not below the folder, no plain file or too large is left out."""
        for path in itertools.islice(paths, MAX_MEMBERS):
            name = f"{path}/{self.manifest_name}"
            if path in ("", "."):
                yield path, self.manifest, ""
            elif not path.startswith(".."):
                text = read_text(self.folder, name, self.stamps, MAX_MEMBER_BYTES)
                if text is not None:
                    yield path, text, name

    def workspace_folders(self, patterns: Iterable[str]) -> list[str] | None:
        """The folders that the patterns of a workspace name, as far as they exist; None when a pattern is not
        understood for certain, or they are too many."""
        folders: dict[str, None] = {}
        for pattern in patterns:
            pattern = pattern.removeprefix("./").rstrip("/")
            if re.search(r"\*\*|[!{\[]|^/|\.\.", pattern):
                return None
            for folder in self.folder.glob(pattern) if pattern else ():
                if folder.is_dir() and not folder.is_symlink():
                    folders[folder.relative_to(self.folder).as_posix()] = None
                    if len(folders) > MAX_MEMBERS:
                        return None
        return list(folders)

    def compare(
        self, required: Requirements, locked: Requirements, manifest: str = "", ignored: Collection[str] = frozenset()
    ) -> Iterator[str]:
        """A sentence for each difference, but for the names `ignored`; a constraint of None on either side fits any."""
        for name, wanted in required.items():
            if name in ignored:
                continue
            if name not in locked:
                yield self.missing(name, describe(wanted), manifest)
            elif wanted is not None and (present := locked[name]) is not None and wanted != present:
                yield self.differing(name, describe(wanted), describe(present), manifest)
        for name in locked:
            if name not in required and name not in ignored:
                yield self.left_over(name, manifest)


def describe(constraints: set[str] | None) -> str:
    """Constraints in words."""
    return " and ".join(sorted(constraint or "any version" for constraint in constraints)) if constraints else ""


def read_text(folder: Path, name: str, stamps: FileStamps, max_bytes: int = MAX_BYTES) -> str | None:
    """A file below the folder; None for one that lies elsewhere, by its name or through a link."""
    try:
        stamps[folder / name] = stamp(folder / name)
        file = (folder / name).resolve(strict=True)
        return read_plain(file, max_bytes, follow=False).decode() if file.is_relative_to(folder.resolve()) else None
    except (OSError, ValueError, RuntimeError):  # a loop of links raises RuntimeError before Python 3.13
        return None


def stamp(file: Path) -> tuple[int, int]:
    """When a file was written and how large it is; zeros when it does not exist."""
    try:
        status = file.stat()
    except (OSError, ValueError):
        return 0, 0
    return status.st_mtime_ns, status.st_size


# Compares the lock file of Bundler with its manifest.


_GEM = re.compile(r"""\s*gem[ (]\s*(["'])([\w.-]+)\1((?:\s*,\s*(["'])[^"'\n]*\4)*)\s*(?:[,)#].*)?""")
_UNCERTAIN_GEMFILE = re.compile(
    r"^\s*(if|unless|case|eval\w*|instance_eval|plugin|def|while|for)\b|\.each\b|\bENV\b|\s(if|unless)\s", re.MULTILINE
)


def compare_bundler(pair: LockPair) -> Iterator[str]:
    manifest = re.sub(r"(^|\s)#[^\"'\n]*$|^\s*#.*$", "", pair.manifest, flags=re.MULTILINE)
    if _UNCERTAIN_GEMFILE.search(manifest):
        return  # which gems it asks for is decided when it runs
    section = re.search(r"^DEPENDENCIES\n((?:  .+\n?)*)", pair.lock, re.MULTILINE)
    if section is None:
        return
    locked: Requirements = {}
    for line in section[1].splitlines():
        match = re.fullmatch(r"  (\S+?)!?(?: \((.*)\))?!?", line)
        if match is None:
            return
        locked[match[1]] = {_gem_constraint((match[2] or "").split(","))}
    required: Requirements = {}
    for line in manifest.splitlines():
        if match := _GEM.fullmatch(line):
            constraint = _gem_constraint(re.findall(r"[\"']([^\"']*)[\"']", match[3]))
            located = re.search(r"\b(git|github|gist|bitbucket|path|source)\b", line)
            # Twice the same gem, and a gem beside a gemspec that names it too: bundler says which counts.
            required[match[2]] = None if located or match[2] in required else {constraint}
        elif re.match(r"\s*gem\b", line):
            return  # written in a way that is not understood
    if re.search(r"^\s*gemspec\b", manifest, re.MULTILINE):
        locked = {name: constraint for name, constraint in locked.items() if name in required}
        required = dict.fromkeys(required, None)
    yield from pair.compare(required, locked)


def _gem_constraint(clauses: Iterable[str]) -> str:
    stripped = [" ".join(clause.split()) for clause in clauses if clause.strip()]
    complete = [clause if re.match(r"[=<>!~]", clause) else f"= {clause}" for clause in stripped]
    spaced = [re.sub(r"^([=<>!~]+) *", r"\1 ", clause) for clause in complete]
    return ", ".join(sorted(spaced)) if spaced != [">= 0"] else ""


# Compares the lock file of Cargo with its manifest.


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


# Compares the lock file of Composer with its manifest.


_COMPOSER_KEYS = (
    "name", "version", "require", "require-dev", "conflict", "replace", "provide", "minimum-stability",
    "prefer-stable", "repositories", "extra",
)  # fmt: skip


def compare_composer(pair: LockPair) -> Iterator[str]:
    manifest, lock = json.loads(pair.manifest, parse_float=_refuse), json.loads(pair.lock)
    stored_hash = lock.get("content-hash")
    if not stored_hash:
        return
    content = {key: manifest[key] for key in _COMPOSER_KEYS if key in manifest}
    if "platform" in manifest.get("config", {}):
        content["config"] = {"platform": manifest["config"]["platform"]}
    ordered = _as_php({key: content[key] for key in sorted(content)})
    text = json.dumps(ordered, separators=(",", ":")).replace("/", "\\/")
    if hashlib.md5(text.encode(), usedforsecurity=False).hexdigest() == stored_hash:
        return
    packages = [*lock.get("packages", []), *lock.get("packages-dev", [])]
    locked = {
        name.lower()
        for package in packages
        for name in (package["name"], *(package.get("replace") or {}), *(package.get("provide") or {}))
    }
    is_named = False
    for section in ("require", "require-dev"):
        for name, constraint in (manifest.get(section) or {}).items():
            if "/" in name and name.lower() not in locked:
                is_named = True
                yield pair.missing(name, constraint)
    if not is_named:
        yield pair.changed()


def _refuse(number: str) -> float:
    """PHP writes fractions in its own way, so that no hash of them can be compared."""
    raise ValueError(number)


def _as_php(value: Any) -> Any:
    """A value as PHP writes it after reading: an empty object, and one with the keys 0, 1, 2, is a list to it."""
    if isinstance(value, dict):
        items = {key: _as_php(item) for key, item in value.items()}
        return list(items.values()) if list(items) == [str(index) for index in range(len(items))] else items
    return [_as_php(item) for item in value] if isinstance(value, list) else value


# Compares the lock file of Go with its manifest.


def compare_go(pair: LockPair) -> Iterator[str]:
    parents = [pair.folder, *pair.folder.parents]
    if (
        any((folder / "go.work").exists() for folder in parents[:6])
        or (pair.folder / "vendor" / "modules.txt").exists()
    ):
        return
    text = re.sub(r"//[^\n]*", "", pair.manifest)
    lines = [line.split() for line in _go_lines(text, "require")]
    replaced: dict[tuple[str, str], list[str]] = {}
    for line in _go_lines(text, "replace"):
        left, _, right = line.partition("=>")
        module, version = (*left.split(), "")[:2]
        replaced[module, version] = right.split()
    sums = {tuple(line.split()[:2]) for line in pair.lock.splitlines() if line.strip()}
    versions: dict[str, set[str]] = {}
    for module, version in sums:
        versions.setdefault(module, set()).add(version.removesuffix("/go.mod"))
    for module, version in (line for line in lines if len(line) == 2):
        replacement = replaced.get((module, version)) or replaced.get((module, ""))
        if replacement is not None:
            if len(replacement) != 2:
                continue  # a folder
            module, version = replacement
        if (module, f"{version}/go.mod") not in sums and (module, version) not in sums:
            present = versions.get(module)
            yield pair.differing(module, version, describe(present)) if present else pair.missing(module, version)


def _go_lines(text: str, word: str) -> Iterator[str]:
    """The text after the directive `word`, on its line or in its block."""
    for match in re.finditer(rf"^\s*{word}\s*(?:\(([^)]*)\)|([^\n(]+))", text, re.MULTILINE):
        yield from filter(str.strip, (match[1] if match[1] is not None else match[2]).splitlines())


# Compares the lock files of npm, pnpm and yarn with their manifests.


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
                package: _npm_constraint(entry["specifier"])
                for section in sections
                for package, entry in section.items()
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
            constraint = _npm_constraint(text)
            requirements[name] = constraint if requirements.get(name, constraint) == constraint else None
    return requirements


def _npm_constraint(text: str) -> set[str] | None:
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


_REQUIREMENT = re.compile(r"\s*([A-Za-z0-9][\w.-]*)\s*(\[[^\]]*\])?\s*\(?([^;@)]*)\)?\s*(@[^;]*)?(?:;.*)?", re.DOTALL)
_CLAUSE = re.compile(r"(==|>=|<=|!=|~=|<|>)(\d+(?:\.\d+)*)(\.\*)?")


def _normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _python_constraint(text: str) -> str | None:
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
        _add(requirements, _normalised(match[1]), None if match[4] else _python_constraint(match[3]))


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
        _add(
            requirements,
            entry["name"],
            None if sources & entry.keys() else _python_constraint(entry.get("specifier", "")),
        )
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
