"""Programs whose harm lies in what they are pointed at: chmod, mv, dd, redirections and their like (SPEC 3.5)."""

from __future__ import annotations

import re
from collections.abc import Callable

from engine.safety.content.calls import Call
from engine.safety.content.deletions import (
    feeds_everything,
    is_disastrous_loss,
    judge_find,
    judge_rm,
    judge_windows,
    judge_xargs,
)
from engine.safety.content.leaks import INDEX_FILES, judge_copy_away, judge_http
from engine.safety.content.outputs import output_of
from engine.safety.content.patterns import ASK, BLOCK, has_option, plain_words
from engine.safety.content.rule_files import Hit
from engine.safety.content.shell import parse


def judge_permissions(call: Call) -> Hit | None:
    """chmod, chown, chgrp: recursive on the system or home, world-writable system files."""
    recursive = has_option(call.args, "-R", "--recursive")
    words = plain_words(call)
    paths = words if call.base == "setfacl" else words[1:]
    if recursive and (path := next(filter(_is_system_tree, paths), None)) is not None:
        return BLOCK, "permissions", f"changes who may use {path[:80]} and everything below"
    if (
        words[:1]
        and words[0] in ("777", "0777", "a+rwx", "666", "000", "0", "0000", "a-rwx")
        and any(_is_under_system_folder(path) for path in paths)
    ):
        return BLOCK, "permissions", "gives everybody access to system files, or nobody"
    return None


def _is_system_tree(path: str) -> bool:
    """Whether what lies below `path` is the system, or all of home."""
    return path in ("/", "/*", "~", "$HOME") or bool(
        re.match(r"^/(etc|bin|sbin|lib|boot|root|sys|proc|dev|usr/(bin|sbin))(/|$)|^/(usr|var|home|opt)/?$", path)
    )


def _is_under_system_folder(path: str) -> bool:
    return bool(re.match(r"^/(etc|usr|bin|sbin|boot|root)(/|$)|^/$", path))


def judge_move(call: Call) -> Hit | None:
    """mv and cp onto devices, of whole system folders, into nothing."""
    paths = plain_words(call)
    if paths and (
        (paths[-1] == "/dev/null" and call.base == "mv") or re.match(r"^/dev/(sd|nvme|hd|vd|disk|mmc)", paths[-1])
    ):
        return BLOCK, "move", f"moves into {paths[-1]}"
    if call.base == "mv" and any(
        path.rstrip("/") in ("", "/etc", "/usr", "/home", "/var", "/bin", "~") for path in paths[:-1]
    ):
        return BLOCK, "move", "moves a system folder away"
    if any(_PROTECTED_FILE.match(path) for path in paths[-1:]):
        return BLOCK, "system-file", f"overwrites {paths[-1]}"
    return None


_PROTECTED_FILE = re.compile(
    r"^/(etc/(passwd|shadow|sudoers|fstab|hosts|ssh/|pam|crontab|cron\.)|boot/|dev/(sd|nvme|hd|vd|mmc|disk))"
)


_HOME = r"^(~|\$\{?HOME\}?|/home/[\w.-]+|/Users/[\w.-]+|/root)/"
_STARTUP_FILES = re.compile(
    _HOME + r"(\.(bashrc|bash_profile|bash_login|bash_logout|bash_aliases|profile|zshrc|zshenv|zprofile|zlogin|"
    r"gitconfig|netrc|npmrc|vimrc|inputrc|xinitrc|xprofile|ssh/\w+|config/fish/.*|config/(systemd|autostart|git)/.*|"
    r"kube/config|aws/\w+|cargo/config\S*|local/share/systemd/.*)|Library/LaunchAgents/.*)$|"
    r"^/(etc/(profile|bash|zsh|environment|systemd/|init\.d/|rc\.|ld\.so|cron|sudoers|gitconfig)|"
    r"(usr/)?lib/systemd/|Library/Launch|var/spool/cron)"
)
"""Files that a shell, a login, a timer or git runs or obeys by itself later."""

_HOOKS = re.compile(r"(^|/)\.git/(hooks/|config$|info/attributes$)")
_STARTS_LATER = (ASK, "starts-later", "changes what runs automatically later")


def judge_startup_files(call: Call) -> Hit | None:
    """tee, cp, mv, ln, install, sed -i and redirections into files that start something later."""
    files = [target for operator, target in call.simple.redirects if ">" in operator]
    if call.base in ("tee", "dd", "truncate") or (call.base in ("sed", "perl") and edits_in_place(call.args)):
        files += [word.removeprefix("of=") for word in call.args]
    elif call.base in ("cp", "mv", "ln", "install", "rsync", "scp"):
        files += call.args[-1:]
    if any(_STARTUP_FILES.search(file) or _HOOKS.search(file) for file in files):
        return _STARTS_LATER
    if any(INDEX_FILES.search(file) for file in files):
        return ASK, "foreign-index", "changes where packages come from"
    if call.base == "crontab" and (call.args == ["-"] or (call.args and call.args[0][0] != "-")):
        return _STARTS_LATER
    if call.base in ("systemctl", "launchctl") and {"enable", "load", "bootstrap", "link"} & set(call.args[:3]):
        return _STARTS_LATER if any("/" in word for word in call.args) else None
    return _git_settings(call.args) if call.base == "git" else None


_HARMLESS_SETTINGS = re.compile(
    r"(user\.(name|email)|color\..*|init\.defaultbranch|pull\.\w+|push\.(default|autosetupremote)|core\.(autocrlf|"
    r"eol|filemode|quotepath|ignorecase|whitespace|excludesfile|longpaths)|rerere\..*|fetch\.prune|branch\..*|"
    r"merge\.(conflictstyle|ff)|rebase\..*|credential\.helper|http\.postbuffer|core\.editor|alias\.\S+|"
    r"diff\.(tool|colormoved|algorithm)|merge\.tool|log\.\w+|safe\.directory)$",
    re.IGNORECASE,
)


def _git_settings(args: list[str]) -> Hit | None:
    """`git config --global KEY VALUE`, of all repositories; looking, and what runs nothing, passes."""
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
    """`sed -i`, `perl -pi`: files are overwritten."""
    return any(re.fullmatch(r"-[a-zA-Z]*i\S*|--in-place\S*", word) and word[:2] != "-I" for word in args[:6])


_EVERYTHING = re.compile(r"(\S*/)?(\*|\*\*|\*\*/\*|\*\.\*)")


def judge_edit(call: Call) -> Hit | None:
    """sed and perl in place over every file that there is."""
    if not edits_in_place(call.args):
        return None
    if any(re.fullmatch(r"-[a-zA-Z]*i\.?\w{2,}|--in-place=.+", word) and "." in word for word in call.args):
        return None  # it keeps a copy of each
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
    """`for f in …; do > "$f"; done`, `cp /dev/null "$f"`: files whose names are not known here are emptied."""
    nothing = call.base in ("", ":", "true") or (call.base == "cat" and call.args == ["/dev/null"])
    targets = [target for operator, target in call.simple.redirects if operator in (">", ">|", "&>")] if nothing else []
    if call.base == "cp" and call.args[:1] == ["/dev/null"]:
        targets = call.args[1:]
    if any("$" in target or "*" in target or target == "{}" for target in targets):
        return ASK, "rm-unknown", "empties files whose names are not known"
    return None


def judge_truncate(call: Call) -> Hit | None:
    """truncate and shred on the system or on devices; shred destroys for good."""
    if has_option(call.args, "--help", "--version"):
        return None
    if any(re.match(r"^/(dev/(?!null)|etc|boot|usr)", word) or is_disastrous_loss(word) for word in plain_words(call)):
        return BLOCK, "overwrite", "overwrites permanently"
    return (ASK, "overwrite", "overwrites files permanently") if call.base == "shred" and call.args else None


def judge_dd(call: Call) -> Hit | None:
    """dd onto a device or a system file."""
    for word in call.args:
        if word.startswith("of=") and (
            _PROTECTED_FILE.match(word[3:]) or re.match(r"/dev/(?!null$|zero$|std|tty|fd/|shm/)", word[3:])
        ):
            return BLOCK, "disk", f"overwrites {word[3:83]}"
    return None


def judge_redirects(call: Call) -> Hit | None:
    """`> /dev/sda`, `> /etc/passwd`."""
    for operator, target in call.simple.redirects:
        if ">" in operator and _PROTECTED_FILE.match(target):
            return BLOCK, "system-file", f"overwrites {target[:80]}"
        if ">" in operator and re.search(r"(^|/)\.ssh/(authorized_keys|rc|config)$", target):
            return BLOCK, "system-file", "changes who may log in"
        if ">" in operator and re.match(r"^/dev/(tcp|udp)/", target):
            return ASK, "message", "opens a connection to the outside"
    return None


_CONTROL = re.compile(
    r"\b(disable|shutdown|clear|del|delete|drop|kill|set\s+(server|weight|maxconn)|flush_all|stop)\b", re.I
)


def judge_control_socket(call: Call) -> Hit | None:
    """`echo "disable server …" | socat stdio /run/haproxy.sock`: a service gets the order to stop something."""
    input_text = call.simple.stdin
    if input_text is None and call.simple.source is not None:
        input_text = output_of(call.simple.source, 0)
    if input_text is not None and _CONTROL.search(input_text[:4000]):
        return ASK, "control-socket", "tells a service to stop or delete something"
    return None


_BY_JUDGE: tuple[tuple[Callable[[Call], Hit | None], str], ...] = (
    (judge_rm, "rm rimraf unlink srm rmtrash"),
    (judge_windows, "del erase rd rmdir remove-item ri"),
    (judge_find, "find fd"),
    (judge_xargs, "xargs parallel"),
    (judge_dd, "dd dcfldd"),
    (judge_permissions, "chmod chown chgrp setfacl"),
    (judge_move, "mv cp tee ln install"),
    (judge_http, "curl wget http https xh httpie"),
    (judge_copy_away, "scp nc ncat rsync sftp ftp rclone"),
    (judge_truncate, "truncate shred"),
    (judge_control_socket, "socat telnet"),
    (judge_edit, "sed gsed perl"),
)
JUDGES = {program: function for function, programs in _BY_JUDGE for program in programs.split()}


def judge(call: Call) -> Hit | None:
    """The objection to the targets of a call, None for none."""
    judge_program = JUDGES.get(call.base)
    hit = (judge_program(call) if judge_program else None) or judge_redirects(call)
    return hit or judge_startup_files(call) or judge_emptied(call)
