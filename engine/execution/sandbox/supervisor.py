"""Keeps the processes of one command together where no process namespace does, and ends them all with it (SPEC 3.8).

Run as `python -I -S supervisor.py NAME=VALUE … -- COMMAND …`: standard library only, no import of the engine. It is the
subreaper of the command: a process that forks twice, calls setsid or drops its environment is still its descendant.
When the command has ended, when the engine has died, or on SIGTERM, it kills every descendant until none is left. Its
exit status is the command's.

With rules it holds the command by Landlock and seccomp. Landlock does not know some calls (chmod, utime, chown,
priorities of other processes): the kernel passes these on to the supervisor, which does them for the command where
they concern the command's own files and processes, and refuses them everywhere else.

Because nothing can be imported, one file has four parts: the run of the command, its descendants, the system calls that
are passed on, and the `.git` of the worktree.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import resource
import select
import signal
import stat
import struct
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # neither is worth its part of the start
    from collections.abc import Callable, Sequence

NAME = b"clawpy-keeper"
"""Its name in lists of processes."""

_MAX_GIT_FILE_BYTES = 4096

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_PR_CAPBSET_DROP = 24
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38

_SYS_PIDFD_OPEN = 434
_SYS_PIDFD_GETFD = 438
_SYS_LANDLOCK_CREATE_RULESET = 444
_SYS_LANDLOCK_ADD_RULE = 445
_SYS_LANDLOCK_RESTRICT_SELF = 446
_SYS_CAPSET = {"x86_64": 126, "aarch64": 91}
_SYS_SECCOMP = {"x86_64": 317, "aarch64": 277}

_LINUX_CAPABILITY_VERSION_3 = 0x20080522
_SECCOMP_SET_MODE_FILTER = 1
_SECCOMP_FILTER_FLAG_NEW_LISTENER = 8
_SECCOMP_IOCTL_NOTIF_RECV = 0xC0502100
_SECCOMP_IOCTL_NOTIF_SEND = 0xC0182101
_SECCOMP_IOCTL_NOTIF_ID_VALID = 0x40082102
_SECCOMP_USER_NOTIF_FLAG_CONTINUE = 1

_LANDLOCK_RULE_PATH_BENEATH = 1
LANDLOCK_EXECUTE = 1 << 0
LANDLOCK_WRITE_FILE = 1 << 1
LANDLOCK_READ_FILE = 1 << 2
LANDLOCK_TRUNCATE = 1 << 14
LANDLOCK_IOCTL_DEV = 1 << 15
_LANDLOCK_FILE_RIGHTS = (
    LANDLOCK_EXECUTE | LANDLOCK_WRITE_FILE | LANDLOCK_READ_FILE | LANDLOCK_TRUNCATE | LANDLOCK_IOCTL_DEV
)
"""Rights of Landlock that a single file can have."""

_AT_FDCWD = -100
_AT_SYMLINK_NOFOLLOW = 0x100
_AT_EMPTY_PATH = 0x1000
_IOPRIO_WHO_PROCESS = 1
_IOPRIO_WHO_PGRP = 2

_PATH_BYTES = 4096
_PAGE = 4096

_libc = ctypes.CDLL(None, use_errno=True)
_machine = os.uname().machine


class Arguments:
    """The arguments of the command line: `NAME=VALUE` or `NAME=VALUE:VALUE`, some of them again and again, "--", and
    the command."""

    def __init__(self, arguments: Sequence[str]) -> None:
        end = arguments.index("--")
        self.argv = list(arguments[end + 1 :])
        values: dict[str, list[str]] = {}
        for argument in arguments[:end]:
            name, _, value = argument.partition("=")
            values.setdefault(name, []).append(value)

        def pairs(name: str) -> list[tuple[int, str]]:
            return [(int(first), second) for first, second in (value.split(":", 1) for value in values.get(name, []))]

        def last(name: str, default: str = "") -> str:
            return values.get(name, [default])[-1]

        self.limits = pairs("limit")
        self.nice = int(last("nice", "0"))
        self.oom_score = last("oom")
        self.landlock_handled = pairs("handled")
        """The rights that Landlock holds, as bits, and its scope."""
        self.landlock_rules = pairs("rule")
        """Rights, and the place at and below which the command has them."""
        self.writable = values.get("writable", [])
        self.cwd = last("cwd")
        self.git_file = last("git")
        self.seccomp_filter = bytes.fromhex(last("filter"))
        self.calls = dict(pairs("call"))
        """The names of the system calls that the kernel passes on, by their numbers."""


def program_path() -> str:
    """The path of this program, compiled where Python keeps it, which saves half of its start."""
    compiled = globals().get("__cached__")
    return compiled if compiled and os.path.exists(compiled) else os.path.abspath(__file__)


def main(arguments: Sequence[str]) -> None:
    """Run the command to its end, and everything that it started with it."""
    options = Arguments(arguments)
    signals: list[int] = []
    wake_read = _become_subreaper(signals)
    is_confined = bool(options.seccomp_filter)
    git_content = _read_git_file(options.git_file)
    ruleset = _make_ruleset(options) if is_confined else -1
    if is_confined:
        _drop_capabilities()
    listener_read, listener_write = os.pipe2(os.O_CLOEXEC)
    ready_read, ready_write = os.pipe2(os.O_CLOEXEC)
    child = os.fork()
    if child == 0:
        os.close(listener_read)
        os.close(ready_write)
        _run_child(options, ruleset, listener_write, ready_read)
    os.close(listener_write)
    os.close(ready_read)
    listener = _take_listener(child, listener_read) if is_confined else -1
    os.close(ready_write)  # the child goes on when it reads the end of this pipe
    _release_pipes()
    status = _wait_for_child(child, options, wake_read, listener, signals)
    if listener >= 0:
        os.close(listener)
    _kill_descendants()
    if options.git_file:
        _restore_git_file(options.git_file, git_content)
    _exit_like(int(signal.SIGTERM) if status is None else status)


def _become_subreaper(signals: list[int]) -> int:
    """Adopt every descendant that loses its parent, and end when the engine does. Returns a descriptor that has
    something to read when a child ended or a signal came; those that tell us to end are added to `signals`."""
    wake_read, wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda number, frame: signals.append(number))
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    _libc.prctl(_PR_SET_NAME, NAME, 0, 0, 0)
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    _libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
    return wake_read


def _exit_like(status: int) -> None:
    """End with the wait status of the command: with its exit code, or by its signal."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        try:
            signal.signal(number, signal.SIG_DFL)
        except (OSError, ValueError):
            pass  # SIGKILL has no handler
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.kill(os.getpid(), number)
    os._exit(os.WEXITSTATUS(status))


def _run_child(options: Arguments, ruleset: int, listener_write: int, ready_read: int) -> None:
    """In the child: set its limits, confine it, and become the command."""
    try:
        os.setsid()
        ignored_by_python = (signal.SIGPIPE, signal.SIGXFSZ)  # a command would inherit that
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD, *ignored_by_python):
            signal.signal(number, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        _set_limits(options)
        if options.cwd:
            os.chdir(options.cwd)
        if options.seccomp_filter:
            _raise_errno(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
            _raise_errno(_libc.syscall(_SYS_LANDLOCK_RESTRICT_SELF, ruleset, 0), "landlock")
            listener = _load_filter(options.seccomp_filter)
            os.write(listener_write, b"%d\n" % listener)
            os.read(ready_read, 1)
            os.close(listener)
        os.execvp(options.argv[0], options.argv)
    except OSError as error:
        print(f"{options.argv[0]}: {error.strerror}", file=sys.stderr, flush=True)
        os._exit(127 if isinstance(error, FileNotFoundError) else 126)


def _load_filter(program: bytes) -> int:
    """Load the seccomp filter. Returns the descriptor on which the kernel passes calls on."""
    instructions = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(instructions))
    listener = _libc.syscall(
        _SYS_SECCOMP[_machine],
        _SECCOMP_SET_MODE_FILTER,
        _SECCOMP_FILTER_FLAG_NEW_LISTENER,
        ctypes.create_string_buffer(header, len(header)),
    )
    _raise_errno(listener, "seccomp")
    return int(listener)


def _set_limits(options: Arguments) -> None:
    for kind, wanted in options.limits:
        maximum, hard = int(wanted), resource.getrlimit(kind)[1]
        maximum = maximum if hard == resource.RLIM_INFINITY else min(maximum, hard)
        resource.setrlimit(kind, (maximum, maximum))
    try:
        os.setpriority(os.PRIO_PROCESS, 0, options.nice)
    except OSError:
        pass
    for name, value in (("oom_score_adj", options.oom_score), ("autogroup", str(options.nice))):
        try:
            with open(f"/proc/self/{name}", "w") as file:
                file.write(value)
        except OSError:
            pass


def _raise_errno(result: int, operation: str) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{operation}: {os.strerror(number)}")


def _drop_capabilities() -> None:
    """Drop all capabilities: root only stays the owner of its files."""
    number = 0
    while _libc.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0) == 0:
        number += 1
    header = ctypes.create_string_buffer(struct.pack("Ii", _LINUX_CAPABILITY_VERSION_3, 0), 8)
    _raise_errno(_libc.syscall(_SYS_CAPSET[_machine], header, ctypes.create_string_buffer(24)), "capset")


def _make_ruleset(options: Arguments) -> int:
    """The Landlock ruleset. A place that is gone by now is left out."""
    ((handled, scope),) = options.landlock_handled
    attributes = struct.pack("QQQ", handled, 0, int(scope))
    size = 24 if int(scope) else 8
    ruleset = int(_libc.syscall(_SYS_LANDLOCK_CREATE_RULESET, ctypes.create_string_buffer(attributes, 24), size, 0))
    _raise_errno(ruleset, "landlock")
    for access, path in options.landlock_rules:
        try:
            # Where commands write, nothing is followed: one of them may have put a link there.
            place = os.open(path, os.O_PATH | os.O_CLOEXEC | (os.O_NOFOLLOW if path in options.writable else 0))
        except OSError:
            continue
        if not stat.S_ISDIR(os.fstat(place).st_mode):
            access &= _LANDLOCK_FILE_RIGHTS
        rule = struct.pack("=Qi", access, place)
        rule_buffer = ctypes.create_string_buffer(rule, len(rule))
        added = _libc.syscall(_SYS_LANDLOCK_ADD_RULE, ruleset, _LANDLOCK_RULE_PATH_BENEATH, rule_buffer, 0)
        _raise_errno(added, f"landlock: {path}")
        os.close(place)
    return ruleset


def _release_pipes() -> None:
    """Close our ends of the command's input and output: when the command closes its own, the other side sees that."""
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for number in (0, 1):
        os.dup2(nothing, number)
    os.close(nothing)


def _take_listener(child: int, listener_read: int) -> int:
    """The child's descriptor on which the kernel passes its calls on; -1 when the child could not be confined."""
    with open(listener_read, "rb") as answers:
        line = answers.readline()
    if not line:
        return -1
    process = _libc.syscall(_SYS_PIDFD_OPEN, child, 0)
    _raise_errno(process, "pidfd_open")
    listener = _libc.syscall(_SYS_PIDFD_GETFD, process, int(line), 0)
    os.close(process)
    if listener < 0:
        number = ctypes.get_errno()
        os.kill(child, signal.SIGKILL)
        print(f"supervisor: pidfd_getfd: {os.strerror(number)}", file=sys.stderr, flush=True)
    return int(listener)


def _wait_for_child(child: int, options: Arguments, wake_read: int, listener: int, signals: list[int]) -> int | None:
    """Reap children and answer the calls that are passed on, until the command has ended. Its wait status; None when a
    signal told us to end."""
    poller = select.poll()
    poller.register(wake_read, select.POLLIN)
    if listener >= 0:
        poller.register(listener, select.POLLIN)
    while True:
        for ready, events in poller.poll():
            if ready == wake_read:
                try:
                    os.read(wake_read, 512)
                except BlockingIOError:
                    pass
            elif events & select.POLLIN:
                _answer_call(listener, options)
            else:
                poller.unregister(listener)
        if signals:
            return None
        for pid, status in _reap_children():
            if pid == child:
                return status


def _reap_children() -> list[tuple[int, int]]:
    """The children that have ended, each with its wait status."""
    ended = []
    try:
        while (child := os.waitpid(-1, os.WNOHANG))[0]:
            ended.append(child)
    except ChildProcessError:
        pass
    return ended


# Descendants


def _parent_of(pid: int) -> int | None:
    """The parent of a process, None when it has ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else int(fields[1])


def _descendants() -> list[int]:
    """Our living descendants, in no order."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (parent := _parent_of(int(name))) is not None:
            children.setdefault(parent, []).append(int(name))
    result, pending = [], [os.getpid()]
    while pending:
        own_children = children.get(pending.pop(), [])
        result += own_children
        pending += own_children
    return result


def _is_descendant(pid: int) -> bool:
    """Whether a process or thread is the supervisor's."""
    own_pid, ancestor = os.getpid(), _parent_of(pid)
    for _ in range(10_000):
        if ancestor is None or ancestor <= 1:
            return False
        if ancestor == own_pid:
            return True
        ancestor = _parent_of(ancestor)
    return False


def _kill_descendants() -> None:
    """Kill descendants until none is left. A process that loses its parent becomes our child.

    Only we reap our children, so their numbers belong to no other process; killing them alone is quick enough for
    programs that fork and end all the time. Deeper descendants become children in time; every 16th round kills them
    directly.
    """
    rounds = 0
    while True:
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        for pid in _children() if rounds % 16 else _descendants():
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        rounds += 1
        os.sched_yield()


def _children() -> list[int]:
    """Our children, dead ones among them."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children", "rb") as file:
            return [int(pid) for pid in file.read().split()]
    except OSError:  # this kernel has no such list
        return _descendants()


# Calls that are passed on


def _answer_call(listener: int, options: Arguments) -> None:
    """Receive one call, do it for the command or let the kernel go on with it, else refuse it."""
    request = bytearray(80)
    try:
        fcntl.ioctl(listener, _SECCOMP_IOCTL_NOTIF_RECV, request)
    except OSError:
        return  # the caller was killed while it waited
    token, caller, _, number, _, _, *arguments = struct.unpack("QIIiIQ6Q", request)
    call, name = _Call(listener, token, caller, number, arguments, options.writable), options.calls[number]
    negative_errno, flags = 0, 0
    try:
        if name in _EMULATED:
            _EMULATED[name](call)
        else:
            _CHECKED.get(name, _check_process)(call)
            flags = _SECCOMP_USER_NOTIF_FLAG_CONTINUE
    except OSError as error:
        negative_errno = -(error.errno or errno.EPERM)
    try:
        fcntl.ioctl(listener, _SECCOMP_IOCTL_NOTIF_SEND, struct.pack("QqiI", token, 0, negative_errno, flags))
    except OSError:
        pass  # the caller was killed meanwhile


class _Call:
    """One system call of a confined process: `arguments` are its registers."""

    def __init__(
        self, listener: int, token: int, caller: int, number: int, arguments: Sequence[int], writable: Sequence[str]
    ) -> None:
        self.caller = caller
        self.own_number = number
        self.arguments = arguments
        self._listener = listener
        self._token = token
        self._writable = writable

    def number(self, index: int) -> int:
        """A signed int."""
        return int(ctypes.c_int(self.arguments[index]).value)

    def memory(self, address: int, size: int) -> bytes:
        """Up to `size` bytes of the caller's memory. Raises OSError."""
        content = b""
        with open(f"/proc/{self.caller}/mem", "rb", buffering=0) as memory:
            fcntl.ioctl(
                self._listener, _SECCOMP_IOCTL_NOTIF_ID_VALID, struct.pack("Q", self._token)
            )  # it is the caller's, not another's
            while len(content) < size:
                position = address + len(content)
                piece = os.pread(memory.fileno(), min(size - len(content), _PAGE - position % _PAGE), position)
                content += piece
                if not piece or (size == _PATH_BYTES and b"\0" in piece):
                    break
        return content

    def open_writable(self, directory_fd: int, path_address: int | None, at_flags: int = 0) -> _WritableFile:
        """The file of a call, by its directory, the address of its path (None for the descriptor `directory_fd` itself)
        and its `AT_` flags. Raises OSError, EPERM when the command may not write it."""
        path = b"" if path_address is None else self.memory(path_address, _PATH_BYTES).partition(b"\0")[0]
        caller_folder = f"/proc/{self.caller}/".encode()
        base = caller_folder + (b"cwd" if directory_fd == _AT_FDCWD else b"fd/%d" % directory_fd)
        if not path and path_address is not None and not at_flags & _AT_EMPTY_PATH:
            raise OSError(errno.ENOENT, "no path")
        for name in (b"/proc/self/", b"/proc/thread-self/"):
            if path.startswith(name):
                path = caller_folder + path[len(name) :]
        full = path if path.startswith(b"/") else base + (b"/" + path if path else b"")
        no_follow = os.O_NOFOLLOW if path and at_flags & _AT_SYMLINK_NOFOLLOW else 0
        descriptor = os.open(full, os.O_PATH | os.O_CLOEXEC | no_follow)
        real = os.readlink(f"/proc/self/fd/{descriptor}")
        if not any(real == place or real.startswith(place + "/") for place in self._writable):
            os.close(descriptor)
            raise OSError(errno.EPERM, "not the command's own")
        return _WritableFile(descriptor)


class _WritableFile:
    """A file that the command may write, held open so that it cannot be exchanged."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.path = f"/proc/self/fd/{descriptor}"

    def __enter__(self) -> _WritableFile:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)


def _chmod(target: _WritableFile, mode: int) -> None:
    with target:
        mode &= 0o7777
        if mode & stat.S_ISUID or (mode & stat.S_ISGID and not stat.S_ISDIR(os.stat(target.path).st_mode)):
            raise OSError(errno.EPERM, "no file runs as somebody else")
        os.chmod(target.path, mode)


def _chown(target: _WritableFile, user: int, group: int) -> None:
    with target:
        os.chown(target.path, user, group)  # our capabilities are gone: the command could do no less itself


def _utimensat(call: _Call) -> None:
    times = call.memory(call.arguments[2], 32) if call.arguments[2] else None
    with call.open_writable(call.number(0), call.arguments[1] or None, call.arguments[3]) as target:
        new_times = None if times is None else ctypes.create_string_buffer(times, 32)
        _raise_errno(_libc.syscall(call.own_number, _AT_FDCWD, target.path.encode(), new_times, 0), "utimensat")


def _truncate(call: _Call) -> None:
    with call.open_writable(_AT_FDCWD, call.arguments[0]) as target:
        os.truncate(target.path, ctypes.c_long(call.arguments[1]).value)


def _check_process(call: _Call) -> None:
    _check_is_descendant(call.number(0))


def _check_is_descendant(pid: int) -> None:
    """Raises OSError when the process is not the command's. `pid` 0 is the caller itself."""
    if pid and not _is_descendant(pid):
        raise OSError(errno.EPERM, "another process")


def _check_kill(call: _Call) -> None:
    pid = call.number(0)
    if pid == -1:
        raise OSError(errno.EPERM, "everybody")
    if pid >= 0:
        _check_is_descendant(pid)
    elif not any(_group_of(member) == -pid for member in _descendants()):
        raise OSError(errno.EPERM, "another group")


def _group_of(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except OSError:
        return 0


def _check_priority(call: _Call, process: int, group: int) -> None:
    """Check a call whose first argument says whether its second is a `process` or a `group` (0: the caller's)."""
    if call.number(0) == process:
        _check_is_descendant(call.number(1))
    elif call.number(0) != group or call.number(1) != 0:
        raise OSError(errno.EPERM, "other processes")


_EMULATED: dict[str, Callable[[_Call], None]] = {
    "chmod": lambda call: _chmod(call.open_writable(_AT_FDCWD, call.arguments[0]), call.arguments[1]),
    "fchmod": lambda call: _chmod(call.open_writable(call.number(0), None), call.arguments[1]),
    "fchmodat": lambda call: _chmod(call.open_writable(call.number(0), call.arguments[1]), call.arguments[2]),
    "fchmodat2": lambda call: _chmod(
        call.open_writable(call.number(0), call.arguments[1], call.arguments[3]), call.arguments[2]
    ),
    "chown": lambda call: _chown(call.open_writable(_AT_FDCWD, call.arguments[0]), call.number(1), call.number(2)),
    "lchown": lambda call: _chown(
        call.open_writable(_AT_FDCWD, call.arguments[0], _AT_SYMLINK_NOFOLLOW), call.number(1), call.number(2)
    ),
    "fchown": lambda call: _chown(call.open_writable(call.number(0), None), call.number(1), call.number(2)),
    "fchownat": lambda call: _chown(
        call.open_writable(call.number(0), call.arguments[1], call.arguments[4]), call.number(2), call.number(3)
    ),
    "utimensat": _utimensat,
    "truncate": _truncate,
}
"""The calls that the supervisor does for the command: the kernel would read their paths from memory once more."""

_CHECKED: dict[str, Callable[[_Call], None]] = {
    "setpriority": lambda call: _check_priority(call, os.PRIO_PROCESS, os.PRIO_PGRP),
    "ioprio_set": lambda call: _check_priority(call, _IOPRIO_WHO_PROCESS, _IOPRIO_WHO_PGRP),
    "kill": _check_kill,
}
"""Checks of calls that the kernel goes on with, which is safe because their registers say everything; of every other
call the first argument is a process."""


# The worktree's .git


def _read_git_file(path: str) -> bytes:
    """The content of a worktree's `.git`, a small file; b"" without a path."""
    if not path:
        return b""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        return file.read(_MAX_GIT_FILE_BYTES)


def _restore_git_file(path: str, content: bytes) -> None:
    """Undo what a command made of `.git`: Landlock cannot take one file out of a writable folder."""
    try:
        if stat.S_ISREG(os.lstat(path).st_mode) and _read_git_file(path) == content:
            return
    except OSError:
        pass
    print("clawpy: the command changed .git, which was put back", file=sys.stderr, flush=True)
    _remove_path(path)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    with open(descriptor, "wb") as file:
        file.write(content)


def _remove_path(path: str) -> None:
    import shutil

    try:
        if stat.S_ISDIR(os.lstat(path).st_mode):
            shutil.rmtree(path)
        else:
            os.unlink(path)
    except FileNotFoundError:
        pass


if __name__ == "__main__":
    main(sys.argv[1:])
