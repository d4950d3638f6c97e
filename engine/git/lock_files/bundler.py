"""Compares the lock file of Bundler with its manifest."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from engine.git.lock_files.pair import LockPair, Requirements

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
