"""A home, a small shop in git, an engine and a model on loopback. Tests use them as an operator does, by verbs and
files. Only decisions of earlier weeks are written into the database."""

import itertools
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import sqlalchemy

from engine import Engine
from engine.api.operations import dispatch
from engine.model import DecidedBy, DecidedCard, DecisionSignal, SessionView
from tests.support.model_server import Request
from tests.support.model_world import CHANNEL, ModelWorld

RAW_OF_APPROVED, RAW_OF_DISMISSED = 0.95, 0.3
"""What the Twin foresaw of recorded decisions, before its calibration."""

GREEN = {"Makefile": "test:\n\tgrep -q 3 cart.txt\n", "cart.txt": "3\n"}
"""A project whose test passes while a file has a 3."""

Document = dict[str, Any]
"""What a verb prints as JSON."""


class OperatorWorld(ModelWorld):
    """One operator with one workspace, `repository`. `engine` is open when a test begins."""

    def __init__(self, *arguments: Any, **options: Any):
        super().__init__(*arguments, **options)
        self._numbers = itertools.count()
        self.bearer: dict[str, str]
        """The header of requests to the gateway, which `serve` opens."""

    def carry_out(self, verb: str, **arguments: Any) -> Document:
        """The document that `clawpy VERB --json` prints. Raises `Refusal` where that refuses."""
        return dispatch(self.engine, verb, arguments)

    def change_setting(self, key: str, value: object):
        """Change a setting."""
        self.carry_out("config", action="set", key=key, value=value)

    def append_config(self, text: str):
        """Add to the configuration file."""
        with self.home.config_file.open("a") as file:
            file.write(text)

    def work(self, prompt: str, *replies: str, channel: str = CHANNEL, edit: str | None = None) -> SessionView:
        """Approve a card of the operator's own, after an `edit`, and let the model give these replies. Returns its
        session."""
        self.server.script(*replies)
        card = self.propose_card(prompt, channel=channel)
        return self.approve(card["id"], **({} if edit is None else {"edit": edit}))

    def work_corrected(self, correction: str, *names: str) -> list[str]:
        """Let the model write a file of each name, with the correction added to each task. Returns the ids of the
        sessions."""
        sessions = []
        for name in names:
            prompt = f"Write a {name} into {name}.txt"
            sessions.append(self.work(prompt, "Done.", edit=f"{prompt}. {correction}").id)
            self.engine.learnings.catch_up()
        return sessions

    def run_flow(self, text: str) -> SessionView:
        """Run a flow, which needs no model, and return its session."""
        return self.approve(self.propose_card(text, channel=CHANNEL)["id"])

    def propose_card(self, text: str, **arguments: Any) -> Document:
        """Propose a card of the operator's own, and return it."""
        return dict(
            self.carry_out("propose", text=text, workspace=str(self.repository.path), **arguments)["predictions"][0]
        )

    def approve(self, card_id: str, **options: Any) -> SessionView:
        """Approve a card, and return its session when it is over."""
        bare = not self.engine.sessions.sandbox.confines
        session = self.carry_out("approve", id=card_id, withoutSandbox=bare, **options)["session"]
        return self.finish(self.engine.sessions.get(session["id"]))

    def predict(self, **arguments: Any) -> list[Document]:
        """The cards that are pending after a cycle, in the order of the stack."""
        return list(self.carry_out("predict", **arguments)["predictions"])

    def predict_card(self, key: str, value: str) -> Document:
        """The card with this value after a cycle, the first if there are several."""
        return next(card for card in self.predict() if card[key] == value)

    def serve(self) -> Callable[..., Document]:
        """Open the gateway on loopback. Returns a function that sends it a request: method, path, body."""
        self.bearer = {"Authorization": f"Bearer {self.engine.gateway.open(port=0)}"}
        url = self.engine.gateway.state().url

        def ask(method: str, path: str, /, **body: Any) -> Document:
            content = {"params": body} if method == "GET" else {"json": body}
            reply = httpx.request(method, url + path, headers=self.bearer, timeout=30, trust_env=False, **content)
            return dict(reply.json())

        return ask

    @property
    def system_prompt(self) -> str:
        """The system prompt of the model's last call."""
        return self.last_request.system

    @property
    def last_request(self) -> Request:
        """The model's last call."""
        return self.server.requests[-1]

    def run_jobs(self, *names: str):
        """Run jobs of the schedule."""
        for name in names:
            self.engine.autonomy.schedule.run(name)

    def update_memory(self):
        """Let memory take in what happened."""
        self.engine.knowledge.catch_up()

    def leave_alone(self):
        """Let the operator be away for 31 minutes, after which the engine may act by itself."""
        self.advance(minutes=31)
        self.run_jobs("state", "act")

    def advance(self, **span: float):
        """Let time pass: `minutes=10`."""
        self.clock.advance(timedelta(**span))

    def agent_folder(self, name: str) -> Path:
        return self.home.data / "agents" / name

    def read_rows(self, query: str, **values: Any) -> list[Any]:
        """Rows of the home's SQLite database."""
        with self.engine.database.read() as connection:
            return list(connection.execute(sqlalchemy.text(query), values).mappings())

    def read_events(self, *kinds: str) -> list[Document]:
        """The events of these kinds in the ledger, the oldest first, each with its subject."""
        newest = self.engine.ledger.read_newest(500, kinds=kinds)
        return [{"kind": entry.kind, "subject": entry.subject, **entry.payload} for entry in reversed(newest)]

    def record_decisions(
        self, kind: str, signal: DecisionSignal, times: int, *, channel: str = CHANNEL, minutes: float = 60
    ):
        """Record decisions on cards of this kind, one every `minutes`, each as the Twin foresaw it."""
        raw = RAW_OF_APPROVED if signal is DecisionSignal.APPROVED else RAW_OF_DISMISSED
        for _ in range(times):
            self.advance(minutes=minutes)
            number = next(self._numbers)
            card = DecidedCard(
                f"pred_{kind}_{number}", kind, channel, str(self.repository.path), kind, f"{kind} {number}", 0.4,
                DecidedBy.OPERATOR, f"it is hour {number}", raw=raw,
            )  # fmt: skip
            self.engine.database.write(lambda tx, card=card: self.engine.decisions.record(tx, signal, card))

    def record_decision_pairs(self, times: int):
        """Record that a card of one channel was dismissed and one of another approved, `times` times."""
        for _ in range(times):
            for signal, channel in ((DecisionSignal.DISMISSED, "garden"), (DecisionSignal.APPROVED, "research")):
                self.record_decisions(channel, signal, 1, channel=channel, minutes=5)

    def write_cascade_config(self, **settings: object):
        """Write `wisdom_cascade_config.json`."""
        (self.home.data / "wisdom_cascade_config.json").write_text(json.dumps(settings))

    @contextmanager
    def restarted(self) -> Iterator[Engine]:
        """The engine of the same home after a restart."""
        self.engine.close()
        with self.opened() as engine:
            yield engine


def find_verdict(card: Document, rail: str) -> tuple[str, str]:
    """(verdict, reason) of a rail on a card."""
    return next((row["verdict"], row["reason"]) for row in card["verdicts"] if row["rail"] == rail)
