"""Accuracy on SST-2 by the number of labelled rows, from scratch and from a pretrained encoder.

Each is trained on the same first rows of a shuffled training set for as many steps, selects its best checkpoint on the
same validation rows and is evaluated on the test set.

    python bench/labels.py [--from minilm] [--rows 100,300,1000,3000,6920]
"""

import argparse
import json
import os
import random
import tempfile
from pathlib import Path

import saccade

DATA = Path(os.environ.get("SACCADE_DATA", "../shared/data")) / "classification" / "sst2"
ROWS_PER_STEP = 40  # about


def test_accuracy(data, steps, **settings):
    """Train a classifier on a file and return its accuracy on the test set."""
    with tempfile.TemporaryDirectory() as root:
        valid = DATA / "dev.tsv"
        run = saccade.train(data, task="text_classification", root=root, valid=valid, steps=steps, **settings)
        return saccade.load(run).evaluate(DATA / "test.tsv")["accuracy"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--from", dest="base", default="minilm")
    parser.add_argument("--rows", default="100,300,1000,3000,6920")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--least", type=int, default=100, help="minimum number of steps")
    options = parser.parse_args()
    if not DATA.is_dir():
        raise SystemExit(f"no data in {DATA}; set SACCADE_DATA to a folder that holds classification/sst2")
    lines = (DATA / "train.tsv").read_text().splitlines()
    random.Random(1).shuffle(lines)
    for count in map(int, options.rows.split(",")):
        with tempfile.TemporaryDirectory() as folder:
            data = Path(folder) / "rows.tsv"
            data.write_text("\n".join(lines[:count]) + "\n")
            steps = max(options.least, options.epochs * -(-count // ROWS_PER_STEP))
            scores = {
                "scratch": round(test_accuracy(data, steps), 2),
                "pretrained": round(test_accuracy(data, steps, base=options.base), 2),
            }
        print(json.dumps({"name": "sst2_by_labels", "rows": count, "steps": steps, **scores}), flush=True)


if __name__ == "__main__":
    main()
