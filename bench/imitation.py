"""Behaviour cloning and GAIL on CartPole from recorded steps, with the control of random demonstrations.

python bench/imitation.py FOLDER [--seeds 1 2 3] [--steps 100]

FOLDER has observations.csv and actions.csv of an expert. Prints a row for each run: the return over 100 episodes with
its standard deviation and 95% bootstrap interval, and the CPU seconds. GAIL imitates only if the control stays low:
it is trained on random actions, and a reward for surviving would let it balance the pole all the same.
"""

import argparse
import tempfile
import time
from pathlib import Path

import saccade

ENVIRONMENT = "CartPole-v1"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--steps", type=int, default=100, help="of GAIL; behaviour cloning takes three times as many")
    chosen = parser.parse_args()
    cloning = {"task": "behaviour_cloning", "steps": 3 * chosen.steps}
    gail = {"task": "adversarial_imitation", "steps": chosen.steps}
    methods = {
        "GAIL": gail,
        "GAIL, random demonstrations": {**gail, "control": "random"},
        "behaviour cloning, transformer": cloning,
        "behaviour cloning, mlp": {**cloning, "model": {"architecture": "mlp"}},
    }
    print(
        "| method | seed | return, last checkpoint | 95% interval | most probable actions | best checkpoint | CPU s |"
    )
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as root:
        for method, settings in methods.items():
            for seed in chosen.seeds:
                began = time.process_time()
                run = saccade.train(
                    chosen.folder, root=root, seed=seed, environment=ENVIRONMENT, progress=False, **settings
                )
                seconds = time.process_time() - began
                # The best checkpoint is chosen by its return: of a control that is the luckiest, not the method's.
                values = saccade.load(run.path, checkpoint="last").evaluate().values
                cells = [
                    f"{values['return']:.1f} ± {values['return_deviation']:.1f}",
                    f"{values['return_low']:.1f} to {values['return_high']:.1f}",
                    f"{values['return_greedy']:.1f}",
                    f"{run.metrics['return']:.1f}",
                    f"{seconds:.0f}",
                ]
                print(f"| {method} | {seed} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
