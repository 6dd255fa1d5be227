"""Scores on published graphs: Cora over seeds, TU graphs over folds, molecules over seeds; mean and spread.

SACCADE_DATA=... python bench/graph_scores.py cora --seeds 10
SACCADE_DATA=... python bench/graph_scores.py mutag proteins nci1 --folds 10
SACCADE_DATA=... python bench/graph_scores.py bbbp esol --seeds 3

Prints one JSON line for each run and one for each dataset. Protocols:
cora      public split; the checkpoint is chosen by the accuracy on the 500 validation nodes, the 1,000 test nodes are
          scored once.
TU        10 parts with a fraction of each label, each held out once. `last` is the mean accuracy at the end of
          training, where nothing is chosen; `gin` is the protocol of GIN (https://arxiv.org/abs/1810.00826): the one
          step, the same for all folds, at which the mean accuracy over the folds is highest.
molecules a random tenth is held out (the same for all seeds); `last` at the end of training, `best` at the best
          evaluation, which looks at the held-out molecules.
"""

import argparse
import json
import os
import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import saccade
from saccade.runs.journal import read_journal

TU = {"mutag": "MUTAG", "proteins": "PROTEINS", "nci1": "NCI1", "ptc": "PTC", "imdb": "IMDBBINARY"}
ESOL = "data.label_column=measured log solubility in mols per litre"
MOLECULES = {
    "bbbp": ("BBBP.csv", "graph_classification", ["metric=roc_auc"], "roc_auc"),
    "esol": ("delaney-processed.csv", "graph_regression", [ESOL], "rmse"),
    "freesolv": ("FreeSolv_SAMPL.csv", "graph_regression", ["data.label_column=expt"], "rmse"),
    "lipophilicity": ("Lipophilicity.csv", "graph_regression", [], "rmse"),
}


def train(data: Path, task: str, overrides: list[str], root: Path, name: str) -> tuple[dict[str, float], list, float]:
    """Return the metrics of the best checkpoint, the evaluations during training, and the processor seconds."""
    began = time.process_time()
    run = saccade.train(data, task=task, name=name, root=root, overrides=overrides, progress=False)
    seconds = time.process_time() - began
    records = [record for record in read_journal(Path(run.path) / "metrics.jsonl") if "best" in record]
    return dict(run.metrics), records, seconds


def spread(values: list[float]) -> dict[str, float]:
    return {"mean": round(statistics.mean(values), 3), "std": round(statistics.pstdev(values), 3)}


def show(**figures: object) -> None:
    print(json.dumps(figures), flush=True)


def score_cora(data: Path, seeds: int, overrides: list[str], root: Path) -> None:
    results = []
    for seed in range(1, seeds + 1):
        settings = [f"train.seed={seed}", *overrides]
        metrics, _, seconds = train(data / "cora", "node_classification", settings, root, f"cora-{seed}")
        results.append(metrics["test_accuracy"])
        valid, test = (round(metrics[name], 2) for name in ("accuracy", "test_accuracy"))
        show(data="cora", seed=seed, valid=valid, test=test, cpu_seconds=round(seconds, 1))
    show(data="cora", protocol="public split", seeds=seeds, test=spread(results))


def score_tu(name: str, data: Path, folds: int, overrides: list[str], root: Path) -> None:
    curves, last, total = [], [], 0.0
    for fold in range(folds):
        settings = [f"data.folds={folds}", f"data.fold={fold}", *overrides]
        path = data / "tu" / f"{TU[name]}.txt"
        _, records, seconds = train(path, "graph_classification", settings, root, f"{name}-{fold}")
        curves.append({record["step"]: record["accuracy"] for record in records})
        last.append(records[-1]["accuracy"])
        total += seconds
        show(data=name, fold=fold, last=round(last[-1], 2), cpu_seconds=round(seconds, 1))
    common = sorted(set.intersection(*(set(curve) for curve in curves)))
    best = max(common, key=lambda step: statistics.mean(curve[step] for curve in curves))
    gin = [curve[best] for curve in curves]
    show(data=name, folds=folds, last=spread(last), gin=spread(gin), gin_step=best, cpu_seconds=round(total, 1))


def score_molecules(name: str, data: Path, seeds: int, overrides: list[str], root: Path) -> None:
    file, task, settings, metric = MOLECULES[name]
    best, last = [], []
    for seed in range(1, seeds + 1):
        given = [*settings, f"train.seed={seed}", *overrides]
        metrics, records, seconds = train(data / "moleculenet" / file, task, given, root, f"{name}-{seed}")
        best.append(metrics[metric])
        last.append(records[-1][metric])
        figures = {"best": round(best[-1], 4), "last": round(last[-1], 4)}
        show(data=name, seed=seed, metric=metric, **figures, cpu_seconds=round(seconds, 1))
    show(data=name, split="random tenth", metric=metric, seeds=seeds, best=spread(best), last=spread(last))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+", choices=["cora", *TU, *MOLECULES])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--folds", type=int, default=10)
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="other settings")
    given = parser.parse_args()
    data = Path(os.environ["SACCADE_DATA"]) / "graph"
    show(threads=torch.get_num_threads(), torch=torch.__version__)
    for name in given.names:
        with tempfile.TemporaryDirectory() as root:
            if name == "cora":
                score_cora(data, given.seeds, given.set, Path(root))
            elif name in TU:
                score_tu(name, data, given.folds, given.set, Path(root))
            else:
                score_molecules(name, data, given.seeds, given.set, Path(root))
    show(peak_gb=round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, 2))


if __name__ == "__main__":
    main()
