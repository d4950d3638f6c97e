"""What fills the small protocols of services that must not know each other: each hands one service to another.

Part of the composition root; nothing is decided here.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from engine.config import SettingsSource
from engine.execution.changesets import ChangeSets
from engine.execution.routing import ModelChoice, ModelRouter
from engine.execution.runners.model.completions import Completions
from engine.git import Git, repository_root
from engine.keys import TWIN, Key, Keys
from engine.learning.decisions.training_examples import Plan
from engine.learning.decisions.training_lines import ARROW
from engine.learning.decisions.training_provider import Account, Provider, TrainingFault
from engine.memory.embedding import NoEmbedder
from engine.memory.memory import MemoryPort
from engine.model import (
    Answer,
    ChangeState,
    NoAnswer,
    Question,
    Refusal,
    SessionView,
    Verdict,
    microusd,
)
from engine.prediction.model_twin import ModelTwin, TwinModelId, Unusable
from engine.safety.kill_switch import KillSwitch
from engine.settings_store import SettingsStore
from engine.storage.database import Transaction

log = logging.getLogger(__name__)

MEANINGS_KEPT = 2_000
"""Vectors that the Twin finds again without asking, the newest; 3 MB."""


@dataclass(frozen=True, slots=True)
class Brakes:
    """The kill switch as sessions and cycles ask it. A pause holds only what runs by itself."""

    kill_switch: KillSwitch

    def stopped(self) -> str | None:
        verdict = self.kill_switch.ask(by_operator=True)
        return None if verdict.verdict is Verdict.ALLOW else verdict.reason


@dataclass(frozen=True, slots=True)
class WhenOver:
    """Observer of sessions: has the housekeeping come round as soon as one is over, for its follow-up."""

    poke: Callable[[], None]

    def session_started(self, tx: Transaction, view: SessionView) -> None:
        pass

    def session_ended(self, tx: Transaction, view: SessionView, result: object) -> None:
        tx.after_commit(self.poke)


@dataclass(frozen=True, slots=True)
class MemoryModel:
    """The model that the operator named for memory's own questions; see `values.Asks`."""

    settings: SettingsSource
    completions: Completions

    def ask(self, question: Question) -> Answer | None:
        named = self.settings.current.memory.model
        return self.completions.ask(named, question) if named else None


@dataclass(frozen=True, slots=True)
class TwinAccess:
    """Names and keys for questions to the Twin model: a key of its own (`twinApiKey`, `clawpy key set twin`) comes
    before its provider's, and no other provider is shown it."""

    settings: SettingsSource
    models: ModelRouter
    keys: Keys

    def named(self, model_id: str, reason: str) -> ModelChoice:
        """Raises `Refusal` `no_model`."""
        keyed = self._own(model_id.partition(":")[0]) and bool(self.keys.where(TWIN))
        return self.models.named(model_id, reason, keyed=keyed)

    def key(self, provider: str) -> Key | None:
        """The key that the provider is shown."""
        return (self.keys.get(TWIN) if self._own(provider) else None) or self.keys.get(provider)

    def _own(self, provider: str) -> bool:
        """Whether it is the provider of the model that the settings name; Together while they name none."""
        settings = self.settings.current
        return provider == TwinModelId.read(settings.twin_model_id, settings.provider_names()).provider


@dataclass(frozen=True, slots=True)
class TwinSchool:
    """What training needs of the settings, the keys and the Twin model (SPEC 8.4)."""

    settings: SettingsStore
    keys: Keys
    access: TwinAccess
    twin: ModelTwin

    def plan(self) -> Plan:
        """As the settings are now."""
        settings = self.settings.current
        training, current = settings.training, self.twin.named
        found = settings.provider(training.provider)
        return Plan(
            training.provider,
            training.base_model,
            microusd(training.cost_cap),
            "" if current is None else str(current),
            automatic=training.automatic,
            enabled=settings.twin_model_enabled,
            base_url="" if found is None else found.base_url,
        )

    def provider(self) -> Provider:
        """Raises `Refusal`: `unknown_provider`, `no_key`."""
        training = self.settings.current.training
        found = self.settings.current.provider(training.provider)
        if found is None:
            raise Refusal(
                "unknown_provider",
                f"there is no provider {training.provider}",
                "clawpy config set training.provider NAME",
            )
        key = self.keys.get(training.provider) or self.access.key(training.provider)
        if key is None and not found.keyless:
            raise Refusal("no_key", f"{training.provider} has no key", f"clawpy key set {training.provider}")
        # The libraries want a word even where the provider wants none.
        return Provider(Account(training.api, found.base_url, key.value if key else "keyless"))

    def answer(self, model: str, situation: str) -> str | None:
        """What a model proposes, as `prompt → channel`; None for rubbish. Raises `TrainingFault`."""
        try:
            reply = self.twin.answer(model, situation)
        except Unusable:
            return None
        except NoAnswer as fault:
            raise TrainingFault(f"{model} cannot be reached: {fault}", passing=True) from fault
        return f"{reply.prompt}{ARROW}{reply.channel}"

    def adopt(self, model: str) -> None:
        """The model is the Twin from now on; no restart is needed."""
        self.settings.set("twinModelId", model)


class Meanings:
    """Vectors of meaning as the Twin takes them: at once those that there are; the others are made for the next time,
    while the process that makes memory's vectors is there anyway."""

    def __init__(self, memory: MemoryPort) -> None:
        self._memory = memory
        self._made: OrderedDict[str, bytes] = OrderedDict()
        self._wanted: queue.SimpleQueue[Sequence[str] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def __call__(self, texts: Sequence[str]) -> list[bytes | None]:
        with self._lock:
            found = [self._made.get(text) for text in texts]
            missing = [text for text, vector in zip(texts, found, strict=True) if vector is None]
            if missing and self._memory.embeds:
                self._wanted.put(missing)
                if self._thread is None:
                    self._thread = threading.Thread(target=self._make, name="clawpy-meanings", daemon=True)
                    self._thread.start()
        return found

    def close(self) -> None:
        """Make no more."""
        self._wanted.put(None)

    def _make(self) -> None:
        while (texts := self._wanted.get()) is not None:
            with self._lock:
                missing = [text for text in dict.fromkeys(texts) if text not in self._made]
            try:
                vectors = self._memory.meanings(missing) if missing else []
            except NoEmbedder as error:
                log.info("the Twin compares words only: %s", error)
                continue
            with self._lock:
                self._made.update(zip(missing, vectors, strict=True))
                while len(self._made) > MEANINGS_KEPT:
                    self._made.popitem(last=False)


def top_folder(folder: str) -> str:
    """The workspace that a folder belongs to; itself where it is in none."""
    try:
        return str(repository_root(Path(folder)))
    except Refusal:
        return folder


class OurFolders:
    """Whether a folder is one that a session of ours works in."""

    def __init__(self, worktrees: Path) -> None:
        self._worktrees = worktrees.resolve()

    def __call__(self, folder: str) -> bool:
        return Path(folder).resolve().is_relative_to(self._worktrees)


class Projects:
    """The project that a workspace is a clone of: the first commit of its history, which all its clones have."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def of(self, workspace: str) -> str:
        """ "" where git cannot say, and for a history that is cut off."""
        if not self._known.get(workspace):
            try:
                git = Git(Path(workspace), timeout=10)
                whole = git.text("rev-parse", "--is-shallow-repository") == "false"
                roots = git.text("rev-list", "--max-parents=0", "HEAD", allowed=(0, 128)).split() if whole else []
            except Refusal as refusal:
                log.warning("%s is not a project that could be shared: %s", workspace, refusal)
                roots = []
            self._known[workspace] = min(roots, default="")
        return self._known[workspace]


def lost_files(workspace: str, paths: Sequence[str]) -> list[str]:
    """Of these paths those that the repository had once and the folder has no longer; [] where git cannot say."""
    folder = Path(workspace)
    try:
        git = Git(folder, timeout=5)
        missing = [one for one in paths if not (folder / one).exists()]
        return [one for one in missing if git.text("log", "-1", "--format=%H", "HEAD", "--", f":(literal){one}")]
    except Refusal as refusal:
        log.warning("%s was not searched for missing files: %s", workspace, refusal)
        return []


@dataclass(frozen=True, slots=True)
class Landings:
    """Landings as cards take them back."""

    changes: ChangeSets

    def reverse(self, session_id: str) -> bool:
        change = self.changes.for_session(session_id)
        if change is None or (change.state is ChangeState.WAITING and not change.landings):
            return False
        self.changes.undo_all(change.id)
        return True
