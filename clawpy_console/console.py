"""What the app knows and how it asks: readings of the engine's ports, calls in threads, the last screen kept.

Nothing here waits on the event loop (SPEC 11.4): ports are called in threads, one reading after the other, and what
they return is put on screen by the loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import Callable, Collection, Coroutine, Iterable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from textual.app import App
from textual.notifications import Notification, Notify, SeverityLevel
from textual.worker import Worker

from clawpy_console import last_screen, words
from clawpy_console.keys import shown_key
from clawpy_console.state import SESSION_PAGE, TOPICS, Autonomy, ReadScope, read_topics, used_screens
from clawpy_console.widgets.status import Frame
from engine.home import Home
from engine.model import Hold, Refusal, TranscriptLine

if TYPE_CHECKING:
    from clawpy_console.attach.terminal import Terminal
    from engine import Engine

log = logging.getLogger(__name__)
T = TypeVar("T")

MAX_PROMPTS = 50
"""Maximum number of prompts that are kept."""

STARTING = Refusal("starting", "The engine is still starting.", "")

SAVE_DELAY_S = 2.0
"""Seconds from a change to the writing of the last screen."""


class Console(App[None]):
    """An app over one engine: `state` is what its screens draw, `engine` None until it is open."""

    def __init__(
        self,
        home: Home,
        workspaces: Sequence[str],
        *,
        demo: bool,
        now: Callable[[], datetime],
        terminal: Terminal | None,
    ) -> None:
        """What is known begins as it was kept at the last quit, for the `workspaces` of this start, the first of which
        is the one that this console is for."""
        self.terminal = terminal  # Textual asks for its driver while it is made
        super().__init__()
        self.home = home
        self.demo = demo
        self.now = now
        self.engine: Engine | None = None
        self.opening = "opening"
        self.last = last_screen.load(home.last_screen)
        self.together: Collection[Console] = (self,)
        """The consoles of this process."""
        self.state = self.last.state
        self.workspace = workspaces[0] if workspaces else ""
        """The workspace that this console is for: it comes before the others. "" for none."""
        self.workspace_filter = ""
        """The workspace whose cards alone are shown at first, "" for all."""
        if workspaces:
            place = self.state.place if self.state.workspaces[:1] == (self.workspace,) else ""
            self.state = dataclasses.replace(self.state, workspaces=tuple(workspaces), place=place)
        self._stale: set[str] = set()
        self._reading = False
        self._newest = SESSION_PAGE
        self._before: list[Callable[[], object]] = []
        self._own_stop: Hold | None = None
        self._stop_asked = False
        self._visited: set[str] = set()  # screens that were gone to
        self.keymap: dict[str, str] = {}
        """Keys that the operator gave actions, by the action's id."""
        self.rings = True
        self.mouse = self.last.mouse
        """Whether the console takes the mouse at its next start."""
        self._saving = False
        self.greeted = False
        """True once everything has been read for the first time."""
        self._complaints: list[Refusal] = []
        self.not_here: Refusal | None = None
        """Why the engine does not look after the repository that this console was opened in."""
        self._standing: dict[str, list[Notification]] = {}  # what was said of a state that lasts, by the state

    def state_changed(self, changed: frozenset[str]) -> None:
        """These fields of `state` changed: draw them."""

    def state_loaded(self) -> None:
        """Everything that was stale has been read."""

    # State

    def keep(self, **changed: Any) -> None:
        """Keep these fields of the last screen, in the home and in every console of this process: each saves them."""
        for console in self.together:
            console.last = dataclasses.replace(console.last, **changed)
        self._save_soon()

    def keep_prompt(self, draft: str, workspace: str, *, sent: str = "") -> None:
        """Keep what stands in the prompt box for `workspace` and what was sent from it, but for what may be a key."""
        from engine.model.secrets import redact

        before = self.last.prompts
        prompts = (sent, *(item for item in before if item != sent)) if sent else before
        if redact(draft) == draft and redact(sent) == sent:
            self.keep(draft=draft, draft_of=workspace, prompts=prompts[:MAX_PROMPTS])

    def renew(self, topics: Iterable[str], *, before: Callable[[], object] | None = None) -> None:
        """Read `topics` again, off the loop; a topic that `AppState` does not have is a screen's own. Topics that come
        while a reading is under way are read after it. `before` is called when the first reading of the cards that
        begins from now on is there, before it is drawn."""
        self._stale.update(topic for topic in topics if topic in TOPICS)
        if before is not None:
            self._before.append(before)
        if not self._reading and self.engine is not None:
            self._reading = True
            self.in_background(self._renew, "read", exclusive=False)

    def read_older(self) -> None:
        """Know of as many sessions again as were known at first, older ones."""
        self._newest += SESSION_PAGE
        self.renew(["sessions", "changes"])

    async def _renew(self) -> None:
        complained: set[str] = set()
        try:
            while self._stale and self.engine is not None:
                topics = [topic for topic in TOPICS if topic in self._stale][:3]
                self._stale.difference_update(topics)
                settled, self._before = (self._before, []) if "cards" in topics else ([], self._before)
                wanted = ReadScope(self._newest, self.workspace)
                values, failed = await asyncio.to_thread(read_topics, self.engine, topics, wanted)
                for settle in settled:
                    settle()
                self.learn(values, anew=frozenset({"cards"} if settled else ()))
                for topic, error in failed:
                    if topic not in complained:
                        complained.add(topic)
                        log.error("reading %s failed", topic, exc_info=error)
                        self.say(f"{topic}: {error}", "error")
        finally:
            self._reading = False
        self.state_loaded()

    def learn(self, values: dict[str, Any], *, anew: frozenset[str] = frozenset()) -> None:
        """Take over new fields of `AppState` and draw what they change; `anew` is drawn even if it did not change."""
        if "autonomy" in values:
            values = values | {"autonomy": self._with_silence(values["autonomy"])}
        values["used"] = used_screens(dataclasses.replace(self.state, **values))
        changed = frozenset(name for name, value in values.items() if getattr(self.state, name) != value) | anew
        if not changed:
            return
        self.state = dataclasses.replace(self.state, **{name: values[name] for name in changed & set(values)})
        if self._own_stop is not None and any(hold.word == "stop" for hold in self.state.holds):
            self._own_stop = None
        self.state_changed(changed)
        self._save_soon()

    def _with_silence(self, autonomy: Autonomy) -> Autonomy:
        """`autonomy` as of now; the one that is known already if it says the same, so that nothing is drawn for it."""
        now, before = self.now(), self.state.autonomy
        autonomy = dataclasses.replace(autonomy, read_at=now)
        drift = abs(autonomy.silence_at(now) - before.silence_at(now))
        same = dataclasses.replace(autonomy, silence=before.silence, read_at=before.read_at) == before
        return before if same and before.read_at is not None and drift < timedelta(seconds=1) else autonomy

    @property
    def transcript(self) -> Callable[[str, int, int], Sequence[TranscriptLine]] | None:
        """Reads transcript lines after a number; None before the engine is open."""
        engine = self.engine
        if engine is None:
            return None
        return lambda session_id, after, limit: engine.sessions.transcript(session_id, after=after, limit=limit)

    # Asking the engine

    def ask(
        self,
        call: Callable[[Engine], T],
        then: Callable[[T], object] | None = None,
        refused: Callable[[Refusal], object] | None = None,
        *,
        group: str = "ask",
        in_turn: asyncio.Lock | None = None,
    ) -> None:
        """Call the engine in a thread; `then` gets the result, `refused` the refusal (else it is said), on the loop.
        Calls that share the lock `in_turn` are made one after the other, in the order of the asking. An engine that is
        not open yet is a refusal too."""
        if self.engine is not None:
            work = partial(self.in_thread, partial(call, self.engine), then, refused, in_turn=in_turn)
            self.in_background(work, group, exclusive=False)
        elif refused is not None:
            refused(STARTING)
        else:
            self.say(str(STARTING), "warning")

    def look_up(
        self,
        call: Callable[[Engine], T],
        then: Callable[[T], object],
        refused: Callable[[Refusal], object] | None = None,
    ) -> None:
        """`ask` for what a dialog has to show, which `then` opens. Until it is there further presses open no other."""
        if not any(worker.group == "look up" and not worker.is_finished for worker in self.workers):
            self.ask(call, then, refused, group="look up")

    async def in_thread(
        self,
        call: Callable[[], T],
        then: Callable[[T], object] | None,
        refused: Callable[[Refusal], object] | None = None,
        *,
        in_turn: asyncio.Lock | None = None,
        wait: float = 0.0,
    ) -> None:
        """`call` in a thread, after `wait` seconds. `then` gets the result, `refused` the refusal or the failure."""
        await asyncio.sleep(wait)
        try:
            async with in_turn or contextlib.nullcontext():
                result = await asyncio.to_thread(call)
        except Exception as error:
            refusal = error
            if not isinstance(refusal, Refusal):
                log.exception("a call of the console failed")
                refusal = Refusal("failed", f"{type(error).__name__}: {error}", f"details: {self.home.logs}")
            if refused is not None:
                refused(refusal)
            else:
                self.say(str(refusal), "error")
        else:
            if then is not None:
                then(result)

    def say(self, text: str, severity: SeverityLevel = "information", *, about: str = "") -> None:
        """Show a toast, literally as written. `about` names a state: `end_state` removes its toasts."""
        toast = Notification(words.one_line(text), severity=severity, timeout=self.NOTIFICATION_TIMEOUT)
        if about:
            self._standing.setdefault(about, []).append(toast)
        self.post_message(Notify(toast))

    def end_state(self, state: str, text: str) -> None:
        """Show `text` in place of the toasts about `state`, which is over."""
        for toast in self._standing.pop(state, []):
            toast.timeout = 0.0  # the next toast is shown without those whose time is up
        self.say(text)

    def complain(self, refusal: Refusal) -> None:
        """Say a refusal that came before there was a screen to say it on as soon as there is one."""
        if self.is_running and self.greeted:
            self.say(str(refusal), "warning")
        else:
            self._complaints.append(refusal)

    def in_background(
        self, work: Callable[[], Coroutine[Any, Any, None]], group: str, *, exclusive: bool = True
    ) -> None:
        """Run an async function that ends by itself; a newer one of the same group replaces it if that is `exclusive`.
        A function, not a coroutine: one whose turn never comes, since the console is being left, leaves nothing."""
        _: Worker[None] = self.run_worker(work, group=group, exclusive=exclusive)

    # Screens, settings, holds

    async def action_go(self, mode: str) -> None:
        """Show another screen; dialogs stay where they are."""
        if len(self.screen_stack) == 1 and mode in self.MODES and mode != self.current_mode:
            self._visited.add(mode)
            await self.switch_mode(mode)

    def open(self, mode: str, *what: object) -> None:
        """Go to a screen, and have it show something by its method `show`."""
        self.in_background(partial(self._open, mode, *what), "go", exclusive=False)

    async def _open(self, mode: str, *what: object) -> None:
        await self.action_go(mode)
        if len(self.screen_stack) == 1:
            self.call_after_refresh(self.screen.show, *what)  # type: ignore[attr-defined]

    def draw_frame(self, frame: Frame, now: datetime) -> None:
        """Bring the state line and the banner of a screen or a dialog up to date."""
        resume = shown_key("app.resume", self.keymap)
        how = f"Press {resume} to resume" if len(self.screen_stack) < 2 else f"Close this, then {resume} to resume"
        frame.show(
            self.state, now, self.holds, visited=self._visited, opening=self.opening, demo=self.demo, resume=resume,
            how=how,
        )  # fmt: skip

    def draw_frames(self) -> None:
        """The state line in sight is live, whatever is open below it."""
        for screen in reversed(self.screen_stack):
            frame = next(iter(screen.query(Frame)), None)
            if frame is not None and frame.is_mounted:
                self.draw_frame(frame, self.now())
                break
            screen.refresh()  # the palette shows the frame of the screen behind it

    @property
    def holds(self) -> tuple[Hold, ...]:
        """What holds the engine, a stop that was just pressed included."""
        return self.state.holds if self._own_stop is None else (self._own_stop, *self.state.holds)

    def resume(self, word: str) -> None:
        """End the stop, the month stop or the pause `word`."""

        def done(_: object) -> None:
            self._own_stop = None
            self._stop_asked = False
            self.renew(["costs", "autonomy"])
            self.state_changed(frozenset({"holds"}))

        self.ask(lambda engine: engine.safety.resume(word), done)

    def keep_setting(self, key: str, value: Any) -> None:
        """Write a setting through the engine."""
        self.ask(lambda engine: engine.settings.set(key, value), lambda _: self.renew(["settings", "autonomy"]))
        self._save_soon()

    def want_mouse(self, wanted: bool) -> None:
        """Take the mouse, or leave it to the terminal, after a restart."""
        self.mouse = wanted
        self.keep_setting("console.mouse", wanted)
        self.say(f"the mouse is {'on' if wanted else 'off'} after a restart")

    # The last screen

    def _save_soon(self) -> None:
        if not self._saving and self.is_running and not self._closing:  # a timer of an app that ends would hold it
            self._saving = True
            self.set_timer(SAVE_DELAY_S, self._save_now, name="save")

    def _save_now(self) -> None:
        self.in_background(self._save, "save", exclusive=False)

    async def _save(self) -> None:
        self._saving = False
        screen = dataclasses.replace(
            self.last,
            state=self.state,
            saved_at=self.now(),
            theme=self.theme,
            keys=dict(self.keymap),
            mouse=self.mouse,
        )
        try:
            await asyncio.to_thread(last_screen.save, self.home.last_screen, screen)
        except OSError as error:
            log.warning("the last screen cannot be saved: %s", error)
