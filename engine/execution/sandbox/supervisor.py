"""Keeps the processes of one command together where no process namespace does, and ends them all with it (SPEC 3.8).

Run as `python -I -S supervisor.py WORD VALUE … -- COMMAND …`: standard library only, no import of the engine. It is
the subreaper of the command: whoever forks twice, calls setsid or drops its environment is still its descendant. When
the command has ended, when the engine has died, or on SIGTERM, it kills every descendant until none is left. Its exit
status is the command's.

With rules it holds the command by Landlock and seccomp. Landlock does not know some calls (chmod, utime, chown,
priorities of other processes): the kernel passes these on to the supervisor, which does them for the command where
they concern the command's own files and processes, and refuses them everywhere else.
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

PASSED_ON = {
    "x86_64": {
        "chmod": 90, "fchmod": 91, "fchmodat": 268, "fchmodat2": 452, "chown": 92, "fchown": 93, "lchown": 94,
        "fchownat": 260, "utimensat": 280, "truncate": 76, "prlimit64": 302, "setpriority": 141, "ioprio_set": 251,
        "sched_setparam": 142, "sched_setscheduler": 144, "sched_setaffinity": 203, "sched_setattr": 314,
        "kill": 62, "tkill": 200, "tgkill": 234, "rt_sigqueueinfo": 129, "rt_tgsigqueueinfo": 297,
    },
    "aarch64": {
        "fchmod": 52, "fchmodat": 53, "fchmodat2": 452, "fchown": 55, "fchownat": 54, "utimensat": 88, "truncate": 45,
        "prlimit64": 261, "setpriority": 140, "ioprio_set": 30,
        "sched_setparam": 118, "sched_setscheduler": 119, "sched_setaffinity": 122, "sched_setattr": 274,
        "kill": 129, "tkill": 130, "tgkill": 131, "rt_sigqueueinfo": 138, "rt_tgsigqueueinfo": 240,
    },
}  # fmt: skip
"""Numbers of the system calls that the kernel passes on to the supervisor."""

NAME = b"clawpy-keeper"
"""Its name in lists of processes."""

SIGNALS = ("kill", "tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo")
"""Calls that send a signal: passed on only where Landlock does not hold signals itself."""

_MAX_GIT_FILE_BYTES = 4096

_NAME, _SUBREAPER, _PARENT_DEATH, _NO_NEW_PRIVILEGES, _DROP_BOUNDING = 15, 36, 1, 38, 24
_PIDFD_OPEN, _PIDFD_GETFD, _RESTRICT_SELF, _ADD_RULE, _CREATE_RULESET = 434, 438, 446, 445, 444
_CAPSET = {"x86_64": 126, "aarch64": 91}
_SECCOMP = {"x86_64": 317, "aarch64": 277}
_SET_MODE_FILTER, _NEW_LISTENER = 1, 8
_RECEIVE, _SEND, _IS_VALID = 0xC0502100, 0xC0182101, 0x40082102
_CONTINUE = 1
_AT_FDCWD, _AT_SYMLINK_NOFOLLOW, _AT_EMPTY_PATH = -100, 0x100, 0x1000
_OF_FILES = 1 | 2 | 4 | 1 << 14 | 1 << 15
"""Rights of Landlock that a single file can have."""

_PATH_BYTES = 4096
_PAGE = 4096

_libc = ctypes.CDLL(None, use_errno=True)
_machine = os.uname().machine


class Arguments:
    """The arguments of the command line."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self.argv: list[str] = []
        self.limits: list[tuple[int, int]] = []
        self.nice = 0
        self.oom_score = ""
        self.handled = self.scoped = 0
        self.rules: list[tuple[int, str]] = []
        self.writable: list[str] = []
        self.cwd = ""
        self.git_file = ""
        self.filter = b""
        options = iter(arguments)
        for option in options:
            if option == "--":
                self.argv = list(options)
            elif option == "limit":
                self.limits.append((int(next(options)), int(next(options))))
            elif option == "nice":
                self.nice = int(next(options))
            elif option == "oom":
                self.oom_score = next(options)
            elif option == "handled":
                self.handled, self.scoped = int(next(options)), int(next(options))
            elif option == "rule":
                self.rules.append((int(next(options)), next(options)))
            elif option == "writable":
                self.writable.append(next(options))
            elif option == "cwd":
                self.cwd = next(options)
            elif option == "git":
                self.git_file = next(options)
            elif option == "filter":
                self.filter = bytes.fromhex(next(options))
            else:
                raise SystemExit(f"supervisor: unknown word {option}")


def program_path() -> str:
    """The path of this program, compiled where Python keeps it, which saves half of its start."""
    compiled = globals().get("__cached__")
    return compiled if compiled and os.path.exists(compiled) else os.path.abspath(__file__)


def main(arguments: Sequence[str]) -> None:
    """Run the command to its end, and everything that it started with it."""
    options = Arguments(arguments)
    signals: list[int] = []
    wake_read, wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda number, frame: signals.append(number))
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    _libc.prctl(_NAME, NAME, 0, 0, 0)
    _libc.prctl(_SUBREAPER, 1, 0, 0, 0)
    _libc.prctl(_PARENT_DEATH, int(signal.SIGTERM), 0, 0, 0)
    confined = bool(options.filter)
    git_content = _read_git_file(options.git_file)
    ruleset = _make_ruleset(options) if confined else -1
    if confined:
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
    listener = _take_listener(child, listener_read) if confined else -1
    os.close(ready_write)  # the child goes on when it reads the end of this pipe
    _release_pipes()
    status = _wait_for_child(child, options, wake_read, listener, signals)
    if listener >= 0:
        os.close(listener)
    _kill_descendants()
    if options.git_file:
        _restore_git_file(options.git_file, git_content)
    _exit_like(int(signal.SIGTERM) if status is None else status)


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
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores these, and a command would inherit that
            signal.signal(number, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        _set_limits(options)
        if options.cwd:
            os.chdir(options.cwd)
        if options.filter:
            _raise_errno(_libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0), "no_new_privs")
            _raise_errno(_libc.syscall(_RESTRICT_SELF, ruleset, 0), "landlock")
            filter_buffer = ctypes.create_string_buffer(options.filter, len(options.filter))
            loaded = struct.pack("HxxxxxxP", len(options.filter) // 8, ctypes.addressof(filter_buffer))
            listener = _libc.syscall(
                _SECCOMP[_machine], _SET_MODE_FILTER, _NEW_LISTENER, ctypes.create_string_buffer(loaded, len(loaded))
            )
            _raise_errno(listener, "seccomp")
            os.write(listener_write, b"%d\n" % listener)
            os.read(ready_read, 1)
            os.close(listener)
        os.execvp(options.argv[0], options.argv)
    except OSError as error:
        print(f"{options.argv[0]}: {error.strerror}", file=sys.stderr, flush=True)
        os._exit(127 if isinstance(error, FileNotFoundError) else 126)


def _set_limits(options: Arguments) -> None:
    for kind, maximum in options.limits:
        hard = resource.getrlimit(kind)[1]
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
    while _libc.prctl(_DROP_BOUNDING, number, 0, 0, 0) == 0:
        number += 1
    header = ctypes.create_string_buffer(struct.pack("Ii", 0x20080522, 0), 8)
    _raise_errno(_libc.syscall(_CAPSET[_machine], header, ctypes.create_string_buffer(24)), "capset")


def _make_ruleset(options: Arguments) -> int:
    """The Landlock ruleset. A place that is gone by now is left out."""
    attributes = struct.pack("QQQ", options.handled, 0, options.scoped)
    size = 24 if options.scoped else 8
    ruleset = int(_libc.syscall(_CREATE_RULESET, ctypes.create_string_buffer(attributes, 24), size, 0))
    _raise_errno(ruleset, "landlock")
    for access, path in options.rules:
        try:
            # Where commands write, nothing is followed: one of them may have put a link there.
            place = os.open(path, os.O_PATH | os.O_CLOEXEC | (os.O_NOFOLLOW if path in options.writable else 0))
        except OSError:
            continue
        if not stat.S_ISDIR(os.fstat(place).st_mode):
            access &= _OF_FILES
        rule = struct.pack("=Qi", access, place)
        added = _libc.syscall(_ADD_RULE, ruleset, 1, ctypes.create_string_buffer(rule, len(rule)), 0)
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
    process = _libc.syscall(_PIDFD_OPEN, child, 0)
    _raise_errno(process, "pidfd_open")
    listener = _libc.syscall(_PIDFD_GETFD, process, int(line), 0)
    os.close(process)
    if listener < 0:
        number = ctypes.get_errno()
        os.kill(child, signal.SIGKILL)
        print(f"supervisor: pidfd_getfd: {os.strerror(number)}", file=sys.stderr, flush=True)
    return int(listener)


def _wait_for_child(child: int, options: Arguments, wake_read: int, listener: int, signals: list[int]) -> int | None:
    """Reap children and answer the calls that are passed on, until the command has ended. Its wait status; None when a
    signal told us to end."""
    numbers = {number: name for name, number in PASSED_ON.get(_machine, {}).items()}
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
                _answer_call(listener, numbers, options.writable)
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


def parents_by_pid() -> dict[int, int]:
    """The living processes of the machine, each with its parent, in ascending order of their numbers."""
    pids = sorted(int(name) for name in os.listdir("/proc") if name.isdigit())
    parent_by_pid = {pid: _parent_of(pid) for pid in pids}
    return {pid: parent for pid, parent in parent_by_pid.items() if parent is not None}


def _parent_of(pid: int) -> int | None:
    """The parent of a process, None when it has ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else int(fields[1])


def descendants(root: int) -> list[int]:
    """The living descendants of the process `root`, in no order."""
    children: dict[int, list[int]] = {}
    for pid, parent in parents_by_pid().items():
        children.setdefault(parent, []).append(pid)
    result, pending = [], [root]
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
        for pid in _children() if rounds % 16 else descendants(os.getpid()):
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
        return descendants(os.getpid())


# Calls that are passed on


def _answer_call(listener: int, numbers: dict[int, str], writable: Sequence[str]) -> None:
    request = bytearray(80)
    try:
        fcntl.ioctl(listener, _RECEIVE, request)
    except OSError:
        return  # the caller was killed while it waited
    token, caller, _, number, _, _, *arguments = struct.unpack("QIIiIQ6Q", request)
    failed, flags = 0, 0
    try:
        if _CALLS[numbers[number]](_Call(listener, token, caller, arguments, writable)):
            flags = _CONTINUE
    except OSError as error:
        failed = -(error.errno or errno.EPERM)
    try:
        fcntl.ioctl(listener, _SEND, struct.pack("QqiI", token, 0, failed, flags))
    except OSError:
        pass  # the caller was killed meanwhile


class _Call:
    """One system call of a confined process: `arguments` are its registers."""

    def __init__(
        self, listener: int, token: int, caller: int, arguments: Sequence[int], writable: Sequence[str]
    ) -> None:
        self.caller = caller
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
            fcntl.ioctl(self._listener, _IS_VALID, struct.pack("Q", self._token))  # it is the caller's, not another's
            while len(content) < size:
                position = address + len(content)
                piece = os.pread(memory.fileno(), min(size - len(content), _PAGE - position % _PAGE), position)
                content += piece
                if not piece or (size == _PATH_BYTES and b"\0" in piece):
                    break
        return content

    def target(self, folder: int, address: int | None, *, follow: bool = True, empty: bool = False) -> _Target:
        """The file of a call: `address` is that of its path, None for the descriptor `folder` itself. Raises OSError,
        EPERM when the command may not write it."""
        path = b"" if address is None else self.memory(address, _PATH_BYTES).partition(b"\0")[0]
        caller_folder = f"/proc/{self.caller}/".encode()
        base = caller_folder + (b"cwd" if folder == _AT_FDCWD else b"fd/%d" % folder)
        if not path and address is not None and not empty:
            raise OSError(errno.ENOENT, "no path")
        for name in (b"/proc/self/", b"/proc/thread-self/"):
            if path.startswith(name):
                path = caller_folder + path[len(name) :]
        full = path if path.startswith(b"/") else base + (b"/" + path if path else b"")
        flags = os.O_PATH | os.O_CLOEXEC | (0 if follow or not path else os.O_NOFOLLOW)
        descriptor = os.open(full, flags)
        real = os.readlink(f"/proc/self/fd/{descriptor}")
        if not any(real == place or real.startswith(place + "/") for place in self._writable):
            os.close(descriptor)
            raise OSError(errno.EPERM, "not the command's own")
        return _Target(descriptor)


class _Target:
    """A file that the command may write, held open so that it cannot be exchanged."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.path = f"/proc/self/fd/{descriptor}"

    def __enter__(self) -> _Target:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)


def _chmod(target: _Target, mode: int) -> None:
    with target:
        mode &= 0o7777
        if mode & stat.S_ISUID or (mode & stat.S_ISGID and not stat.S_ISDIR(os.stat(target.path).st_mode)):
            raise OSError(errno.EPERM, "no file runs as somebody else")
        os.chmod(target.path, mode)


def _chown(target: _Target, user: int, group: int) -> None:
    with target:
        os.chown(target.path, user, group)  # our capabilities are gone: the command could do no less itself


def _utimensat(call: _Call) -> None:
    follow = not call.arguments[3] & _AT_SYMLINK_NOFOLLOW
    address = call.arguments[1] or None
    times = call.memory(call.arguments[2], 32) if call.arguments[2] else None
    with call.target(call.number(0), address, follow=follow, empty=bool(call.arguments[3] & _AT_EMPTY_PATH)) as target:
        set_to = None if times is None else ctypes.create_string_buffer(times, 32)
        number = PASSED_ON[_machine]["utimensat"]
        _raise_errno(_libc.syscall(number, _AT_FDCWD, target.path.encode(), set_to, 0), "utimensat")


def _truncate(call: _Call) -> None:
    with call.target(_AT_FDCWD, call.arguments[0]) as target:
        os.truncate(target.path, ctypes.c_long(call.arguments[1]).value)


def _fchownat(call: _Call) -> None:
    flags = call.arguments[4]
    target = call.target(
        call.number(0),
        call.arguments[1],
        follow=not flags & _AT_SYMLINK_NOFOLLOW,
        empty=bool(flags & _AT_EMPTY_PATH),
    )
    _chown(target, call.number(2), call.number(3))


def _check_is_descendant(pid: int) -> bool:
    """True when the call may go on; raises OSError when not. `pid` 0 is the caller itself."""
    if pid and not _is_descendant(pid):
        raise OSError(errno.EPERM, "another process")
    return True


def _kill(call: _Call) -> bool:
    pid = call.number(0)
    if pid == -1:
        raise OSError(errno.EPERM, "everybody")
    if pid < -1:
        members = [member for member in descendants(os.getpid()) if _group_of(member) == -pid]
        if not members:
            raise OSError(errno.EPERM, "another group")
        return True
    return _check_is_descendant(pid)


def _group_of(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except OSError:
        return 0


def _setpriority(call: _Call, process: int, group: int) -> bool:
    if call.number(0) == process:
        return _check_is_descendant(call.number(1))
    if call.number(0) == group and call.number(1) == 0:
        return True
    raise OSError(errno.EPERM, "other processes")


_CALLS: dict[str, Callable[[_Call], object]] = {
    "chmod": lambda call: _chmod(call.target(_AT_FDCWD, call.arguments[0]), call.arguments[1]),
    "fchmod": lambda call: _chmod(call.target(call.number(0), None), call.arguments[1]),
    "fchmodat": lambda call: _chmod(call.target(call.number(0), call.arguments[1]), call.arguments[2]),
    "fchmodat2": lambda call: _chmod(
        call.target(
            call.number(0),
            call.arguments[1],
            follow=not call.arguments[3] & _AT_SYMLINK_NOFOLLOW,
            empty=bool(call.arguments[3] & _AT_EMPTY_PATH),
        ),
        call.arguments[2],
    ),
    "chown": lambda call: _chown(call.target(_AT_FDCWD, call.arguments[0]), call.number(1), call.number(2)),
    "lchown": lambda call: _chown(
        call.target(_AT_FDCWD, call.arguments[0], follow=False), call.number(1), call.number(2)
    ),
    "fchown": lambda call: _chown(call.target(call.number(0), None), call.number(1), call.number(2)),
    "fchownat": _fchownat,
    "utimensat": _utimensat,
    "truncate": _truncate,
    "setpriority": lambda call: _setpriority(call, 0, 1),
    "ioprio_set": lambda call: _setpriority(call, 1, 2),
    "kill": _kill,
    **{
        name: lambda call: _check_is_descendant(call.number(0))
        for name in (
            *SIGNALS[1:], "prlimit64", "sched_setparam", "sched_setscheduler", "sched_setaffinity", "sched_setattr",
        )
    },
}  # fmt: skip
"""The function for each call. True lets the kernel go on with it, which is safe where its registers say everything."""


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
