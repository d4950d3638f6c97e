"""The rules on commands (SPEC 3.5): which of them a call breaks first. `rules/commands.toml` has them.

Programs that no rule names are asked about where their own words say that they destroy.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

from engine.safety.content.calls import Call
from engine.safety.content.patterns import ASK, Pattern, glob, plain_words
from engine.safety.content.rule_files import Hit, Rule, read_rules
from engine.safety.content.wrappers import RUNNERS


@dataclass(frozen=True, kw_only=True)
class CommandRule(Rule):
    """A rule on commands, with the patterns of those that break it."""

    patterns: Sequence[str]


@cache
def rules() -> tuple[CommandRule, ...]:
    """All of them, in their order."""
    return tuple(map(CommandRule.parse, read_rules("commands.toml")["rule"]))


_Entry = tuple[Rule, str]


@cache
def _by_program() -> tuple[dict[str, list[_Entry]], list[tuple[re.Pattern[str], list[_Entry]]]]:
    """Patterns as text, by the program they name and by the glob that names their programs."""
    named: dict[str, list[_Entry]] = {}
    globs: dict[str, list[_Entry]] = {}
    for rule in rules():
        for text in rule.patterns:
            for program in text.partition(" ")[0].split("|"):
                table = globs if set(program) & set("*?[") else named
                table.setdefault(program, []).append((rule, text))
    return named, [(glob([program]), entries) for program, entries in globs.items()]


@lru_cache(maxsize=4096)
def _entries(program: str) -> tuple[tuple[Rule, Pattern], ...]:
    """The patterns for one program, blocks before asks; taken apart when the program is first met."""
    named, globs = _by_program()
    matching = list(named.get(program, ()))
    for pattern, entries in globs:
        if pattern.match(program):
            matching += entries
    matching.sort(key=lambda entry: entry[0].verdict is ASK)
    return tuple((rule, Pattern.parse(text)) for rule, text in matching)


def judge(call: Call) -> Hit | None:
    """The first rule a call breaks, blocks before asks; for a program without one, what its own words say."""
    words = plain_words(call)
    matching = (rule.hit for rule, pattern in _entries(call.base[:60]) if pattern.matches(call, words))
    return next(matching, None) or _judge_unlisted(call.base, words)


_VERBS = (
    "delete|destroy|purge|wipe|erase|nuke|terminate|drop|obliterate|teardown|tear-down|decommission|deprovision|"
    "factory-reset|delete-all|destroy-all|drop-all|*:delete|*:destroy|*:drop|*:purge|*:wipe|*:nuke|delete-*|destroy-*|"
    "purge-*|drop-db|drop-database|*-delete|*-destroy|*-purge|delete_*|destroy_*|purge_*|nuke-*|wipe-*"
)
_ALL_VERBS = _VERBS.split("|")
_VERBS_EXACT = frozenset(verb for verb in _ALL_VERBS if "*" not in verb)
_VERB_GLOBS = glob(verb for verb in _ALL_VERBS if "*" in verb)
_LATEST = 4

# Their words are text, files or programs that are judged by themselves.
_TEXT_TOOLS = """
    echo printf grep egrep fgrep rg ag ack git hg svn cvs bzr find fd locate which whereis whatis type man info apropos
    help cat bat less more head tail wc sort uniq cut tr sed awk gawk mawk nawk perl python ruby node php lua tee touch
    mkdir rmdir rm mv cp ln ls ll dir cd pushd popd test [ [[ read export set unset declare local typeset readonly let
    alias unalias for case select function return exit source . eval exec env sudo su xargs sh bash zsh dash ksh fish
    ssh scp sftp rsync tmux screen vi vim nvim emacs nano code ed ex open xdg-open start tar zip unzip gzip file stat du
    df diff cmp comm join paste strings od xxd hexdump expr seq date cal bc factor yes true false say notify-send logger
    mail mutt crontab at watch time timeout nice nohup pytest tox jest mocha vitest rspec go cargo javac gcc cc clang
    psql mysql mariadb sqlite3 mongo mongosh redis-cli basename dirname realpath readlink tput dialog whiptail zenity
    expect jq yq xmllint xmlstarlet rename mmv prename install md5sum sha256sum curl wget http https xh ping dig host
    nslookup trap jobs fg bg wait history complete compgen bind shopt conda apt-cache dpkg dpkg-query rpm brew kubectl
    docker podman
"""
_TAKES_WORDS = frozenset(_TEXT_TOOLS.split())
_TARGET_RUNNERS = frozenset({"make", "npm", "pnpm", "yarn", "bun", "just", "task", "rake", "gradle", "gradlew", "mvn"})
"""What they run has names of its own: only a bare verb counts."""


def _judge_unlisted(base: str, words: Sequence[str]) -> Hit | None:
    """Ask about a destroying verb among the first words of a program that takes sub-commands."""
    if not base or base in _TAKES_WORDS or base[0] in "$-":
        return None
    runs_command = RUNNERS.get(base, {})
    for word in words[:_LATEST]:
        lower = word.lower()
        if lower in runs_command:
            return None  # what follows is a command, which is judged by itself
        if lower in _VERBS_EXACT or (
            base not in _TARGET_RUNNERS
            and len(lower) < 40
            and "/" not in lower
            and "." not in lower
            and _VERB_GLOBS.match(lower)
        ):
            return ASK, "unlisted", f"{base} {lower[:40]}: its name says that it destroys something"
    return None
