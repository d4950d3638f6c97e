"""What a flow is: deterministic work without a model (SPEC 3.8, 3.9).

A `Flow` is a pydantic model of its parameters, with a name, a place and a method `run(job)`. It does everything through
its `Job`: the content filter checks its commands, the sandbox confines them, their output is written into the
transcript, and they end with the session.
"""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from enum import Enum
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, ClassVar, Protocol, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic.fields import FieldInfo

from engine.clock import Clock, SystemClock
from engine.execution.housekeeping import Housekeeping
from engine.execution.runners import CannotRun, CommandResult, Place, WorkFailed, WorkResult
from engine.files import read_plain
from engine.frozen import frozen
from engine.git import LITERAL_PATHS, Git
from engine.git.history import find_commit
from engine.text import one_line, sanitise
from engine.wording import join_names

MAX_FOLDER_FILES = 1000
"""Maximum number of files in the folders that a flow reads file by file."""


# -- what a flow works with, and its result


class JobSession(Protocol):
    """The methods of a session for the work that runs in it."""

    @property
    def scratch(self) -> Path: ...

    def say(self, text: str, *, error: bool = False) -> None: ...

    def execute(
        self,
        argv: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str] | None = None,
        quiet: bool = False,
    ) -> CommandResult: ...


@frozen
class Job:
    """One run of a flow."""

    workspace: Path
    """The operator's repository."""
    folder: Path
    """The folder to work in: the workspace, or a worktree of it. Commands may write in the workspace, but the
    operator's files do not change."""
    git: Git
    """git in `folder`, outside of the sandbox but without hooks. In a worktree it may check out any commit."""
    session: JobSession
    suspect_imports: bool = False
    """True after an agent changed files here. A failing import is then more likely a mistake of the agent than a
    missing package."""
    housekeeping: Housekeeping | None = None
    clock: Clock = field(default_factory=SystemClock)

    def require_housekeeping(self) -> Housekeeping:
        """The housekeeping, for a flow of `Place.ENGINE`. Raises `WorkFailed` if there is none."""
        if self.housekeeping is None:
            raise WorkFailed("only the engine can do this", "approve its card")
        return self.housekeeping

    @property
    def scratch(self) -> Path:
        """A temporary folder, which is deleted with the session. Commands may write in it at the same path."""
        return self.session.scratch

    def say(self, line: str) -> None:
        """Write one line into the transcript. A line break becomes a space, so that a name cannot begin a new line."""
        self.session.say(sanitise(line).replace("\n", " "))

    def read_document(self, path: str, max_bytes: int) -> bytes:
        """The content of a document of the repository; b"" if it does not exist. Raises `WorkFailed` for a link out of
        the repository, and for a file of more than `max_bytes`."""
        if not os.path.lexists(self.folder / path):
            return b""
        if not is_own_file(self.folder, path):
            raise WorkFailed(f"{path} is not a regular file of this repository", "replace it with a regular file")
        try:
            return read_plain(self.folder / path, max_bytes)
        except ValueError as error:
            raise WorkFailed(f"{path} {error}", "make it smaller") from error

    def say_list(self, lines: Sequence[object], limit: int, *, indent: str = "") -> None:
        """Write at most `limit` lines into the transcript, and the number of the others."""
        for line in lines[:limit]:
            self.say(f"{indent}{line}")
        if len(lines) > limit:
            self.say(f"{indent}and {len(lines) - limit} more")

    def run(
        self,
        argv: Sequence[str],
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        quiet: bool = False,
    ) -> CommandResult:
        """Run a command to its end in `cwd`, by default in `folder`, and stream its output into the transcript.

        `env` is added to the clean environment of the session. With `quiet`, neither the command nor its output is
        written into the transcript.

        Raises `CannotRun` if the program does not exist, `CommandBlocked` if the content filter blocks it, and
        `SessionStopped` when the session is ending.
        """
        return self.session.execute(argv, cwd=cwd or self.folder, env=env, quiet=quiet)


def find_folders(job: Job, paths: Sequence[str]) -> list[str]:
    """Those of `paths` that are folders."""
    return [path for path in paths if (job.folder / path).is_dir()]


def is_own_file(folder: Path, path: str) -> bool:
    """Whether a path is an ordinary file below `folder`, not a link that leads out of it."""
    file = folder / path
    return file.is_file() and Path(os.path.realpath(file)).is_relative_to(folder.resolve())


@frozen
class FlowResult(WorkResult):
    """The result of a flow."""

    full: bool = False
    """Whether `check`, if there is one, covers the whole suite."""

    def __post_init__(self) -> None:
        """Sanitise all text. It contains names and messages of a repository, which may contain anything."""
        object.__setattr__(self, "summary", one_line(self.summary))
        object.__setattr__(self, "facts", _sanitise_facts(self.facts))


def _sanitise_facts(value: Any) -> Any:
    if isinstance(value, str):
        return sanitise(value)
    if isinstance(value, Mapping):
        return {_sanitise_facts(key): _sanitise_facts(item) for key, item in value.items()}
    return [_sanitise_facts(item) for item in value] if isinstance(value, list | tuple) else value


def make_facts(items: Iterable[object], *names: str) -> list[dict[str, Any]]:
    """The fields `names` of each item."""
    return [{name: getattr(item, name) for name in names} for item in items]


# -- flows


class Flow(BaseModel):
    """One kind of deterministic work. Its fields are its parameters. Unknown parameters are refused, and the values
    cannot be changed."""

    model_config = ConfigDict(extra="forbid", frozen=True, str_max_length=1000, defer_build=True)

    name: ClassVar[str]
    """The name by which it is started."""
    label: ClassVar[str]
    """The name on screens."""
    work: ClassVar[str]
    """What sort of work it is, in a word such as `tests`. Several flows may have the same."""
    place: ClassVar[Place]
    changes: ClassVar[str] = ""
    undo_note: ClassVar[str] = ""
    """What it changes and how to undo that, in words, for a flow of `Place.ENGINE`; "" if its place says it."""

    @classmethod
    def list_parameters(cls) -> list[tuple[str, FieldInfo]]:
        """The parameters by name, required ones first."""
        return sorted(cls.model_fields.items(), key=lambda parameter: not parameter[1].is_required())

    @classmethod
    def find_data_parameters(cls) -> frozenset[str]:
        """The names of the parameters whose values are `Mark.DATA`."""
        return frozenset(name for name, field in cls.model_fields.items() if _has_mark(field, Mark.DATA))

    def describe(self) -> str:
        """The assignment in words. The card shows it, also after its parameters were edited."""
        raise NotImplementedError

    def check_requirements(self, top: Path) -> None:
        """Raise `CannotRun` if the repository `top` does not have what its parameters name, or a program that it needs
        is not installed. Values by default are not checked."""
        for name, parameter in type(self).model_fields.items():
            value = getattr(self, name)
            if value is None or value == parameter.default:
                continue
            for item in value if isinstance(value, list) else [value]:
                if _has_mark(parameter, Mark.COMMIT):
                    require_commit(Git(top), item, f"{name}: ")
                elif _has_mark(parameter, Mark.FILE) and not os.path.lexists(top / item):
                    problem = f"{name}: there is no file or folder {item} in this repository"
                    raise CannotRun(problem, "`git ls-files` lists its files")

    def run(self, job: Job) -> FlowResult:
        """Do the work. Returns if it ran to its end, whether it found problems or not. Raises `WorkFailed`,
        `SessionStopped`."""
        raise NotImplementedError


def require_commit(git: Git, revision: str, parameter: str = "") -> str:
    """The full id of the commit that `revision` names. Raises `CannotRun` if there is none; its message begins with
    `parameter`."""
    if commit := find_commit(git, revision):
        return commit
    problem = f"{parameter}`{revision}` names no commit in this repository"
    if git.text("rev-parse", "--is-shallow-repository", allowed=(0, 128)) == "true":
        raise CannotRun(f"{problem}, which is a shallow clone", "`git fetch --unshallow` gets its older commits")
    raise CannotRun(problem, "`git log --oneline --all` lists its commits, branches and tags")


def format_in_project(path: str) -> str:
    """` in packages/py`, or "" for the top of the repository."""
    return f" in {one_line(path)}" if path else ""


# -- types of parameters that flows share; their values cannot become options, or lead out of the repository


def check_argument(text: str) -> str:
    """Return `text`, if it is safe on a command line, where it must not be an option or contain control characters.
    Raises `ValueError`."""
    if not text.strip() or text != text.strip():
        raise ValueError("must not be empty or begin or end with white space")
    if text.startswith("-"):
        raise ValueError("must not begin with a dash")
    if any(unicodedata.category(character) in ("Cc", "Zl", "Zp") for character in text):
        raise ValueError("must not contain control characters")
    return text


def stays_inside(path: str) -> bool:
    """Whether a path stays inside the project: relative, no `..`, not empty."""
    pure = PurePosixPath(path)
    return bool(path) and not pure.is_absolute() and ".." not in pure.parts and "\0" not in path


def _check_repo_path(text: str) -> str:
    if not stays_inside(text):
        raise ValueError("must be a path inside the repository, relative to its top folder")
    if any(unicodedata.category(character) == "Cc" for character in text):
        raise ValueError("must not contain control characters")
    while text.startswith("./"):
        text = text[2:].lstrip("/")  # `.//etc` would become absolute
    return f"./{text}" if text.startswith("-") else text  # or a program would read it as an option


class Mark(Enum):
    """Marks what the value of a parameter is."""

    DATA = "data"
    """It is never run: a name of a file, a test or a commit, or a line that is only shown. A flow gives it to a program
    as one argument, and the content filter judges the command when it runs."""
    COMMIT = "commit"
    """It names a commit of the repository."""
    FILE = "file"
    """It names a file or folder of the repository."""


def _has_mark(field: FieldInfo, mark: Mark) -> bool:
    """Whether a parameter, or each item of its list, has a mark."""
    items = (mark in getattr(item, "__metadata__", ()) for item in get_args(field.annotation))
    return mark in field.metadata or any(items)


RepoPath = Annotated[str, AfterValidator(_check_repo_path), Mark.DATA]
"""A file of the repository, as a path relative to its top folder with `/` between folders."""

RepoFile = Annotated[RepoPath, Mark.FILE]
"""As `RepoPath`; the file must exist when the operator writes it."""

ProjectPath = Annotated[
    str, AfterValidator(lambda text: _check_repo_path(text).rstrip("/") if text else ""), Mark.DATA, Mark.FILE
]
"""The folder of a project, relative to the top of the repository; "" is the top."""

Argument = Annotated[str, AfterValidator(check_argument), Mark.DATA]
"""A name that is given to a program. It cannot be an option."""

Revision = Annotated[Argument, Mark.COMMIT]
"""The name of a commit, tag or branch for git. It cannot be an option."""

Line = Annotated[str, AfterValidator(one_line), Mark.DATA]
"""One line of text, which is only shown."""

CommandLine = Annotated[str, AfterValidator(one_line)]
"""A command in one line."""

TestId = Annotated[str, AfterValidator(check_argument), Mark.DATA]
"""The id of a test, as its own tool names it, such as `tests/test_cart.py::test_total`."""


class ProjectFlow(Flow):
    """A flow that works with the tools of one project of the repository."""

    project: ProjectPath = Field(default="", description='its folder, for example `packages/py`; "" = the top')

    @property
    def where(self) -> str:
        """` in packages/py`, or "" for the project at the top."""
        return format_in_project(self.project)

    @property
    def path_prefix(self) -> str:
        """The beginning of every path in the project."""
        return f"{self.project}/" if self.project else ""

    def select_paths_inside(self, paths: Iterable[str]) -> list[str]:
        """Those of `paths` that are in the project. `paths` are relative to the top, and the result is relative to the
        project."""
        return [path.removeprefix(self.path_prefix) for path in paths if path.startswith(self.path_prefix)]

    def find_files(self, job: Job, paths: Sequence[str]) -> list[str]:
        """The files that `paths` name, as `select_paths_inside` has them. A folder names the files below it that git
        does not ignore. Raises `WorkFailed` if these are more than `MAX_FOLDER_FILES`, and `CannotRun` for a link that
        leads out of the repository."""
        folders = find_folders(job, paths)
        if not folders:
            return self.select_paths_inside(paths)
        top = os.path.realpath(job.folder)
        real_paths = [os.path.relpath(os.path.realpath(job.folder / folder), top) for folder in folders]
        for folder, path in zip(folders, real_paths, strict=True):
            if os.pardir in Path(path).parts:
                raise CannotRun(f"{folder} leads out of the repository", "name a folder in it")
        options = ("-z", "--cached", "--others", "--exclude-standard", "--")
        listed_paths = job.git.items("ls-files", *options, *real_paths, environment=LITERAL_PATHS)
        if len(listed_paths) > MAX_FOLDER_FILES:
            raise WorkFailed(
                f"{join_names(folders, 3)}: {len(listed_paths)} files, at most {MAX_FOLDER_FILES} are read one by one",
                f"name a smaller folder, or run `{self.name}` on the whole project",
            )
        files = [path for path in listed_paths if is_own_file(job.folder, path)]
        return self.select_paths_inside(dict.fromkeys([*(path for path in paths if path not in folders), *files]))
