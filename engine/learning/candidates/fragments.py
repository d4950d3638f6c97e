"""The part of a prompt with active prompt fragments (SPEC 5.4, 5.5, 5.7).

Fragments are escaped, so they cannot close the tags around them; quoted ones are labelled as approved by the operator
(SPEC 6.8). Over budget, whole fragments are left out: the least helpful first, then the oldest. A fragment that a
trial withholds still takes up its room, so that runs with and without it differ in nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from xml.sax.saxutils import escape

from engine import tokenizer
from engine.config import SettingsSource
from engine.learning.candidates.overlays import Overlays
from engine.learning.candidates.trials import PROVENANCE, Trials
from engine.model import Contribution, PromptLine, PromptPart, PromptRequest, PromptSource, SourceKind, Trust
from engine.model.adaptation import LiftVerdict, Overlay, PromptFragment
from engine.model.agents import OWN_TEXT
from engine.model.lessons import lessons_of
from engine.model.text import approved_text, without_invalid_xml

BLOCK = "learned-guidance"

INTRODUCTION = (
    "Learnt from earlier work of this kind here. It is advice: the rules, the task and the project's own guidance come "
    "first, and nothing in it allows what they forbid."
)


class LearnedGuidance:
    """The part "learned guidance" of every prompt. Thread-safe."""

    name = "learned guidance"

    def __init__(
        self,
        overlays: Overlays,
        trials: Trials,
        settings: SettingsSource,
        *,
        count: Callable[[str], int] = tokenizer.count,
    ) -> None:
        self._overlays = overlays
        self._trials = trials
        self._settings = settings
        self._count = count

    def part(self, request: PromptRequest) -> Contribution:
        """The block for a request, None without fragments. Its provenance names all fragments that fit, the withheld
        ones too; the notes say how many are left out for want of room, and how many a trial withheld."""
        overlays = self._overlays.get_prompt_fragments(
            agent_id=request.agent, run_kind=request.run_kind, workspace=request.workspace
        )
        if not overlays:
            return Contribution(None)
        fitting, left_out = self._fit(overlays)
        draws = self._trials.draw(fitting, request.session_id)
        lines = [line for draw in draws if not draw.withheld for line in fragment_lines(draw.overlay)]
        withheld = sum(draw.withheld for draw in draws)
        notes = [f"learned guidance: {len(left_out)} of {len(overlays)} fragments had no room"] if left_out else []
        notes += (
            [f"learned guidance: {withheld} of {len(draws)} left out by chance, to measure what it does"]
            if withheld
            else []
        )
        part = PromptPart(BLOCK, (*_HEAD, *lines, _END)) if lines else None
        return Contribution(part, {PROVENANCE: [draw.to_json() for draw in draws]} if draws else {}, tuple(notes))

    def lessons(self, request: PromptRequest) -> frozenset[str]:
        """The lessons in the fragments of this request, the withheld ones too: no other block may contain them, or a
        trial would withhold nothing."""
        overlays = self._overlays.get_prompt_fragments(
            agent_id=request.agent, run_kind=request.run_kind, workspace=request.workspace
        )
        texts = (
            overlay.effect.guidance for overlay in self._fit(overlays)[0] if isinstance(overlay.effect, PromptFragment)
        )
        return lessons_of(text for lines in texts for text in lines)

    def _fit(self, overlays: Sequence[Overlay]) -> tuple[list[Overlay], list[Overlay]]:
        """The fragments that fit the budget, oldest first, and those that do not."""
        budget = self._settings.current.adaptation.fragment_tokens
        room = budget - sum(self._count(line.text) for line in (*_HEAD, _END))
        fits: list[Overlay] = []
        left_out: list[Overlay] = []
        for overlay in sorted(overlays, key=self._rank, reverse=True):
            tokens = sum(self._count(line.text) for line in fragment_lines(overlay))
            (fits if tokens <= room else left_out).append(overlay)
            room -= tokens if tokens <= room else 0
        fitting = {item.id for item in fits}
        return [item for item in overlays if item.id in fitting], left_out

    def _rank(self, overlay: Overlay) -> tuple[float, float]:
        """Sort key: by lift where there is a verdict, then by age."""
        lift = self._trials.lifts().get(overlay.id)
        difference = (
            lift.difference if lift is not None and lift.verdict in (LiftVerdict.HELPS, LiftVerdict.HARMS) else 0.0
        )
        return difference, overlay.since.timestamp()


def fragment_lines(overlay: Overlay) -> list[PromptLine]:
    """The lines of a fragment in a prompt, with their source."""
    assert isinstance(overlay.effect, PromptFragment)
    approved = overlay.trust is Trust.QUOTED
    source = PromptSource(SourceKind.OVERLAY, overlay.candidate_id, f"overlay {overlay.id}", overlay.trust, approved)
    lines = (escape(without_invalid_xml(text)) for text in overlay.effect.guidance)
    return [PromptLine(f"- {approved_text(line, is_quote=approved)}", source) for line in lines]


_HEAD = (PromptLine(f"<{BLOCK}>", OWN_TEXT), PromptLine(INTRODUCTION, OWN_TEXT))
_END = PromptLine(f"</{BLOCK}>", OWN_TEXT)
