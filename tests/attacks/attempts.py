"""An attempt is Python code that runs in the real sandbox, after `PRELUDE`.

In it `attempt(f)` prints "ESCAPED" with what `f` returned, or "held" with the error that stopped it. Anything but an
operating system's refusal makes the attempt itself a fault of the test. `P` has the paths. An attempt that succeeds
must do no harm outside the home: a clock is set to what it shows, a signal is 0, a file of the machine's is opened and
nothing is written.
"""

from dataclasses import dataclass

PRELUDE = """
import ctypes, errno, fcntl, json, os, signal, socket, struct, subprocess, sys, threading, time
P = json.loads(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
def attempt(f, *a, **k):
    try:
        print("ESCAPED", f(*a, **k), flush=True)
    except (OSError, subprocess.CalledProcessError) as error:
        print("held", error, flush=True)
def read(path, size=200):
    with open(path, "rb") as file:
        content = file.read(size)
    if not content:
        raise OSError("empty")
    return content
def write(path, text="planted"):
    with open(path, "a") as file:
        file.write(text)
def plant(path):
    existed = os.path.lexists(path)
    open(path, "a").close()
    if not existed:
        os.unlink(path)
    return path
def syscall(number, *a):
    result = libc.syscall(number, *a)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
def number(x86, arm):
    return arm if os.uname().machine == "aarch64" else x86
def run(*argv, **k):
    return subprocess.run(argv, check=True, capture_output=True, text=True, timeout=20, **k).stdout
def connect(family, address, kind=socket.SOCK_STREAM):
    with socket.socket(family, kind) as client:
        client.settimeout(2)
        client.connect(tuple(address) if isinstance(address, list) else address)
        client.send(b"hello")
        return address
print("begun", flush=True)
"""


@dataclass(frozen=True)
class Attempt:
    """The result of an attempt."""

    output: str
    errors: str
    exit_code: int

    @property
    def escapes(self) -> list[str]:
        return [line for line in self.output.splitlines() if line.startswith("ESCAPED")]

    @property
    def held(self) -> int:
        """The number of parts that failed, as they have to."""
        return sum(line.startswith("held") for line in self.output.splitlines())
