"""Finds the channel and the agent of a prompt by its text (SPEC 2.4, 1.1): the third step of `routing`.

The text is compared with the operator's past prompts, and then with the descriptions of channels and agents in the
settings. If neither fits, weights that come with the program decide. They read the embedding, which shows what a prompt
is about, and its words, which show what to do: by the embedding alone "document the cart" and "repair the cart" are the
same. `tests/benchmarks/refit_routing.py` computes and evaluates the weights.
"""

from __future__ import annotations

import functools
import itertools
import logging
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

from engine.config.settings import Settings
from engine.frozen import frozen
from engine.memory.embedding import NoEmbedder
from engine.model import AgentView, Outcome, Source
from engine.prediction.routing import Route
from engine.storage import ask
from engine.storage.database import Database
from engine.text import plain

log = logging.getLogger(__name__)

WEIGHTS_FILE = Path(__file__).with_name("placing_weights.npz")
"""A file with three arrays. `roles` and `channels` name the role and the channel of each column; the channel is "" for
prompts that ask for no work. `weights` (float16) has a row for each number of the embedding, a row for each of the
`WORD_DIMENSIONS`, and a row for a constant."""

MIN_PROBABILITY = 0.25
"""Below this probability of a channel the weights do not decide. Of 120 tuning prompts 118 are then placed rightly and
one wrongly, and 14 of 16 prompts that ask for no work are placed nowhere. At 0.35 the figures are 114 and none."""

MIN_PROMPT_SIMILARITY = 0.55
"""From this cosine on a prompt is like a past prompt that the weights place on the same channel. Among 620 texts, 500
of which made the weights, 36 % of the pairs with this cosine belong to one channel. Of the pairs that the weights place
on the same channel, all do."""

MIN_DESCRIPTION_SIMILARITY = 0.4
"""From this cosine on a prompt fits the specialty of a channel or the domain of an agent. With six made-up specialties,
two of the 120 tuning prompts fit one: licences fit "contracts, licences", and mail to customers "sales: customers"."""

MAX_PAST_PROMPTS = 200
"""Maximum number of accepted prompts that are compared, the newest."""

WORD_DIMENSIONS = 512
"""Number of dimensions of the vector of words."""

WORD_WEIGHT = 0.7
"""Weight of the vector of words relative to that of meaning."""

_SELECT_ACCEPTED = f"""
    SELECT prompt, target_channel, target_agent, meaning FROM predictions
    WHERE source = '{Source.OPERATOR}' AND outcome = '{Outcome.SUCCEEDED}' AND discarded_at IS NULL AND meaning <> x''
    ORDER BY closed_at DESC LIMIT {MAX_PAST_PROMPTS}
"""
"""Selects the operator's own prompts whose results were accepted."""


Embed = Callable[[Sequence[str]], Sequence[bytes]]
"""Returns the unit vectors (float32) of texts. Raises `NoEmbedder`."""


class _PastPrompt(NamedTuple):
    """An accepted prompt with its embedding."""

    text: str
    channel: str
    agent: str
    embedding: bytes


@frozen
class _Weights:
    """The content of the file `WEIGHTS_FILE`. Each column has a role and a channel."""

    roles: tuple[str, ...]
    channels: tuple[str, ...]
    matrix: Any


@frozen
class PromptPlacer:
    """Finds the channel and the agent of a prompt. It takes some ten milliseconds, and the first time a second, because
    the embedder is loaded."""

    database: Database
    embed: Embed
    agents: Callable[[], Sequence[AgentView]]

    def place(self, prompt: str, channel: str, settings: Settings) -> Route:
        """The route of a prompt, on `channel` if that is not "". Without an embedder nothing else is known."""
        import numpy

        agents = {agent.id: agent for agent in self.agents() if not agent.broken}
        specialties, domains = _collect_specialties(settings), _collect_domains(settings, agents)
        texts = [prompt, *specialties.values(), *domains.values()]
        try:
            vector, *description_vectors = (numpy.frombuffer(embedding, "<f4") for embedding in self.embed(texts))
        except NoEmbedder as error:
            log.info("prompts are not placed by their meaning: %s", error)
            return Route(channel)
        probabilities = _compute_probabilities([prompt], vector[None])[0]
        by_channel = _sum_by_channel(probabilities, settings)
        route = self._place_like_past_prompt(vector, _find_highest(by_channel), channel, settings)
        if route is None:
            specialty_vectors = dict(zip(specialties, description_vectors, strict=False))
            domain_vectors = dict(zip(domains, description_vectors[len(specialties) :], strict=True))
            route = Route(channel) if channel else _place_by_meaning(vector, specialty_vectors, by_channel)
            agent = _find_most_similar(vector, domain_vectors) or _find_likeliest_role(probabilities, route.channel)
            route = replace(route, agent=agent)
        return replace(route, agent=_choose_free_agent(route, settings, agents), embedding=vector.tobytes())

    def _place_like_past_prompt(
        self, vector: Any, likeliest_channel: str, channel: str, settings: Settings
    ) -> Route | None:
        """The route of the accepted prompt that is most similar, None if none is similar. It must be on `channel` if
        that is not "", and the weights must place it on `likeliest_channel`."""
        import numpy

        allowed = {channel} if channel else settings.channels.keys()
        with self.database.read() as session:
            past_prompts = [_PastPrompt(*row) for row in ask(session, _SELECT_ACCEPTED)]
        past_prompts = [past for past in past_prompts if past.channel in allowed]
        if not past_prompts:
            return None
        vectors = numpy.stack([numpy.frombuffer(past.embedding, "<f4") for past in past_prompts])
        similarity = (vectors * vector).sum(axis=1)  # not `@`: see `engine.memory.vector_math.compute_products`
        probabilities = _compute_probabilities([past.text for past in past_prompts], vectors)
        for index in numpy.argsort(-similarity):
            if similarity[index] < MIN_PROMPT_SIMILARITY:
                return None
            if _find_highest(_sum_by_channel(probabilities[index], settings)) == likeliest_channel:
                past = past_prompts[int(index)]
                return Route(past.channel, past.agent, f"like “{plain(past.text)}”")
        return None


def _place_by_meaning(vector: Any, specialty_vectors: Mapping[str, Any], by_channel: Mapping[str, float]) -> Route:
    """The channel whose specialty fits a prompt, else the likeliest one; none if that is not likely enough, or if the
    prompt asks for no work."""
    if specialised := _find_most_similar(vector, specialty_vectors):
        return Route(specialised, why=f"it fits the specialty of {specialised}")
    likeliest = _find_highest(by_channel)
    if likeliest and by_channel[likeliest] >= MIN_PROBABILITY:
        return Route(likeliest, why=f"by meaning, {by_channel[likeliest]:.0%}")
    return Route()


def _find_most_similar(vector: Any, description_vectors: Mapping[str, Any]) -> str:
    """The name of the description whose vector is most similar to that of a prompt; "" if none fits it."""
    similarity = {name: float((other * vector).sum()) for name, other in description_vectors.items()}
    best = _find_highest(similarity)
    return best if best and similarity[best] >= MIN_DESCRIPTION_SIMILARITY else ""


def _collect_specialties(settings: Settings) -> dict[str, str]:
    """The specialties of the channels that the weights do not know, by channel."""
    known = _load_weights().channels
    return {
        name: channel.specialty
        for name, channel in settings.channels.items()
        if channel.specialty and name not in known
    }


def _collect_domains(settings: Settings, agents: Mapping[str, AgentView]) -> dict[str, str]:
    """The titles and domains of the agents that the weights do not know and that serve no channel, by agent."""
    known = {*_load_weights().roles, *_list_serving_agents(settings)}
    return {
        agent.id: f"{agent.title}: {agent.domain}"
        for agent in agents.values()
        if agent.domain and agent.id not in known
    }


def _list_serving_agents(settings: Settings) -> set[str]:
    """The agents that serve a channel."""
    return {channel.agent for channel in settings.channels.values()}


def _choose_free_agent(route: Route, settings: Settings, agents: Mapping[str, AgentView]) -> str:
    """The agent of a route, if it exists and serves no channel, else the channel's own agent."""
    if not route.channel:
        return ""
    is_free = route.agent in agents and route.agent not in _list_serving_agents(settings)
    return route.agent if is_free else settings.channels[route.channel].agent


def _sum_by_channel(probabilities: Any, settings: Settings) -> dict[str, float]:
    """The probability of each registered channel. Under "" is the probability that the prompt asks for no work."""
    channels = _load_weights().channels
    sums = dict.fromkeys(["", *(name for name in settings.channels if name in channels)], 0.0)
    for probability, channel in zip(probabilities, channels, strict=True):
        if channel in sums:
            sums[channel] += float(probability)
    return sums


def _find_likeliest_role(probabilities: Any, channel: str) -> str:
    """The most likely agent among those of the built-in organisation on `channel`, "" for none."""
    weights = _load_weights()
    sums: defaultdict[str, float] = defaultdict(float)
    for probability, role, its_channel in zip(probabilities, weights.roles, weights.channels, strict=True):
        if its_channel == channel:
            sums[role] += float(probability)
    return _find_highest(sums)


def _find_highest(figures: Mapping[str, float]) -> str:
    """The name with the highest figure, "" for none."""
    return max(figures, key=lambda name: figures[name], default="")


def _compute_probabilities(texts: Sequence[str], vectors: Any) -> Any:
    """A row for each text, with the probability of each column of the weights."""
    import numpy

    words = WORD_WEIGHT * numpy.stack([hash_words_and_pairs(text) for text in texts])
    rows = numpy.concatenate([vectors, words, numpy.ones((len(texts), 1))], 1)
    scores = numpy.einsum("ij,jk->ik", rows, _load_weights().matrix)
    exponentials = numpy.exp(scores - scores.max(axis=1, keepdims=True))
    return exponentials / exponentials.sum(axis=1, keepdims=True)


def hash_words_and_pairs(text: str) -> Any:
    """The unit vector of a text's words, pairs of words and first word, each hashed into one of the dimensions."""
    import numpy

    words = re.findall(r"[a-z']+", text.lower())
    vector = numpy.zeros(WORD_DIMENSIONS)
    pairs = (" ".join(pair) for pair in itertools.pairwise(words))
    for feature in {*words, *pairs, *(f"^{first}" for first in words[:1])}:
        hashed = crc32(feature.encode())
        vector[hashed % WORD_DIMENSIONS] += 1.0 if hashed & 0x80000000 else -1.0
    length = float(numpy.sqrt((vector * vector).sum()))
    return vector / length if length else vector


@functools.cache
def _load_weights() -> _Weights:
    """The weights that come with the program."""
    import numpy

    with numpy.load(WEIGHTS_FILE) as file:
        roles, channels = (tuple(str(name) for name in file[array]) for array in ("roles", "channels"))
        return _Weights(roles, channels, file["weights"].astype(float))
