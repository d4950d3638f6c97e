"""An agent as fields, for the screen and for verbs: who it is, its guidance, its findings (SPEC 1).

Each function takes the document that a verb prints as JSON: `agents`, `guidance`, `profile`, `bubbles`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from clawpy_console import formats
from clawpy_console.fields import (
    LABELS,
    Document,
    Field,
    Fields,
    draw_bar,
    format_instant,
    heading,
    make_change_fields,
    make_fact_fields,
    make_text_fields,
    text_line,
)
from clawpy_console.formats import list_first, one_line
from engine.model.guidance import is_descriptive_key

REACHES_OWNER = "reaches the owner"
"""The end of a chain of leaders that is complete."""


def make_agent_fields(document: Document) -> Fields:
    """An agent by its folder and the settings; what is wrong with it comes first."""
    view = document["agent"]
    folder = document["folder"]
    yield text_line(f"{view['id']}  {one_line(view['title'])}", "title")
    if view["broken"]:
        file = find_broken_file(view["broken"])
        fix = f"fix {folder}/{file}" if file else f"rename {folder}: a lower-case letter, then a-z, 0-9, _ and -"
        yield text_line(f"✗ {one_line(view['broken'])}", "wrong")
        yield text_line(f"→ {fix}. It is read again when you save it.")
    if document.get("retired"):
        yield text_line("Retired: it runs nothing. Its folder is kept.", "wants")
    yield from (text_line(f"▲ {one_line(problem)}", "wants") for problem in document.get("problems", ()))
    yield Field("tier", f"{view['tier']}  by {view['tierRule']}")
    details = {"archetype": document["archetype"], "domain": view["domain"]}
    details["chain" if document["chain"] else "leader"] = format_chain(document) or view["reportsTo"]
    yield from make_fact_fields((name, one_line(value)) for name, value in details.items())
    for channel in document.get("serves", ()):
        yield Field("serves", _describe_channel(channel))
    if tools := document.get("tools"):
        yield from _make_tool_fields(tools)
    yield Field("folder", folder, "faint")
    if "soul" in document:
        yield heading("soul")
        yield from make_text_fields(document["soul"])


def _make_tool_fields(tools: Document) -> Fields:
    """What an agent may do, with which models, and what it may spend."""
    yield Field("may", ", ".join(tools["allow"]) or "nothing")
    yield from make_fact_fields([("asks for", ", ".join(tools["ask"])), ("never", ", ".join(tools["deny"]))])
    yield from (Field("model", f"{kind}: {model}") for kind, model in tools["models"].items())
    if tools["budget"]:
        yield Field("budget", f"${tools['budget']['usd_per_day']:,.2f} a day")


def find_broken_file(broken: str) -> str:
    """The file to fix for the error `broken` of an agent, "" when the name of its folder is wrong."""
    file = broken.partition(":")[0]
    return file if file in ("comms.json", "tools.json") else ""


def format_chain(document: Document) -> str:
    """The leaders of an agent, its direct leader first, and where the chain ends."""
    tiers = document.get("chainTiers", ())
    leaders = [f"{name} ({tiers[index]})" if tiers else name for index, name in enumerate(document["chain"])]
    end = "owner" if document["chainEnd"] == REACHES_OWNER else document["chainEnd"]
    return " → ".join(part for part in (*leaders, end) if part)


def _describe_channel(channel: Document) -> str:
    """`koji-core, by a flow, else by a model, model …`."""
    if channel["runner"] == "auto":
        runner = "by a flow, else by a model"
    else:
        runner = f"by {channel['runner'].replace('acp:', 'coding agent ') or 'nothing'}"
    model = f"model {channel['model']}" if channel["model"] else ""
    fallback = f"else {', '.join(channel['fallback'])}" if channel["fallback"] else ""
    return ", ".join(filter(None, (channel["channel"], runner, model, fallback)))


MAX_PROBLEMS = 50
"""Maximum number of problems of the organisation that are shown."""


def make_problem_fields(messages: Sequence[str]) -> Fields:
    """The problems of the organisation, or that there are none."""
    if not messages:
        yield text_line("✓ No problems.", "grey")
        return
    yield heading(formats.count(len(messages), "problem"))
    problems = [f"▲ {one_line(problem)}" for problem in messages]
    yield from (text_line(problem, "wants") for problem in list_first(problems, MAX_PROBLEMS))


# Guidance


def make_guidance_fields(document: Document) -> Fields:
    """The guidance that an agent gets from each leader, and what was left out; for a leader also its profile."""
    leaders = formats.count(sum(bool(hop["kept"]) for hop in document["hops"]), "leader")
    if document["tokens"]:
        yield text_line(
            f"{document['tokens']:,} of {document['budget']:,} tokens from {leaders}, as in the next prompt", "title"
        )
    else:
        yield text_line(f"No guidance: {one_line(document['reason'])}", "wants")
    yield from map(_make_leader_field, document["hops"])
    omitted = [(hop["leader"], item) for hop in document["hops"] for item in hop["cut"]]
    if omitted:
        yield text_line("▼ left out (budget)", "wants")
    for leader, item in omitted:
        section = item["section"].removeprefix("recent-")
        yield text_line(f"  {leader}, {section}: {one_line(item['text'])} ({item['tokens']} tokens)", "faint")
    if document["chainEnd"] not in ("", REACHES_OWNER):
        yield text_line(f"▲ The chain {document['chainEnd']}.", "wants")
    if "profile" in document:
        yield from make_profile_fields(document["profile"])


def _make_leader_field(hop: Document) -> Field:
    """The part of the guidance that comes from one leader, or why it gives none."""
    share = draw_bar(hop["tokens"] / hop["share"] if hop["share"] else 0.0)
    amount = hop["why"] or f"{share} {hop['tokens']:>4} of {hop['share']:>4} tokens"
    leader = f"{hop['leader']}, tier {hop['tier']}"
    return Field(f"{hop['hop'] + 1} up", f"{amount}  {leader}", "grey" if hop["why"] else "ink")


def make_profile_fields(profile: Document) -> Fields:
    """The profile of a leader: the guidance that it gives."""
    sections = ("principles", "guardrails", "patterns", "decisions")
    if not any(profile[name] for name in sections):
        yield text_line(
            "It gives no guidance: no principles, patterns or guardrails were found in its soul.md.", "grey"
        )
    for name in sections:
        if profile[name]:
            yield heading(name)
        yield from (text_line(f"- {_describe_profile_item(item)}") for item in profile[name])


def _describe_profile_item(item: Any) -> str:
    if isinstance(item, str):
        return one_line(item)
    found_by = f"found by {formats.count(item['foundBy'], 'worker')}" if item.get("foundBy") else ""
    uses = f"in {formats.count(item['uses'], 'prompt')}" if item.get("uses") else ""
    return "  · ".join(filter(None, (one_line(item["text"]), found_by, uses)))


def make_edit_fields(document: Document) -> Fields:
    """The prompts that edits of a leader's profile change, and how."""
    if not document["edits"]:
        yield text_line("No changes yet.", "grey")
        return
    for section in document["fromSoul"]:
        yield text_line(f"▲ {section} is empty: what soul.md says of it is used again.", "wants")
    count = formats.count(len(document["edits"]), "change")
    if not document["prompts"]:
        no_prompts = "No prompt changes: it guides nobody, or the budget for guidance is used up."
        yield text_line(f"{count}. {no_prompts}", "wants")
        return
    agents = sum(len(prompt["agents"]) for prompt in document["prompts"])
    yield text_line(f"{count}, in {formats.count(agents, 'prompt')}", "title")
    for prompt in document["prompts"]:
        yield text_line(", ".join(prompt["agents"]), "accent")
        yield from (text_line(line, "good" if line[0] == "+" else "wrong") for line in prompt["changes"])


def make_move_fields(document: Document) -> Fields:
    """The effect of moving an agent under another leader: tier, chain, guidance."""
    before = document
    after = document["moved"]
    pairs = {
        "tier": (str(before["tier"]), str(after["tier"])),
        "chain": (format_chain(before), format_chain(after)),
        "guidance": (_describe_tokens(before), _describe_tokens(after)),
    }
    for name, (old, new) in pairs.items():
        if old == new:
            yield Field(name, f"{new}  (unchanged)")
        else:
            yield Field(name, f"- {old}", "wrong")
            yield Field(" ", f"+ {new}", "good")
    diff = list(make_change_fields(before["guidance"].split("\n"), after["guidance"].split("\n")))
    yield heading("its guidance") if diff else text_line("Its guidance does not change.", "grey")
    yield from diff


def _describe_tokens(document: Document) -> str:
    return formats.count(document["tokens"], "token") if document["tokens"] else f"none: {document['reason']}"


def make_teaching_fields(teaching: Document, now: datetime) -> Fields:
    """The last and the next time that guidance is written into the agent's soul.md, and what that changes."""
    next_round = format_instant(teaching["next"], now) or "no round is due"
    if teaching["next"] and datetime.fromisoformat(teaching["next"]) <= now:
        next_round = "due now"
    if not teaching["enabled"]:
        next_round = "when you ask: enable_m2 is off in wisdom_cascade_config.json"
    yield Field("last round", format_instant(teaching["last"], now) or "never")
    yield Field("next", next_round)
    if teaching["reason"]:
        yield text_line(one_line(teaching["reason"]), "wants")
    elif not teaching["diff"]:
        yield text_line("✓ No changes: soul.md has all guidance already.", "grey")
    else:
        yield heading("changes in the next round")
        tones = {"+": "good", "-": "wrong"}
        for line in teaching["diff"].split("\n"):
            is_head = line.startswith(("---", "+++", "@@"))
            yield text_line(line, "faint" if is_head else tones.get(line[:1], "grey"))


# Findings


def make_finding_fields(finding: Document | None, now: datetime) -> Fields:
    """A finding, its evidence, and the verdict of each gate."""
    if finding is None:
        yield text_line("No findings yet. They appear here when tests or you confirm them.", "faint")
        return
    yield text_line(one_line(finding["text"]), "title")
    yield from make_finding_state_fields(finding, now)
    for name in ("confidence", "importance"):
        yield Field(name, f"{draw_bar(finding[name])} {finding[name]:.2f}")
    details = {
        "because": "; ".join(finding["reasons"]),
        "category": finding["category"],
        "evidence": "; ".join(finding["evidence"]),
    }
    yield from make_fact_fields(((name, one_line(text)) for name, text in details.items()), "grey")
    yield heading("gates")
    yield from map(make_gate_field, finding["gates"])


FINDING_STATES = LABELS["finding"]
"""The label of each state of a finding."""


def make_finding_state_fields(finding: Document, now: datetime) -> Fields:
    """The state of a finding on its way up."""
    label = FINDING_STATES[finding["state"]]
    route = f"{finding['targetAgent']} → {finding['leader'] or 'nobody'}"
    created_at = format_instant(finding["createdAt"], now)
    yield text_line(f"{label.sign} {label.words}  {route}, {created_at}, {finding['trust']}", label.tone)
    if finding["flushedAt"]:
        pattern = f"a pattern of {finding['leader']}"
        if is_descriptive_key(finding["pattern"]):
            pattern = f"the pattern {finding['pattern']}"
        yield text_line(f"as {pattern}, {format_instant(finding['flushedAt'], now)}", "grey")


def make_gate_field(gate: Document) -> Field:
    """The verdict of a gate."""
    text = f"{gate['number']} {gate['name']}: {one_line(gate['reason'])}"
    return text_line(f"✓ {text}", "grey") if gate["passed"] else text_line(f"✗ {text}", "wrong")
