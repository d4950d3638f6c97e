"""The console's app: opens the engine after the first frame, follows its events (`Bridge`), draws the state wherever it
changed, and has the global actions.

`Consoles` runs one `ConsoleApp` for each terminal. Its bases have the rest: `Console` the state and the calls of the
engine, `CardConsole` the decisions about cards, `TerminalApp` the terminal. `Presence` notes what the operator does.

Before the first frame only Textual and the light modules of the engine are imported; a test checks that.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from textual import events, on
from textual.app import SystemCommand
from textual.content import Content
from textual.message import Message
from textual.screen import Screen
from textual.timer import Timer

from clawpy_console import formats
from clawpy_console.appearance import Appearance
from clawpy_console.attach import Host
from clawpy_console.card_controller import CardConsole, CardController
from clawpy_console.console import StopKey
from clawpy_console.fields import TONES
from clawpy_console.keys import find_key_line_actions, format_key, make_bindings
from clawpy_console.presence import Presence
from clawpy_console.screens import ConsoleScreen, TypeAhead
from clawpy_console.state import TOPICS
from clawpy_console.toasts import TOAST_MAKERS, make_toasts
from clawpy_console.widgets.frame import SCREENS, find_gravest_hold
from engine.home import Home
from engine.model import Refusal

if TYPE_CHECKING:
    from textual.command import Provider

    from clawpy_console.attach.terminal import Terminal
    from engine import Engine
    from engine.events import Event, EventBus


log = logging.getLogger(__name__)

FIRST_MODE = "mission"
"""The screen that the console opens with."""


@dataclass
class EngineChanged(Message):
    """The engine reported events since the last message."""

    topics: frozenset[str]
    """The topics that changed."""
    sessions: frozenset[str]
    """The sessions that wrote output."""
    toast_events: tuple[Event, ...]
    """The events that may become toasts, in their order."""


BATCH_INTERVAL_S = 0.1
"""Minimum number of seconds between two messages."""


class Bridge:
    """Passes the events of an engine on to an app, at most ten times a second. Created and closed on the event loop."""

    def __init__(self, bus: EventBus, post: Callable[[EngineChanged], object]) -> None:
        self._loop = asyncio.get_running_loop()
        self._post = post
        self._delivered_at = float("-inf")
        self._closed = False
        self._subscription = bus.subscribe(self._wake)

    def close(self) -> None:
        """Stop listening."""
        self._closed = True
        self._subscription.close()

    def _wake(self) -> None:
        if not self._closed and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._schedule)

    def _schedule(self) -> None:
        """Deliver now or at the end of the interval. A later timer finds nothing to deliver, so none is cancelled."""
        wait = self._delivered_at + BATCH_INTERVAL_S - self._loop.time()
        if wait > 0:
            self._loop.call_later(wait, self._deliver)
        else:
            self._deliver()

    def _deliver(self) -> None:
        if self._closed:
            return
        self._delivered_at = self._loop.time()
        events = self._subscription.drain()
        if not events:
            return
        topics = frozenset(topic for event in events if event.kind != "SessionOutput" for topic in event.topics)
        sessions = frozenset(event.subject for event in events if event.kind == "SessionOutput")
        toast_events = tuple(event for event in events if event.kind in TOAST_MAKERS)
        self._post(EngineChanged(topics, sessions, toast_events))


def _make_screen(mode: str) -> Screen[None]:
    """A new full screen. Its module and class are named after its mode, and imported when it is first shown."""
    module = import_module(f"clawpy_console.screens.{mode}")
    return cast(Screen[None], getattr(module, f"{mode.capitalize()}Screen")())


def _import_command_provider() -> type[Provider]:
    from clawpy_console.screens.palette import CommandProvider  # only the palette needs it

    return CommandProvider


class ConsoleApp(CardConsole):
    """The console over one engine.

    Args:
        open_engine: opens the engine; called in a thread, after the first frame. After a `Refusal` the operator can
            try again.
        home: the folder of the last screen and the operator's themes.
        workspaces: absolute paths; the console shows their cards and work.
        demo: whether the home is a temporary one, which the status bar then says.
        now: the clock.
        terminal: the terminal of a client; by default Textual's own driver is used.
        host: the process, with the other consoles of the same engine; by default there are none.
    """

    TITLE = "clawpy"
    CSS_PATH = ["app.tcss", "screens/mission.tcss"]  # with the first screen's, or all is parsed twice
    ENABLE_COMMAND_PALETTE = True
    COMMANDS = {_import_command_provider}
    COMMAND_PALETTE_BINDING = "f24"  # our own binding, remappable, does it
    MODES = {mode: partial(_make_screen, mode) for mode in SCREENS}
    DEFAULT_MODE = FIRST_MODE
    BINDINGS = make_bindings("app")

    def __init__(
        self,
        open_engine: Callable[[], Engine],
        home: Home,
        workspaces: Sequence[str],
        *,
        demo: bool = False,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        terminal: Terminal | None = None,
        host: Host | None = None,
    ) -> None:
        super().__init__(home, workspaces, demo=demo, now=now, terminal=terminal, host=host or Host(owns_engine=True))
        self._open_engine = open_engine
        self.is_held_elsewhere = False
        """Whether the app ended because another engine, which offers a console, holds the home."""
        if terminal is not None:
            terminal.bind_app(on_hang_up=self.quit, on_stop_key=self._stop_pressed)
        self._stop_key = StopKey(self)
        self._bridge: Bridge | None = None
        self.cards = CardController(self)
        self._tick_timer: Timer | None = None
        self._title = ""  # the title of the terminal
        self.appearance = Appearance(self, self.last_screen)
        self._presence = Presence(self)
        self._type_ahead = TypeAhead()

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """The default of each colour name that our style sheets use, for themes that do not define it."""
        return dict(TONES["default"])

    # Start

    def on_mount(self) -> None:
        self.appearance.remove_builtin_themes()
        self.call_after_refresh(self.begin)

    def begin(self) -> None:
        """Open the engine in a thread, after the first frame; quit if that was asked for before it."""
        self._is_ready = True
        self.host.garbage_collector.allow_collections()
        if self._quits_when_ready or (self.terminal is not None and not self.terminal.is_connected):
            self.exit()
            return
        self.opening_step = "opening"
        self.run_in_background(self._begin, "begin")

    async def _begin(self) -> None:
        """Open the engine, and read everything; show why if it cannot be opened."""
        try:
            engine = await asyncio.to_thread(self._open_engine)
        except Refusal as refusal:
            self._show_start_failure(refusal)
            return
        except Exception as error:
            log.exception("The engine could not start")
            message = f"The engine could not start: {type(error).__name__}: {error}"
            self._show_start_failure(Refusal("cannot_open", message, f"details: {self.home.logs}"))
            return
        self.engine = engine
        self.opening_step = ""
        if not self.is_headless:
            self.host.garbage_collector.take_over_full_collections()
        self._stop_key.on_engine_opened(engine)
        self._bridge = Bridge(engine.bus, self.post_message)
        await self.appearance.apply_settings(engine)
        self.reload(TOPICS)
        self._tick()
        self.run_in_background(self.appearance.load_themes, "themes", exclusive=False)
        self.run_in_background(self._import_ahead, "import")

    async def _import_ahead(self) -> None:
        """Import the dialogs that are opened first, so that their key is quick."""
        for module in ("screens.card_details", "screens.own_prompt"):
            await asyncio.to_thread(import_module, f"clawpy_console.{module}")

    def _show_start_failure(self, refusal: Refusal) -> None:
        """Show why the engine could not be opened, and how to fix it."""
        from clawpy_console.screens.dialog import Answer, Question
        from engine import read_holder

        if self.terminal is not None and refusal.code == "home_held":
            holder = read_holder(self.home)
            self.is_held_elsewhere = holder is None or holder.kind != ""
            if self.is_held_elsewhere:
                self.exit()
                return
        self.opening_step = "not open"
        self._draw_state(frozenset())

        def on_answer(answer: Answer | None) -> None:
            if answer is not None:
                self.begin()
            else:
                self.exit(return_code=1)

        fix = Content.assemble("\n\n", ("→ ", "$accent"), refusal.fix) if refusal.fix else ""
        text = Content.assemble((refusal.message, "bold $ink"), fix)
        answers = [Answer("r", "try again")]
        question = Question("The engine could not start", answers, text=text, cancel=Answer("q", "quit"))
        self.push_screen(question, on_answer)

    def on_state_changed(self, changed: frozenset[str]) -> None:
        self._draw_state(changed)
        if "served_channels" in changed:
            self._presence.update_first_steps()
        if "sessions" in changed and self.state.running and self._tick_timer is not None:
            self._tick()  # from now on each second
        self._set_title()

    def on_state_loaded(self) -> None:
        """After the first reading, show what the operator must know: refusals of the start, and the greeting."""
        if self.is_loaded:
            return
        self.is_loaded = True
        self._draw_state(frozenset({"sessions"}))  # those known from last time: their output can be read only now
        for refusal in self._early_refusals:
            self.show_toast(refusal, "warning")
        self._early_refusals.clear()
        if (unwatched := self.workspace_refusal) is not None:
            from clawpy_console.screens.dialog import show_text

            show_text(self, "Not this repository", f"{unwatched.message}\n\n→ {unwatched.fix}")
        self._presence.greet()

    def _find_visible_screen(self) -> ConsoleScreen | None:
        """The screen to draw on, None below a dialog: there it is a picture, and is drawn when the dialog closes."""
        top = self.screen_stack[-1] if self.screen_stack else None  # empty while the app ends
        return top if isinstance(top, ConsoleScreen) and top.is_ready else None

    def _draw_state(self, changed: frozenset[str]) -> None:
        if (screen := self._find_visible_screen()) is not None:
            screen.refresh_state(changed)
        else:
            self.draw_frames()

    @on(EngineChanged)
    def _handle_engine_change(self, message: EngineChanged) -> None:
        self.reload(message.topics)
        if (screen := self._find_visible_screen()) is not None:
            screen.refresh_topics(message.topics)
            screen.refresh_output(message.sessions)
        if "settings" in message.topics and self.engine is not None:
            self.run_in_background(partial(self.appearance.apply_settings, self.engine), "settings")
        for toast in make_toasts(message.toast_events):
            key = f" ({format_key(f'app.{toast.screen}', self.keymap)})" if toast.screen else ""
            text = f"{self.state.make_place_prefix(toast.workspace)}{toast.text}{key}"
            self.show_toast(text, toast.severity, about=toast.about)
            if toast.alerts and not self.app_focus:  # the operator looks elsewhere
                if self.bell_enabled:
                    self.bell()
                self.notify_in_terminal(f"clawpy: {text}")

    def _set_title(self) -> None:
        counts = {"waiting": len(self.state.waiting), "running": len(self.state.running)}
        title = " · ".join(["clawpy", *(f"{count} {name}" for name, count in counts.items() if count)])
        if title != self._title:
            self._title = title
            self.set_terminal_title(title)

    # Time

    def _tick(self) -> None:
        """Draw what depends on the time: each second while a session runs, else once a minute."""
        if self.engine is None:
            return
        self.host.garbage_collector.collect_if_due()
        now = self.now()
        if (screen := self._find_visible_screen()) is not None:
            screen.tick()
        else:
            self.draw_frames()
        due_times = (self.state.autonomy.next_change, self.state.autonomy.next_cycle)
        if any(due is not None and due <= now for due in due_times):
            self.reload(["autonomy", "phase"])
        if self.state.settings_error:
            self.reload(["settings"])  # no event says that the file is mended
        if self._tick_timer is not None:
            self._tick_timer.stop()
        self._tick_timer = self.set_timer(1.0 if self.state.running else 60.0 - now.second, self._tick, name="tick")

    # The operator

    async def on_event(self, event: events.Event) -> None:
        if isinstance(event, events.Key) and (self._exit or self._type_ahead.ignores(event)):
            return
        if isinstance(event, (events.Key, events.MouseDown)):
            self.host.garbage_collector.note_key()
            self._presence.note_activity(event.key if isinstance(event, events.Key) else "")
            await asyncio.sleep(0)  # other consoles get their turn while this terminal sends thousands of keys
        await super().on_event(event)

    def on_app_blur(self) -> None:
        self._presence.note_blur()

    def on_app_focus(self) -> None:
        self._presence.note_focus()

    def on_key(self, event: events.Key) -> None:
        """Type a key that came before its text had the focus; say why a key cannot do anything now."""
        if event.is_printable and event.character:
            screen = self.screen
            self._type_ahead.type(event.character, screen)
            if isinstance(screen, ConsoleScreen) and (text := screen.explain_disabled_key(event.key, event.character)):
                self.show_toast(text)
                self._type_ahead.on_disabled_key(find_key_line_actions({event.key, event.character}, self.keymap))

    # Actions

    def _stop_pressed(self) -> None:
        with self._context():  # the driver calls this outside of the app's own task
            self.action_stop_everything()

    def action_stop_everything(self) -> None:
        """Stop everything at once."""
        self._stop_key.press()

    def action_resume(self) -> None:
        """End the gravest stop or pause that a key can end; a stop and a month stop after a question."""
        resumable = [hold for hold in self.holds if hold.word != "config"]
        if (hold := find_gravest_hold(resumable or self.holds)) is not None:
            from clawpy_console.screens.safety import ask_to_resume

            ask_to_resume(self, hold)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """`resume` needs a stop or a pause; while the operator types, a letter is text and jumps nowhere."""
        if action == "resume":
            return bool(self.holds)
        if action == "jump" and not parameters and self.focused is not None:
            return not self.focused.check_consume_key("apostrophe", "'")
        return super().check_action(action, parameters)

    def action_help(self) -> None:
        from clawpy_console.screens.palette import Help

        if not isinstance(self.screen, Help):
            self.push_screen(
                Help(active.binding.id or "" for active in self.screen.active_bindings.values() if active.enabled)
            )

    def action_jump(self, typing: bool = False) -> None:
        """Label everything that can be reached, and go to the one whose label is typed."""
        from clawpy_console.screens.jump import Jump, Spot, find_spots

        self.ask(Jump(find_spots(self.screen)), Spot.go)

    def action_connect_agent(self) -> None:
        """Let a coding agent or a model of this machine serve koji-core."""
        from clawpy_console.screens.agent_dialogs import choose_agent

        if len(self.screen_stack) == 1:
            choose_agent(self)

    def action_messages(self) -> None:
        """Show the last messages in full, the newest first."""
        from clawpy_console.screens.dialog import show_text

        self.clear_notifications()  # the dialog has them all, and needs their lines
        show_text(self, "Messages", "\n".join(reversed(self.messages)) or "No messages yet.")

    async def action_quit(self) -> None:
        """Quit, after a question where the engine would end although it has work, or was kept running before."""
        running = len(self.state.running)
        acts = self.state.is_autonomous and not self.demo
        if self.engine is None or self.host.outlives_console() or not (running or acts or self.host.keeps_running):
            self.quit()
            return
        from clawpy_console.screens.dialog import Answer, Question

        stops = f"; that ends {formats.count(running, 'running session')}" if running else ""
        keep_running = Answer("k", "keep running", "only the console closes; `clawpy` attaches to the engine again")
        answers = [Answer("Q", "quit", f"the engine stops too{stops}"), *([] if self.demo else [keep_running])]
        if not isinstance(self.screen, Question):
            self.ask(Question("Quit?", answers), lambda answer: self.quit(keep_engine=answer.key == "k"))

    def action_suspend_process(self) -> None:
        """Give the terminal back to its shell until that continues the console; the engine works on."""
        if self.terminal is not None:
            self.terminal.suspend()

    def action_help_quit(self) -> None:
        """Say which keys quit and stop: Ctrl+C does neither."""
        quit_key = format_key("app.quit_typing", self.keymap)
        self.show_toast(f"{quit_key} quits, {format_key('app.stop', self.keymap)} stops everything")

    async def on_unmount(self) -> None:
        if self._bridge is not None:
            self._bridge.close()

    # Palette

    def action_command_palette(self) -> None:
        from clawpy_console.screens.palette import Palette

        if not isinstance(self.screen, Palette):
            self.push_screen(Palette())

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """The commands of the palette (see `clawpy_console.screens.palette`)."""
        from clawpy_console.screens.palette import make_commands

        yield from make_commands(self, screen)
