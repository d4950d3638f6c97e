"""A home, a small shop in git, an engine, and a model on loopback; used as an operator uses it, by verbs and files."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
from sqlalchemy import text

from engine import Engine
from engine.api.operations import dispatch
from engine.model import DecidedBy, DecidedCard, DecisionSignal, SessionView
from tests.execution.model.world import CHANNEL, ModelWorld
from tests.support.model_server import Request

Document = dict[str, Any]


class World(ModelWorld):
    """One operator with one workspace, `repository`. `engine` is open where a test begins."""

    def __init__(self, *args: Any, **how: Any) -> None:
        super().__init__(*args, **how)
        self._numbers = itertools.count()
        self.bearer: dict[str, str] = {}

    def say(self, verb: str, **arguments: Any) -> Document:
        """What `clawpy VERB --json` prints. Raises `Refusal` where that refuses."""
        return dispatch(self.engine, verb, arguments)

    def work(self, prompt: str, *said: str, channel: str = CHANNEL, edit: str | None = None) -> SessionView:
        """A card of the operator's own, approved (after an `edit`) and done by the model, which says `said`."""
        self.server.script(*said)
        card = self.proposed(prompt, channel=channel)
        return self.approved(card["id"], **({} if edit is None else {"edit": edit}))

    def flow(self, text: str, channel: str = CHANNEL) -> SessionView:
        """A flow of the console's own that the operator asks for; it needs no model."""
        return self.approved(self.proposed(text, channel=channel)["id"])

    def proposed(self, text: str, **how: Any) -> Document:
        """A card of the operator's own."""
        return dict(self.say("propose", text=text, workspace=str(self.repository.path), **how)["predictions"][0])

    def approved(self, card_id: str, **how: Any) -> SessionView:
        """The session of a card that the operator approves, when it is over."""
        bare = not self.engine.sessions.sandbox.confines
        session = self.say("approve", id=card_id, withoutSandbox=bare, **how)["session"]
        return self.finish(self.engine.sessions.get(session["id"]))

    def predicted(self, **how: Any) -> list[Document]:
        """The cards that wait after a cycle, from the top."""
        return list(self.say("predict", **how)["predictions"])

    def serve(self) -> Callable[..., Document]:
        """Open the gateway on loopback; gives a function that asks it: method, path, body."""
        self.bearer = {"Authorization": f"Bearer {self.engine.gateway.open(port=0)}"}
        url = self.engine.gateway.state().url

        def ask(method: str, path: str, /, **body: Any) -> Document:
            how: Any = {"params": body} if method == "GET" else {"json": body}
            found = httpx.request(method, url + path, headers=self.bearer, timeout=30, trust_env=False, **how)
            return dict(found.json())

        return ask

    def told(self) -> str:
        """The system prompt of the model's last call."""
        return self.last.system

    @property
    def last(self) -> Request:
        """The model's last call."""
        return self.server.requests[-1]

    def job(self, name: str) -> None:
        """Let a job of the schedule come round."""
        self.engine.autonomy.schedule.run(name)

    def agent(self, name: str) -> Path:
        """The folder of an agent."""
        return self.home.data / "agents" / name

    def rows(self, query: str, **values: Any) -> list[Any]:
        """Rows of the home's SQLite database."""
        with self.engine.database.read() as connection:
            return list(connection.execute(text(query), values).mappings())

    def facts(self, *kinds: str) -> list[Document]:
        """What the event ledger holds of these kinds, the oldest first, each with its subject."""
        found = self.engine.ledger.latest(500, kinds=kinds)
        return [{"kind": one.kind, "subject": one.subject, **one.payload} for one in reversed(found)]

    def decided(
        self,
        kind: str,
        signal: DecisionSignal,
        times: int,
        *,
        channel: str = CHANNEL,
        apart: timedelta = timedelta(hours=1),
    ) -> None:
        """The operator decided so on cards of this kind, one an hour unless said; time passes."""
        raw = 0.95 if signal is DecisionSignal.APPROVED else 0.3
        for _ in range(times):
            self.clock.advance(apart)
            number = next(self._numbers)
            card = DecidedCard(
                f"pred_{kind}_{number}", kind, channel, str(self.repository.path), kind, f"{kind} {number}", 0.4,
                DecidedBy.OPERATOR, f"it is hour {number}", raw=raw,
            )  # fmt: skip
            self.engine.database.write(lambda tx, card=card: self.engine.decisions.record(tx, signal, card))

    def paired(self, times: int) -> None:
        """The operator turned a card of one channel down and took one of another, so many times."""
        for _ in range(times):
            for signal, channel in ((DecisionSignal.DISMISSED, "garden"), (DecisionSignal.APPROVED, "research")):
                self.decided(channel, signal, 1, channel=channel, apart=timedelta(minutes=5))

    def cascade(self, **settings: object) -> None:
        """Write `wisdom_cascade_config.json`."""
        (self.home.data / "wisdom_cascade_config.json").write_text(json.dumps(settings))

    @contextmanager
    def reopened(self) -> Iterator[Engine]:
        """The same home after a restart."""
        self.engine.close()
        with self.opened() as engine:
            yield engine
