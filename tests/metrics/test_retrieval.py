"""Retrieval: recall and rank by hand, by random order of ties, and the level of chance."""

import numpy as np
import pytest

from saccade import __version__
from saccade.metrics.retrieval import score_retrieval


def by_drawing(similarity, relevant, k, rounds=4000):
    """Recall at k where ties are broken by lot, mean over many lots."""
    generator = np.random.default_rng(0)
    hits = 0
    for _ in range(rounds):
        lots = generator.random(similarity.shape)
        order = np.lexsort((lots, -similarity))
        hits += np.take_along_axis(relevant, order, 1)[:, :k].any(1).mean()
    return 100 * hits / rounds


def five_captions(pictures):
    return np.repeat(np.eye(pictures, dtype=bool), 5, axis=1)


def test_retrieval_by_hand():
    # 3 pictures with 2, 1 and 1 captions
    relevant = np.array([[1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]], dtype=bool)
    similarity = np.array([[0.1, 0.8, 0.9, 0.2], [0.3, 0.1, 0.2, 0.4], [0.1, 0.2, 0.3, 0.9]])
    captions = score_retrieval(similarity, relevant)  # ranks 2, 3, 1
    assert captions.recall[1].value == pytest.approx(100 / 3)
    assert captions.recall[5].value == captions.recall[10].value == 100
    assert captions.median_rank.value == 2
    pictures = score_retrieval(similarity.T, relevant.T)  # ranks 2 (or 3, tied), 1, 3, 1
    assert pictures.recall[1].value == 50
    assert pictures.median_rank.value == pytest.approx((2.5 + 1) / 2)


def test_an_image_is_found_by_any_of_its_captions():
    relevant = five_captions(20)
    similarity = np.random.default_rng(0).normal(size=relevant.shape)
    similarity[np.arange(20), 5 * np.arange(20) + 3] = 9  # one of the five
    scores = score_retrieval(similarity, relevant)
    assert [score.value for score in scores.recall.values()] == [100, 100, 100]
    assert scores.median_rank.value == 1
    other = score_retrieval(similarity.T, relevant.T)
    assert other.recall[1].value < 40, "the other four captions do not know their picture"


@pytest.mark.parametrize("direction", ["captions", "pictures"])
def test_a_constant_similarity_scores_like_chance(direction):
    relevant = five_captions(30) if direction == "captions" else five_captions(30).T
    scores = score_retrieval(np.zeros(relevant.shape), relevant)
    for k, score in scores.recall.items():
        assert score.value == pytest.approx(scores.chance_recall[k])
    assert scores.median_rank.value == pytest.approx(scores.chance_rank)


def test_chance_by_hand():
    pictures = score_retrieval(np.eye(200), np.eye(200, dtype=bool))
    assert {k: round(value, 9) for k, value in pictures.chance_recall.items()} == {1: 0.5, 5: 2.5, 10: 5}
    assert pictures.chance_rank == 100.5
    captions = score_retrieval(five_captions(4) * 1.0, five_captions(4))
    # none of 5 among the first 5 of 20: 15/20 * 14/19 * 13/18 * 12/17 * 11/16
    assert captions.chance_recall[5] == pytest.approx(100 * (1 - 15 * 14 * 13 * 12 * 11 / (20 * 19 * 18 * 17 * 16)))
    assert captions.chance_recall[1] == pytest.approx(25)
    # one of 5 among the first 2 of 20 in 45%, among the first 3 in 60%
    assert captions.chance_rank == 3


def test_random_similarities_score_about_chance():
    relevant = five_captions(300)
    scores = [score_retrieval(np.random.default_rng(seed).normal(size=relevant.shape), relevant) for seed in range(8)]
    recall, rank = np.mean([(score.recall[10].value, score.median_rank.value) for score in scores], axis=0)
    assert recall == pytest.approx(scores[0].chance_recall[10], abs=1)
    assert rank == pytest.approx(scores[0].chance_rank, rel=0.1)


@pytest.mark.parametrize("k", [1, 5, 10])
def test_ties_count_as_if_in_random_order(k):
    generator = np.random.default_rng(k)
    similarity = generator.integers(3, size=(8, 12)).astype(np.float32)
    relevant = generator.random((8, 12)) < 0.25
    relevant[:, 0] = True
    assert score_retrieval(similarity, relevant).recall[k].value == pytest.approx(
        by_drawing(similarity, relevant, k), abs=1.5
    )


def test_the_signature_has_the_sizes():
    scores = score_retrieval(np.eye(2), np.eye(2, dtype=bool))
    sizes = f"ties:random|queries:2|candidates:2|version:saccade-{__version__}"
    assert scores.recall[5].signature == f"recall|at:5|{sizes}"
    assert scores.median_rank.signature == f"rank|average:median|{sizes}"


@pytest.mark.parametrize(
    "similarity, relevant, message",
    [
        (
            np.zeros((2, 3)),
            np.zeros((3, 2)),
            "similarity and relevant must both have the shape (queries, candidates), but have (2, 3) and (3, 2)",
        ),
        (np.zeros((0, 3)), np.zeros((0, 3)), "similarity must hold at least one query and candidate, but is empty"),
        (np.zeros((2, 2)), [[1, 0], [0, 0]], "each query must have a right candidate, but row 1 has none"),
        ([[1.0, np.nan]], [[1, 0]], "similarity must be finite, but one is nan"),
    ],
)
def test_what_cannot_be_scored_is_refused(similarity, relevant, message):
    with pytest.raises(ValueError) as caught:
        score_retrieval(similarity, relevant)
    assert str(caught.value) == message
