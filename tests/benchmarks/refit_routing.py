"""Fit the weights of `engine.prediction.placing` again (SPEC 2.4), and print how well they work.

python -m tests.benchmarks.refit_routing [--write]

`placing_phrases.tsv` has made-up prompts by role and kind of act. `{t}` stands for a topic, so that the topic of a
prompt says nothing about its act. Phrases, weights and the threshold were chosen with `placing_tuning.jsonl`. The 60
prompts of the test (`tests/prediction/placing_prompts.jsonl`) were used once, after everything was chosen. If you
change something here because of their result, you need other prompts for the test.
"""

import json
import random
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy

from engine.config.settings import Settings
from engine.memory.embedding import LocalEmbedder
from engine.memory.helper import Helper
from engine.prediction import placing
from tests.benchmarks.adam import minimise

HERE = Path(__file__).parent
TUNING = HERE / "placing_tuning.jsonl"
TOPICS_EACH = 5
"""Topics that are put into each phrase."""

THRESHOLDS = (0.0, 0.2, 0.25, 0.3, 0.35, 0.4)

DECAY, STEPS = 1e-4, 400
"""How strongly large weights are avoided, and the number of steps of the fit."""

CHANNELS = {
    "koji-core": "cto frontend_lead backend_lead frontend_builder backend_builder junior_frontend junior_backend",
    "chronicle-hub": "alfred coo cmo chronicler",
    "dream-weaver": "cino dreamer",
    "research": "ceo cfo cro oeo researcher",
    "garden": "gardener",
    "": "none",
}
"""Roles by the channel of their work."""
CHANNEL_OF_ROLE = {role: channel for channel, roles in CHANNELS.items() for role in roles.split()}


def make_prompts() -> list[tuple[str, str]]:
    """(act, prompt) pairs, the same each time."""
    lines = [line.split("\t") for line in (HERE / "placing_phrases.tsv").read_text().splitlines()]
    topics = [text for act, text in lines if act == "topic"]
    chance = random.Random(7)
    pairs = []
    for act, text in lines:
        if act == "topic":
            continue
        chosen = chance.sample(topics, TOPICS_EACH) if "{" in text else [""]
        pairs += [(act, text.format(t=topic, T=topic[:1].upper() + topic[1:])) for topic in chosen]
    return pairs


def fit(rows: Any, acts: list[str]) -> tuple[list[str], Any]:
    """Logistic regression of acts on rows by Adam; all channels have the same weight."""
    columns = sorted(set(acts))
    channels = [CHANNEL_OF_ROLE[act.split("/")[0]] for act in acts]
    target = numpy.array([[act == column for column in columns] for act in acts], float)
    row_weights = numpy.array([1 / channels.count(channel) for channel in channels])[:, None] / len(CHANNELS)

    def compute_gradient(weights: Any) -> Any:
        scores = rows @ weights
        shares = numpy.exp(scores - scores.max(1, keepdims=True))
        return rows.T @ ((shares / shares.sum(1, keepdims=True) - target) * row_weights) + DECAY * weights

    return columns, minimise(compute_gradient, numpy.zeros((rows.shape[1], len(columns))), steps=STEPS)


def main():
    """Fit the weights, store them with `--write`, and print how they work on the tuning prompts."""
    helper = Helper()

    def embed(texts: list[str]) -> Any:
        embeddings = LocalEmbedder(helper).embed(texts)
        return numpy.stack([numpy.frombuffer(embedding.vector, "<f4") for embedding in embeddings])

    pairs = make_prompts()
    texts = [text for _, text in pairs]
    words = placing.WORD_WEIGHT * numpy.stack([placing.hash_words_and_pairs(text) for text in texts])
    rows = numpy.concatenate([embed(texts), words, numpy.ones((len(texts), 1))], 1)
    acts, weights = fit(rows, [act for act, _ in pairs])
    if "--write" in sys.argv:
        store_weights(acts, weights)
    print_thresholds(embed)
    helper.close()


def store_weights(acts: list[str], weights: Any):
    """Store the weights where `engine.prediction.placing` reads them."""
    roles = [act.split("/")[0] for act in acts]
    channels = [CHANNEL_OF_ROLE[role] for role in roles]
    numpy.savez_compressed(placing.WEIGHTS_FILE, roles=roles, channels=channels, weights=weights.astype(numpy.float16))


def print_thresholds(embed: Callable[[list[str]], Any]):
    """Print for each threshold how many of the tuning prompts go to the right channel, to a wrong one, or to none."""
    tuning = [json.loads(line) for line in TUNING.read_text().splitlines()]
    prompts = [line["prompt"] for line in tuning]
    shares = placing._compute_probabilities(prompts, embed(prompts))
    print(f"{'threshold':>9}{'right':>7}{'wrong':>7}{'left alone':>12}{'no work, left alone':>21}")
    for threshold in THRESHOLDS:
        counts = Counter()
        for line, row in zip(tuning, shares, strict=True):
            channels = placing._sum_by_channel(row, Settings())
            best = max(channels, key=lambda name: channels[name])
            counts[judge_channel(line["channel"], best if channels[best] >= threshold else "")] += 1
        print(f"{threshold:>9}{counts['right']:>7}{counts['wrong']:>7}{counts['alone']:>12}{counts['no work']:>21}")


def judge_channel(meant: str, placed: str) -> str:
    """Whether the channel `placed` is the one that was `meant`; "" is none."""
    if not meant:
        return "no work" if not placed else "wrong where there is no work"
    if not placed:
        return "alone"
    return "right" if placed == meant else "wrong"


if __name__ == "__main__":
    main()
