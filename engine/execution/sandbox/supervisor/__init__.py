"""Runs one command and ends all its processes with it, on rungs without process namespaces (SPEC 3.8).

The supervisor is started in a bare interpreter (`make_supervised_command`), so it imports only the standard library and
its own package. It is the subreaper of the command: a process that forks twice, calls setsid or drops its environment
is still its descendant. When the command ends, when the engine dies, or on SIGTERM, it kills its descendants until none
is left. Its exit status is that of the command.

If it gets a seccomp filter, it also confines the command with Landlock and seccomp (`kernel`). Landlock does not cover
some calls, such as chmod and utime. The kernel passes these on to the supervisor, which judges them.
"""

from __future__ import annotations

import os
import resource
import select
import signal
import stat
import sys

from . import kernel
from .kernel import answer_call

TYPE_CHECKING = False
if TYPE_CHECKING:  # `typing` is not imported, because that would make the start slower
    from collections.abc import Sequence

NAME = b"clawpy-keeper"
"""Its name in lists of processes."""

_MAX_GIT_FILE_BYTES = 4096
"""Maximum size of a worktree's `.git`, which is a small file."""


class Arguments:
    """The parsed command line. It has options `NAME=VALUE` or `NAME=VALUE:VALUE`, some of them several times, then
    "--", then the command."""

    def __init__(self, arguments: Sequence[str]) -> None:
        end = arguments.index("--")
        self.argv = list(arguments[end + 1 :])
        values: dict[str, list[str]] = {}
        for argument in arguments[:end]:
            name, _, value = argument.partition("=")
            values.setdefault(name, []).append(value)

        def parse_pairs(name: str) -> list[tuple[int, str]]:
            return [(int(first), second) for first, second in (value.split(":", 1) for value in values.get(name, []))]

        def get_last(name: str, default: str = "") -> str:
            return values.get(name, [default])[-1]

        self.engine = int(get_last("engine"))
        """The process id of the engine."""
        self.limits = parse_pairs("limit")
        self.nice = int(get_last("nice", "0"))
        self.oom_score = get_last("oom")
        self.landlock_handled = parse_pairs("handled")
        """One pair of the rights that Landlock confines, as bits, and its scope; empty without Landlock."""
        self.landlock_rules = parse_pairs("rule")
        """(rights, path): the command has these rights at this path and below."""
        self.writable = values.get("writable", [])
        self.cwd = get_last("cwd")
        self.git_file = get_last("git")
        self.seccomp_filter = bytes.fromhex(get_last("filter"))
        self.calls = dict(parse_pairs("call"))
        """The names of the system calls that the kernel passes on, by their numbers."""


def main(arguments: Sequence[str]) -> None:
    """Run the command to its end, then end everything that it started."""
    options = Arguments(arguments)
    signals: list[int] = []
    wake_read = _become_subreaper(signals)
    if os.getppid() != options.engine:  # it died before it could be noticed
        _exit_like(int(signal.SIGTERM))
    is_confined = bool(options.seccomp_filter)
    git_content = _read_git_file(options.git_file)
    ruleset = -1
    if is_confined:
        ((handled, scope),) = options.landlock_handled
        ruleset = kernel.make_ruleset(handled, int(scope), options.landlock_rules, options.writable)
        kernel.drop_capabilities()
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
    kernel.kill_descendants()
    if options.git_file:
        _restore_git_file(options.git_file, git_content)
    _exit_like(int(signal.SIGTERM) if status is None else status)


def _become_subreaper(signals: list[int]) -> int:
    """Adopt every descendant that loses its parent, and get SIGTERM when the engine dies.

    Returns a descriptor that becomes readable when a child ends or a signal arrives. Signals that tell the supervisor
    to end are added to `signals`.
    """
    wake_read, wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda number, frame: signals.append(number))
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    kernel.libc.prctl(kernel.PR_SET_NAME, NAME, 0, 0, 0)
    kernel.libc.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    kernel.libc.prctl(kernel.PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
    return wake_read


def _exit_like(status: int) -> None:
    """End in the same way as the command, whose wait status is `status`: with its exit code, or by its signal."""
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
        ignored_by_python = (signal.SIGPIPE, signal.SIGXFSZ)  # a command would inherit that they are ignored
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD, *ignored_by_python):
            signal.signal(number, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        _set_limits(options)
        if options.cwd:
            os.chdir(options.cwd)
        if options.seccomp_filter:
            listener = kernel.confine_self(ruleset, options.seccomp_filter)
            os.write(listener_write, b"%d\n" % listener)
            os.read(ready_read, 1)
            os.close(listener)
        os.execvp(options.argv[0], options.argv)
    except OSError as error:
        print(f"{options.argv[0]}: {error.strerror}", file=sys.stderr, flush=True)
        os._exit(127 if isinstance(error, FileNotFoundError) else 126)


def _set_limits(options: Arguments) -> None:
    """Set the limits of resources, and as far as the kernel allows that, the niceness and the score for the case that
    memory runs out."""
    for kind, requested_limit in options.limits:
        maximum, hard = int(requested_limit), resource.getrlimit(kind)[1]
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


def _release_pipes() -> None:
    """Close our copies of the command's input and output, so that the other side notices when the command closes its
    own."""
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for number in (0, 1):
        os.dup2(nothing, number)
    os.close(nothing)


def _take_listener(child: int, listener_read: int) -> int:
    """Get the child's descriptor on which the kernel passes on calls; -1 if the child could not be confined."""
    with open(listener_read, "rb") as answers:
        line = answers.readline()
    if not line:
        return -1
    try:
        return kernel.copy_descriptor(child, int(line))
    except OSError as error:
        os.kill(child, signal.SIGKILL)
        print(f"supervisor: {error.strerror}", file=sys.stderr, flush=True)
        return -1


def _wait_for_child(child: int, options: Arguments, wake_read: int, listener: int, signals: list[int]) -> int | None:
    """Reap children and answer the calls that are passed on, until the command has ended. Returns the wait status of
    the command; None if a signal told the supervisor to end."""
    poller = select.poll()
    poller.register(wake_read, select.POLLIN)
    if listener >= 0:
        poller.register(listener, select.POLLIN)
    while True:
        for ready, events in poller.poll():
            if ready == wake_read:
                _drain(wake_read)
            elif events & select.POLLIN:
                answer_call(listener, options.calls, options.writable)
            else:
                poller.unregister(listener)
        if signals:
            return None
        ended = kernel.reap_children() or {}
        if child in ended:
            return ended[child]


def _drain(wake_read: int) -> None:
    """Read what woke us up, so that the descriptor wakes us up again."""
    try:
        os.read(wake_read, 512)
    except BlockingIOError:
        pass


def _read_git_file(path: str) -> bytes:
    """The content of a worktree's `.git`, a small file; b"" without a path."""
    if not path:
        return b""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        return file.read(_MAX_GIT_FILE_BYTES)


def _restore_git_file(path: str, content: bytes) -> None:
    """Undo changes of the command to `.git`. Landlock cannot protect a single file in a writable folder.

    If that fails, the supervisor ends with exit status 1: nothing may take the changed `.git` as right.
    """
    try:
        if stat.S_ISREG(os.lstat(path).st_mode) and _read_git_file(path) == content:
            return
    except OSError:
        pass
    try:
        _remove_path(path)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        with open(descriptor, "wb") as file:
            file.write(content)
    except OSError as error:
        sys.exit(f"clawpy: the command changed .git, which could not be put back: {error}")
    print("clawpy: the command changed .git, which was put back", file=sys.stderr, flush=True)


def _remove_path(path: str) -> None:
    """Remove whatever is at a path."""
    import shutil

    try:
        if stat.S_ISDIR(os.lstat(path).st_mode):
            shutil.rmtree(path)
        else:
            os.unlink(path)
    except FileNotFoundError:
        pass
