"""Sessions of an agent whose work a test gives, and sessions as a crash leaves them."""

from collections.abc import Callable

from engine.execution.live_session import LiveSession
from engine.execution.runners import Place
from engine.execution.runners.runner import Runner, RunnerResult
from engine.execution.runners.validation import ValidationResult
from engine.execution.session_folders import SessionFolder
from engine.execution.session_store import SessionRow
from engine.model import SessionView
from engine.storage.database import Transaction
from tests.execution.session_world import ProseRunner, SessionWorld

AgentWork = Callable[[LiveSession, SessionFolder], ValidationResult | None]


class ScriptedAgent(ProseRunner):
    """Works as a test says. Its changes are kept, with what validation found if the work returns that."""

    work: AgentWork

    def run(self, live: LiveSession, view: SessionView) -> RunnerResult:
        with self.folders.open(live, view, Place.CHANGE_SET, for_agent=True) as folder:
            validated = self.work(live, folder) or ValidationResult("done")
            write = self.folders.capture(live, view, folder, check=validated.check)
        return RunnerResult(validated.summary, validated.check, validated.has_problem, write=write)


class AgentWorld(SessionWorld):
    """Sessions of one agent."""

    def make_runners(self) -> list[Runner]:
        self.agent = ScriptedAgent(self.folders)
        return [self.agent]

    def interrupt_session(self, *files: str) -> str:
        """Leave a session that wrote `files` as a crash leaves it; its id."""
        session_id = self.begin_prose().id
        self.sessions.wait(session_id, 10)
        folder = self.worktrees.folder_of(session_id)
        if change := self.changes.find_of_session(session_id):
            self.changes.discard(change.id)
        worktree = self.worktrees.create(session_id, self.workspace)
        self.worktrees.mark_worth_keeping(worktree)
        for name in files:
            (folder / name).write_text("half\n")

        def forget(tx: Transaction):
            row = tx.session.get(SessionRow, session_id)
            row.state, row.ended_at, row.change_set_id = "running", None, None
            row.summary = row.error = ""
            tx.session.add(row)

        self.database.write(forget)
        return session_id

    def list_files(self, session_id: str) -> list[str]:
        change = self.changes.find_of_session(session_id)
        return [] if change is None else [file.path for file in change.files]


def do_nothing(live: LiveSession, folder: SessionFolder):
    """Change nothing."""
