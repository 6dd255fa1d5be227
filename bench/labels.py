"""Labels: accuracy on SST-2 by how many labelled rows there are, from scratch and from a pretrained encoder.

Each is trained on the same first rows of a shuffled training set for as many steps, picks its best checkpoint on the
same held-back rows and is scored on the test set.

    python bench/labels.py [--from minilm] [--rows 100,300,1000,3000,6920]
"""

import argparse
import json
import os
import random
import tempfile
from pathlib import Path

from saccade import api

DATA = Path(os.environ.get("SACCADE_DATA", "../shared/data")) / "classification" / "sst2"
EACH = 40  # rows of a step, about


def score(data, words, steps):
    """Accuracy on the test set of a classifier trained on a file."""
    said = [*words, f"data.valid={DATA / 'dev.tsv'}", f"train.steps={steps}"]
    with tempfile.TemporaryDirectory() as root:
        trained = api.train(data, said, task="text_classification", root=root)
        opened = api.load(trained.run.folder)
        return api.evaluate(opened, DATA / "test.tsv", whole=True)["accuracy"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--from", dest="base", default="minilm")
    parser.add_argument("--rows", default="100,300,1000,3000,6920")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--least", type=int, default=100, help="steps, however few rows there are")
    options = parser.parse_args()
    if not DATA.is_dir():
        raise SystemExit(f"no data in {DATA}; say where SST-2 is with SACCADE_DATA")
    lines = (DATA / "train.tsv").read_text().splitlines()
    random.Random(1).shuffle(lines)
    for count in map(int, options.rows.split(",")):
        with tempfile.TemporaryDirectory() as place:
            data = Path(place) / "rows.tsv"
            data.write_text("\n".join(lines[:count]) + "\n")
            steps = max(options.least, options.epochs * -(-count // EACH))
            found = {"scratch": score(data, [], steps), "pretrained": score(data, [f"base={options.base}"], steps)}
        found = {name: round(value, 2) for name, value in found.items()}
        print(json.dumps({"name": "sst2_by_labels", "rows": count, "steps": steps, **found}), flush=True)


if __name__ == "__main__":
    main()
