"""Attempts of a session to read files that it must not read (SPEC 3.8). One command tries all places and prints what it
gets. The attempt succeeds if the output has a word that is only in such a file."""

import functools
import os
import subprocess
from dataclasses import dataclass

import pytest

from engine.execution.sandbox import Sandbox
from tests.attacks.marks import make_canary
from tests.attacks.victim import PYTHON, Victim, folder_outside_tmp
from tests.support import read_table

PLACES = read_table(__file__)

pytestmark = pytest.mark.attack("reads")

READ = """
import os, sys
private, *paths = sys.argv[1:]
for path in (private, *paths):
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        sys.stdout.write(f"\\n>> {path}\\n" + os.read(descriptor, 400).decode("latin-1"))
    except OSError:
        pass
print("\\n>> ")
for process in os.listdir("/proc"):
    for name in ("environ", "cmdline", "root" + private):
        try:
            print(open(f"/proc/{process}/{name}", "rb").read(100_000).decode("latin-1"))
        except OSError:
            pass
print("every place was tried")
"""


@dataclass
class Reading:
    """What one command could read."""

    secret_words: dict[str, str]
    """The word that is in each of the operator's files, by its name."""
    output: str
    token: str
    """The word in the environment of another process."""


@functools.cache
def read_everything(rung: Sandbox) -> Reading:
    """Try to read every place with one command on a rung."""
    token = make_canary()
    with folder_outside_tmp() as root, subprocess.Popen(["sleep", "60"], env={"TOKEN": token}) as process:
        victim = Victim(root, rung)
        secret_words = {name: make_canary() for name in PLACES["home"]}
        paths = [
            victim.write_file(name, f"[user]\n\tname = Ann\n[x]\n\ttoken = {word}\n")
            for name, word in secret_words.items()
        ]
        victim.confinement = victim.make_confinement("sess_3")
        processes = [f"/proc/{pid}/{name}" for pid in (1, process.pid, os.getpid()) for name in ("environ", "maps")]
        try:
            output = victim.run([*PYTHON, READ, *map(str, paths), *PLACES["system"], *processes])
        finally:
            process.kill()
    assert "every place was tried" in output
    return Reading(secret_words, output, token)


@pytest.fixture
def reading(rung: Sandbox) -> Reading:
    return read_everything(rung)


@pytest.mark.parametrize("name", PLACES["home"])
def test_the_operators_home_and_other_sessions_are_not_read(reading: Reading, name: str):
    assert reading.secret_words[name] not in reading.output


@pytest.mark.parametrize("path", PLACES["system"])
def test_private_files_of_the_machine_are_not_read(reading: Reading, path: str):
    """Whether anything of it came out; it may be there and be empty."""
    _, separator, following = reading.output.partition(f"\n>> {path}\n")
    text = following.partition("\n>> ")[0].strip()
    assert not separator or not text


def test_the_environment_of_another_process_is_not_read(reading: Reading):
    assert reading.token not in reading.output


@pytest.mark.parametrize("way", PLACES["other_paths"])
def test_a_key_is_not_read_by_another_path(victim: Victim, way: str):
    word = make_canary()
    key = victim.write_file(".ssh/id_ed25519", word)
    command = PLACES["other_paths"][way].format(key=key, pid=os.getpid())
    output = victim.run(["sh", "-c", f"{command}; echo the end"])
    assert "the end" in output
    assert word not in output


CANARIES = {name: make_canary() for name in PLACES["variables"]}
"""Secrets, and variables that control tools, each with a word of its own."""


@functools.cache
def run_env(rung: Sandbox) -> str:
    """The environment of a session while each variable of the engine's contains its canary."""
    with folder_outside_tmp() as root:
        victim = Victim(root, rung)
        victim.environment |= CANARIES
        return victim.run(["env"])


@pytest.mark.parametrize("name", PLACES["variables"])
def test_a_variable_of_the_engine_does_not_reach_a_session(rung: Sandbox, name: str):
    output = run_env(rung)
    assert "PATH=" in output
    assert CANARIES[name] not in output
