"""Time to a loss on tinyshakespeare, by characters: the default recipe against nanoGPT's plain AdamW recipe.

Both run in our loop, 4 layers, 128 wide, context 64. The plain recipe is the one of nanoGPT's README for a CPU: GPT-2,
batch 12, 2,000 steps, AdamW 1e-3 with 100 warm-up steps and a cosine to 1e-4. It reached 1.8976 there. Losses are over
the whole validation tenth; times are of training alone, without evaluation. SACCADE_DATA names the data folder.

    python bench/time_to_loss.py [--seeds 3] [--steps 240]
"""

import argparse
import os
import statistics
import tempfile
from pathlib import Path

from interleaved import report

TARGET = 1.8976
PLAIN_STEPS = 2000
TOKENS = 12 * 64
PLAIN = (
    "train.optim.kind=adamw",
    "train.optim.lr=1e-3",
    "train.optim.beta1=0.9",
    "train.optim.beta2=0.99",
    "train.optim.weight_decay=0.1",
    "train.optim.warmup=100",
    "train.optim.schedule=cosine",
    "train.optim.floor=0.1",
    "train.optim.clip=1.0",
    "model.activation=gelu",
)


def run(data, preset, steps, seed, overrides=()):
    """Train once and return the loss on all validation data, the seconds of training and the parameters."""
    import torch

    from saccade import api
    from saccade.core import Callback, Split
    from saccade.tasks import load_task
    from saccade.training.loop import Trainer

    settings = [*overrides, f"train.steps={steps}", f"train.seed={seed}", "batch_size=12"]
    settings.append(f"train.evaluate_every={steps + 1}")
    with tempfile.TemporaryDirectory() as folder:
        task_class = load_task("language_model")
        config, training = api.configure(task_class, settings, preset)
        task_class.prepare(config, data, Path(folder))
        torch.manual_seed(seed)
        task = task_class.open(config, Path(folder))
        task.load_data(data)
        trainer = Trainer(task, training, Path(folder), Callback())
        trainer.fit()
        parameters = sum(value.numel() for value in task.model.parameters())
        return task.evaluate(Split.VALID)["loss"], trainer.elapsed, parameters


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=240, help="budget of the default recipe")
    options = parser.parse_args()
    root = Path(os.environ.get("SACCADE_DATA", Path(__file__).parent.parent.parent / "shared" / "data"))
    data = root / "lm" / "tinyshakespeare.txt"
    if not data.exists():
        raise SystemExit(f"no {data}; set SACCADE_DATA to a folder that holds lm/tinyshakespeare.txt")
    ours, plain = [], []
    for seed in range(1, options.seeds + 1):
        ours.append(run(data, "tiny", options.steps, seed))
        plain.append(run(data, "gpt2-tiny", PLAIN_STEPS, seed, PLAIN))
    ours_loss, ours_time = (statistics.median(result[i] for result in ours) for i in (0, 1))
    plain_loss, plain_time = (statistics.median(result[i] for result in plain) for i in (0, 1))
    more = {"losses": [round(result[0], 4) for result in ours], "parameters": ours[0][2], "target": TARGET}
    report("time_to_loss_loss", ours_loss, plain_loss, lower_is_better=True, unit="nats", **more)
    report("time_to_loss_seconds", ours_time, plain_time, lower_is_better=True, unit="s")
    report("time_to_loss_tokens", options.steps * TOKENS, PLAIN_STEPS * TOKENS, lower_is_better=True, unit="tokens")
    whole = int(plain_time / ours_time * options.steps)
    best, seconds, _ = run(data, "tiny", whole, 1)
    report(
        "loss_in_the_same_time",
        best,
        plain_loss,
        lower_is_better=True,
        unit="nats",
        seconds=[round(seconds, 1), round(plain_time, 1)],
    )
    if ours_loss > TARGET:
        raise SystemExit(f"the median loss {ours_loss:.4f} is above {TARGET}")


if __name__ == "__main__":
    main()
