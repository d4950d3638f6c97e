"""Output of the verbs on agents and guidance, memory, learnings, candidates, training and metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

from clawpy_console.cli.printing import Lines, bad, bold, dim, format_fields, format_time, good, paint, wants
from clawpy_console.cli.printing.work import format_cards
from clawpy_console.fields import Document, Field, text_line
from clawpy_console.fields import agent as agent_fields
from clawpy_console.fields import cards as card_fields
from clawpy_console.fields import learning as learning_fields
from clawpy_console.formats import count, one_line

# Agents


def format_agents(document: Document) -> Lines:
    """The tree of agents with the coding agents, or one agent, or who serves a channel now."""
    if "agents" in document:
        yield from _format_tree(document["agents"])
        yield from _format_coding_agents(document)
        if retired := document.get("retired"):
            yield dim(f"retired: {', '.join(retired)}; `clawpy agents restore` restores one")
        yield from format_fields(agent_fields.make_problem_fields(document["problems"])) if document["problems"] else ()
    elif "channel" in document:
        yield from (f"{document['channel']} is served by {agent['title']}" for agent in document["coding"])
        yield from (f"  log in  {agent['login']}" for agent in document["coding"] if agent["login"])
    else:
        yield from format_fields(agent_fields.make_agent_fields(document))


def format_guidance(document: Document) -> Lines:
    """The guidance of an agent by leader, and what was left out; or what another leader would change."""
    title = text_line(f"{document['targetAgent']} → {agent_fields.format_chain(document)}", "title")
    if "moved" in document:
        yield from format_fields([title, *agent_fields.make_move_fields(document)])
        return
    yield from format_fields([title, *agent_fields.make_guidance_fields(document)])
    if document["guidance"]:
        yield from ("", document["guidance"])
    teaching = document["teaching"]
    if teaching["enabled"] and teaching["diff"]:
        yield from format_fields(agent_fields.make_teaching_fields(teaching, datetime.now().astimezone()))


def format_profile(document: Document) -> Lines:
    """The profile of a leader as text, or the prompts that an edited one changes."""
    if document.get("undone"):
        yield f"The guidance from {document['leader']} is as it was before the last save."
    elif "edits" not in document:
        yield document["text"].rstrip()
    else:
        yield from format_fields(agent_fields.make_edit_fields(document))
        if document["saved"]:
            yield f"\nSaved. Undo: clawpy profile {document['leader']} --undo"
        elif document["edits"]:
            yield f"\nNot saved. Add `{bold('--yes')}` to save it."


def format_bubbles(document: Document) -> Lines:
    """Findings with the verdict of the gates, or what was sent up."""
    if "flushed" in document:
        yield from (f"{leader} ← {', '.join(ids)}" for leader, ids in document["flushed"].items())
        if not document["flushed"]:
            yield "Nothing was ready to be sent up."
        if document["waiting"]:
            yield f"{count(document['waiting'], 'finding')} for the next round"
        if document["cloudSyncFailure"]:
            yield f"{bad('not shared yet')}  {document['cloudSyncFailure']}"
        return
    now = datetime.now().astimezone()
    for bubble in document["bubbles"]:
        refused = [agent_fields.make_gate_field(bubble["gates"][-1])] if bubble["refusedBy"] else []
        yield from format_fields(
            [
                text_line(f"{bubble['id']}  {bubble['text']}", "title"),
                *agent_fields.make_finding_state_fields(bubble, now),
                *refused,
            ]
        )


def _format_coding_agents(document: Document) -> Lines:
    """The coding agents of this machine, with the channels that they serve."""
    yield from ("", bold("coding agents"))
    agents = document.get("coding", [])
    if not agents:
        yield dim(f"None is installed here. Supported: {', '.join(document.get('codingSupported', []))}")
    for agent in agents:
        missing = f"its adapter is missing: {agent['missing']}"
        offer = missing if agent["missing"] else f"clawpy agents serve CHANNEL {agent['name']}"
        serves = f"← {', '.join(agent['serves'])}" if agent["serves"] else dim(offer)
        yield f"{agent['name']:<12} {agent['title']}  {serves}"


def _format_tree(agents: Sequence[Document]) -> Lines:
    """The agents, each indented by the number of its leaders."""
    leader_of = {agent["id"]: agent["reportsTo"] for agent in agents}

    def indent(name: str) -> str:
        chain = [name]
        while (leader := leader_of[chain[-1]]) in leader_of and leader not in chain:
            chain.append(leader)
        return "  " * (len(chain) - 1) + name

    rows = [(indent(agent["id"]), agent) for agent in agents]
    name_width = max((len(name) for name, _ in rows), default=0)
    for name, row in rows:
        channels = f"  ← {', '.join(row['channels'])}" if row["channels"] else ""
        broken = "  " + bad(f"broken: {row['broken']}") if row["broken"] else ""
        yield f"{row['tier']}  {name:{name_width}}  {dim(row['title'])}{channels}{broken}"


# Memory


def format_remember(document: Document) -> Lines:
    """The number of memories that were stored; bad lines were printed as they came."""
    text = f"{document['remembered']:,} remembered"
    text += f", {document['known']:,} known before" if document["known"] else ""
    text += wants(f", {count(document['badLines'], 'bad line')}") if document["badLines"] else ""
    is_empty = not (document["remembered"] or document["known"] or document["badLines"])
    yield "nothing to remember: it has no lines" if is_empty else f"{text}, {document['seconds']:.1f} s"
    if document["trouble"]:
        yield wants(f"found by words alone: {document['trouble']}")
    elif missing := document["missing"]:
        yield dim(f"{count(missing, 'memory', 'memories')} can be found by meaning a little later")


def format_recall(document: Document) -> Lines:
    """The memories that were found, each with its layer, its source and the reason."""
    for result in document["results"]:
        yield from format_fields(learning_fields.make_memory_fields(result))
    yield from (wants(f"left out: {words}") for words in document["leftOut"])


DRAFT_LABELS = {"waiting": "", "promoted": "  kept", "rejected": "  dismissed"}
"""What stands after the id of a draft, by its state."""


def format_drafts(document: Document) -> Lines:
    """Drafts of facts, or what became of one."""
    if "fact" in document:
        fact = document["fact"]
        yield f"{good('kept')}  {bold(fact['id'])}  {fact['fact']}"
        return
    for draft in document["drafts"]:
        yield f"{bold(draft['id'])}{DRAFT_LABELS[draft['state']]}  {draft['fact']}"
        instead = f", replacing {draft['supersedes']}" if draft["supersedes"] else ""
        yield "    " + dim(f"{draft['bucket']}/{draft['group']} | {draft['reason']}{instead}")
    if document["drafts"] and document["drafts"][0]["state"] == "waiting":
        yield dim("`clawpy drafts promote ID` keeps one as a fact, `clawpy drafts dismiss ID` does not")


def format_forget(document: Document) -> Lines:
    """The places that would be deleted, or were, and those that remain."""
    yield good("forgotten") if document["forgotten"] else wants("would be forgotten")
    yield from format_fields(learning_fields.make_forgetting_fields(document))
    if not document["forgotten"]:
        yield f"Nothing changed yet. Add `{bold('--yes')}` to forget it."


# Learnings


def format_learnings(document: Document) -> Lines:
    """Learnings, one learning, the scopes, or the result of an action."""
    printer = next((printer for key, printer in _PRINTER_OF_RESULT.items() if key in document), _format_valid_learnings)
    return printer(document)


def _format_valid_learnings(document: Document) -> Lines:
    """The learnings that are valid in a workspace."""
    for learning in document["learnings"]:
        yield from _format_listed_learning(learning)
    if not document["learnings"]:
        yield "Nothing learned here yet beyond single sessions: see `clawpy learnings scopes`"


def _format_written_card(document: Document) -> Lines:
    """The card that writes learnings into a file."""
    yield from format_cards(document)
    if omitted := document["leftOut"]:
        yield dim(f"{count(omitted, 'older one')} left out: the card is full")


def _format_learning(document: Document) -> Lines:
    """A learning with all that is known of it."""
    learning = document["learning"]
    yield _format_learning_head(learning)
    yield from format_fields(
        (*learning_fields.make_learning_fields(learning, datetime.now(UTC)), *_make_link_fields(learning))
    )


def _format_scopes(document: Document) -> Lines:
    """The scopes, each with its numbers of learnings, its folder and its faults."""
    for scope in document["scopes"]:
        totals = (
            f"{scope['institutional']} how things are done, {scope['tasks']} about work, {scope['proxy']} about you"
        )
        retracted = f", {scope['retired']} retracted" if scope["retired"] else ""
        title = learning_fields.describe_scope(scope["scope"], scope["scopeId"], scope["workspace"])
        yield f"{bold(title)}  {totals}{retracted}"
        yield "    " + dim(scope["path"])
        yield from ("    " + bad(fault) for fault in scope["faults"])
    if not document["scopes"]:
        yield "Nothing learned yet."


def _format_kept_or_promoted(document: Document) -> Lines:
    """A learning that the operator kept or promoted."""
    effect = "It is valid." if "kept" in document else "It now applies in all projects."
    yield f"{good(effect)}  {_format_learning_head(document.get('kept') or document['promoted'])}"


def _format_listed_learning(learning: Document) -> Lines:
    """A learning of a list: its text, where it applies, and what it is based on."""
    if learning["scope"] == "leadership":
        yield learning["text"]
        yield "    " + dim(
            f"{learning['targetAgent']} → {learning['leader']}, {format_time(learning['at'])}  {learning['session']}"
        )
        return
    sessions = {source["session"] for source in learning["promotedFrom"]} - {""}
    repeats = learning["reinforcementCount"]
    details = [
        learning_fields.describe_learning_scope(learning),
        learning_fields.LEARNING_KINDS[learning["kind"]].full,
        f"confidence {learning['confidence']:.2f}",
        f"from {count(len(sessions), 'session')}" if sessions else "",
        f"repeated {count(repeats, 'time')}" if repeats else "",
        learning["session"],
    ]
    yield _format_learning_head(learning)
    yield "    " + dim(", ".join(filter(None, details)))
    if learning["review"]:
        yield "    " + wants(learning["review"])


def _format_learning_head(document: Document) -> str:
    """The id, the text, and a status other than active."""
    label = learning_fields.LEARNING_STATUS[document["status"]]
    suffix = f"  {paint(label.tone, label.words)}" if document["status"] != "active" else ""
    return f"{bold(document['id'])}{suffix}  {document['text'].strip() or dim('forgotten')}"


def _make_link_fields(learning: Document) -> list[Field]:
    """The sources of a learning, what became of it, and where else its lesson is used."""
    details = [
        Field(
            name,
            f"{linked['id']}  {learning_fields.describe_learning_scope(linked)}: "
            f"{learning_fields.make_learning_title(linked)}",
        )
        for name, key in (("came from", "from"), ("became", "became"))
        for linked in learning[key]
    ]
    details += [Field("came from", f"{id}, no longer in any file", "wants") for id in learning["gone"]]
    details += [Field("sessions", ", ".join(learning["sessions"]))] if learning["sessions"] else []
    users = [f"{leader}'s patterns" for leader in learning["leaders"]]
    users += [f"candidate {id}" for id in learning["candidates"]]
    also_in = f"also in {', '.join(users)}" if users else "nowhere else"
    details.append(Field("lesson", f"{learning['lesson']}  {'retracted' if learning['retracted'] else also_in}"))
    details += [
        Field("in prompt", f"{call['call']}  {call['targetAgent']}  {format_time(call['at'])}", "grey")
        for call in learning["reached"]
    ]
    return details


def _format_retracted(document: Document) -> Lines:
    """The learnings that were retracted, and those whose review follows from that."""
    yield f"{good('Retracted')}  {', '.join(document['retired'])}"
    yield dim(f"`clawpy learnings keep {document['retired'][0]}` makes it valid again")
    if document["queued"]:
        yield f"{count(len(document['queued']), 'learning')} promoted from it needs your decision:"
        yield from (f"  {bold(id)}" for id in document["queued"])
        yield dim("`clawpy learnings keep ID` keeps one, `clawpy learnings retract ID` retracts it")


CHAIN_RESULT_WORDS = {"promoted": "promoted", "reinforced": "repeated", "compacted": "merged"}
"""The results of the promotion chain, each with its word."""


def _format_chain_results(document: Document) -> Lines:
    """The results of the promotion chain."""
    found_count = sum(document["extracted"].values())
    changed = {name: document[key] for key, name in CHAIN_RESULT_WORDS.items() if document[key]}
    if found_count:
        yield f"{good('found')}  {count(found_count, 'learning')} in {count(len(document['extracted']), 'session')}"
    yield from (f"{good(name)}  {', '.join(ids)}" for name, ids in changed.items())
    yield from (f"{bold(learning['id'])}  {learning['verdict']}" for learning in document["judged"])
    yield from (bad(fault) for fault in document["faults"])
    if not (found_count or changed or document["judged"] or document["faults"]):
        yield "Nothing was promoted."


_PRINTER_OF_RESULT: Mapping[str, Callable[[Document], Lines]] = {
    "predictions": _format_written_card,
    "learning": _format_learning,
    "scopes": _format_scopes,
    "retired": _format_retracted,
    "judged": _format_chain_results,
    "kept": _format_kept_or_promoted,
    "promoted": _format_kept_or_promoted,
}
"""By a name that only this document has: the function that prints it. The first that fits counts."""


# Candidates


NEXT_STEP_BY_STATUS = {
    "promoted": "`clawpy candidates rollback {id}` rolls it back",
    "rejected": "It is proposed again only if new evidence outweighs your decision.",
    "rolled_back": "`clawpy candidates approve {id}` activates it again",
}
"""What can be done next about a candidate, by its status."""


def format_candidates(document: Document) -> Lines:
    """Candidates, one candidate, the result of an action, or records."""
    if "candidates" in document:
        yield from _format_candidate_list(document)
    elif "drafted" in document:
        yield from map(_format_candidate_head, document["drafted"])
        if not document["drafted"]:
            yield "Nothing new was found."
        yield from (dim(f"not drafted: {key}: {reason}") for key, reason in document["notDrafted"].items())
    elif "candidate" in document:
        candidate = document["candidate"]
        yield _format_candidate_head(candidate)
        if "stages" in document:  # all that is known of it, with its evidence
            _, *fields = learning_fields.make_candidate_fields(document, datetime.now(UTC))
            yield from format_fields(fields)
            for name, title in learning_fields.EVIDENCE_TITLES.items():
                if records := [record for record in document["records"] if record["id"] in candidate[name]]:
                    yield from ("", bold(title), *_format_records(records))
        if candidate["status"] in NEXT_STEP_BY_STATUS:
            yield dim(NEXT_STEP_BY_STATUS[candidate["status"]].format(id=candidate["id"]))
    else:
        yield from _format_records(document["records"])
        if not document["records"]:
            yield "Nothing was recorded yet."


def _format_records(records: list[Document]) -> Lines:
    """Records that support a candidate, or do not."""
    now = datetime.now(UTC)
    for record in records:
        yield from format_fields(learning_fields.make_candidate_record_fields(record, now))


def _format_candidate_list(document: Document) -> Lines:
    """The candidates; those that need your decision come first."""
    for candidate in sorted(document["candidates"], key=lambda candidate: candidate["status"] != "review"):
        yield _format_candidate_head(candidate)
        scope = learning_fields.describe_candidate_scope(candidate)
        type_name = learning_fields.CANDIDATE_TYPES[candidate["type"]].full
        reason = candidate["reason"] if candidate["status"] == "drafted" else ""
        details = filter(
            None, (f"{type_name}, for {scope}", learning_fields.describe_evidence(candidate), one_line(reason))
        )
        yield "    " + dim("; ".join(details))
    if not document["candidates"]:
        records = document["records"]
        text = f"{count(records, 'record')}, none calls for a change" if records else "nothing was recorded yet"
        yield f"No candidates: {text}. `clawpy candidates digest` checks now, instead of within ten minutes."
        return
    if waiting_count := document["counts"]["review"]:
        hint = "`clawpy candidates show ID` shows one, `approve ID` and `reject ID` decide"
        yield dim(f"{waiting_count} need{'s' if waiting_count == 1 else ''} your decision: {hint}")
    if document["mode"] == "autonomous":
        yield wants("adaptation.mode is autonomous: candidates with enough evidence become active")


def _format_candidate_head(candidate: Document) -> str:
    """A candidate in one line: id, status, score and title."""
    label = learning_fields.CANDIDATE_STATUS[candidate["status"]]
    status = paint(label.tone, f"{label.sign} {label.words}")
    return f"{bold(candidate['id'])}  {status}  score {candidate['score']:.0f}  {candidate['title']}"


# Training and metrics


def format_export(document: Document) -> Lines:
    """Where the export was written."""
    noun = "pairs" if document["what"] == "dpo" else "conversations"
    yield f"{document['records']:,} {noun}, {document['new']:,} of them new: {document['file']}"
    if document["weights"]:
        yield dim(f"their weights: {document['weights']}")


def format_train(document: Document) -> Lines:
    """The Twin model in use, the trainings, and when the next one is due."""
    model = document["twinModel"]
    if model is None:
        yield "no Twin model is set"
    else:
        yield f"Twin model {model}" + ("" if document["enabled"] else ", off: clawpy config set twinModelEnabled true")
    if "imported" in document:
        yield count(document["imported"], "new pair")
    for run in document["runs"]:
        label = card_fields.TRAINING_STATES[run["state"]]
        state, examples = paint(label.tone, f"{label.sign} {label.words}"), count(run["records"], "example")
        yield f"{run['id']}  {state}  {run['method']}  {examples}  ${run['cost']:.2f}"
        yield dim(f"    {run['message']}")
    yield document["next"]


def format_metrics(document: Document) -> Lines:
    """Rates, calibration and drift; sources, channels and kinds as tables."""
    fields = [
        *card_fields.make_summary_fields(document),
        *card_fields.make_calibration_fields(document),
        *card_fields.make_drift_fields(document["drift"]),
        Field("training", document["nextTraining"]),
        text_line(""),
        *card_fields.make_table_fields(document, ("sources", "channels", "kinds")),
    ]
    return format_fields(fields)
