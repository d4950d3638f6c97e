"""What the learnings screen does with a learning: retract, keep, promote to everywhere, run the chain
(SPEC 6.4, 6.5)."""

from __future__ import annotations

from clawpy_console import words
from clawpy_console.screens.base import ConsoleScreen
from clawpy_console.screens.learning import learning_lines as lines
from engine.values import LearningEntry, LearningKind, LearningScope, LearningView
from engine.values.learnings import ChainReport, RetractReport


class Keeping(ConsoleScreen):
    """Base of a screen with a learning under the cursor."""

    @property
    def view(self) -> LearningView | None:
        """The learning under the cursor, None until it was read."""
        raise NotImplementedError

    def read_again(self) -> None:
        """Learnings changed: read them anew."""
        raise NotImplementedError

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys that can do nothing with this learning are not offered."""
        if action in ("retract", "keep", "promote"):
            one = self.view.entry if self.ready and self.view is not None else None
            if one is None or not one.active:
                return False
            if action == "keep":
                return bool(one.review)
            return action == "retract" or (one.scope is LearningScope.PROJECT and one.kind is not LearningKind.PROXY)
        return super().check_action(action, parameters)

    def action_retract(self) -> None:
        """Take it out of use, with a reason, after a look at what was promoted from it."""
        from clawpy_console.screens.learning.decide import Decide

        engine, view = self.app.live(), self.view
        if engine is None or view is None:
            return
        id = view.entry.id

        def answered(reason: str | None) -> None:
            if reason is not None:
                self.app.ask(lambda: engine.learnings.retract(id, reason), self._retracted)

        asks = "Reason, in a few words (kept with it)"
        self.app.push_screen(Decide("Retract it?", lambda width: lines.retract_lines(view, width), asks=asks), answered)

    def _retracted(self, report: RetractReport) -> None:
        more = words.count(len(report.queued), "learning")
        wait = f"; {more} promoted from it wait{'s' if len(report.queued) == 1 else ''} for your word"
        self.app.say(f"retracted{wait if report.queued else ''}")
        self._renew()

    def action_keep(self) -> None:
        """Say that it holds, though what it was promoted from was retracted."""
        engine, view = self.app.live(), self.view
        if engine is None or view is None:
            return
        id = view.entry.id

        def kept(_: LearningEntry) -> None:
            self.app.say("It stays valid.")
            self._renew()

        self.app.ask(lambda: engine.learnings.keep(id), kept)

    def action_promote(self) -> None:
        """Have it hold everywhere, at the operator's word."""
        from clawpy_console.screens.learning.decide import Decide

        engine, view = self.app.live(), self.view
        if engine is None or view is None:
            return
        id = view.entry.id

        def answered(yes: str | None) -> None:
            if yes is not None:
                self.app.ask(lambda: engine.learnings.promote(id), promoted)

        def promoted(_: LearningEntry) -> None:
            self.app.say("It now applies everywhere.")
            self._renew()

        self.app.push_screen(Decide("Apply it everywhere?", lambda width: lines.promote_lines(view, width)), answered)

    def action_chain(self) -> None:
        """Carry up what recurs, now."""
        engine = self.app.live()
        if engine is not None:
            self.app.say("Looking for what recurs…")
            self.app.ask(engine.learnings.chain, self._ran, group="chain")

    def _ran(self, report: ChainReport) -> None:
        told = [
            f"{count} {word}"
            for count, word in (
                (sum(report.extracted.values()), "extracted"),
                (len(report.promoted), "promoted"),
                (len(report.reinforced), "said again"),
                (len(report.compacted), "folded together"),
            )
            if count
        ]
        self.app.say(", ".join(told) or "Nothing new recurs.")
        for fault in report.faults[:3]:
            self.app.say(fault, "warning")
        self._renew()

    def _renew(self) -> None:
        self.app.renew(["changes"])
        self.read_again()
