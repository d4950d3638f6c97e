"""Having a channel served by a coding agent of this machine: which are found, and what is to be done besides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from clawpy_console import words

if TYPE_CHECKING:
    from clawpy_console.app import ConsoleApp

KEYS = "123456789"


def offer(app: ConsoleApp) -> None:
    """Look which agents are here, and have the operator choose one; nothing is written before he did."""
    engine = app.live()
    if engine is not None:
        app.ask(lambda: (engine.hiring.served(), engine.hiring.found()), lambda seen: _choose(app, *seen))


def _choose(app: ConsoleApp, served: str, found: list[Any]) -> None:
    if not found:
        app.say("no coding agent is found on the PATH; `clawpy key set openai` makes a model do it", "warning")
        return
    from clawpy_console.dialogs.choose import Choose

    options = [(KEYS[number], one.name, _meaning(one)) for number, one in enumerate(found[: len(KEYS)])]

    def chosen(name: str | None) -> None:
        engine = app.live() if name else None
        if engine is not None and name is not None:
            app.ask(lambda: engine.hiring.hire(name), lambda agent: _hired(app, agent))

    app.push_screen(Choose("Who does what koji-core is asked in prose?", options, present=served), chosen)


def _meaning(one: Any) -> str:
    if one.missing:
        return f"{one.title}, once its adapter is there: {one.missing}"
    reaches = f"; reaches {one.hosts[0]}" + (f" and {len(one.hosts) - 1} more" if len(one.hosts) > 1 else "")
    return one.title + (reaches if one.hosts else "")


def _hired(app: ConsoleApp, agent: Any) -> None:
    from clawpy_console.dialogs.told import Told

    app.renew(["settings", "cards"])
    app.push_screen(
        Told(
            f"koji-core is served by {agent.title}",
            f"It gets a folder of its own and nothing else of your home, so it has to be let in once:\n\n{agent.login}",
        )
    )


def line(served: str, found: list[Any]) -> str:
    """What the first run says of it, "" when prose is taken."""
    if served:
        return ""
    here = [one.title for one in found if not one.missing] or [f"{one.title} (adapter missing)" for one in found]
    told = "prose needs an agent: clawpy key set openai"
    return f"{told}, or koji-core served by {words.crop(' or '.join(here), 60)} (found): " if here else told
