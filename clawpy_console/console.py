"""The app without its screens: the state, calls of the engine in threads, the stop key, the saved last screen.

The event loop never waits for the engine (SPEC 11.4): services are called in threads, and their results are drawn by
the loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from textual.notifications import Notification, Notify, SeverityLevel
from textual.screen import Screen
from textual.worker import Worker

from clawpy_console.attach.terminal import Terminal, TerminalApp
from clawpy_console.formats import clock_time
from clawpy_console.last_screen import load_last_screen, save_last_screen
from clawpy_console.state import SESSIONS_PER_PAGE, TOPICS, ReadScope, find_used_screens, read_topics
from engine.home import Home
from engine.model import Hold, HoldKind, Refusal
from engine.text import one_line
from engine.wording import capitalised

if TYPE_CHECKING:
    from clawpy_console.attach import Host
    from engine import Engine


log = logging.getLogger(__name__)
T = TypeVar("T")

EngineCall = Callable[["Engine"], T]
"""Calls the engine, in a thread."""

OnResult = Callable[[T], object]
"""Gets the result of a call of the engine, on the event loop."""

OnRefusal = Callable[[Refusal], object]
"""Gets the refusal of a call of the engine, on the event loop."""

MAX_KEPT_PROMPTS = 50
"""Maximum number of sent prompts that are kept."""

STARTING_REFUSAL = Refusal("starting", "The engine is still starting.", "")
"""The refusal of every call while the engine is not open."""

MAX_KEPT_MESSAGES = 50
"""Maximum number of messages that are kept."""

READING_CHARS_PER_S = 15
"""How fast a message is read: a long one is shown for longer."""

MAX_TOAST_S = 30.0
"""The longest time for which a long message is shown."""

SAVE_DELAY_S = 2.0
"""Seconds from a change until the last screen is saved."""


class Console(TerminalApp):
    """An app over one engine; `engine` is None until it is open. Screens draw `state`."""

    def __init__(
        self,
        home: Home,
        workspaces: Sequence[str],
        *,
        demo: bool,
        now: Callable[[], datetime],
        terminal: Terminal | None,
        host: Host,
    ) -> None:
        """The state begins as it was saved at the last quit. The console is opened for `workspaces`."""
        super().__init__(terminal)
        self.home = home
        self.host = host
        self.demo = demo
        self.now = now
        self.engine: Engine | None = None
        self.opening_step = "opening"
        """The step of the engine's start, "" once it is open."""
        self.last_screen = load_last_screen(home.last_screen)
        self.state = self.last_screen.state
        self._opened_for = tuple(workspaces)
        self.workspace_filter: str | None = None
        """The only workspace that mission control shows, "" for all; None for those of this console."""
        if workspaces:
            label = self.state.workspace_label if self.state.workspaces[:1] == self._opened_for[:1] else ""
            self.state = dataclasses.replace(self.state, workspaces=self._opened_for, workspace_label=label)
        self._stale_topics: set[str] = set()  # to be read again
        self._is_reading = False
        self._session_limit = SESSIONS_PER_PAGE
        self._on_cards_read: list[Callable[[], object]] = []  # called at the next reading of the cards
        self.pressed_stop: Hold | None = None
        """The stop that was pressed here, until the engine reports it."""
        self.visited_screens: set[str] = set()
        """Screens that were opened before."""
        self.keymap: dict[str, str] = {}
        """The operator's own keys, by the id of the action."""
        self.bell_enabled = True
        self.uses_mouse = home.read_settings_section("console").get("mouse") is not False
        """Whether the console uses the mouse from its next start on."""
        self._is_save_scheduled = False
        self._is_ready = False  # once the first frame is drawn
        self._quits_when_ready = False
        self.is_loaded = False
        """True once everything has been read for the first time."""
        self._early_refusals: list[Refusal] = []  # refusals that came before there was a screen to show them on
        self.workspace_refusal: Refusal | None = None
        """Why the engine does not watch the repository that this console was opened in."""
        self._toast_by_subject: dict[str, Notification] = {}  # the latest, by what they are about
        self.messages: deque[str] = deque(maxlen=MAX_KEPT_MESSAGES)
        """The texts of the last toasts, each with its time, oldest first."""

    def on_state_changed(self, changed: frozenset[str]) -> None:
        """Called when these fields of `state` changed."""

    def on_state_loaded(self) -> None:
        """Called when everything that was stale has been read."""

    # State

    def shows(self, workspace: str) -> bool:
        """Whether mission control shows the cards and the work of `workspace`."""
        if self.workspace_filter is not None:
            return self.workspace_filter in ("", workspace)
        return not self.state.workspaces or workspace in self.state.workspaces

    def update_last_screen(self, **changed: Any) -> None:
        """Set these fields of the last screen, and save it.

        They are set in every console of this process, because each console saves all of them.
        """
        for console in self.host.apps.values() or (self,):
            console.last_screen = dataclasses.replace(console.last_screen, **changed)
        self._save_soon()

    def save_prompt(self, draft: str, workspace: str, *, sent: str = "") -> None:
        """Keep the draft of the prompt box for `workspace`, and the prompt that was `sent`. Neither is kept if one of
        them may hold a secret."""
        from engine.redaction import redact

        before = self.last_screen.prompts
        prompts = (sent, *(item for item in before if item != sent)) if sent else before
        if redact(draft) == draft and redact(sent) == sent:
            self.update_last_screen(draft=draft, draft_of=workspace, prompts=prompts[:MAX_KEPT_PROMPTS])

    def reload(self, topics: Iterable[str], *, before: Callable[[], object] | None = None) -> None:
        """Read `topics` again, off the event loop. Topics that only a screen knows are ignored.

        `before` is called when the cards were read again, before they are drawn.
        """
        self._stale_topics.update(topic for topic in topics if topic in TOPICS)
        if before is not None:
            self._on_cards_read.append(before)
        if not self._is_reading and self.engine is not None:
            self._is_reading = True
            self.run_in_background(self._reload_stale, "read", exclusive=False)

    def load_older_sessions(self) -> None:
        """Read another page of older sessions."""
        self._session_limit += SESSIONS_PER_PAGE
        self.reload(["sessions", "changes"])

    async def _reload_stale(self) -> None:
        """Read the topics that are stale, three at a time, until none is."""
        reported: set[str] = set()
        try:
            while self._stale_topics and self.engine is not None:
                topics = [topic for topic in TOPICS if topic in self._stale_topics][:3]
                self._stale_topics.difference_update(topics)
                for topic, error in await self._read_topics(self.engine, topics):
                    if topic not in reported:
                        reported.add(topic)
                        log.error("reading %s failed", topic, exc_info=error)
                        self.show_toast(f"{topic}: {error}", "error")
        finally:
            self._is_reading = False
        self.on_state_loaded()

    async def _read_topics(self, engine: Engine, topics: Sequence[str]) -> Sequence[tuple[str, Exception]]:
        """Read topics, and draw what changed. Returns those that could not be read, with the errors."""
        callbacks: list[Callable[[], object]] = []
        if "cards" in topics:
            callbacks = self._on_cards_read
            self._on_cards_read = []
        scope = ReadScope(self._session_limit, self._opened_for)
        values, failed = await asyncio.to_thread(read_topics, engine, topics, scope)
        for callback in callbacks:
            callback()
        self.update_state(values, redraw=frozenset({"cards"} if callbacks else ()))
        return failed

    def update_state(self, values: dict[str, Any], *, redraw: frozenset[str] = frozenset()) -> None:
        """Replace fields of `state`, and draw those that changed; `redraw` is drawn in any case."""
        values = {**values, "used_screens": find_used_screens(dataclasses.replace(self.state, **values))}
        changed = frozenset(name for name, value in values.items() if getattr(self.state, name) != value) | redraw
        if not changed:
            return
        self.state = dataclasses.replace(self.state, **{name: values[name] for name in changed & set(values)})
        if any(hold.word == HoldKind.STOP for hold in self.state.holds):
            self.pressed_stop = None
        self.on_state_changed(changed)
        self._save_soon()

    # Calls of the engine

    def call_engine(
        self,
        call: EngineCall[T],
        on_result: OnResult[T] | None = None,
        on_refusal: OnRefusal | None = None,
        *,
        group: str = "ask",
        lock: asyncio.Lock | None = None,
    ) -> None:
        """Call the engine in a thread. `on_result` gets the result and `on_refusal` the refusal, on the event loop;
        without `on_refusal` a refusal is a toast. Calls that share a `lock` are made one after the other. While the
        engine is not open, the call is refused."""
        if self.engine is not None:
            work = partial(self.run_in_thread, partial(call, self.engine), on_result, on_refusal, lock=lock)
            self.run_in_background(work, group, exclusive=False)
        elif on_refusal is not None:
            on_refusal(STARTING_REFUSAL)
        else:
            self.show_toast(STARTING_REFUSAL, "warning")

    def carry_out(self, call: EngineCall[object], message: str, *topics: str) -> None:
        """Call the engine in a thread; then show `message` as a toast, and read again the `topics` that changed."""
        self.call_engine(call, lambda _: self.report(message, *topics))

    def ask(self, dialog: Screen[T | None], on_answer: OnResult[T]) -> None:
        """Show `dialog`; `on_answer` gets its answer, unless it was cancelled.

        Does nothing if a dialog of the same kind and title is in front: its key was pressed twice.
        """
        front = self.screen
        if type(front) is type(dialog) and front.title == dialog.title:
            return

        def on_close(answer: T | None) -> None:
            if answer is not None:
                on_answer(answer)

        self.push_screen(dialog, on_close)

    def load_for_dialog(self, call: EngineCall[T], on_result: OnResult[T], on_refusal: OnRefusal | None = None) -> None:
        """Call the engine for the content of a dialog, which `on_result` opens. See `call_engine`.

        The call is ignored while the content of another dialog is read. Its result is ignored if the operator went to
        another screen or opened a dialog meanwhile: keys that were meant for those would answer this one.
        """
        front = self.screen

        def open_dialog(result: T) -> None:
            if self.screen is front:
                on_result(result)

        if not any(worker.group == "look up" and not worker.is_finished for worker in self.workers):
            self.call_engine(call, open_dialog, on_refusal, group="look up")

    async def run_in_thread(
        self,
        call: Callable[[], T],
        on_result: OnResult[T] | None,
        on_refusal: OnRefusal | None = None,
        *,
        lock: asyncio.Lock | None = None,
        wait: float = 0.0,
    ) -> None:
        """Run `call` in a thread, after `wait` seconds; see `call_engine`. An error is handled as a refusal, too."""
        await asyncio.sleep(wait)
        try:
            async with lock or contextlib.nullcontext():
                result = await asyncio.to_thread(call)
        except Exception as error:
            refusal = error
            if not isinstance(refusal, Refusal):
                log.exception("a call of the console failed")
                refusal = Refusal("failed", f"{type(error).__name__}: {error}", f"details: {self.home.logs}")
            if on_refusal is not None:
                on_refusal(refusal)
            else:
                self.show_toast(refusal, "error")
        else:
            if on_result is not None:
                on_result(result)

    def show_toast(self, text: str | Refusal, severity: SeverityLevel = "information", *, about: str = "") -> None:
        """Show `text` as a toast, in place of an earlier one that says the same, or that is about the same thing.

        `about` names what the toast is about, "" for nothing but its text.
        """
        message = one_line(str(text))
        self.messages.append(f"{clock_time(self.now())}  {message}")
        timeout = max(self.NOTIFICATION_TIMEOUT, min(len(message) / READING_CHARS_PER_S, MAX_TOAST_S))
        toast = Notification(message, severity=severity, timeout=timeout)
        shown = {key: other for key, other in self._toast_by_subject.items() if not other.has_expired}
        if (earlier := shown.get(about or toast.message)) is not None:
            earlier.timeout = 0.0  # Textual removes what has expired when it shows the next toast
        self._toast_by_subject = {**shown, about or toast.message: toast}
        self.post_message(Notify(toast))

    def report(self, text: str, *topics: str) -> None:
        """Show `text` as a toast, and read again the `topics` that changed with it."""
        self.show_toast(text)
        self.reload(topics)

    def report_refusal(self, refusal: Refusal) -> None:
        """Show a refusal as a toast, as soon as there is a screen."""
        if self.is_running and self.is_loaded:
            self.show_toast(refusal, "warning")
        else:
            self._early_refusals.append(refusal)

    def run_in_background(
        self, work: Callable[[], Coroutine[Any, Any, object]], group: str, *, exclusive: bool = True
    ) -> None:
        """Run an async function as a worker. An `exclusive` one replaces the others of its group.

        It takes a function instead of a coroutine, because the worker may never start when the console ends.
        """
        _: Worker[object] = self.run_worker(work, group=group, exclusive=exclusive)

    def quit(self, *, keep_engine: bool | None = None) -> None:
        """Quit without a question. Before the first frame, the app quits as soon as that is drawn.

        `keep_engine` says whether the engine keeps running without a console; None leaves that as it is.
        """
        if keep_engine is not None:
            self.host.keeps_running = keep_engine
        if not self._is_ready:
            self._quits_when_ready = True
            return

        async def save_and_exit() -> None:
            await self._save()
            self.exit()

        if self.is_running:  # a terminal is lost also because its console has ended
            self.run_in_background(save_and_exit, "quit")

    # Screens, settings, holds

    async def action_go(self, mode: str) -> None:
        """Show the screen `mode`, unless a dialog is open."""
        if len(self.screen_stack) == 1 and mode in self.MODES and mode != self.current_mode:
            self.visited_screens.add(mode)
            await self.switch_mode(mode)

    def open(self, mode: str, *arguments: object) -> None:
        """Show the screen `mode`, and call its method `show` with `arguments`."""
        self.run_in_background(partial(self._open, mode, *arguments), "go", exclusive=False)

    async def _open(self, mode: str, *arguments: object) -> None:
        if len(self.screen_stack) == 1:
            await self.action_go(mode)
            if self.current_mode == mode:  # no key led to another screen while this one was made
                self.call_after_refresh(self.screen_stack[0].show, *arguments)  # type: ignore[attr-defined]

    def draw_frames(self) -> None:
        """Draw the state line that is in sight. It stays up to date above dialogs."""
        for screen in reversed(self.screen_stack):
            frame: Any = next(iter(screen.query("Frame")), None)  # a widget that knows this app
            if frame is not None and frame.is_mounted and frame.is_running:  # when it ends, its lines end before it
                frame.draw()
                break
            screen.refresh()  # the palette shows the frame of the screen behind it

    @property
    def holds(self) -> tuple[Hold, ...]:
        """The stops and pauses in force, with a stop that was just pressed."""
        return self.state.holds if self.pressed_stop is None else (self.pressed_stop, *self.state.holds)

    def resume(self, word: str) -> None:
        """End the stop, the month stop or the pause `word`."""
        self.call_engine(lambda engine: engine.safety.kill_switch.resume(word), lambda _: self.refresh_after_stop())

    def refresh_after_stop(self) -> None:
        """Draw and read again what a stop changes, once it was ended or has failed."""
        self.pressed_stop = None
        self.reload(["costs", "autonomy"])
        self.on_state_changed(frozenset({"holds"}))

    def write_setting(self, key: str, value: Any) -> None:
        """Write a setting through the engine."""
        self.call_engine(
            lambda engine: engine.settings.set(key, value), lambda _: self.reload(["settings", "autonomy"])
        )
        self._save_soon()

    def set_mouse(self, *, enabled: bool) -> None:
        """Use the mouse, or leave it to the terminal, from the next start on."""
        self.uses_mouse = enabled
        self.write_setting("console.mouse", enabled)
        self.show_toast(f"the mouse is {'on' if enabled else 'off'} after a restart")

    # The last screen

    def _save_soon(self) -> None:
        is_ending = not self.is_running or self._closing  # a timer would delay the end
        if not self._is_save_scheduled and not is_ending:
            self._is_save_scheduled = True
            save = partial(self.run_in_background, self._save, "save", exclusive=False)
            self.set_timer(SAVE_DELAY_S, save, name="save")

    async def _save(self) -> None:
        self._is_save_scheduled = False
        screen = dataclasses.replace(
            self.last_screen, state=self.state, saved_at=self.now(), theme=self.theme, keys=dict(self.keymap)
        )
        try:
            await asyncio.to_thread(save_last_screen, self.home.last_screen, screen)
        except OSError as error:
            log.warning("the last screen cannot be saved: %s", error)


STOP_KEY_REASON = "F12 pressed in the console"
"""The reason of a stop by the stop key."""


class StopKey:
    """The stop key of one console. A stop is shown from the key on, before the engine has answered."""

    def __init__(self, app: Console) -> None:
        self._app = app
        self._was_pressed = False

    def press(self) -> None:
        """Stop everything; if the engine is not open yet, as soon as it is."""
        self._was_pressed = True
        if all(hold.word != HoldKind.STOP for hold in self._app.holds):
            self._show_stop("Stopping… (F12)")
        if self._app.engine is not None:
            self._stop_in_thread(self._app.engine)

    def _show_stop(self, reason: str) -> None:
        self._app.pressed_stop = Hold(HoldKind.STOP, reason, self._app.now())
        self._app.on_state_changed(frozenset({"holds"}))

    def on_engine_opened(self, engine: Engine) -> None:
        """Stop the engine if the key was pressed before it was open."""
        if self._was_pressed:
            self._stop_in_thread(engine)

    def _stop_in_thread(self, engine: Engine) -> None:
        app = self._app

        def stop() -> None:
            try:
                engine.safety.kill_switch.stop(STOP_KEY_REASON, "operator")
            except Exception as error:
                log.exception("F12 failed")
                app.call_later(self._report_stop_failure, error)
            else:
                app.call_later(app.reload, ["costs", "autonomy", "sessions", "tasks"])

        threading.Thread(target=stop, name="stop", daemon=True).start()

    def _report_stop_failure(self, error: Exception) -> None:
        """Say that the stop failed. With a `Refusal` it holds, but is not recorded: it stays in sight for `R`."""
        if isinstance(error, Refusal):
            self._show_stop(STOP_KEY_REASON)
            self._app.show_toast(capitalised(f"{error}."), "error")
        else:
            self._app.refresh_after_stop()
            self._app.show_toast(f"Stop failed: {error}. Run `clawpy stop`.", "error")
