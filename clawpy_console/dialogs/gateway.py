"""Opens and closes the gateway, and shows where it listens (SPEC 10.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from clawpy_console.dialogs.question import show_text

if TYPE_CHECKING:
    from clawpy_console.console import Console


def switch_gateway(app: Console, on: bool) -> None:
    """Open or close the gateway, and show the result."""
    app.call_engine(
        lambda engine: (engine.gateway.set_enabled(on), engine.gateway.state()),
        lambda result: _on_switched(app, *result),
    )


def _on_switched(app: Console, new_token: str, state: Any) -> None:
    app.reload(["place", "settings"])
    if not state.listening:
        app.show_toast("the gateway is off")
        return
    _show_address(app, new_token, state)


def show_gateway(app: Console) -> None:
    """Show where the gateway listens, and its token if nobody has read that yet."""
    app.load_for_dialog(
        lambda engine: (engine.gateway.take_new_token(), engine.gateway.state()),
        lambda answer: _show_address(app, *answer),
    )


def _show_address(app: Console, new_token: str, state: Any) -> None:
    token = f"the token, shown once:\n{new_token}\n" if new_token else ""
    hint = "" if state.token == "this run" else "clawpy token      shows the token\n"
    lasts = "clawpy token new --store file      makes a token that lasts\n" if state.token == "this run" else ""
    show_text(app, "The gateway listens", f"{state.url}\n{state.words}\n\n{token}{hint}{lasts}".rstrip())
