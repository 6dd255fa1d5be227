"""The cart-pole demo: episodes of a scripted expert that balances a pole, for behaviour cloning and GAIL."""

import json
import random
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from saccade.data.environments import Environments
from saccade.demo._demo import Demo, DemoFiles, DemoTask
from saccade.demo._files import table, write_files

ENVIRONMENT = "CartPole-v1"
COLUMNS = ("cart_position", "cart_velocity", "pole_angle", "pole_angular_velocity")
GAINS = (0.3, 0.6, 8.0, 1.5)  # push to the side where this weighted sum of the state is
MISTAKES = 0.1  # fraction of random actions, from which the expert shows how to recover
EPISODE = 500  # steps at most, the limit of the environment


def expert_action(state: Sequence[float]) -> int:
    """Return the action of the expert: 0 pushes the cart to the left, 1 to the right."""
    return int(sum(gain * value for gain, value in zip(GAINS, state, strict=True)) > 0)


def expert_rows(episodes: int, seed: int) -> list[tuple[str, ...]]:
    """Return the steps of some episodes as rows of a table: episode, state, the expert's action, reward, end."""
    import numpy as np

    rows: list[tuple[str, ...]] = []
    for episode in range(episodes):
        draw, environment = random.Random(f"{seed} {episode}"), Environments(ENVIRONMENT, [seed * 100_000 + episode])
        for _ in range(EPISODE):
            state = [float(value) for value in environment.observations[0]]
            action = expert_action(state)
            taken = draw.randrange(2) if draw.random() < MISTAKES else action
            terminated = bool(environment.step(np.array([taken])).terminated[0])
            numbers = (f"{value:.6g}" for value in state)
            rows.append((str(episode), *numbers, str(action), "1", str(int(terminated))))
            if terminated:
                break
    return rows


def write_cartpole(folder: Path, *, seed: int = 1, episodes: int = 8) -> DemoFiles:
    """Write a table of the expert's steps."""
    rows = expert_rows(episodes, seed)
    header = ("episode", *COLUMNS, "action", "reward", "terminated")
    write_files(folder, {"expert.csv": partial(table, [header, *rows])}, "episodes")
    histories = [[[float(value) for value in row[1:5]] for row in rows[first : first + 8]] for first in (0, 60)]
    examples = tuple({"observations": json.dumps(history)} for history in histories)
    return DemoFiles(folder / "expert.csv", f"{episodes} episodes of a scripted expert, {len(rows):,} steps", examples)


DEMO = Demo(
    "balance a pole on a cart, from episodes of a scripted expert",
    {
        "behaviour_cloning": DemoTask(
            "balance a pole by copying an expert",
            write_cartpole,
            "attention over the last states of",
            minutes=1,
            replay=True,
            settings={"environment": ENVIRONMENT},
        ),
        "adversarial_imitation": DemoTask(
            "balance a pole until a discriminator cannot tell it from an expert (GAIL)",
            write_cartpole,
            "attention over the last states of",
            minutes=2,
            replay=True,
            settings={
                "environment": ENVIRONMENT,
                "model": {
                    "architecture": "transformer",
                    "history": 4,
                    "transformer": {"dim": 32, "depth": 1, "heads": 2, "hidden": 64},
                },
            },
        ),
    },
)
