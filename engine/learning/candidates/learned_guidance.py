"""The part "learned guidance" of every prompt: the active fragments, of which trials withhold some (SPEC 5.4, 5.7)."""

from __future__ import annotations

from collections.abc import Sequence
from xml.sax.saxutils import escape

from engine import tokenizer
from engine.config import SettingsSource
from engine.learning.candidates.effects import list_texts
from engine.learning.candidates.overlays import PROVENANCE, Overlays, Trials
from engine.model import Contribution, PromptLine, PromptPart, PromptRequest, PromptSource, SourceKind, Trust
from engine.model.adaptation import LiftVerdict, Overlay, PromptFragment
from engine.model.learnings import lessons_of
from engine.model.prompts import OWN_TEXT
from engine.model.text import approved_text, without_invalid_xml

BLOCK = "learned-guidance"

INTRODUCTION = (
    "Learnt from earlier work of this kind here. It is advice: the rules, the task and the project's own guidance come "
    "first, and nothing in it allows what they forbid."
)
_HEAD = (PromptLine(f"<{BLOCK}>", OWN_TEXT), PromptLine(INTRODUCTION, OWN_TEXT))
_END = PromptLine(f"</{BLOCK}>", OWN_TEXT)


class LearnedGuidance:
    """The part "learned guidance" of every prompt. Thread-safe."""

    name = "learned guidance"

    def __init__(self, overlays: Overlays, trials: Trials, settings: SettingsSource) -> None:
        self._overlays = overlays
        self._trials = trials
        self._settings = settings

    def part(self, request: PromptRequest) -> Contribution:
        """The block for a request, None without fragments. Its provenance names all fragments that fit, including the
        withheld ones. Its notes say how many did not fit, and how many a trial withheld."""
        overlays = self._fragments(request)
        fitting = self._fit(overlays)
        draws = self._trials.draw(fitting, request.session_id)
        lines = [line for draw in draws if not draw.withheld for line in fragment_lines(draw.overlay)]
        left_out, withheld = len(overlays) - len(fitting), sum(draw.withheld for draw in draws)
        notes = (
            f"learned guidance: {left_out} of {len(overlays)} fragments had no room" if left_out else "",
            f"learned guidance: {withheld} of {len(draws)} left out by chance, to measure what it does"
            if withheld
            else "",
        )
        part = PromptPart(BLOCK, (*_HEAD, *lines, _END)) if lines else None
        provenance = {PROVENANCE: [draw.to_json() for draw in draws]} if draws else {}
        return Contribution(part, provenance, tuple(filter(None, notes)))

    def lessons(self, request: PromptRequest) -> frozenset[str]:
        """The lessons in the fragments of this request, including the withheld ones. No other block may contain them,
        or the trial would not really withhold them."""
        fitting = self._fit(self._fragments(request))
        return lessons_of(text for overlay in fitting for text in list_texts(overlay.effect))

    def _fragments(self, request: PromptRequest) -> Sequence[Overlay]:
        return self._overlays.find_fragments(
            agent_id=request.agent, run_kind=request.run_kind, workspace=request.workspace
        )

    def _fit(self, overlays: Sequence[Overlay]) -> list[Overlay]:
        """The fragments that fit the budget, oldest first. Fragments that help most, by their lift, are chosen first,
        then the newest. A withheld fragment takes up its room too, so that runs with and without it differ in nothing
        else."""
        if not overlays:
            return []
        measured = {
            id: lift.difference
            for id, lift in self._trials.measure_lifts().items()
            if lift.verdict in (LiftVerdict.HELPS, LiftVerdict.HARMS)
        }
        budget = self._settings.current.adaptation.fragment_tokens
        room = budget - sum(tokenizer.count(line.text) for line in (*_HEAD, _END))
        fitting = set[str]()
        for overlay in sorted(overlays, key=lambda item: (measured.get(item.id, 0.0), item.since), reverse=True):
            tokens = sum(tokenizer.count(line.text) for line in fragment_lines(overlay))
            if tokens <= room:
                fitting.add(overlay.id)
                room -= tokens
        return [overlay for overlay in overlays if overlay.id in fitting]


def fragment_lines(overlay: Overlay) -> list[PromptLine]:
    """The lines of a fragment in a prompt, with their source. They are escaped, so that they cannot close the tags
    around them. Quotes are labelled as approved by the operator (SPEC 6.8)."""
    assert isinstance(overlay.effect, PromptFragment)
    approved = overlay.trust is Trust.QUOTED
    source = PromptSource(SourceKind.OVERLAY, overlay.candidate_id, f"overlay {overlay.id}", overlay.trust, approved)
    lines = (escape(without_invalid_xml(text)) for text in overlay.effect.guidance)
    return [PromptLine(f"- {approved_text(line, is_quote=approved)}", source) for line in lines]
