"""Finds production targets in prompts, commands, files and hosts: the branches, hosts and paths in `[production]`
(SPEC 3.6).

The human gate asks about cards that have one, and the gate of tools about such calls. A target is described in words,
for instance `branch main` or `host prod-1`.
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
from typing import Any

from engine.config import ProductionSettings
from engine.files import read_table
from engine.model import Trigger

Patterns = tuple[str, ...]
"""Glob patterns of the settings."""

MAX_NAME = 300
"""Maximum number of characters of a word that is compared with targets."""

_WORDS = {name: frozenset(words.split()) for name, words in read_table(__file__, "production.toml").items()}


def targets_of_trigger(trigger: Trigger, production: ProductionSettings) -> tuple[str, ...]:
    """The production targets that a trigger's prompt and parameters name.

    Every word is compared with hosts, contexts and paths. Words are compared with branches and remotes only if the
    prompt speaks of writing to one, or if a parameter has that name, because `main` is also a plain word. A flow never
    writes to a branch or a remote (SPEC 3.9).
    """
    return _matching(_named_by_trigger(trigger, production))


def targets_of_command(command: str, production: ProductionSettings) -> tuple[str, ...]:
    """The production targets among the words of a command."""
    return _matching(_named_by_command(_shell_words(command), production))


def target_of_file(path: str, workspace: str, production: ProductionSettings) -> tuple[str, ...]:
    """The production target that matches a file, by its path in the workspace or its full path; () for none."""
    spellings = (path, str(PurePosixPath(workspace) / path))
    return (f"path {path}",) if any(_matches_any(spelling, production.paths) for spelling in spellings) else ()


def target_of_host(host: str, production: ProductionSettings) -> tuple[str, ...]:
    """The production target that matches a host; () for none."""
    return (f"host {host}",) if _matches_any(host, production.hosts) else ()


_Named = Iterator[tuple[str, str, Patterns]]
"""Possible targets: (kind, name, production patterns of that kind)."""


def _matching(named: _Named) -> tuple[str, ...]:
    """The targets in words, each once. `./deploy/x` is the path `deploy/x`."""
    targets: dict[str, None] = {}
    for kind, text, patterns in named:
        spellings = (text, str(PurePosixPath(text))) if kind == "path" and text else (text,)
        if any(_matches_any(spelling, patterns) for spelling in spellings):
            targets[f"{kind} {text}"] = None
    return tuple(targets)


def _named_by_trigger(trigger: Trigger, production: ProductionSettings) -> _Named:
    assignment = trigger.assignment
    words = [word.strip(".,:;!?()[]{}`'\"") for word in assignment.prompt.split()]
    is_prompt = assignment.flow is None
    if is_prompt:
        yield from _named_by_parameters(assignment.parameters, production)
    writes_to_git = is_prompt and any(word.lower() in _WORDS["writing_words"] for word in words)
    for text in (*words, *_strings(assignment.parameters)):
        if writes_to_git:
            yield from _git_targets(text, production)
        for part in _addressed(text):
            yield "host", part, production.hosts
            yield "context", part, production.contexts
        yield "path", text, production.paths


def _named_by_parameters(parameters: Mapping[str, Any], production: ProductionSettings) -> _Named:
    """The branches and remotes in parameters that have such a name."""
    for key, value in parameters.items():
        if isinstance(value, str) and key.lower() in ("target", "branch", "base", "onto"):
            yield "branch", value, production.branches
        if isinstance(value, str) and key.lower() == "remote":
            yield "remote", value, production.remotes


def _git_targets(word: str, production: ProductionSettings) -> _Named:
    """The branch and the remote that a word may name, as in `HEAD:refs/heads/main` or `origin/main`."""
    yield "branch", word.rsplit(":", 1)[-1].removeprefix("refs/heads/"), production.branches
    yield "remote", word.split("/")[0], production.remotes


def _strings(value: Any) -> list[str]:
    """The texts in a parameter, also those within lists and tables."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, Mapping):
        return [text for item in value.values() for text in _strings(item)]
    if isinstance(value, (list, tuple)):
        return [text for item in value for text in _strings(item)]
    return [] if value is None else [json.dumps(value, default=str)]


def _addressed(text: str) -> list[str]:
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


def _named_by_command(words: Sequence[str], production: ProductionSettings) -> _Named:
    """The possible targets in a command: hosts if it addresses one, contexts if it selects one, branches and remotes if
    it writes to one, and paths anywhere."""
    programs = {word.rsplit("/", 1)[-1] for word in words}
    is_remote = not programs.isdisjoint(_WORDS["remote_programs"])
    writes_git = "git" in programs and not _WORDS["git_writes"].isdisjoint(words)
    for before, word in pairwise(["", *words]):
        name, equals, value = word.partition("=")
        options = [(before, word), *([(name, value)] if equals else [])]
        hosts = _hosts_in(word, options)
        if is_remote and not word.startswith("-"):
            hosts.append(word)
        for host in hosts:
            yield "host", host, production.hosts  # with its port, which a pattern may have; IPv6 addresses have colons
            yield "host", host.split(":")[0], production.hosts
        for option, text in options:
            if option in _WORDS["context_options"]:
                yield "context", text, production.contexts
        if writes_git:
            yield from _git_targets(word, production)
        yield "path", word, production.paths


def _hosts_in(word: str, options: Sequence[tuple[str, str]]) -> list[str]:
    """The hosts in the URLs of a word, in the values of its options, or in `user@host`."""
    hosts: list[str] = re.findall(r"://(?:[^/@\s]*@)?([^/:\s]+)", word)
    hosts += [text for option, text in options if option in _WORDS["host_options"]]
    if "@" in word and "://" not in word:
        hosts.append(word.rsplit("@", 1)[1])
    return hosts


def _shell_words(command: str) -> list[str]:
    try:
        return shlex.split(command.replace("\n", " ; "))
    except ValueError:  # an open quote
        return command.split()


def _matches_any(text: str, patterns: Patterns) -> bool:
    expression = _any_of(patterns)
    folded = text.lower()
    return expression is not None and 0 < len(folded) <= MAX_NAME and expression.match(folded) is not None


@lru_cache(64)
def _any_of(patterns: Patterns) -> re.Pattern[str] | None:
    """A regular expression that matches any of the patterns, in lower case; None without patterns."""
    return re.compile("|".join(translate(pattern.lower()) for pattern in patterns)) if patterns else None
