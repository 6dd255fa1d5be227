"""Behaviour cloning and GAIL on a MuJoCo task with continuous actions, from the episodes of a controller.

python bench/mujoco_imitation.py [--environment InvertedPendulum-v5] [--seeds 1 2 3] [--steps 100] [--data FILE]

Without --data the demonstrations are written here: InvertedPendulum-v5 by a linear controller with noise. For another
environment --data is a file of recorded episodes (npz, Minari hdf5, csv, jsonl). Prints a row for each run: the
return of sampled actions over 100 episodes with its standard deviation, that of the most probable actions, of random
actions and of the expert. The control is trained on random actions.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np

import saccade
from saccade.data.environments import Environments

GAINS = np.array([0.5, 6.0, 0.7, 1.0])  # of position, angle and their velocities
NOISE = 0.3


def write_pendulum(folder: Path, episodes: int = 20, steps: int = 200) -> Path:
    """Write the steps of a linear controller; the recorded action is the controller's, the one taken has noise."""
    environments, draw = Environments("InvertedPendulum-v5", range(episodes), max_steps=steps), np.random.default_rng(1)
    taken: list[tuple[np.ndarray, ...]] = []
    for _ in range(steps):
        seen = environments.observations.copy()
        actions = (seen @ GAINS)[:, None]
        moved = environments.step(actions + draw.normal(0, NOISE, actions.shape))
        taken.append((seen, actions, moved.rewards, moved.ended))
    names = ("observations", "actions", "rewards", "dones")
    arrays = {
        name: np.stack(part, 1).reshape(episodes * steps, -1)
        for name, part in zip(names, zip(*taken, strict=True), strict=True)
    }
    arrays |= {name: arrays[name][:, 0] for name in ("rewards", "dones")}
    np.savez(folder / "pendulum.npz", **arrays)
    return folder / "pendulum.npz"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--environment", default="InvertedPendulum-v5")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--steps", type=int, default=100, help="of GAIL; behaviour cloning takes four times as many")
    parser.add_argument("--max-steps", type=int, default=200, help="time limit of GAIL's training episodes")
    chosen = parser.parse_args()
    cloning = {"task": "behaviour_cloning", "steps": 4 * chosen.steps, "model": {"architecture": "mlp"}}
    gail = {"task": "adversarial_imitation", "steps": chosen.steps, "max_steps": chosen.max_steps}
    methods = {
        "behaviour cloning, mlp": cloning,
        "GAIL": gail,
        "GAIL, random demonstrations": {**gail, "control": "random"},
    }
    print("| method | seed | return, last checkpoint | most probable actions | random actions | expert | CPU s |")
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as root:
        data = chosen.data or write_pendulum(Path(root))
        for method, settings in methods.items():
            for seed in chosen.seeds:
                began = time.process_time()
                run = saccade.train(
                    data, root=root, seed=seed, environment=chosen.environment, progress=False, **settings
                )
                seconds = time.process_time() - began
                values = saccade.load(run.path, checkpoint="last").evaluate().values
                cells = [f"{values['return']:.1f} ± {values['return_deviation']:.1f}"]
                cells += [f"{values[name]:.1f}" for name in ("return_greedy", "return_random")]
                cells.append(f"{values['return_expert']:.1f}" if "return_expert" in values else "unknown")
                print(f"| {method} | {seed} | {' | '.join(cells)} | {seconds:.0f} |", flush=True)


if __name__ == "__main__":
    main()
