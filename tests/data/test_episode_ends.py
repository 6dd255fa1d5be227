"""Ends of recorded episodes: as recorded, from the lengths of episodes, or from jumps of the observation."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from saccade.data.episode_ends import inferred_starts, termination_rate
from saccade.data.episodes import Episodes
from saccade.data.origins import RowOrigins
from saccade.errors import UsageError

FIRST = np.linspace(-0.05, 0.05, 8)[:, None] * np.ones((1, 2))


def walks(lengths: list[int], **settings: Any) -> Episodes:
    """Episodes that drift away from 0, one after another."""
    observations = np.concatenate([np.outer(np.arange(length), (0.1, -0.2)) for length in lengths]).astype(np.float32)
    count = len(observations)
    origins = RowOrigins((Path("walks.csv"),), np.zeros(count, np.int32), np.arange(count, dtype=np.int64))
    starts = np.append(0, np.cumsum(lengths)[:-1])
    return Episodes(observations, np.zeros((count, 1)), starts, None, origins, **settings)


def test_recorded_terminations_count() -> None:
    terminated = np.zeros(100, bool)
    terminated[[29, 99]] = True
    rate = termination_rate(walks([30, 40, 30], terminated=terminated), "auto", FIRST, 500)
    assert rate.value == 0.02 and rate.note == "2 of 3 episodes, as recorded"
    never = termination_rate(walks([30, 40, 30], terminated=np.zeros(100, bool)), "auto", FIRST, 500)
    assert never.value == 0, "the lengths of episodes do not matter where the data say how they end"


@pytest.mark.parametrize("marked", [True, False])
def test_without_flags_episodes_that_are_shorter_than_others_ended_early(marked: bool) -> None:
    """The same rule for marked data and for data of which only the jumps show where an episode starts."""
    falls = walks([30, 100, 20, 97, 50, 100, 3], marked=marked)  # 97 is as good as the limit, the last may be cut
    rate = termination_rate(falls, "auto", FIRST, 500)
    assert rate.value == 3 / 400 and rate.note.startswith("3 of 7 episodes")
    assert ("which start where the observation jumps" in rate.note) == (not marked)
    assert termination_rate(walks([100, 100, 98, 100, 4], marked=marked), "auto", FIRST, 500).value == 0


def test_without_two_episodes_of_one_length_there_is_no_sign_of_a_time_limit() -> None:
    rate = termination_rate(walks([110, 95, 104, 120, 99]), "auto", FIRST, 500)
    assert rate.value == 4 / 528 and rate.note.startswith("4 of 5 episodes: all but the last, since no two of the lon")
    limited = termination_rate(walks([110, 95, 104, 120, 99]), "auto", FIRST, 120)
    assert limited.value == 2 / 528, "the longest has all steps of the environment, and 110 is as good as that"
    assert "which a time limit ended after 120 steps" in limited.note


def test_a_jump_to_other_observations_is_no_start() -> None:
    episodes = walks([50, 50])
    assert inferred_starts(episodes.observations, FIRST).tolist() == [0, 50]
    assert inferred_starts(episodes.observations, FIRST + 9).tolist() == [0]


def test_the_user_may_know_better() -> None:
    episodes = walks([30, 100, 20])
    assert termination_rate(episodes, "limit", FIRST, 500).value == 0
    assert termination_rate(episodes, "terminal", FIRST, 500).value == 3 / 150
    unmarked = walks([100], marked=False)
    with pytest.raises(UsageError) as error:
        termination_rate(unmarked, "terminal", FIRST, 500)
    assert str(error.value) == (
        "expert_ends must be auto or limit for data that do not say where episodes end, but is terminal; mark the ends "
        "in walks.csv"
    )
