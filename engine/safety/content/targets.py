"""Programs whose harm lies in what they are pointed at: chmod, mv, dd, redirections and their like (SPEC 3.5)."""

from __future__ import annotations

import re
from collections.abc import Callable

from engine.safety.content.calls import Call
from engine.safety.content.deletions import judge_find, judge_rm, judge_windows, judge_xargs, wide
from engine.safety.content.http import judge_copy_away, judge_http
from engine.safety.content.outputs import output_of
from engine.safety.content.patterns import ASK, BLOCK, Hit, has_option, plain_words


def judge_permissions(call: Call) -> Hit | None:
    """chmod, chown, chgrp: recursive on the system or home, world-writable system files."""
    recursive = has_option(call.args, "-R", "--recursive")
    words = plain_words(call)
    paths = words if call.base == "setfacl" else words[1:]
    if recursive and any(
        path in ("/", "/*", "~", "$HOME")
        or re.match(r"^/(etc|bin|sbin|lib|boot|root|sys|proc|dev|usr/(bin|sbin))(/|$)|^/(usr|var|home|opt)/?$", path)
        for path in paths
    ):
        return BLOCK, "permissions", f"changes who may use {paths[0][:80]} and all below"
    if (
        words[:1]
        and words[0] in ("777", "0777", "a+rwx", "666", "000", "0", "0000", "a-rwx")
        and any(_system_file(path) for path in paths)
    ):
        return BLOCK, "permissions", "opens system files to everybody or closes them to all"
    return None


def _system_file(path: str) -> bool:
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
    if any(_SYSTEM_FILE.match(path) for path in paths[-1:]):
        return BLOCK, "system-file", f"overwrites {paths[-1]}"
    return None


_SYSTEM_FILE = re.compile(
    r"^/(etc/(passwd|shadow|sudoers|fstab|hosts|ssh/|pam|crontab|cron\.)|boot/|dev/(sd|nvme|hd|vd|mmc|disk))"
)


_PROFILE = re.compile(
    r"^(~|\$\{?HOME\}?|/home/\w+|/root)/\.(bashrc|bash_profile|zshrc|zprofile|profile|gitconfig|ssh/config|netrc|npmrc|"
    r"config/fish/config\.fish|kube/config|aws/(credentials|config))$"
)


def judge_truncate(call: Call) -> Hit | None:
    """truncate and shred on the system or on devices; shred destroys for good."""
    if has_option(call.args, "--help", "--version"):
        return None
    if any(re.match(r"^/(dev/(?!null)|etc|boot|usr)", word) or wide(word) for word in plain_words(call)):
        return BLOCK, "overwrite", "overwrites for good"
    return (ASK, "overwrite", "overwrites files for good") if call.base == "shred" and call.args else None


def judge_dd(call: Call) -> Hit | None:
    """dd onto a device or a system file."""
    for word in call.args:
        if word.startswith("of=") and (
            _SYSTEM_FILE.match(word[3:]) or re.match(r"/dev/(?!null$|zero$|std|tty|fd/|shm/)", word[3:])
        ):
            return BLOCK, "disk", f"overwrites {word[3:83]}"
    return None


def judge_redirects(call: Call) -> Hit | None:
    """`> /dev/sda`, `> /etc/passwd`."""
    for operator, target in call.simple.redirects:
        if ">" in operator and _SYSTEM_FILE.match(target):
            return BLOCK, "system-file", f"overwrites {target[:80]}"
        if ">" in operator and re.search(r"(^|/)\.ssh/authorized_keys$", target):
            return BLOCK, "system-file", "changes who may log in"
        if operator in (">", ">|", "&>") and _PROFILE.search(target):
            return ASK, "profile", f"replaces {target[:80]}"
        if ">" in operator and re.match(r"^/dev/(tcp|udp)/", target):
            return ASK, "message", "opens a connection to the outside"
    return None


_CONTROL = re.compile(
    r"\b(disable|shutdown|clear|del|delete|drop|kill|set\s+(server|weight|maxconn)|flush_all|stop)\b", re.I
)


def judge_control_socket(call: Call) -> Hit | None:
    """`echo "disable server …" | socat stdio /run/haproxy.sock`: a service is told to stop something."""
    fed = call.simple.stdin
    if fed is None and call.simple.source is not None:
        fed = output_of(call.simple.source, 0)
    if fed is not None and _CONTROL.search(fed[:4000]):
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
)
JUDGES = {program: judge_one for judge_one, programs in _BY_JUDGE for program in programs.split()}


def judge(call: Call) -> Hit | None:
    """What a call's targets say against it."""
    judge_one = JUDGES.get(call.base)
    return (judge_one(call) if judge_one else None) or judge_redirects(call)
