"""Screen 3, hierarchy: who is under whom, and of each agent who it is, what it is told and found out (SPEC 1)."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Static

from clawpy_console import words
from clawpy_console.keys import bindings, shown_key
from clawpy_console.screens.filtering import Filtering
from clawpy_console.screens.hierarchy import details as agent_details
from clawpy_console.screens.hierarchy import lines as lines
from clawpy_console.screens.hierarchy.details import Overview, Portrait
from clawpy_console.screens.hierarchy.organisation import FOLD, GROUP, OWNER, Folds, path, tree
from clawpy_console.screens.hierarchy.organising import Organising
from clawpy_console.screens.hierarchy.tree import Tree
from clawpy_console.widgets.drawn import Drawn
from clawpy_console.widgets.filter import Filter
from clawpy_console.widgets.prompt_lines import PromptLines
from clawpy_console.widgets.rows import Row, Rows
from clawpy_console.widgets.session import session_row
from clawpy_console.widgets.tab_line import Columns, TabLine
from engine.values import AgentView, Bubble, PromptPart, SourceKind

TABS = ("who", "guidance", "bubbles", "teaching", "work")

FIRST = {"guidance": ("block", "story"), "bubbles": ("items", "story"), "work": ("items",)}
"""Where Enter leads in each tab, the first that is there; else to the text."""

SETTLED = 0.06
"""Seconds that the cursor rests on a row before it is read: walking through a long tree reads nothing."""


class HierarchyScreen(Organising, Filtering):
    """The tree left, the agent under its cursor right. Nothing of it is read on the event loop."""

    MODE = "hierarchy"
    CSS_PATH = "hierarchy.tcss"
    AUTO_FOCUS = "#tree"
    BINDINGS = bindings("hierarchy")
    PANES = {"tree": "tree", "items": "items", "story": "story", "block": "block"}
    COLUMNS = {"tree": "left", "items": "right", "story": "right", "block": "right"}
    FILTERED = "tree"

    def __init__(self) -> None:
        super().__init__()
        self._folds = Folds()
        self._tab = TABS[0]
        self._shown: Portrait | Overview | None = None
        self._wanted = ""  # an agent to put the cursor on as soon as it is there

    def body(self) -> ComposeResult:
        yield Columns(id="tabs")
        with Horizontal(id="columns"):
            with Vertical(id="left", classes="pane"):
                yield Static(id="tree-title", classes="heading", markup=False)
                yield Filter("name, title, domain, channel, state, tier 4")
                yield Tree(id="tree", empty="Loading…")
            with Vertical(id="right", classes="pane"):
                yield TabLine()
                yield Drawn(id="whom")
                yield Static(id="about", markup=False)
                yield Rows(id="items")
                with VerticalScroll(id="story"):
                    yield Drawn(id="detail")
                yield PromptLines(id="block")

    def on_screen_resume(self) -> None:
        self.app.renew(["agents"])
        self._read_detail()

    # Drawing

    def draw(self, changed: frozenset[str]) -> None:
        if not changed or changed & {"agents", "retired"}:
            self._draw_tree()
            self._read_detail()

    def tick(self, now: datetime) -> None:
        super().tick(now)
        if self.ready and self._tab == "work":
            self._draw_items(now)

    def engine_moved(self, topics: frozenset[str]) -> None:
        if topics & {"agents", "memory"}:
            self._read_detail()

    def filtered(self) -> None:
        self._draw_tree()
        rows = self.query_one("#tree", Tree)
        if self.needle and (rows.node is None or not rows.is_match(rows.current)):
            rows.select(rows.first_match)

    def _draw_tree(self) -> None:
        known, needle = self.known, self.needle
        if self._wanted and any(one.id == self._wanted for one in known.agents):
            self._reveal(self._wanted)
        nodes = tree(known.agents, known.retired, folds=self._folds, needle=needle)
        empty = "No match." if needle else "No agents yet."
        rows = self.query_one("#tree", Tree)
        rows.show_nodes(nodes, empty=empty)
        if self._wanted and rows.has(self._wanted):
            rows.select(self._wanted)
            self._wanted = ""
        self._draw_title(sum(one.agent is not None and one.matches for one in nodes) if needle else None)

    def _draw_title(self, found: int | None) -> None:
        agents = self.known.agents
        counts = [
            (f"{found:,} of {len(agents):,}" if found is not None else f"{len(agents):,}", "$grey"),
            *(
                (f"  {count} {word}", style)
                for word, states, style in (
                    ("working", ("running",), "$accent"),
                    ("waiting", ("waiting",), "$wants"),
                    ("broken", ("broken",), "$wrong"),
                )
                if (count := sum(one.state in states for one in agents))
            ),
        ]
        self.put("#tree-title", Content.assemble("ORGANISATION  ", *counts))

    def _draw_detail(self) -> None:
        """Bring the right side up to date with what was read and the tab that is chosen."""
        one, now = self._shown, self.app.now()
        portrait = one if isinstance(one, Portrait) else None
        self._draw_tab_line()
        self.query_one("#whom", Drawn).show(self._heading)
        tab = self._tab if portrait or self._tab == "bubbles" else TABS[0]
        about = self._about(tab)
        self.query_one("#about").display = bool(about.plain)
        self.put("#about", about)
        self._draw_items(now)
        block = self.query_one("#block", PromptLines)
        guidance = portrait.guidance if portrait and tab == "guidance" else None
        block.display = bool(guidance and guidance.lines)
        self.set_class(block.display, "-block")
        if guidance and guidance.lines:
            part = PromptPart("leadership-guidance", guidance.lines, tokens=guidance.tokens)
            if block.whole != part.text:
                block.show([part])
                block.seek(SourceKind.LEADER)
        self.query_one("#story").display = tab != "work" or not (portrait and portrait.sessions)
        self._draw_story()
        for name in TABS:
            self.set_class(name == tab, f"-tab-{name}")
        self._keep_focus()
        self._draw_tabs()
        self.refresh_bindings()

    def _heading(self, width: int) -> list[Content]:
        if isinstance(self._shown, Portrait):
            return lines.heading(self._shown.agent, width)
        return [Content.styled(f"{OWNER}  you" if isinstance(self._shown, Overview) else "", "bold $ink")]

    def _draw_tab_line(self) -> None:
        one = self._shown
        if isinstance(one, Overview):
            tabs = [("who", ""), ("bubbles", f"{one.queued}" if one.queued else "")]
            here = self._tab if self._tab == "bubbles" else "who"
        elif one is None or one.agent.state == "retired":
            tabs, here = [("who", "")], "who"
        else:
            counts = {"bubbles": len(one.bubbles), "work": one.agent.sessions}
            tabs = [(name, f"{counts[name]:,}" if counts.get(name) else "") for name in TABS]
            here = self._tab
        self.query_one(TabLine).show(tabs, here)

    def _about(self, tab: str) -> Content:
        one = self._shown
        if isinstance(one, Portrait):
            if tab == "guidance" and one.guidance is not None:
                return lines.guidance_words(one.guidance)
            if tab == "bubbles":
                return lines.bubble_words(one)
            if tab == "work":
                return lines.work_words(one)
        return Content("")

    def _draw_items(self, now: datetime) -> None:
        rows = self._item_rows(now)
        items = self.query_one("#items", Rows)
        items.show(rows)
        items.display = bool(rows)

    def _item_rows(self, now: datetime) -> list[Row]:
        one = self._shown
        if self._tab == "bubbles" and one is not None:
            return lines.bubble_rows(one.bubbles, one.agent.id if isinstance(one, Portrait) else "", now)
        if self._tab == "work" and isinstance(one, Portrait):
            return [session_row(session, now) for session in one.sessions]
        return []

    def _draw_story(self) -> None:
        self.query_one("#detail", Drawn).show(self._story)

    def _story(self, width: int) -> list[Content]:
        one, now, tab = self._shown, self.app.now(), self._tab
        if isinstance(one, Overview):
            if tab == "bubbles":
                return lines.bubble_lines(self._bubble, now, width)
            return lines.owner_lines(one, self.known.agents, width)
        if one is None:
            return self._row_lines(width)
        if one.agent.state == "retired" or tab == "who":
            return lines.who_lines(one, width)
        if tab == "guidance" and one.guidance is not None:
            told = lines.hop_lines(one.guidance, width)
            return told or (lines.profile_lines(one.profile, width) if one.profile else [])
        if tab == "bubbles":
            return lines.bubble_lines(self._bubble, now, width)
        if tab == "teaching":
            return lines.teaching_lines(one, now, width)
        return []

    def _row_lines(self, width: int) -> list[Content]:
        """For a row that is no agent."""
        node = self.query_one("#tree", Tree).node
        if node is None or node.agent is not None:
            return []
        key = shown_key("tree.unfold", self.app.keymap)
        hint = {FOLD: f"{key} shows them here, {shown_key('hierarchy.everyone', self.app.keymap)} everyone everywhere",
                GROUP: f"{key} shows these agents"}.get(node.id[:1], "")  # fmt: skip
        return [*Content.styled(node.text, "$ink").wrap(width), Content.styled(hint, "$grey")]

    @property
    def _bubble(self) -> Bubble | None:
        """The finding under the cursor."""
        current = self.query_one("#items", Rows).current
        return next((one for one in (self._shown.bubbles if self._shown else ()) if one.id == current), None)

    def _draw_tabs(self) -> None:
        name = words.crop(self.agent.id if self.agent else OWNER, 40)
        self.show_columns({"left": "organisation", "right": name}, shown_key("panes.next", self.app.keymap))

    def on_descendant_focus(self) -> None:
        super().on_descendant_focus()
        if self.ready:
            self._draw_tabs()

    # Reading

    def _read_detail(self, wait: float = 0.0) -> None:
        """Read whom the cursor is on anew."""
        engine, node = self.app.engine, self.query_one("#tree", Tree).node
        if engine is None or node is None:
            return
        agent = self.agent
        if agent is not None:
            now = agent
            self.read(lambda: agent_details.portrait(engine, now), self._take, group="detail", wait=wait)
        elif node.id == OWNER:
            self.read(lambda: agent_details.overview(engine), self._take, group="detail", wait=wait)
        else:
            self._take(None)

    def _take(self, shown: Portrait | Overview | None) -> None:
        before, self._shown = self._shown, shown
        same = isinstance(before, Portrait) and isinstance(shown, Portrait) and before.agent.id == shown.agent.id
        self._draw_detail()
        if not same:
            self.query_one("#story").scroll_home(animate=False)

    # Going about

    @property
    def agent(self) -> AgentView | None:
        node = self.query_one("#tree", Tree).node
        return node.agent if node is not None else None

    @property
    def hands_down(self) -> bool:
        return self._tab == "guidance" and isinstance(self._shown, Portrait) and self._shown.profile is not None

    @property
    def leads_here(self) -> str:
        one = self.agent
        return one.id if one is not None and not one.broken and one.state != "retired" else OWNER

    def select_agent(self, agent_id: str) -> None:
        self._wanted = agent_id
        self.filter.put_away()
        self._draw_tree()

    def _reveal(self, agent_id: str) -> None:
        """Unfold whatever keeps an agent out of sight."""
        above = {agent_id, OWNER, *path(self.known.agents, agent_id)}
        folds = self._folds
        self._folds = replace(folds, closed=folds.closed - above, kept=folds.kept | {agent_id})

    @on(Rows.Moved, "#tree")
    def _row_moved(self) -> None:
        self._draw_tabs()
        self.refresh_bindings()
        self._read_detail(SETTLED)

    @on(Tree.Fold)
    def _fold(self, message: Tree.Fold) -> None:
        name, folds = message.row_id, self._folds
        node = self.query_one("#tree", Tree).node
        opens = message.open if message.open is not None else not (node is not None and node.open)
        if name.startswith(FOLD):
            self._folds = replace(folds, shown=folds.shown | {name[len(FOLD) :]})
        elif name == f"{GROUP}retired":
            self._folds = replace(folds, shown=folds.shown | {name} if opens else folds.shown - {name})
        elif node is not None and node.open is not None:
            self._folds = replace(folds, closed=folds.closed - {name} if opens else folds.closed | {name})
        self._draw_tree()

    def action_everyone(self) -> None:
        """Show those who never worked, or fold them again."""
        everyone = not self._folds.everyone
        self._folds = replace(self._folds, everyone=everyone, shown=self._folds.shown if everyone else frozenset())
        self._draw_tree()
        self.app.say("Showing all agents." if everyone else "Agents that have not worked yet are folded.")

    @on(Rows.Opened, "#tree")
    def _row_opened(self, message: Rows.Opened) -> None:
        if message.row_id.startswith((FOLD, GROUP)):
            self.post_message(Tree.Fold(message.row_id, None))
        else:
            self._enter()

    def _enter(self) -> None:
        for pane in (*FIRST.get(self._tab, ()), "story"):
            if self.query_one(f"#{self.PANES[pane]}").display and self.go_to(pane):
                return

    @on(TabLine.Chosen)
    def _tab_chosen(self, message: TabLine.Chosen) -> None:
        self._go_to_tab(message.name)

    def action_tab(self, by: int) -> None:
        """The next tab, or the one before."""
        names = [name for name, _ in self.query_one(TabLine).tabs]
        here = self.query_one(TabLine).here
        if here in names:
            self._go_to_tab(names[(names.index(here) + by) % len(names)])

    def _go_to_tab(self, name: str) -> None:
        self._tab = name
        inside = self.pane not in ("tree", "")
        self._draw_detail()
        self.query_one("#story").scroll_home(animate=False)
        if inside:
            self._enter()

    def _keep_focus(self) -> None:
        """A pane that has the focus and is gone hands it on."""
        node = self.focused
        if node is not None and not node.display:
            self._enter()

    @on(Rows.Moved, "#items")
    def _item_moved(self) -> None:
        if self._tab == "bubbles":
            self._draw_story()

    @on(Rows.Opened, "#items")
    def _item_opened(self, message: Rows.Opened) -> None:
        if self._tab == "bubbles":
            self.go_to("story")
        elif any(one.id == message.row_id for one in self.known.sessions):
            self.app.open_session(message.row_id)
        else:
            self.app.say("It is older than the sessions listed in work.", "warning")

    @on(PromptLines.Opened)
    def _line_opened(self, message: PromptLines.Opened) -> None:
        """From a line of the guidance to the leader that says it."""
        if message.source.kind is SourceKind.LEADER:
            self.select_agent(message.source.ref.partition("#")[0])
            self.go_to("tree")

    def on_key(self, event: events.Key) -> None:
        shown = self.filter.has_class("-shown")  # then Escape is the filter's
        if event.key == "escape" and not shown and self.pane not in ("tree", ""):
            event.stop()
            self.go_to("tree")

    def copy_text(self) -> str:
        return self.agent.id if self.agent else ""
