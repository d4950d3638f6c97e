"""Attempts of a check to change something that stays: in the operator's tree, or anywhere outside (SPEC 3.9). The whole
home of the operator is compared before and after: modes, owners, times, links and bytes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from engine.execution.sandbox import written_files
from tests.attacks.victim import PYTHON as ISOLATED_PYTHON
from tests.attacks.victim import Victim

SHELL = {
    "the interpreter of the virtual environment": "echo '#!/bin/sh' > .venv/bin/python",
    "the interpreter, exchanged": "echo x > p; chmod +x p; mv -f p .venv/bin/python",
    "a module that Python loads by itself": "mkdir -p .venv/lib; echo 'import os' > .venv/lib/x.pth",
    "a tracked source": "echo 'import os' >> src/shop.py",
    "a source by its absolute path": "echo x >> {project}/src/shop.py",
    "a source edited in place": "sed -i s/3/4/ src/shop.py",
    "the settings of direnv": "echo 'curl x | sh' >> .envrc",
    "tasks of an editor": "echo '{{\"x\": 1}}' > .vscode/tasks.json",
    "a new conftest": "mkdir -p sub; echo x > sub/conftest.py; echo x > conftest.py",
    "a script of npm": "echo '{{\"scripts\": {{}}}}' > package.json",
    "a workflow": "mkdir -p .github/workflows; echo x > .github/workflows/x.yml",
    "a hook of git": "echo x > .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit",
    "the configuration of git": "git config core.fsmonitor ./x; echo '[core]' >> .git/config",
    "the index of git": "echo x > .git/index; git update-index --assume-unchanged src/shop.py; rm -f .git/index",
    "attributes of git": "echo '* filter=x' > .gitattributes; echo '* filter=x' > .git/info/attributes",
    "a commit": "git -c user.name=a -c user.email=a@b commit --allow-empty -m x; git update-ref refs/heads/x HEAD",
    "all of git, exchanged": "mv .git old; git init -q; rm -rf .git",
    "removing a file": "rm -f src/shop.py; unlink package.json",
    "removing everything": "rm -rf ./* .??*; find {project} -delete",
    "modes": "chmod -R 777 . {project}; chmod 4755 .venv/bin/python",
    "times": "touch -d 2001-01-01 src/shop.py {project} .envrc",
    "renaming a file": "mv src/shop.py src/lost.py; mv src elsewhere; mv {project} {project}2",
    "a hard link out": "ln src/shop.py hard; ln src/shop.py /tmp/hard; echo x >> hard; echo x >> /tmp/hard",
    "a symlink out": "ln -s {user}/.bashrc l; echo x >> l; ln -sf {user} d; echo x > d/.profile",
    "truncating": ": > src/shop.py; truncate -s 0 package.json; dd if=/dev/null of=.envrc",
    "mounting anew": "mount -o remount,rw / ; mount -o remount,rw {project}; umount {project}; umount -l /",
    "a mount over a place": "mount --bind /tmp src; mount -t tmpfs x src; mount --move /tmp {project}",
    "a namespace of its own": "unshare -Urm sh -c 'mount -o remount,rw {project}; echo x >> src/shop.py'",
    "a sandbox in the sandbox": "bwrap --bind / / sh -c 'echo x >> {project}/src/shop.py'",
    "what shells run": "echo x >> {user}/.bashrc; echo x >> ~/.bashrc; echo x > {user}/.zshenv; : > /etc/profile.d/x",
    "a job of cron": "echo '* * * * * x' | crontab -; mkdir -p {user}/.config/autostart; rm -rf /etc/cron.d/none",
    "the home of the engine": "echo x >> {user}/.clawpy/config/config.toml; rm -rf {user}/.clawpy/data",
    "by the file system's root of another process": "for p in /proc/[0-9]*; do\n"
    "echo x >> $p/root{project}/src/shop.py; done",
    "by a descriptor of another process": "for f in /proc/[0-9]*/fd/*; do echo x >> $f/planted; done",
    "the device beneath": "mknod disk b 254 0; : >> disk; mknod zero c 1 5; : >> zero",
    "what the overlay lies in": "echo x > {user}/.clawpy/cache/scratch/sess_1/layers/upper/x; ln -sfn {user} "
    "{user}/.clawpy/cache/scratch/sess_1/layers/lower0",
}
"""Each ends as it will: what counts is what is there afterwards."""

PYTHON = {
    "a map of memory": "import mmap; f = open('src/shop.py', 'r+b'); m = mmap.mmap(f.fileno(), 0); m[:3] = b'xxx'",
    "a descriptor with a mode": "f = os.open('src/shop.py', os.O_RDONLY); os.fchmod(f, 0o777)",
    "a descriptor opened again": "f = os.open('src/shop.py', os.O_RDONLY); open(f'/proc/self/fd/{f}', 'w').write('x')",
    "extended attributes": "os.setxattr('src/shop.py', 'user.x', b'x')\n"
    "os.setxattr('.', 'trusted.overlay.opaque', b'y')",
    "an attribute of the overlay": "os.setxattr('.', 'user.overlay.redirect', b'/'); os.mkdir('d')\n"
    "os.setxattr('d', 'user.overlay.redirect', b'/../../.ssh')",
    "a whiteout": "os.remove('src/shop.py'); os.mknod('src/shop.py', 0o20000, 0)",
    "handles of files": "c = ctypes.CDLL(None, use_errno=True); b = ctypes.create_string_buffer(200); b[0] = 128\n"
    "m = ctypes.c_int(); c.name_to_handle_at(-100, b'src/shop.py', b, ctypes.byref(m), 0)\n"
    "f = c.open_by_handle_at(os.open('.', os.O_RDONLY), b, os.O_RDWR); os.write(f, b'x')",
    "renaming with an exchange": "ctypes.CDLL(None).renameat2(-100, b'.venv', -100, b'src', 2)",
    "leaving for the root before": "os.chroot('.'); os.chdir('../../../..'); open('etc/planted', 'w')",
    "the mount calls": "c = ctypes.CDLL(None)\n"
    "for n in (165, 428, 429, 430, 442): c.syscall(n, b'/', b'/', b'', 32, 0)\n"
    "open(sys.argv[1] + '/src/shop.py', 'w')",
}


@pytest.fixture
def victim(victim: Victim) -> Victim:
    victim.file(".bashrc", "# Ann's\n")
    victim.file(".ssh/id", "key")
    return victim


def assert_changes_nothing(victim: Victim, *argv: str) -> None:
    before = victim.state()
    victim.run(argv)
    victim.run(["true"])  # the next command of the session mounts anew what the first one prepared
    assert victim.state() == before


@pytest.mark.attacks
@pytest.mark.attack("writes in checks")
@pytest.mark.parametrize("what", SHELL)
def test_with_commands(victim: Victim, what: str) -> None:
    assert_changes_nothing(victim, "sh", "-c", SHELL[what].format(project=victim.project, user=victim.user))


@pytest.mark.attack("writes in checks")
@pytest.mark.parametrize("what", PYTHON)
def test_with_system_calls(victim: Victim, what: str) -> None:
    code = f"import ctypes, os, sys\ntry:\n    exec({PYTHON[what]!r})\nexcept Exception as error:\n    print(error)"
    assert_changes_nothing(victim, *ISOLATED_PYTHON, code, str(victim.project))


@pytest.mark.attack("writes in checks")
def test_tracing_what_is_outside(victim: Victim, other_process: subprocess.Popen[bytes]) -> None:
    """A process of the operator's is neither attached to nor written to."""
    code = (
        "import ctypes, os, sys\npid = int(sys.argv[1])\n"
        "for request in (16, 0x4206): print(ctypes.CDLL(None).ptrace(request, pid, 0, 0))\n"
        "for act in (lambda: open(f'/proc/{pid}/mem', 'r+b'), lambda: os.kill(pid, 9)):\n"
        "    try: act()\n    except OSError as error: print(error)"
    )
    victim.python(code, other_process.pid)
    assert other_process.poll() is None
    assert "TracerPid:\t0\n" in Path(f"/proc/{other_process.pid}/status").read_text()


@pytest.mark.attack("writes in checks")
@pytest.mark.parametrize("place", ["home", "tmp", "files"])
def test_what_one_command_plants_for_the_next_ones_mounts(victim: Victim, place: str) -> None:
    """A link in a writable place, where the next command's places are mounted, leads nowhere outside."""
    before = victim.state()
    at = {"home": "$HOME", "tmp": "$TMPDIR", "files": "${COVERAGE_FILE%/*}"}[place]
    first = str(victim.user).lstrip("/").partition("/")[0]
    script = (
        f"cd {at}; for n in {first} oldroot newroot {victim.user.name} .cache .local .cargo; do rm -rf $n;"
        f" ln -s /oldroot{victim.user} $n; done; cd ..; rm -rf {place}; ln -s {victim.user} {place}"
    )
    victim.run(["sh", "-c", script])
    victim.run(["sh", "-c", f"echo x > {at}/planted; echo x > /tmp/planted; echo x > ~/.bashrc"])
    assert victim.state() == before


def test_written_files_of_a_check_are_listed(victim: Victim) -> None:
    if not victim.confinement.is_ephemeral:
        pytest.skip(f"{victim.rung.name} lays nothing over the tree")
    victim.run(
        ["sh", "-c", "echo x >> src/shop.py; mkdir new; echo x > new/file; rm package.json; mkdir .pytest_cache/v"]
    )
    assert sorted(written_files(victim.confinement)) == ["new/file", "package.json (removed)", "src/shop.py"]
    assert victim.run(["sh", "-c", "tail -1 src/shop.py; ls package.json"]).startswith("x\n"), "the session sees it"
    assert [path.name for path in (victim.project / "src").iterdir()] == ["shop.py"]
