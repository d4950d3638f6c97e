"""The gateway's switch in the command palette: on or off, now and from now on, and what has to be read of it once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clawpy_console.app import ConsoleApp


def switch(app: ConsoleApp, on: bool) -> None:
    """Have the engine open or close it, and say what came of that."""
    app.ask(lambda engine: (engine.gateway.switch(on), engine.gateway.state()), lambda done: _told(app, *done))


def _told(app: ConsoleApp, fresh: str, state: Any) -> None:
    app.renew(["place", "settings"])
    if not state.listening:
        app.say("the gateway is off")
        return
    _show(app, fresh, state)


def show(app: ConsoleApp) -> None:
    """Say where it listens, and its token if nobody has read that yet."""
    app.look_up(lambda engine: (engine.gateway.reveal(), engine.gateway.state()), lambda known: _show(app, *known))


def _show(app: ConsoleApp, fresh: str, state: Any) -> None:
    token = f"the token, shown once:\n{fresh}\n" if fresh else ""
    kept = "" if state.token == "this run" else "clawpy token      shows the token\n"
    lasts = "clawpy token new --store file      makes a token that lasts\n" if state.token == "this run" else ""
    app.tell("The gateway listens", f"{state.url}\n{state.words}\n\n{token}{kept}{lasts}".rstrip())
