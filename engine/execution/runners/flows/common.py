"""What several flows share: parameters that cannot become options, tests run and told, trees made clean."""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field

from engine.execution.runners.flow import CannotRun, CommandResult, Flow, FlowUnable, Job
from engine.execution.runners.toolchains.bound import Toolchain, borrowed
from engine.execution.runners.toolchains.missing import EXECUTION, INSTALL_PROGRAM, KINDS, Missing, first_missing
from engine.execution.runners.toolchains.projects import Project, projects
from engine.execution.runners.toolchains.python import environment_command, is_python_project
from engine.execution.runners.toolchains.table import Command, inside
from engine.frozen import frozen
from engine.git import Git
from engine.git.tree import follow_files
from engine.model import CheckResult, sanitise

SHOWN = 8
"""So many names are told in words; "and 3 more" stands for the rest."""


_NO_TEXT = re.compile("[\ud800-\udfff]")


def plain(text: str) -> str:
    """A word that can stand on a command line: no option, no control characters. Raises `ValueError` with what is
    wrong."""
    if not text.strip() or text != text.strip():
        raise ValueError("must not be empty or begin or end with white space")
    if text.startswith("-"):
        raise ValueError("must not begin with a dash")
    if any(unicodedata.category(character) in ("Cc", "Zl", "Zp") for character in text):
        raise ValueError("must not contain control characters")
    return text


def _path(text: str) -> str:
    if not inside(text):
        raise ValueError("must be a path inside the repository, relative to its top folder")
    if any(unicodedata.category(character) == "Cc" for character in text):
        raise ValueError("must not contain control characters")
    return text.removeprefix("./")


RepoPath = Annotated[str, AfterValidator(_path)]
"""A file of the repository, relative to its top folder, `/` between folders."""

ProjectPath = Annotated[str, AfterValidator(lambda text: _path(text).rstrip("/") if text else "")]
"""The folder of a project, relative to the top of the repository; "" is the top."""

Revision = Annotated[str, AfterValidator(plain)]
"""A commit, tag or branch as git writes it; it cannot be an option."""

Line = Annotated[str, AfterValidator(lambda text: clean(text))]
"""One line of words that the engine knows."""

TestId = Annotated[str, AfterValidator(plain)]
"""A test as its own tool names it, for instance `tests/test_cart.py::test_total`."""


class ProjectFlow(Flow):
    """A flow that works with the tools of one project of the repository."""

    project: ProjectPath = Field(default="", description='its folder, for example `packages/py`; "" = the top')


@frozen
class Commit:
    """One commit in words; everything in it is sanitised."""

    sha: str
    author: str
    date: str
    subject: str

    def __str__(self) -> str:
        return f"{self.sha[:10]} {self.subject}"


# -- revisions ------------------------------------------------------------------------------------------------------


def home_git(job: Job) -> Git:
    """git in the operator's own tree: where HEAD is the operator's HEAD. Only for reading."""
    return replace(job.git, folder=job.workspace, pinned=None)


def resolve(job: Job, revision: str) -> str:
    """The full id of the commit that `revision` names in the operator's repository.

    A branch wins over a tag of the same name. Raises `FlowUnable` when there is no such commit.
    """
    git = home_git(job)
    for name in (f"refs/heads/{revision}", f"refs/remotes/{revision}", revision):
        done = git.run(
            "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}", allowed=(0, 1, 128)
        )
        if done.returncode == 0:
            return done.stdout.decode().strip()
    raise FlowUnable(
        f"`{sanitise(revision)}` names no commit in this repository", "git branch --all; git log --oneline"
    )


def commit(git: Git, sha: str) -> Commit:
    """A commit's author, date (ISO) and subject."""
    fields = git.text("show", "--no-patch", "--format=%H%x00%an%x00%aI%x00%s", sha).split("\0")
    sha, author, date, subject = (clean(field) for field in fields)
    return Commit(sha, author, date, subject)


TOUCHED = 3
"""So many commits are named for a file in conflict."""

LITERALLY = {"GIT_LITERAL_PATHSPECS": "1"}
"""Environment for git: a path is a path, also one that begins with `:`."""


def touched(git: Git, path: str, span: str) -> list[str]:
    """The newest commits of `span` (as git takes it) that changed `path`, in words."""
    out = git.text(
        "log", f"-n{TOUCHED}", "--no-merges", "--no-show-signature", "--format=%h %s", span, "--", path,
        environment=LITERALLY, allowed=(0, 128),
    )  # fmt: skip
    return [clean(line) for line in out.splitlines()]


def clean(text: str) -> str:
    """Text from git on one line, without control characters; bytes that are no UTF-8 are shown as `�`."""
    return " ".join(sanitise(_NO_TEXT.sub("\N{REPLACEMENT CHARACTER}", text)).split())


def main_branch(job: Job) -> str | None:
    """The branch that others are merged into: the remote's own main one, else main, master or trunk, else HEAD's.

    None in a repository without any of these, for instance a detached checkout.
    """
    names = job.git.text("for-each-ref", "--format=%(refname)", "refs/heads/").splitlines()
    local = {name.removeprefix("refs/heads/") for name in names}
    remote = job.git.run("symbolic-ref", "--quiet", "refs/remotes/origin/HEAD", allowed=(0, 1)).stdout.decode().strip()
    current = job.git.run("symbolic-ref", "--quiet", "--short", "HEAD", allowed=(0, 1)).stdout.decode().strip()
    wished = [remote.removeprefix("refs/remotes/origin/"), "main", "master", "trunk", current]
    return next((name for name in wished if name in local), None)


IDENTITY = ("-c", "user.name=rehearsal", "-c", "user.email=rehearsal@localhost")
"""Options of git for commits that nobody keeps."""


# -- the worktree ---------------------------------------------------------------------------------------------------


LINKED = ("node_modules", "vendor", "deps")
"""What `borrowed` may have linked into the worktree."""


def tidy(job: Job, revision: str) -> None:
    """Put the worktree at `revision`, clean: no uncommitted and no untracked files, no merge under way.

    Only for flows that work in a worktree; refuses to touch the operator's own tree.
    """
    if job.folder.resolve() == job.workspace.resolve():
        raise FlowUnable("this flow may only run in its own worktree")
    job.git.run("checkout", "--quiet", "--force", "--detach", revision)
    job.git.run("reset", "--quiet", "--hard", revision)
    job.git.run("clean", "--quiet", "-ffd", *(f"--exclude={name}" for name in LINKED))


def staged(job: Job) -> dict[str, str]:
    """An index of our own (as git's environment) that holds all present files, uncommitted and untracked ones too."""
    environment = {"GIT_INDEX_FILE": str(job.scratch / "flow-index")}
    git = replace(job.git, environment={**job.git.environment, **environment})
    git.run("read-tree", "HEAD")  # so that tracked files stay which an ignore rule names
    follow_files(git)
    return environment


def stored(job: Job) -> str:
    """The present files of the worktree, uncommitted and untracked ones included, as a tree id."""
    return job.git.text("write-tree", environment=staged(job))


def show_tree(job: Job, tree: str) -> None:
    """Make the worktree's files those of a `stored` tree again."""
    job.git.run("read-tree", "--reset", "-u", tree)


# -- tests ----------------------------------------------------------------------------------------------------------


def find_project(job: Job, path: str) -> Project:
    """The project at `path` of the repository, "" being its top. Raises `FlowUnable`."""
    found = projects(job.folder, job.workspace, git=job.git)
    chosen = next((project for project in found if project.path == path), None)
    if chosen is None:
        known = listed([project.path or "the top folder" for project in found])
        raise FlowUnable(f"{clean(path)} is not a project of this repository: it has no manifest", f"projects: {known}")
    if not chosen.tools and not path and (below := [project.path for project in found if project.tools]):
        told = f"no tests in the top folder: the tests are in {listed(below, 4)}"
        return replace(chosen, looked=(*chosen.looked, told))
    return chosen


def toolchains(job: Job, path: str) -> list[Toolchain]:
    """Every tool that can test the project at `path`. Raises `CannotRun` saying what was looked for."""
    project = find_project(job, path)
    if project.tools:
        return list(project.tools)
    whose = clean(project.path) or "this project"
    why = f"looked for {', '.join(project.looked)}" if project.looked else project.untested
    raise CannotRun(f"no way to run the tests of {whose}: {why}", mending(project, job.workspace / project.path))


def mending(project: Project, folder: Path) -> str:
    """What gives a project, which lies in `folder` of the operator's tree, a tool that runs its tests."""
    if project.lacks in INSTALL_PROGRAM:
        return INSTALL_PROGRAM[project.lacks]
    if project.tested_by is not None:
        return f"run the tests of {clean(project.tested_by) or 'the top folder of the repository'}"
    if (folder / "package.json").is_file():
        return 'give package.json a "test" script'
    if is_python_project(folder):
        return environment_command(folder)
    return "write tests for a tool that `clawpy` supports, or add a `test` target to a Makefile"


def toolchain_of(found: Sequence[Toolchain], tests: Sequence[str]) -> Toolchain:
    """The tool that such test ids belong to: pytest's name a `.py` file."""
    python = any(".py" in test for test in tests)
    return next((tool for tool in found if (tool.row.kind == "python") == python), found[0])


def exactly(tool: Toolchain) -> None:
    """Raises `FlowUnable` when the tool cannot run single tests."""
    if not tool.exact:
        raise FlowUnable(
            f"`{tool.title}` cannot run one test alone",
            "use a script that runs only jest, vitest, mocha or node --test",
        )


def run_tests(
    job: Job,
    tool: Toolchain,
    tests: Sequence[str] = (),
    *,
    quiet: bool = False,
    texts: dict[str, str] | None = None,
    through: Callable[[Command], Command] = lambda command: command,
) -> CheckResult:
    """Run `tests` (all of them when there are none) and say what came out. `texts` gets what was said of each failing
    test; `through` may put another program around the tool's command.

    Raises `CannotRun` when that says nothing about the project: the tool broke, collected nothing, or all that failed
    did so for want of something that is not there (SPEC 2.12).
    """
    report = job.scratch / f"report-{tool.name}.xml"
    report.unlink(missing_ok=True)
    command = through(tool.test_command(tests, report))
    done = run_command(job, command, tool.folder, quiet=quiet)
    silent = command.report is not None and done.exit_code in (0, 1) and not report.exists()
    if done.exit_code not in command.codes or silent:
        # Who runs tests reports on them: otherwise this is the exit code of something else.
        raise _broken(job, tool, done)
    check = tool.parse(report, done.output, done.exit_code)
    if check.passed + check.failed + check.skipped + check.errors == 0:
        raise CannotRun(f"{tool.title} found no tests", "name other tests, or write the first one")
    if (lacks := _lacks(job, tool, check, report, done)) is not None:
        raise lacks
    if texts is not None:
        texts.update(tool.failure_texts(report, done.output, check.failing))
    return check if check.seconds else replace(check, seconds=round(done.seconds, 3))


def _broken(job: Job, tool: Toolchain, done: CommandResult) -> CannotRun:
    """Why a tool did not come to run any test."""
    if (missing := first_missing(done.output, lambda missing: _believed(job, tool, missing))) is not None:
        return _without(tool, missing)
    how = "was killed" if done.exit_code < 0 else f"ended with exit code {done.exit_code}" if done.exit_code else ""
    return CannotRun(f"{tool.title} {how or 'did not run'}: {last_line(done.output)}")


def _lacks(job: Job, tool: Toolchain, check: CheckResult, report: Path, done: CommandResult) -> CannotRun | None:
    """What the environment lacked, when that alone is why `check` is red, or why nothing was tested; else None."""
    if not check.counted:
        kinds = EXECUTION if done.exit_code == 0 else frozenset(KINDS)
        missing = first_missing(done.output, lambda missing: missing.kind in kinds and _believed(job, tool, missing))
        return None if missing is None else _without(tool, missing)
    if check.green or not check.failing or len(check.failing) < check.failed + check.errors:
        return None
    texts = tool.failure_texts(report, done.output, check.failing)
    if not check.passed and not any(texts.values()):  # it broke before any test began, and named none
        texts = dict.fromkeys(check.failing, done.output)
    found = [
        first_missing(texts.get(test, ""), lambda missing: _believed(job, tool, missing)) for test in check.failing
    ]
    named = [missing for missing in found if missing is not None]
    if len(named) < len(found):
        if named:
            job.say(f"{count(len(named), 'test')} of {len(found)} could not run: {named[0].sentence}")
        return None  # something is red that has all it needs
    ran = check.passed + check.failed + check.errors
    return _without(tool, named[0], f"{len(named)} of {count(ran, 'test')} could not run" if check.passed else "")


def _believed(job: Job, tool: Toolchain, missing: Missing) -> bool:
    return tool.believes(missing) and not (job.suspect_imports and missing.kind == "package")


def _without(tool: Toolchain, missing: Missing, scope: str = "") -> CannotRun:
    return CannotRun(f"{scope or f'{tool.title} cannot run'}: {missing.sentence}", tool.fix(missing))


def run_command(job: Job, command: Command, folder: Path, *, quiet: bool = False) -> CommandResult:
    """Run a tool's command in a project's `folder`, and take away the files that it made though the project has
    none."""
    made = [folder / name for name in command.makes if not os.path.lexists(folder / name)]
    try:
        return job.run(command.argv, cwd=folder, env=command.environment, quiet=quiet)
    finally:
        for file in made:
            file.unlink(missing_ok=True)


def run_plan(
    job: Job, plan: Sequence[tuple[Toolchain, Sequence[str]]], texts: dict[str, str] | None = None
) -> list[tuple[Toolchain, CheckResult]]:
    """Run each tool's tests (none = all of them) and say what came out. A tool that cannot run is told and left out.
    `texts` as in `run_tests`.

    Raises `CannotRun` when none could run.
    """
    done: list[tuple[Toolchain, CheckResult]] = []
    trouble: list[CannotRun] = []
    for tool, tests in plan:
        try:
            check = run_tests(job, tool, tests, texts=texts)
        except CannotRun as error:
            trouble.append(error)
            if len(plan) > 1:
                job.say(error.message)
            continue
        job.say(f"{tool.title}: {in_words(check)}")
        done.append((tool, check))
    if not done:
        raise trouble[0]
    return done


def try_tests(job: Job, path: str) -> tuple[CheckResult | None, str]:
    """The whole suite on the present files of the worktree; None and why, where it cannot be run."""
    try:
        tools = toolchains(job, path)
        with borrowed(tools, job.folder, job.workspace):
            return combined([check for _, check in run_plan(job, [(tool, []) for tool in tools])]), ""
    except CannotRun as error:
        return None, error.message


def reddest(done: Sequence[tuple[Toolchain, CheckResult]]) -> tuple[Toolchain, CheckResult]:
    """Of several tools' results the first that is red, else the first."""
    return next((pair for pair in done if not pair[1].green), done[0])


def last_line(output: str) -> str:
    """The last line that says something, an error's before others, at most 300 characters."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    lines = [line for line in lines if line.lower().startswith("error")] or lines
    return lines[-1][:300] if lines else "it printed nothing"


def combined(checks: Sequence[CheckResult]) -> CheckResult:
    """Several tools' results as one."""
    if len(checks) == 1:
        return checks[0]
    durations = sorted((pair for check in checks for pair in check.durations), key=lambda pair: -pair[1])
    return CheckResult(
        tool=" + ".join(check.tool for check in checks),
        passed=sum(check.passed for check in checks),
        failed=sum(check.failed for check in checks),
        skipped=sum(check.skipped for check in checks),
        errors=sum(check.errors for check in checks),
        seconds=round(sum(check.seconds for check in checks), 3),
        failing=tuple(name for check in checks for name in check.failing),
        durations=tuple(durations),
    )


# -- words ----------------------------------------------------------------------------------------------------------


def in_project(path: str) -> str:
    """` in packages/py`, "" for the top."""
    return f" in {clean(path)}" if path else ""


def count(number: int, noun: str, plural: str = "") -> str:
    """`1 test`, `3 tests`, `no tests`."""
    if number == 1:
        return f"1 {noun}"
    return f"{number or 'no'} {plural or noun + 's'}"


def listed(names: Iterable[str], shown: int = SHOWN) -> str:
    """`a, b and 3 more`; every name sanitised."""
    every = [clean(name) for name in names]
    if len(every) <= shown:
        return " and ".join(filter(None, [", ".join(every[:-1]), *every[-1:]]))
    return f"{', '.join(every[:shown])} and {len(every) - shown} more"


def in_words(check: CheckResult) -> str:
    """A result in one sentence without a full stop."""
    skipped = f", {check.skipped} skipped" if check.skipped else ""
    took = f" in {check.seconds:.1f} s"
    if not check.counted:
        name = check.failing[0] if check.failing else check.tool
        return f"{name} {'failed' if check.failed else 'succeeded'}{took}; its output names no tests"
    if check.failed or check.errors:
        # An error is no test that failed: a file that cannot be imported holds tests that nobody saw run.
        errors = count(check.errors, "error") if check.errors else ""
        failed = f"{check.failed} of {count(check.passed + check.failed, 'test')} failed" if check.failed else ""
        rest = "" if failed else f", {count(check.passed, 'test')} passed" if check.passed else ", no tests ran"
        return f"{' and '.join(filter(None, [failed, errors]))}{rest}{took}{skipped}: {listed(check.failing, 2)}"
    if not check.passed:
        return f"no tests ran{skipped}"
    passed = "the one test passed" if check.passed == 1 else f"all {check.passed} tests passed"
    return f"{passed}{took}{skipped}"


def sentence(text: str) -> str:
    """`text` with a capital letter at its beginning."""
    return text[:1].upper() + text[1:]
