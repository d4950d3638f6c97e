"""Judges programs by the files and devices that they change: chmod, dd, sed, crontab, redirections (SPEC 3.5).

Rules that a pattern can express are in `rules/targets.toml`. The other rules are functions: here, in `deletions` for rm
and find, and in `leaks` for HTTP clients.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cache

from engine.safety.content.calls import Call
from engine.safety.content.deletions import (
    feeds_everything,
    is_disastrous_loss,
    judge_find,
    judge_rm,
    judge_windows,
    judge_xargs,
)
from engine.safety.content.leaks import judge_http, sent_request
from engine.safety.content.outputs import output_of
from engine.safety.content.rulebook import has_option, plain_words
from engine.safety.content.rules import ASK, BLOCK, Hit, Rule, read_rules
from engine.safety.content.shell import parse


@dataclass(frozen=True, kw_only=True)
class TargetRule(Rule):
    """A rule on the targets of programs; `rules/targets.toml` explains its fields."""

    programs: str
    looks_at: str
    pattern: str
    options: str = ""


@cache
def rules() -> tuple[TargetRule, ...]:
    """All rules on targets, in the order of the file."""
    return tuple(map(TargetRule.parse, read_rules("targets.toml")["rule"]))


def _judge_rules(call: Call, looks: Collection[str] = ()) -> Hit | None:
    """The objection by the first rule that a call breaks, of the rules that look at one of `looks`, by default of all
    rules."""
    texts = cache(lambda name: TEXTS[name](call))
    if call.base in ("truncate", "shred") and has_option(call.args, "--help", "--version"):
        looks = looks or ("written",)  # then only a redirection can do harm
    for rule in rules():
        if (rule.programs != "*" and call.base not in rule.programs.split()) or (looks and rule.looks_at not in looks):
            continue
        if rule.options and not has_option(call.args, *rule.options.split()):
            continue
        for text in texts(rule.looks_at):
            if match := re.search(rule.pattern, text):
                shown = match.groupdict().get("shown") or text
                return rule.verdict, rule.id, rule.reason.format(shown[:80])
    return None


def _find_written_files(call: Call) -> list[str]:
    """The files that redirections write."""
    return [target for operator, target in call.simple.redirects if ">" in operator]


def _find_changed_files(call: Call) -> list[str]:
    """The files that redirections or the program itself write, as far as its arguments show them."""
    files = _find_written_files(call)
    if call.base in ("tee", "dd", "truncate") or (call.base in ("sed", "perl") and edits_in_place(call.args)):
        return files + [word.removeprefix("of=") for word in call.args]
    return files + call.args[-1:] if call.base in ("cp", "mv", "ln", "install", "rsync", "scp") else files


def _find_input(call: Call) -> list[str]:
    """The input of a program, [] if the text alone does not show it."""
    text = call.simple.stdin
    if text is None and call.simple.source is not None:
        text = output_of(call.simple.source, 0)
    return [] if text is None else [text[:4000]]


TEXTS: dict[str, Callable[[Call], list[str]]] = {
    "words": plain_words,
    "rest": lambda call: plain_words(call)[1:],
    "last": lambda call: plain_words(call)[-1:],
    "before": lambda call: plain_words(call)[:-1],
    "line": lambda call: [" ".join(plain_words(call))],
    "args": lambda call: call.args,
    "end": lambda call: call.args[-1:],
    "written": _find_written_files,
    "changed": _find_changed_files,
    "input": _find_input,
    "request": sent_request,
}
"""The texts of a call that a rule may look at, by the names in `rules/targets.toml`."""


def judge_redirects(call: Call) -> Hit | None:
    """The objection to redirections such as `> /dev/sda` or `> /etc/passwd`, None for none."""
    return _judge_rules(call, ("written",))


_STARTS_LATER = (ASK, "starts-later", "changes what runs automatically later")


def judge_later_start(call: Call) -> Hit | None:
    """The objection to crontab, systemctl, launchctl or git settings that start something later, None for none."""
    if call.base == "crontab" and (call.args == ["-"] or (call.args and call.args[0][0] != "-")):
        return _STARTS_LATER
    if call.base in ("systemctl", "launchctl") and {"enable", "load", "bootstrap", "link"} & set(call.args[:3]):
        return _STARTS_LATER if any("/" in word for word in call.args) else None
    return _judge_git_settings(call.args) if call.base == "git" else None


_HARMLESS_SETTINGS = re.compile(
    r"(user\.(name|email)|color\..*|init\.defaultbranch|pull\.\w+|push\.(default|autosetupremote)|core\.(autocrlf|"
    r"eol|filemode|quotepath|ignorecase|whitespace|excludesfile|longpaths)|rerere\..*|fetch\.prune|branch\..*|"
    r"merge\.(conflictstyle|ff)|rebase\..*|credential\.helper|http\.postbuffer|core\.editor|alias\.\S+|"
    r"diff\.(tool|colormoved|algorithm)|merge\.tool|log\.\w+|safe\.directory)$",
    re.IGNORECASE,
)


def _judge_git_settings(args: list[str]) -> Hit | None:
    """The objection to `git config --global KEY VALUE`, which changes all repositories. Reading a setting passes, and
    so do settings that run nothing."""
    if "config" not in args[:4] or not {"--global", "--system"} & set(args):
        return None
    words = [
        word for word in args[args.index("config") + 1 :] if word[:1] != "-" and word not in ("set", "get", "list")
    ]
    reads = any(word.startswith(("--get", "--list", "-l", "--show", "--name-only", "--unset")) for word in args)
    if reads or len(words) < 2 or "get" in args:
        return None
    if _HARMLESS_SETTINGS.fullmatch(words[0]) and not words[1].startswith("!"):
        return None
    return _STARTS_LATER


def edits_in_place(args: list[str]) -> bool:
    """Whether sed or perl overwrites its files, as with `sed -i` or `perl -pi`."""
    return any(re.fullmatch(r"-[a-zA-Z]*i\S*|--in-place\S*", word) and word[:2] != "-I" for word in args[:6])


_EVERYTHING = re.compile(r"(\S*/)?(\*|\*\*|\*\*/\*|\*\.\*)")


def judge_edit(call: Call) -> Hit | None:
    """The objection to sed or perl that overwrites every file, None for none."""
    if not edits_in_place(call.args):
        return None
    if any(re.fullmatch(r"-[a-zA-Z]*i\.?\w{2,}|--in-place=.+", word) and "." in word for word in call.args):
        return None  # a copy of each file is kept
    everything = any(_EVERYTHING.fullmatch(word) for word in call.args[1:])
    if "$()" in call.args:
        everything |= any(feeds_everything(command) for text in call.simple.nested for command in parse(text)[:1])
    if "xargs" in call.via or "parallel" in call.via:
        feeder = call.simple.source
        everything |= feeder is not None and feeder.source is None and feeds_everything(feeder)
    if everything:
        return ASK, "edits-all", "overwrites every file that it finds"
    return None


def judge_emptied(call: Call) -> Hit | None:
    """The objection to emptying files whose names the text does not show, as in `for f in …; do > "$f"; done` or
    `cp /dev/null "$f"`; None for none."""
    nothing = call.base in ("", ":", "true") or (call.base == "cat" and call.args == ["/dev/null"])
    targets = [target for operator, target in call.simple.redirects if operator in (">", ">|", "&>")] if nothing else []
    if call.base == "cp" and call.args[:1] == ["/dev/null"]:
        targets = call.args[1:]
    if any("$" in target or "*" in target or target == "{}" for target in targets):
        return ASK, "rm-unknown", "empties files whose names are not known"
    return None


def judge_truncate(call: Call) -> Hit | None:
    """The objection to truncate or shred on system files or devices, and to any other shred, which cannot be undone;
    None for none."""
    if any(re.match(r"^/(dev/(?!null)|etc|boot|usr)", word) or is_disastrous_loss(word) for word in plain_words(call)):
        return BLOCK, "overwrite", "overwrites permanently"
    return (ASK, "overwrite", "overwrites files permanently") if call.base == "shred" and call.args else None


_BY_JUDGE: tuple[tuple[Callable[[Call], Hit | None], str], ...] = (
    (judge_rm, "rm rimraf unlink srm rmtrash"),
    (judge_windows, "del erase rd rmdir remove-item ri"),
    (judge_find, "find fd"),
    (judge_xargs, "xargs parallel"),
    (judge_http, "curl wget http https xh httpie"),
    (judge_truncate, "truncate shred"),
    (judge_edit, "sed gsed perl"),
)
JUDGES = {program: function for function, programs in _BY_JUDGE for program in programs.split()}


def judge(call: Call) -> Hit | None:
    """The objection to the targets of a call, None for none."""
    judge_program = JUDGES.get(call.base)
    hit = (judge_program(call) if judge_program else None) or _judge_rules(call)
    return hit or judge_later_start(call) or judge_emptied(call)
