"""Sessions of an agent whose turns a test gives, with the real validation loop."""

from collections.abc import Callable, Iterator

from sqlmodel import col, select

from engine.config import FixedSettings, Settings, ValidationSettings
from engine.execution.live_session import LiveSession
from engine.execution.runners.flow import Place
from engine.execution.runners.runner import Runner, RunnerResult
from engine.execution.session_folders import SessionFolder
from engine.execution.validation import Validation
from engine.model import SessionView
from engine.storage.ledger import Ledger
from engine.storage.validation_runs import ValidationRun
from tests.execution.session_world import ProseRunner, SessionWorld

Turn = Callable[[LiveSession, SessionFolder], None]


class ScriptedAgent(ProseRunner):
    """Does the task in its first turn, and answers a heal prompt in each further one."""

    validation: Validation
    turns: Iterator[Turn]
    prompts: list[str]

    def run(self, live: LiveSession, view: SessionView) -> RunnerResult:
        with self.folders.open(live, view, Place.CHANGE_SET, for_agent=True) as folder:
            next(self.turns)(live, folder)

            def heal(text: str):
                self.prompts.append(text)
                next(self.turns)(live, folder)

            validated = self.validation.validate(live, view, folder, heal)
            write = self.folders.capture(live, view, folder, check=validated.check)
        return RunnerResult(validated.summary, validated.check, validated.sound, write=write)


class ValidationWorld(SessionWorld):
    """Sessions of an agent whose turns a test gives, with the real validation loop."""

    def make_runners(self) -> list[Runner]:
        self.agent = ScriptedAgent(self.folders)
        return [self.agent]

    def work(self, *turns: Turn, validation: ValidationSettings | None = None) -> tuple[SessionView, list[str]]:
        """Run a session with these turns to its end. Returns it, and the prompts between the turns."""
        settings = FixedSettings(Settings(validation=validation or ValidationSettings()))
        self.agent.validation = Validation(
            self.database, settings=settings, repairs=lambda **about: (), tweaks=lambda **about: ()
        )
        self.agent.turns, self.agent.prompts = iter(turns), []
        return self.wait(self.begin_prose("make it right"), 60), self.agent.prompts

    def read_events(self, *kinds: str) -> list[str]:
        """The events of these kinds in the ledger, the oldest first."""
        return [row.kind for row in reversed(Ledger(self.database).latest(50, kinds=kinds))]

    def read_attempts(self) -> list[tuple[int, int]]:
        """The number and the failed tests of each attempt."""
        with self.database.read() as session:
            rows = session.exec(select(ValidationRun).order_by(col(ValidationRun.id)))
            return [(row.attempt, row.failed) for row in rows]


def write_files(**files: str) -> Turn:
    """A turn that writes these texts, each to the Python file of its name."""

    def turn(live: LiveSession, folder: SessionFolder):
        for name, text in files.items():
            (folder.path / f"{name}.py").write_text(text)

    return turn
