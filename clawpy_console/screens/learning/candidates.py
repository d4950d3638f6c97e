"""Screen 5, candidates: what the system would change in how it acts, what speaks for it, what came of it (SPEC 5)."""

from __future__ import annotations

from datetime import datetime

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Static

from clawpy_console.keys import bindings, shown_key
from clawpy_console.screens.filtering import Filtering
from clawpy_console.screens.learning import candidate_details, station_lines
from clawpy_console.screens.learning import candidate_lines as lines
from clawpy_console.screens.learning.browsing import Browsing
from clawpy_console.screens.learning.candidate_details import Listing
from clawpy_console.screens.learning.judging import Judging
from clawpy_console.screens.learning.lift_lines import lift_lines
from clawpy_console.widgets.drawn import Drawn
from clawpy_console.widgets.filter import Filter
from clawpy_console.widgets.rows import Rows
from engine.values.adaptation import Candidate, CandidateStatus, CandidateView, LearningRecord

SETTLED = 0.06
"""Seconds that the cursor rests on a row before it is read: walking through a long list reads nothing."""


class CandidatesScreen(Judging, Browsing, Filtering):
    """Candidates left by how they stand, the one under the cursor right. Nothing of it is read on the event loop."""

    MODE = "candidates"
    CSS_PATH = "candidates.tcss"
    AUTO_FOCUS = "#queue"
    BINDINGS = bindings("candidates")
    PANES = {"queue": "queue", "story": "story", "evidence": "evidence"}
    COLUMNS = {"queue": "left", "story": "right", "evidence": "right"}
    FILTERED = "queue"
    SIDES = ("queue", "candidate")

    def __init__(self) -> None:
        super().__init__()
        self._listing: Listing | None = None
        self._only: CandidateStatus | None = None  # the status that is shown, None for every one
        self._view: CandidateView | None = None
        self._wanted = ""  # a candidate to put the cursor on as soon as it is there

    def body(self) -> ComposeResult:
        yield from self.top()
        with Horizontal(id="columns"):
            with Vertical(id="left", classes="pane"):
                yield Static(id="queue-title", classes="heading", markup=False)
                yield Filter("type, scope, what, record, status")
                yield Drawn(id="queue-columns")
                yield Rows(id="queue", empty="Loading…")
            with Vertical(id="right", classes="pane"):
                yield Drawn(id="head")
                with VerticalScroll(id="story"):
                    yield Drawn(id="detail")
                yield Rows(id="evidence", classes="-fit")
                yield Drawn(id="record")

    def on_mount(self) -> None:
        self.query_one("#queue-columns", Drawn).show(lambda width: [lines.columns(width)])

    # Drawing

    def engine_moved(self, topics: frozenset[str]) -> None:
        if "adaptation" in topics:
            self.read_again()

    def tick(self, now: datetime) -> None:
        super().tick(now)
        if self.ready:
            self._draw_queue()
            self._draw_evidence(now)

    def filtered(self) -> None:
        self._draw_queue()

    def _draw_queue(self) -> None:
        listed, needle, rows = self._listing, self.needle, self.query_one("#queue", Rows)
        if listed is None:
            return
        shown = [one for one in listed.candidates if all(word in lines.searched(one) for word in needle)]
        width = rows.size.width
        rows.show(lines.candidate_rows(shown, listed.lifts, width, only=self._only), empty=self._empty())
        if self._wanted and any(one.id == self._wanted for one in shown):
            rows.select(self._wanted)
            self._wanted = ""
        only = self._only
        count = sum(only in (None, one.status) for one in shown)
        of = f" of {len(listed.candidates):,}" if count != len(listed.candidates) else ""
        said = f"  only {lines.STATUS[only][2]}" if only else ""
        title = Content.assemble("CANDIDATES", (f"  {count:,}{of}", "$grey"), (said, "not bold $accent"))
        self.put("#queue-title", title)

    def _empty(self) -> str:
        if self.needle:
            return "No match."
        if self._only is not None:
            return f"none {lines.STATUS[self._only][2]}"
        return "None yet. A candidate appears when the same thing happens repeatedly."

    def _draw_detail(self) -> None:
        """Bring the right side up to date with what was read."""
        self.query_one("#head", Drawn).show(self._head)
        self.query_one("#detail", Drawn).show(self._story)
        self._draw_evidence(self.app.now())
        self.draw_tabs()
        self._keep_focus()
        self.refresh_bindings()

    def _head(self, width: int) -> list[Content]:
        view = self._view
        if view is None:
            return [
                Content.styled("Select a candidate." if self._listing and self._listing.candidates else "", "$faint")
            ]
        low = self.has_class("-low")
        head = lines.heading(view.candidate, self.app.now(), width, low=low)
        return [*head, *([] if low else [Content("")]), *self._stations(view, width)]

    def _stations(self, view: CandidateView, width: int) -> list[Content]:
        if station_lines.beside(view.stations, width):
            return station_lines.station_lines(view.stations, self.app.now(), width)
        return [station_lines.station_line(view.stations, width)]

    def _story(self, width: int) -> list[Content]:
        view, now = self._view, self.app.now()
        if view is None:
            return []
        one = view.candidate
        told = [lines.section("EFFECT", width, "now - and with it +"), *lines.effect_lines(view.preview, width)]
        lift = [lines.section("LIFT", width), *lift_lines(view.lift, view.overlays, one.status, now, width)]
        parts = [lift, told] if one.status is CandidateStatus.PROMOTED else [told, lift]
        if not (station_lines.beside(view.stations, width) and station_lines.told_whole(view.stations, width)):
            parts.append([lines.section("LIFECYCLE", width), *station_lines.station_list(view.stations, now, width)])
        return [line for part in parts for line in (*part, Content(""))][:-1]

    def _draw_evidence(self, now: datetime) -> None:
        rows = self.query_one("#evidence", Rows)
        rows.show(lines.record_rows(self._view, now, low=self.has_class("-low")) if self._view else [])
        rows.display = bool(self._view and self._view.records)
        self._draw_record()

    def _draw_record(self) -> None:
        one, now, key = self.record, self.app.now(), shown_key("rows.open", self.app.keymap)
        shown = self.query_one("#record", Drawn)
        shown.show(lambda width: lines.record_lines(one, now, width, leads=key))
        shown.display = one is not None

    # Reading

    def read_again(self) -> None:
        engine = self.app.engine
        if engine is not None:
            self.read(lambda: candidate_details.listing(engine), self._take, group="listing")

    def _take(self, listed: Listing) -> None:
        self._listing = listed
        if self._wanted and not any(one.id == self._wanted for one in listed.candidates):
            self.app.say(f"Candidate {self._wanted} no longer exists.", "warning")
            self._wanted = ""
        if self._wanted:
            self._only = None
        self._draw_queue()
        self._read_view()

    def _read_view(self, wait: float = 0.0) -> None:
        engine, name = self.app.engine, self.query_one("#queue", Rows).current
        if engine is None:
            return
        if not name:
            self._take_view(None)
            return
        self.read(lambda: engine.adaptation.view(name), self._take_view, group="view", wait=wait)

    def _take_view(self, view: CandidateView | None) -> None:
        before, self._view = self._view, view
        self.now_read()
        self._draw_detail()
        if not (before and view and before.candidate.id == view.candidate.id):
            self.query_one("#story").scroll_home(animate=False)

    # Going about

    @property
    def candidate(self) -> Candidate | None:
        """The candidate under the cursor."""
        current = self.query_one("#queue", Rows).current
        return next((one for one in (self._listing.candidates if self._listing else ()) if one.id == current), None)

    @property
    def view(self) -> CandidateView | None:
        view = self._view
        return view if view and view.candidate.id == self.query_one("#queue", Rows).current else None

    @property
    def record(self) -> LearningRecord | None:
        """The record under the cursor of the evidence."""
        current = self.query_one("#evidence", Rows).current
        return next((one for one in (self._view.records if self._view else ()) if one.id == current), None)

    def select_candidate(self, candidate_id: str) -> None:
        """Put the cursor on a candidate, whatever is filtered, as soon as it was read."""
        self._wanted = candidate_id
        self.filter.put_away()
        self.read_again()

    @on(Rows.Moved, "#queue")
    def _row_moved(self) -> None:
        self.refresh_bindings()
        self._read_view(SETTLED)

    @on(Rows.Opened, "#queue")
    def _row_opened(self) -> None:
        if not self.go_to("evidence"):
            self.go_to("story")

    @on(Rows.Moved, "#evidence")
    def _record_moved(self) -> None:
        self._draw_record()

    @on(Rows.Opened, "#evidence")
    def _record_opened(self) -> None:
        """From a record to the session that it was made of."""
        if (one := self.record) is not None:
            self.lead_to_session(one.session_id)

    def action_status(self) -> None:
        """Show those of the next status only; after the last, all."""
        choices: list[CandidateStatus | None] = [None, *lines.STATUS]
        self._only = choices[(choices.index(self._only) + 1) % len(choices)]
        self._draw_queue()
        self.go_to("queue")

    def _keep_focus(self) -> None:
        """A pane that has the focus and is gone hands it on."""
        node = self.focused
        if node is not None and not node.display:
            self.go_to("queue")

    def on_key(self, event: events.Key) -> None:
        if event.key != "escape" or self.filter.has_class("-shown"):
            return  # then Escape is the filter's
        if self.pane != "queue":
            event.stop()
            self.go_to("queue")
        elif self._only is not None:
            event.stop()
            self._only = None
            self._draw_queue()

    def copy_text(self) -> str:
        return self.candidate.id if self.candidate else ""
