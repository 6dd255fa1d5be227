"""Write losses.json anew: only when a change is meant to alter the numbers. `python tests/golden/regenerate.py`"""

import json
import tempfile
from pathlib import Path

from saccade import api
from saccade.train.journal import read_journal

FILE = Path(__file__).parent / "losses.json"
SMALL = ["model.dim=32", "model.depth=2", "model.heads=2", "model.hidden=64", "model.capacity=16", "batch=4"]
CASES = {
    "default": SMALL,
    "dropout and averaging": [*SMALL, "model.dropout=0.1", "train.average=0.9", "parts=2"],
    "adamw, clipped": [*SMALL, "train.optim.kind=adamw", "train.optim.lr=3e-3", "train.optim.clip=1.0"],
    "gpt2": [*SMALL, "model.norm=layer", "model.position=learned", "model.bias=true", "model.tied=true"],
    "llama": [*SMALL, "model.activation=swiglu", "model.norm=rms", "model.kv_heads=1", "model.score=scaled_dot"],
}


def losses(words: list[str]) -> list[float]:
    """The losses of ten steps on a text made of the alphabet and a few turns of it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "text.txt"
        path.write_text("".join(chr(97 + i * i * 7 % 26) + ("\n" if i % 9 == 0 else "") for i in range(3000)))
        trained = api.train(path, [*words, "train.steps=10", "data.tokenizer=characters"], root=folder)
        return [record["loss"] for record in read_journal(trained.run.folder / "metrics.jsonl") if "seconds" in record]


if __name__ == "__main__":
    FILE.write_text(json.dumps({name: losses(words) for name, words in CASES.items()}, indent=1) + "\n")
