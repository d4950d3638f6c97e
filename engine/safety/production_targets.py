"""Finds the production targets that work touches (SPEC 3.6): the branches, remotes, hosts, contexts and paths in
`[production]`. The human gate asks about triggers that have one, and the gate of tools about calls.

They are found in prompts, parameters, commands, files and hosts, and described in words. If the settings name all of
them, these are some of the targets in commands:

    git push origin main                 `remote origin` and `branch main`
    git log main                         none, because it writes to no branch
    ssh admin@prod-1 uptime              `host prod-1`
    kubectl --context=prod get pods      `context prod`
    cp app deploy/live                   `path deploy/live`
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import translate
from functools import lru_cache
from itertools import pairwise
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from engine.config.settings import ProductionSettings
from engine.files import read_table
from engine.model import Trigger

MAX_NAME_CHARS = 300
"""Maximum number of characters of a word that is compared with targets."""

_PRODUCTION_WORDS = {name: frozenset(words.split()) for name, words in read_table(__file__, "production.toml").items()}
"""The words and options that show what a text is about, by their purpose."""

Patterns = tuple[str, ...]
"""Glob patterns of the settings."""


def find_targets_of_trigger(trigger: Trigger, production: ProductionSettings) -> tuple[str, ...]:
    """The production targets that a trigger's prompt and parameters name.

    Every word is compared with hosts, contexts and paths. Words are compared with branches and remotes only if the
    prompt speaks of writing to one, or if a parameter has that name, because `main` is also a plain word. A flow never
    writes to a branch or a remote (SPEC 3.9).
    """
    return _list_targets(_find_named_by_trigger(trigger), production)


def find_targets_of_command(command: str, production: ProductionSettings) -> tuple[str, ...]:
    """The production targets among the words of a command."""
    try:
        words = shlex.split(command.replace("\n", " ; "))
    except ValueError:  # an open quote
        words = command.split()
    return _list_targets(_find_named_by_command(words), production)


def find_target_of_file(path: str, workspace: str, production: ProductionSettings) -> tuple[str, ...]:
    """The production target that matches a file, by its path in the workspace or its full path; () for none."""
    full_path = str(PurePosixPath(workspace) / path)
    is_target = _matches_any(path, production.paths) or _matches_any(full_path, production.paths)
    return (f"path {path}",) if is_target else ()


def find_target_of_host(host: str, production: ProductionSettings) -> tuple[str, ...]:
    """The production target that matches a host; () for none."""
    return (f"host {host}",) if _matches_any(host, production.hosts) else ()


# -- from possible targets to those of the settings


class _NamedTarget(NamedTuple):
    """A possible target."""

    kind: str
    """branch, remote, host, context or path."""
    name: str


def _list_targets(named_targets: Iterator[_NamedTarget], production: ProductionSettings) -> tuple[str, ...]:
    """The targets in words, each once."""
    patterns = {
        "branch": production.branches,
        "remote": production.remotes,
        "host": production.hosts,
        "context": production.contexts,
        "path": production.paths,
    }
    return tuple(
        dict.fromkeys(
            f"{named.kind} {named.name}" for named in named_targets if _is_target(named, patterns[named.kind])
        )
    )


def _is_target(named: _NamedTarget, patterns: Patterns) -> bool:
    """Whether the name, or a path without `./`, matches one of the patterns of its kind."""
    if _matches_any(named.name, patterns):
        return True
    is_path = named.kind == "path" and named.name != ""
    return is_path and _matches_any(str(PurePosixPath(named.name)), patterns)


def _matches_any(text: str, patterns: Patterns) -> bool:
    expression = _compile_patterns(patterns)
    folded = text.lower()
    return expression is not None and 0 < len(folded) <= MAX_NAME_CHARS and expression.match(folded) is not None


@lru_cache(64)
def _compile_patterns(patterns: Patterns) -> re.Pattern[str] | None:
    """A regular expression that matches any of the patterns, in lower case; None without patterns."""
    return re.compile("|".join(translate(pattern.lower()) for pattern in patterns)) if patterns else None


# -- the possible targets of a trigger

_KIND_OF_PARAMETER = dict.fromkeys(("target", "branch", "base", "onto"), "branch") | {"remote": "remote"}
"""The kind of target that the value of a parameter is, by the parameter's name."""


def _find_named_by_trigger(trigger: Trigger) -> Iterator[_NamedTarget]:
    """The possible targets in a trigger's prompt and parameters, as `find_targets_of_trigger` says."""
    assignment = trigger.assignment
    words = [word.strip(".,:;!?()[]{}`'\"") for word in assignment.prompt.split()]
    writes_to_git = False
    if assignment.flow is None:
        for key, value in assignment.parameters.items():
            kind = _KIND_OF_PARAMETER.get(key.lower())
            if kind is not None and isinstance(value, str):
                yield _NamedTarget(kind, value)
        writes_to_git = any(word.lower() in _PRODUCTION_WORDS["writing_words"] for word in words)
    for text in (*words, *_collect_strings(assignment.parameters)):
        if writes_to_git:
            yield from _find_git_targets(text)
        for part in _split_address(text):
            yield _NamedTarget("host", part)
            yield _NamedTarget("context", part)
        yield _NamedTarget("path", text)


def _collect_strings(value: Any) -> list[str]:
    """The texts in a parameter, also those within lists and tables."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, Mapping):
        return [text for item in value.values() for text in _collect_strings(item)]
    if isinstance(value, (list, tuple)):
        return [text for item in value for text in _collect_strings(item)]
    return [] if value is None else [json.dumps(value, default=str)]


def _split_address(text: str) -> list[str]:
    """The parts of a word that may be a host or a context: the whole word, the host in `user@host:path` or a URL, the
    value in `key=value`."""
    parts = [text]
    if "://" in text:
        parts.append(text.split("://", 1)[1].split("/")[0].rsplit("@", 1)[-1].split(":")[0])
    elif "@" in text:
        parts.append(text.rsplit("@", 1)[1].split(":")[0])
    if "=" in text:
        parts.append(text.split("=", 1)[1])
    return parts


# -- the possible targets of a command


def _find_named_by_command(words: Sequence[str]) -> Iterator[_NamedTarget]:
    """The possible targets in a command: hosts if it addresses one, contexts if it selects one, branches and remotes if
    it writes to one, and paths anywhere."""
    programs = {word.rsplit("/", 1)[-1] for word in words}
    is_remote = not programs.isdisjoint(_PRODUCTION_WORDS["remote_programs"])
    writes_git = "git" in programs and not _PRODUCTION_WORDS["git_writes"].isdisjoint(words)
    for before, word in pairwise(["", *words]):
        options = _list_options(before, word)
        for host in _find_hosts(word, options, is_remote=is_remote):
            # First with its port, which a pattern may have. IPv6 addresses have colons too.
            yield _NamedTarget("host", host)
            yield _NamedTarget("host", host.split(":")[0])
        yield from (_NamedTarget("context", value) for value in _select_values(options, "context_options"))
        if writes_git:
            yield from _find_git_targets(word)
        yield _NamedTarget("path", word)


_Options = Sequence[tuple[str, str]]
"""(option, value)."""


def _list_options(before: str, word: str) -> _Options:
    """The options whose value a word may have: the one before it, and its own in `option=value`."""
    option, equals, value = word.partition("=")
    return [(before, word), (option, value)] if equals else [(before, word)]


def _select_values(options: _Options, kind: str) -> list[str]:
    """The values of the options of a kind in `production.toml`."""
    return [value for option, value in options if option in _PRODUCTION_WORDS[kind]]


def _find_hosts(word: str, options: _Options, *, is_remote: bool) -> list[str]:
    """The hosts in the URLs of a word, in the values of its options, or in `user@host`; and the word itself, if the
    program `is_remote`, so that it addresses hosts by plain words."""
    hosts: list[str] = re.findall(r"://(?:[^/@\s]*@)?([^/:\s]+)", word)
    hosts += _select_values(options, "host_options")
    if "@" in word and "://" not in word:
        hosts.append(word.rsplit("@", 1)[1])
    if is_remote and not word.startswith("-"):
        hosts.append(word)
    return hosts


def _find_git_targets(word: str) -> Iterator[_NamedTarget]:
    """The branch and the remote that a word may name, as in `HEAD:refs/heads/main` or `origin/main`."""
    yield _NamedTarget("branch", word.rsplit(":", 1)[-1].removeprefix("refs/heads/"))
    yield _NamedTarget("remote", word.split("/")[0])
