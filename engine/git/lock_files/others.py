"""Lock files of Cargo, Go, Bundler and Composer."""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

from engine.git.lock_files.pair import LockPair, Requirements, describe

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
    """What follows the directive `word`, on its line or in its block."""
    for match in re.finditer(rf"^\s*{word}\s*(?:\(([^)]*)\)|([^\n(]+))", text, re.MULTILINE):
        yield from filter(str.strip, (match[1] if match[1] is not None else match[2]).splitlines())


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
