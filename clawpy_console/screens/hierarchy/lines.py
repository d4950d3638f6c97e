"""How an agent is written: who it is, what its leaders tell it, what it sent up, what it is taught. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from datetime import datetime, timedelta

from rich.cells import cell_len
from textual.content import Content

from clawpy_console import words
from clawpy_console.screens.hierarchy.details import Overview, Portrait, Serves
from clawpy_console.screens.hierarchy.organisation import STATES
from clawpy_console.screens.hierarchy.tree import MARKS
from clawpy_console.widgets.parts import BAR, cropped, named, score
from clawpy_console.widgets.rows import Row
from engine.values import (
    AgentView,
    Bubble,
    BubbleState,
    Guidance,
    GuidanceHop,
    LeaderProfile,
    MovePreview,
    ProfilePreview,
)
from engine.values.wisdom import telling

TEXT_MOST = 12_000
"""Characters of a soul that are shown; the file has it whole."""

BUBBLES = {
    BubbleState.QUEUED: ("▲", "accent", "waiting to be sent up"),
    BubbleState.REFUSED: ("✗", "wants", "refused"),
    BubbleState.FLUSHED: ("✓", "grey", "delivered"),
}

SECTIONS = {
    "principles": "principles", "patterns": "patterns", "guardrails": "guardrails", "recent-decisions": "decisions",
}  # fmt: skip


def heading(agent: AgentView, width: int) -> list[Content]:
    """Who is shown: name, title, state in a word, tier."""
    glyph, colour = MARKS.get(agent.state, ("○", "faint"))
    state = STATES.get(agent.state, agent.state)
    title = words.one_line(agent.title)
    name = words.crop(words.one_line(agent.id), width)
    said = words.crop(f"  {title}", max(0, width - cell_len(name) - len(state) - 14)) if title else ""
    return [
        Content.assemble(
            (name, "bold $ink"), (said, "$grey"), (f"  {glyph} {state}", f"${colour}"), (f"  tier {agent.tier}", "$ink")
        )
    ]


# Who


def who_lines(one: Portrait, width: int) -> list[Content]:
    """Who an agent is, from what its folder and the settings say; what is wrong comes first."""
    agent = one.agent
    lines: list[Content] = []
    if agent.broken:
        file = broken_file(agent)
        lines += Content.styled(f"✗ {words.one_line(agent.broken)}", "bold $wrong").wrap(width)
        how = (
            f"fix {one.folder}/{file}" if file else f"rename {one.folder}: a lower-case letter, then a-z, 0-9, _ and -"
        )
        lines += Content.styled(f"→ {how}; it is read again as soon as it is saved", "$ink").wrap(width)
        lines.append(Content(""))
    for fault in one.faults:
        lines += Content.styled(f"▲ {words.one_line(fault)}", "$wants").wrap(width)
    if agent.state == "retired":
        lines += Content.styled("retired: nothing runs in its name; its folder is kept", "$wants").wrap(width)
    lines += named("tier", f"{agent.tier}  by {agent.tier_rule}", width)
    if agent.archetype:
        lines += named("archetype", words.one_line(agent.archetype), width)
    if agent.domain:
        lines += named("domain", words.one_line(agent.domain), width)
    if one.chain_end and not agent.broken:
        chain = " → ".join(f"{name} ({tier})" for name, tier in one.leaders)
        end = "→ owner" if one.chain_end == "reaches the owner" else f"  {one.chain_end}"
        style = "$ink" if end == "→ owner" else "$wants"
        lines += named("chain", f"{chain} {end}".strip(), width, style)
    elif agent.reports_to:
        lines += named("leader", agent.reports_to, width)
    for serves in one.serves:
        lines += named("serves", _serves_words(serves), width)
    if one.may is not None:
        lines += _may_lines(one, width)
    if one.folder:
        lines += named("folder", one.folder, width, "$faint")
    if not agent.broken and agent.state != "retired":
        lines += [Content(""), *_text("soul.md", one.soul, width)]
    return lines


def broken_file(agent: AgentView) -> str:
    """The file that has to be mended, "" when it is the name of the folder."""
    file = agent.broken.partition(":")[0]
    return file if file in ("comms.json", "tools.json") else ""


def _serves_words(one: Serves) -> str:
    runner = one.runner.replace("acp:", "coding agent ") or "nothing"
    how = f"{one.channel}, run by {runner}" if runner != "auto" else f"{one.channel}, by a flow, else by a model"
    model = f", model {one.model}" if one.model else ""
    instead = f", else {', '.join(one.fallback)}" if one.fallback else ""
    return f"{how}{model}{instead}"


def _may_lines(one: Portrait, width: int) -> list[Content]:
    may = one.may
    assert may is not None
    lines = named("may", ", ".join(may.allow) or "nothing", width)
    if may.ask:
        lines += named("asks for", ", ".join(may.ask), width)
    if may.deny:
        lines += named("never", ", ".join(may.deny), width)
    for kind, model in may.models:
        lines += named("model", f"{kind}: {model}", width)
    if may.budget is not None:
        lines += named("budget", f"${may.budget:,.2f} a day", width)
    return lines


def _text(name: str, text: str, width: int) -> list[Content]:
    lines = [Content.styled(f"{name} {'─' * max(0, width - len(name) - 1)}", "$faint")]
    if not text.strip():
        return [*lines, Content.styled("it is empty", "$faint")]
    for line in text[:TEXT_MOST].rstrip("\n").expandtabs(4).split("\n"):
        style = "bold $ink" if line.startswith("#") else "$ink"
        lines += Content.styled(line, style).wrap(width) if line.strip() else [Content("")]
    if len(text) > TEXT_MOST:
        lines.append(Content.styled(f"… {words.count(len(text) - TEXT_MOST, 'character')} more", "$faint"))
    return lines


def owner_lines(one: Overview, agents: Sequence[AgentView], width: int) -> list[Content]:
    """The organisation as a whole."""
    busy = sum(agent.state in ("running", "waiting") for agent in agents)
    worked = sum(agent.sessions > 0 for agent in agents)
    on = {True: "on", False: "off"}
    lines = [
        *named("agents", f"{len(agents):,}, {worked:,} used so far, {busy:,} running", width),
        *named(
            "tokens", f"{sum(agent.used for agent in agents):,}, {words.money(sum(a.spent for a in agents))}", width
        ),
        *named(
            "guidance", f"in prompts {on[one.m1]}, at most {one.budget:,} tokens (enable_m1, m1_token_budget)", width
        ),
        *named("teaching", f"{on[one.m2]} (enable_m2), every {_span(one.interval)} (m2_interval_seconds)", width),
        *named(
            "bubbles",
            f"{on[one.bubbling]} (enable_upward_bubbling), {words.count(one.queued, 'finding')} to go up",
            width,
        ),
        *named("folder", one.folder, width, "$faint"),
        Content(""),
    ]
    if not one.problems:
        return [*lines, Content.styled("✓ No problems.", "$grey")]
    lines.append(Content.styled(f"▲ {words.count(len(one.problems), 'problem')}", "bold $wants"))
    for problem in one.problems[:50]:
        lines += Content.styled(f"  {words.one_line(problem)}", "$ink").wrap(width)
    if len(one.problems) > 50:
        lines.append(Content.styled(f"  and {len(one.problems) - 50:,} more", "$faint"))
    return lines


# Guidance


def guidance_words(one: Guidance) -> Content:
    """One line: tokens against the budget, from how many leaders, how much was cut."""
    if not one.lines:
        return Content.styled(f"no guidance: {words.one_line(one.reason)}", "$wants")
    speaking = sum(bool(hop.kept) for hop in one.hops)
    cut = f"  ▼ {words.count(one.cut, 'item')} left out (budget)" if one.cut else ""
    return Content.assemble(
        (f"{one.tokens:,} of {one.budget:,} tokens", "bold $ink"),
        (f" from {words.count(speaking, 'leader')}, as the next prompt will carry it", "$grey"),
        (cut, "$wants"),
    )


def hop_lines(one: Guidance, width: int) -> list[Content]:
    """Each leader of the chain: what it may use of the budget, what it uses, what was cut."""
    wide = min(20, max((len(hop.leader) for hop in one.hops), default=0))
    lines = [_hop_line(hop, wide, width) for hop in one.hops]
    cut = [(hop, item) for hop in one.hops for item in hop.cut]
    if cut:
        lines.append(Content.styled("▼ left out (budget)", "$wants"))
        for hop, item in cut:
            said = f"  {hop.leader} {SECTIONS.get(item.section, item.section)} ({item.tokens} tokens): {item.text}"
            lines.append(Content.styled(words.crop(words.one_line(said), width), "$faint"))
    if one.chain_end and one.chain_end != "reaches the owner":
        lines += Content.styled(f"▲ the chain {one.chain_end}", "$wants").wrap(width)
    return lines


def _hop_line(hop: GuidanceHop, wide: int, width: int) -> Content:
    filled = min(BAR, round(BAR * hop.tokens / hop.share)) if hop.share else 0
    parts: list[tuple[str, str]] = [
        (f"{hop.hop + 1:>2} up  ", "$faint"),
        (f"{words.fit(hop.leader, wide)} ", "$ink"),
        (f"tier {hop.tier}  ", "$grey"),
        ("▇" * filled, "$accent"),
        ("·" * (BAR - filled), "$faint"),
        (f" {hop.tokens:>4} of {hop.share:>4}", "$ink"),
    ]
    if hop.why:
        parts.append((f"  {words.one_line(hop.why)}", "$wants"))
    else:
        parts.append((f"  {len(hop.kept)} said", "$grey"))
        parts += [(f", {len(hop.cut)} cut", "$wants")] if hop.cut else []
    return cropped(parts, width)


def profile_lines(one: LeaderProfile, width: int) -> list[Content]:
    """What a leader tells those below it."""
    if not (one.principles or one.patterns or one.guardrails or one.decisions):
        return [Content.styled("its soul.md has no principles, patterns or guardrails", "$wants")]
    lines = [Content.styled("guidance for the agents below", "bold $ink")]
    for title, texts in (("principles", one.principles), ("guardrails", one.guardrails)):
        lines += _listed(title, [(text, "") for text in texts], width)
    patterns = [(item.said, _pattern_note(len(item.sources), item.uses)) for item in one.patterns]
    lines += _listed("patterns", patterns, width)
    return lines + _listed("decisions", [(item.text, "") for item in one.decisions], width)


def _pattern_note(sources: int, uses: int) -> str:
    found = f"found by {words.count(sources, 'worker')}" if sources else ""
    used = f"in {words.count(uses, 'prompt')}" if uses else ""
    return ", ".join(part for part in (found, used) if part)


def _listed(title: str, items: Sequence[tuple[str, str]], width: int) -> list[Content]:
    if not items:
        return []
    lines = [Content(""), Content.styled(title, "$accent")]
    for text, note in items:
        first, *rest = Content.assemble((words.one_line(text), "$ink"), (f"  {note}" if note else "", "$faint")).wrap(
            max(8, width - 2)
        )
        lines += [Content.assemble(("- ", "$faint"), first), *(Content.assemble("  ", line) for line in rest)]
    return lines


# Bubbles


def bubble_rows(bubbles: Sequence[Bubble], agent_id: str, now: datetime) -> list[Row]:
    """Findings: those that go up from an agent, then those that come to it."""
    groups = (
        ("FOUND BY IT", [one for one in bubbles if one.learning.agent == agent_id]),
        (
            "RECEIVED BY IT" if agent_id else "ON THEIR WAY UP",
            [one for one in bubbles if one.learning.agent != agent_id],
        ),
    )
    rows: list[Row] = []
    for title, members in groups:
        if members:
            rows += [Row("", "")] if rows else []
            rows += [Row("", f" {title}"), *(_bubble_row(one, now) for one in members)]
    return rows


def _bubble_row(one: Bubble, now: datetime) -> Row:
    mark, style, _ = BUBBLES[one.state]
    refused = one.refused_by
    word = f"gate {refused.number}" if refused else one.state.value
    right = f"{word:<8} {words.span(now - one.at):>4}"
    return Row(one.id, words.one_line(one.learning.text), mark, right, "ink", style, style if refused else "grey")


def bubble_words(one: Portrait) -> Content:
    """One line: how many wait, arrived, were refused."""
    counts = [(one.bubbles_of(state), word, style) for state, (_, style, word) in BUBBLES.items()]
    said = [(f"{count:,} {word}", f"${style}" if count else "$faint") for count, word, style in counts]
    parts = [part for piece in said for part in (("  ·  ", "$faint"), piece)][1:]
    return Content.assemble(*parts)


def bubble_lines(one: Bubble | None, now: datetime, width: int) -> list[Content]:
    """A finding, what it rests on, and each gate with its figures."""
    if one is None:
        return Content.styled("No findings yet. Findings that tests or you confirm appear here.", "$faint").wrap(width)
    found, (mark, style, word) = one.learning, BUBBLES[one.state]
    up = f"{found.agent} → {one.leader or 'nobody'}"
    lines = [
        *Content.styled(words.one_line(found.text), "$ink").wrap(width),
        Content.assemble((f"{mark} {word}", f"bold ${style}"), (f"  {up}  {words.moment(one.at, now)}", "$grey")),
    ]
    if one.flushed_at is not None:
        lines.append(Content.styled(f"  as {_pattern(one)}, {words.moment(one.flushed_at, now)}", "$grey"))
    lines += [
        Content(""),
        *score("confidence", found.confidence.value, found.confidence.reasons, width),
        *score("importance", found.importance.value, found.importance.reasons, width),
        *named("category", found.category or "none", width),
    ]
    for evidence in found.evidence:
        lines += named("evidence", words.one_line(evidence), width)
    lines.append(Content(""))
    for gate in one.gates:
        glyph, colour = ("✓", "$grey") if gate.passed else ("✗", "bold $wrong")
        head = f"{glyph} {gate.number} {gate.name:<11}"
        first, *rest = Content.styled(words.one_line(gate.reason), colour).wrap(max(8, width - len(head) - 1))
        lines.append(Content.assemble((f"{head} ", colour), first))
        lines += [Content.assemble(" " * (len(head) + 1), line) for line in rest]
    return lines


def _pattern(one: Bubble) -> str:
    """What a finding is called where it arrived."""
    return f"the pattern {one.pattern}" if telling(one.pattern) else f"a pattern of {one.leader}"


# Teaching


def teaching_lines(one: Portrait, now: datetime, width: int) -> list[Content]:
    """When the soul was and will be enriched, and what would change in it."""
    state = one.teaching
    if state is None:
        return [Content.styled("It cannot be taught in its current state.", "$wants")]
    last = words.moment(state.last, now) if state.last else "never"
    coming = words.moment(state.next, now) if state.next else "no round is due"
    if state.next is not None and state.next <= now:
        coming = "due now"
    if not state.enabled:
        coming = "only on request: enable_m2 is off in wisdom_cascade_config.json"
    lines = [*named("last round", last, width), *named("next", coming, width), Content("")]
    if state.reason:
        return [*lines, *Content.styled(words.one_line(state.reason), "$wants").wrap(width)]
    if not state.diff:
        return [*lines, Content.styled("✓ soul.md says what its leaders say: no changes", "$grey")]
    lines.append(Content.styled("changes in the next round", "bold $ink"))
    return lines + diff_lines(state.diff.split("\n"), width)


def diff_lines(diff: Sequence[str], width: int) -> list[Content]:
    """A unified diff, each line with its sign."""
    lines: list[Content] = []
    for line in diff:
        style = "$grey"
        if line.startswith(("---", "+++", "@@")):
            style = "$faint"
        elif line[:1] in ("+", "-"):
            style = "$good" if line[0] == "+" else "$wrong"
        lines += Content.styled(line, style).wrap(width) if line else [Content("")]
    return lines


# Work


def work_words(one: Portrait) -> Content:
    """One line: how many sessions, what they took."""
    agent = one.agent
    if not agent.sessions:
        return Content.styled("No sessions yet.", "$grey")
    return Content.assemble(
        (words.count(agent.sessions, "session"), "bold $ink"),
        (f"  {agent.used:,} tokens  {words.money(agent.spent)}", "$grey"),
    )


# Moving


def move_lines(one: MovePreview, name: str, leader: str, width: int) -> list[Content]:
    """What a move changes: chain, who guides it, the guidance itself as a diff."""
    before, after = one.before, one.after
    lines = [Content.styled(f"{name} under {leader}", "bold $ink"), Content("")]
    lines += _changed("tier", str(before.tier), str(after.tier), width)
    lines += _changed("chain", _chain(before), _chain(after), width)
    lines += _changed("guidance", _tokens(before), _tokens(after), width)
    lines.append(Content(""))
    diff = list(
        difflib.unified_diff(before.block.splitlines(), after.block.splitlines(), "now", "there", lineterm="", n=1)
    )
    if not diff:
        return [*lines, Content.styled("Its guidance does not change.", "$grey")]
    return [*lines, Content.styled("its guidance", "bold $ink"), *diff_lines(diff, width)]


# Editing what a leader says


def prompt_lines(edits: int, preview: ProfilePreview | None, width: int) -> list[Content]:
    """Whose prompts so many edits of a profile change, and how; agents with the same change stand together."""
    if preview is None or not edits:
        return Content.styled("No changes yet. What an edit changes in prompts is shown here.", "$grey").wrap(width)
    count = words.count(edits, "change")
    if not preview.prompts:
        said = f"{count}. No prompt changes: it guides nobody, or the budget for guidance is used up."
        return Content.styled(said, "$wants").wrap(width)
    lines = [Content.styled(f"{count}, in {words.count(len(preview.prompts), 'prompt')}", "bold $ink")]
    for agents, diff in preview.changes:
        lines += [Content(""), *Content.styled(", ".join(agents), "$accent").wrap(width), *diff_lines(diff, width)]
    return lines


def _chain(one: Guidance) -> str:
    end = "owner" if one.chain_end == "reaches the owner" else one.chain_end
    return " → ".join([*one.chain, end])


def _tokens(one: Guidance) -> str:
    return words.count(one.tokens, "token") if one.lines else f"none: {one.reason}"


def _changed(name: str, before: str, after: str, width: int) -> list[Content]:
    if before == after:
        return named(name, f"{after}  (stays)", width)
    return [*named(name, f"- {before}", width, "$wrong"), *named("", f"+ {after}", width, "$good")]


def _span(seconds: float) -> str:
    return words.span(timedelta(seconds=seconds))
