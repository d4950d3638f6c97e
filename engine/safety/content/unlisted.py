"""Programs nobody wrote a rule for: a sub-command that says itself that it destroys is asked about (SPEC 3.5).

`acmectl project delete shop`, `make destroy`, `npm run db:drop`: the verb stands among the first words and the program
is none of those whose words are data, such as `grep delete` or `touch drop`.
"""

from __future__ import annotations

from engine.model import Verdict
from engine.safety.content.calls import Call
from engine.safety.content.patterns import ASK, glob, plain_words
from engine.safety.content.wrappers import RUNNERS

_VERBS = (
    "delete|destroy|purge|wipe|erase|nuke|terminate|drop|obliterate|teardown|tear-down|decommission|deprovision|"
    "factory-reset|delete-all|destroy-all|drop-all|*:delete|*:destroy|*:drop|*:purge|*:wipe|*:nuke|delete-*|destroy-*|"
    "purge-*|drop-db|drop-database|*-delete|*-destroy|*-purge|delete_*|destroy_*|purge_*|nuke-*|wipe-*"
)
_BARE = _VERBS.split("|")
_EXACT = frozenset(verb for verb in _BARE if "*" not in verb)
_GLOBS = glob(verb for verb in _BARE if "*" in verb)
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


def judge_unlisted(call: Call) -> tuple[Verdict, str, str] | None:
    """Ask about a destroying verb among the first words of a program that takes sub-commands."""
    base = call.base
    if not base or base in _TAKES_WORDS or base[0] in "$-":
        return None
    hands_on = RUNNERS.get(base, {})
    for word in plain_words(call)[:_LATEST]:
        lower = word.lower()
        if lower in hands_on:
            return None  # what follows is a command, which is judged by itself
        if lower in _EXACT or (
            base not in _TARGET_RUNNERS
            and len(lower) < 40
            and "/" not in lower
            and "." not in lower
            and _GLOBS.match(lower)
        ):
            return ASK, "unlisted", f"{base} {lower[:40]}: its name says that it destroys something"
    return None
