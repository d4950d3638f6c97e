"""Judges programs by the files, devices and services that they change (SPEC 3.5).

Rules that a pattern can express are in `rules/targets.toml`. The other rules are functions: on deleting something at a
service by HTTP, on what starts something later, on editing and emptying every file, and those of `deletions`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cache, lru_cache
from itertools import pairwise

from engine.frozen import frozen_kw_only
from engine.safety.content import ASK, BLOCK, ContentRule, Objection, read_option_lists, read_rules, read_word_list
from engine.safety.content.calls import Call, skip_options, split_last_option
from engine.safety.content.data_flow import find_input, find_program
from engine.safety.content.deletions import find_conditions, judge_find, judge_rm, judge_truncate, judge_xargs
from engine.safety.content.rulebook import find_plain_words, has_option
from engine.safety.content.shell import SimpleCommand, parse


def judge(call: Call) -> Objection | None:
    """The objection to the targets of a call, None for none."""
    judge_program = _JUDGE_OF_PROGRAM.get(call.base)
    objection = judge_program(call) if judge_program else None
    return objection or _judge_by_table(call) or _judge_autostart(call) or _judge_emptied(call)


def judge_redirects(call: Call) -> Objection | None:
    """The objection to redirections such as `> /dev/sda` or `> /etc/passwd`, None for none."""
    return _judge_by_rules(call, (rule for rule in _find_rules_on(call.base[:60]) if rule.looks_at == "written"))


@frozen_kw_only
class TargetRule(ContentRule):
    """A rule on the targets of programs; `rules/targets.toml` explains its fields."""

    programs: str
    looks_at: str
    pattern: str
    options: str = ""

    def judge(self, texts: Iterable[str]) -> Objection | None:
        """The objection to the first text that breaks the rule, None for none."""
        for text in texts:
            if match := re.search(self.pattern, text):
                shown = match.groupdict().get("shown") or text
                return Objection(self.verdict, self.id, self.reason.format(shown[:80]))
        return None


@cache
def load_target_rules() -> tuple[TargetRule, ...]:
    """All rules on targets, in the order of the file."""
    return tuple(map(TargetRule.parse, read_rules("targets.toml")["rule"]))


@lru_cache(1024)
def _find_rules_on(program: str) -> tuple[TargetRule, ...]:
    """The rules on targets of a program."""
    return tuple(rule for rule in load_target_rules() if rule.programs == "*" or program in rule.programs.split())


def _judge_by_table(call: Call) -> Objection | None:
    """The objection by the first rule of the table that a call breaks, None for none."""
    if call.base in ("truncate", "shred") and has_option(call.args, "--help", "--version"):
        return judge_redirects(call)  # nothing else can do harm
    return _judge_by_rules(call, _find_rules_on(call.base[:60]))


def _judge_by_rules(call: Call, rules: Iterable[TargetRule]) -> Objection | None:
    """The objection by the first of these rules that a call breaks, None for none."""
    find_texts = cache(lambda name: _TEXTS_OF_CALL[name](call))
    applying = (rule for rule in rules if not rule.options or has_option(call.args, *rule.options.split()))
    return next(filter(None, (rule.judge(find_texts(rule.looks_at)) for rule in applying)), None)


def _find_written_files(call: Call) -> list[str]:
    """The files that redirections write."""
    return [target for operator, target in call.simple.redirects if ">" in operator]


def _find_changed_files(call: Call) -> list[str]:
    """The files that redirections or the program itself write, as far as its arguments show them."""
    files = _find_written_files(call)
    if call.base in ("tee", "dd", "truncate") or (
        call.base in ("sed", "perl") and _find_backup_suffix(call) is not None
    ):
        return files + [word.removeprefix("of=") for word in call.args]
    return files + call.args[-1:] if call.base in ("cp", "mv", "ln", "install", "rsync", "scp") else files


def _find_input_text(call: Call) -> list[str]:
    """The input of a program, [] if the text alone does not show it."""
    text = find_input(call.simple)
    return [] if text is None else [text[:4000]]


_DATA_OPTIONS = read_word_list("data_options")
"""Options of HTTP clients before data that a request writes."""

_HTTP_VALUES = read_option_lists("http_values")
"""By HTTP client: the options that take a value."""

_HEADERS_OF_DELETE = ("x-http-method-override:delete", "x-http-method:delete")
"""Headers by which a service takes another request for a DELETE."""

_METHODS_AS_WORDS = frozenset({"DELETE", "POST", "PUT", "PATCH"})
"""The methods that httpie takes as a plain word."""

_LOCAL_ADDRESS = re.compile(
    r"^(https?://)?(localhost|127\.0\.0\.1|0\.0\.0\.0|\[::1\])(:(3|4|5|8)\d{3})?(/|$)", re.IGNORECASE
)
"""Matches the address of a service on this machine."""

_REMOTE_ADDRESS = re.compile(r"\w+://|[^\s=./:$]*[./:$][^\s=]*$")
"""Matches a word that is an address, if it is not a local one."""


def _read_options(call: Call) -> list[tuple[str, str]]:
    """The options of an HTTP client, each with its value, if it takes one. A plain word has no option: ("", word)."""
    valued, options, words = _HTTP_VALUES[call.base], list[tuple[str, str]](), iter(call.args)
    for word in words:
        if word[:1] != "-" or word == "-":
            options.append(("", word))
            continue
        option, value = split_last_option(word, valued)
        if word[:2] != "--" and option in valued:
            options += [(f"-{letter}", "") for letter in word[1 : len(word) - len(value) - 1]]
        options.append((option, value if value or option not in valued else next(words, "")))
    return options


def _list_words(call: Call) -> list[str]:
    """The arguments of an HTTP client. Short options of curl that are written as one word are apart: `-s -X DELETE` for
    `-sXDELETE`."""
    if call.base != "curl":
        return call.args
    return [word for option in _read_options(call) for word in option if word]


def _find_addresses(call: Call) -> list[str]:
    """The addresses that an HTTP client asks."""
    words = [word for option, word in _read_options(call) if option in ("", "--url")]
    addresses = [word for word in words if _LOCAL_ADDRESS.match(word) or _REMOTE_ADDRESS.match(word)]
    return addresses if call.base in ("curl", "wget") else addresses[:1]  # httpie takes one; data follow


def _find_sent_request(call: Call) -> list[str]:
    """The address and the data of a request that writes, as one text; [] for a request that reads."""
    args = _list_words(call)
    has_data = any(word in _DATA_OPTIONS or word.startswith(("--data", "-d", "--post")) for word in args)
    if _find_method(call) in ("POST", "PUT", "PATCH") or (has_data and not has_option(args, "-G", "--get")):
        words = [word for word in args if word[:1] != "-" or word.startswith(("--data", "--json", "-d"))]
        return [" ".join(sorted(words, key=lambda word: word[:1] == "-"))[:8000]]
    return []


def _find_method(call: Call) -> str:
    """The method of a request in capitals, "" if the program chooses it."""
    words = _list_words(call)
    if any(word.lower().replace(" ", "").startswith(_HEADERS_OF_DELETE) for word in words):
        return "DELETE"
    methods = [_read_method(call.base, word, following) for word, following in pairwise([*words, ""])]
    return next(filter(None, reversed(methods)), "")


def _read_method(program: str, word: str, following: str) -> str:
    """The method that a word sets, maybe together with the following one; "" for none."""
    is_abbreviated = len(word) > 4 and word.startswith("--") and "--request".startswith(word)
    if is_abbreviated or word in ("-X", "--method"):
        return following.lstrip("=").upper()
    for beginning in ("-X", "--request=", "--method="):
        if word.startswith(beginning):
            return word.removeprefix(beginning).lstrip("=").upper()
    takes_words = program in ("http", "https", "xh", "httpie")
    return word.upper() if takes_words and word.upper() in _METHODS_AS_WORDS else ""


_TEXTS_OF_CALL: dict[str, Callable[[Call], list[str]]] = {
    "words": find_plain_words,
    "rest": lambda call: find_plain_words(call)[1:],
    "last": lambda call: find_plain_words(call)[-1:],
    "before": lambda call: find_plain_words(call)[:-1],
    "line": lambda call: [" ".join(find_plain_words(call))],
    "args": lambda call: call.args,
    "end": lambda call: call.args[-1:],
    "written": _find_written_files,
    "changed": _find_changed_files,
    "input": _find_input_text,
    "request": _find_sent_request,
}
"""The texts of a call that a rule may look at, by the names in `rules/targets.toml`."""


_STARTS_LATER = Objection(ASK, "starts-later", "changes what runs automatically later")
_CRONTAB_VALUES = frozenset({"-u", "-c", "-n"})
"""Options of crontab that take the next word as their value."""

_STARTING_VERBS = frozenset({"enable", "load", "bootstrap", "link"})
"""The verbs of systemctl and launchctl by which a service starts later."""


def _judge_autostart(call: Call) -> Objection | None:
    """The objection to crontab, systemctl, launchctl or git settings that start something later, None for none."""
    if call.base == "crontab":
        return _STARTS_LATER if skip_options(call.args, _CRONTAB_VALUES) else None
    if call.base in ("systemctl", "launchctl"):
        is_starting = not _STARTING_VERBS.isdisjoint(find_plain_words(call))
        return _STARTS_LATER if is_starting and any("/" in word for word in call.args) else None
    return _judge_git_settings(call) if call.base == "git" else None


_HARMLESS_SETTINGS = re.compile(
    r"(user\.(name|email)|color\..*|init\.defaultbranch|pull\.\w+|push\.(default|autosetupremote)|core\.(autocrlf|"
    r"eol|filemode|quotepath|ignorecase|whitespace|excludesfile|longpaths)|rerere\..*|fetch\.prune|branch\..*|"
    r"merge\.(conflictstyle|ff)|rebase\..*|http\.postbuffer|alias\.\S+|diff\.(colormoved|algorithm)|log\.\w+|"
    r"safe\.directory) (?!!).*|"
    r"core\.editor (vim?|nvim|nano|emacs|emacsclient|code|codium|subl|mate|atom|gedit|kate|micro|hx|helix)"
    r"( (--wait|--new-window|--nofork|-w|-n|-f|-nw|-t))*|"
    r"credential\.helper (store|cache|osxkeychain|manager|manager-core|libsecret|wincred)?( --timeout[= ]\d+)?|"
    r"(diff|merge)\.tool [\w-]+",
    re.IGNORECASE | re.DOTALL,
)
"""Matches a setting of git with its value that runs nothing, or only an editor or helper that is known by its name."""

_GLOBAL_SETTINGS = re.compile(r"(\.|/)gitconfig$|/git/config$")
"""Matches a file with settings of git for all repositories."""


def _judge_git_settings(call: Call) -> Objection | None:
    """The objection to `git config --global KEY VALUE`, which changes all repositories. Reading a setting passes, and
    so do settings that run nothing."""
    words = find_plain_words(call)
    if words[:1] != ["config"] or not _changes_all_repositories(call.args):
        return None
    setting = words[2:] if words[1:2] == ["set"] else words[1:]
    reads = any(word.startswith(("--get", "--list", "-l", "--show", "--name-only", "--unset")) for word in call.args)
    if reads or len(setting) < 2 or setting[0] in ("get", "list"):
        return None
    return None if _HARMLESS_SETTINGS.fullmatch(" ".join(setting[:2])) else _STARTS_LATER


def _changes_all_repositories(args: list[str]) -> bool:
    """Whether the options of `git config` name the settings of the user or the machine."""
    if any(word.startswith(("--gl", "--sy")) for word in args):
        return True
    names_file = any(word.startswith(("-f", "--fil")) for word in args)
    return names_file and any(_GLOBAL_SETTINGS.search(word) for word in args)


_EDITOR_VALUES = {
    **dict.fromkeys(("sed", "gsed"), frozenset({"-e", "-f"})),
    "perl": frozenset({"-e", "-E", "-I", "-M", "-m", "-F", "-x"}),
}
"""Options of editors that take the rest of the word, or the next one, as their value."""

_ATTACHED_VALUES = ("-M", "-m", "-F", "-x")
"""Options among these that never take the next word."""


def _find_backup_suffix(call: Call) -> str | None:
    """The suffix of the copies that sed or perl keeps of the files that it overwrites, as with `sed -i.bak`; "" for no
    copies, None if it overwrites no files."""
    words = iter(call.args)
    for word in words:
        if word.startswith("--i"):
            return word.partition("=")[2]
        option, value = split_last_option(word, {*_EDITOR_VALUES[call.base], "-i"})
        if word[:1] != "-" or word[:2] == "--":
            continue
        if option == "-i":
            return value
        if option in _EDITOR_VALUES[call.base] and option not in _ATTACHED_VALUES and not value:
            next(words, None)
    return None


def _judge_edit(call: Call) -> Objection | None:
    """The objection to sed or perl that overwrites every file and keeps no copies, None for none."""
    suffix = _find_backup_suffix(call)
    if suffix is None or re.fullmatch(r"\w*\.\w+", suffix):
        return None
    return Objection(ASK, "edits-all", "overwrites every file that it finds") if _gets_every_file(call) else None


_GLOB_OF_ALL = re.compile(r"(\S*/)?(\*|\*\*|\*\*/\*|\*\.\*)")
"""Matches a glob for all files of a folder."""


def _gets_every_file(call: Call) -> bool:
    """Whether a call gets the names of all files: by a glob, from a `$(…)`, or by xargs."""
    if any(_GLOB_OF_ALL.fullmatch(word) for word in call.args[1:]):
        return True
    nested = call.simple.substitutions if "$()" in call.args else []
    if any(_lists_every_file(command) for text in nested for command in parse(text)[:1]):
        return True
    producer = call.simple.piped_from if "xargs" in call.via or "parallel" in call.via else None
    return producer is not None and producer.piped_from is None and _lists_every_file(producer)


def _judge_emptied(call: Call) -> Objection | None:
    """The objection to emptying files whose names the text does not show, as in `for f in …; do > "$f"; done` or
    `cp /dev/null "$f"`; None for none."""
    prints_nothing = call.base in ("", ":", "true") or (call.base == "cat" and call.args == ["/dev/null"])
    if prints_nothing:
        targets = [target for operator, target in call.simple.redirects if operator in (">", ">|", "&>")]
    elif call.base == "cp" and call.args[:1] == ["/dev/null"]:
        targets = call.args[1:]
    else:
        return None
    if any("$" in target or "*" in target or target == "{}" for target in targets):
        return Objection(ASK, "rm-unknown", "empties files whose names are not known")
    return None


def _lists_every_file(simple: SimpleCommand) -> bool:
    """Whether a command lists every file: `git ls-files`, or `find .` without conditions."""
    program, words = find_program(simple), simple.argv
    if program == "git":
        return words[1:2] == ["ls-files"] and not any(word[:1] != "-" for word in words[2:])
    return program == "find" and not find_conditions(words)


def _judge_http(call: Call) -> Objection | None:
    """The objection to a DELETE request of curl, wget or httpie, None for none. Other requests are judged by
    `rules/targets.toml`."""
    if _find_method(call) == "DELETE" or has_option(call.args, "-Q", "--quote"):
        addresses = _find_addresses(call)
        if addresses and all(map(_LOCAL_ADDRESS.match, addresses)):
            return Objection(ASK, "http-delete", "deletes something at a local service")
        return Objection(BLOCK, "http-delete", "deletes something at a service")
    return None


_PROGRAMS_OF_JUDGES: tuple[tuple[Callable[[Call], Objection | None], str], ...] = (
    (judge_rm, "rm rimraf unlink srm rmtrash"),
    (judge_find, "find fd"),
    (judge_xargs, "xargs parallel"),
    (_judge_http, "curl wget http https xh httpie"),
    (judge_truncate, "truncate shred"),
    (_judge_edit, "sed gsed perl"),
)
"""The functions that judge programs, each with its programs."""

_JUDGE_OF_PROGRAM = {program: function for function, programs in _PROGRAMS_OF_JUDGES for program in programs.split()}
