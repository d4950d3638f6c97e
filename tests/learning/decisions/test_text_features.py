"""Features of a proposal's text, which are stored with a decision (SPEC 2.3b)."""

import numpy
import pytest

from engine.learning.decisions.text_features import (
    EMBEDDING_SIZE,
    FEATURE_NAMES,
    TextFeatures,
    dequantise,
    extract_features,
)

LATEST, EARLIER = "tests failed in parser", ["parser was changed", "docs were read"]


def name_features(features: TextFeatures) -> dict[str, float]:
    """The features, rounded, by their names."""
    return {name: round(value, 2) for name, value in zip(FEATURE_NAMES, features.numbers, strict=True)}


def make_embedding(*values: float) -> numpy.ndarray:  # type: ignore[type-arg]
    """An embedding that begins with these values; the others are 0."""
    vector = numpy.zeros(EMBEDDING_SIZE, numpy.float32)
    vector[: len(values)] = values
    return vector


def test_embeddings_say_how_near_the_evidence_is_to_a_prompt_and_how_long_ago():
    embeddings = [make_embedding(1.0), make_embedding(0.6, 0.8), make_embedding(0.0, 1.0), make_embedding(0.8, 0.6)]
    features = extract_features("fix parser tests", LATEST, EARLIER, embeddings)
    nearness = {
        "near the latest": 1.39,  # 0.6
        "near all before": 0.54,  # 0.45, for the mean of both earlier lines
        "nearest of all": 2.5,  # 0.8
        "age of the nearest": 0.17,  # the line before the latest
    }
    assert name_features(features).items() >= nearness.items()
    assert dequantise(features.embedding) == pytest.approx(make_embedding(1.0))


def test_hashed_words_replace_all_embeddings_if_one_is_missing():
    embeddings = [make_embedding(1.0), None, make_embedding(1.0), make_embedding(1.0)]
    features = extract_features("fix parser tests", LATEST, EARLIER, embeddings)
    assert name_features(features)["near the latest"] == 3.0
    assert name_features(features)["near all before"] != 0.54


def test_words_and_lengths_need_no_embeddings():
    features = extract_features("fix parser tests", LATEST, EARLIER, [None] * 4)
    words_and_lengths = {
        "words of the latest": 3.0,  # two of three words, and limited
        "words of all": 1.83,
        "length": -2.73,
        "length of the evidence": -2.53,
        "lines of evidence": -0.9,
        "what is new in the evidence": 0.33,  # two of three words
    }
    assert name_features(features).items() >= words_and_lengths.items()
    assert features.embedding == b""
