"""The communities demo: a graph of people in groups, who mostly know their own group and whose features are noisy.

A stochastic block model. A person's features alone say little about the group; those of the neighbours decide.
"""

import json
import random
from functools import partial
from pathlib import Path

from saccade.demo._demo import Demo, DemoFiles, DemoTask
from saccade.demo._files import table, write_files

GROUPS = ("chess", "choir", "garden", "rowing", "theatre")
MEMBERS = 80  # of each group
LABELLED = 12  # members of each group whose label is trained on
FRIENDS, STRANGERS = 0.07, 0.006  # probability of an edge within a group, and between two groups
NOISE = 1.5  # standard deviation of a feature, of which the mean is 1 for the own group and else 0
SHOWN = 24  # people of an example


def sample_graph(rng: random.Random, members: int) -> tuple[list[dict[str, object]], list[tuple[str, str]]]:
    """Return people with their group and features, and pairs who know each other."""
    people: list[dict[str, object]] = []
    for group in GROUPS:
        for _ in range(members):
            features = {name: round((name == group) + rng.gauss(0, NOISE), 3) for name in GROUPS}
            people.append({"label": group, **{f"likes_{name}": value for name, value in features.items()}})
    rng.shuffle(people)
    for number, person in enumerate(people):
        person["id"] = f"p{number:03}"
    pairs = []
    for first in range(len(people)):
        for second in range(first):
            same = people[first]["label"] == people[second]["label"]
            if rng.random() < (FRIENDS if same else STRANGERS) * MEMBERS / members:
                pairs.append((str(people[second]["id"]), str(people[first]["id"])))
    return people, pairs


def write_communities(folder: Path, *, seed: int = 1, members: int = MEMBERS) -> DemoFiles:
    """Write the tables of the people and of who knows whom, and other, smaller graphs as examples."""
    rng = random.Random(seed)
    people, pairs = sample_graph(rng, members)
    seen = dict.fromkeys(GROUPS, 0)
    for number, person in enumerate(people):
        group = str(person["label"])
        seen[group] += 1
        person["split"] = "train" if seen[group] <= LABELLED else ("valid", "test")[number % 2]
    columns = ["id", "label", "split", *(f"likes_{name}" for name in GROUPS)]
    nodes = [columns, *([str(person[name]) for name in columns] for person in people)]
    files = {
        "people/nodes.csv": partial(table, nodes),
        "people/edges.csv": partial(table, [("source", "target"), *pairs]),
    }
    examples = [f"examples/{number}.json" for number in (1, 2)]
    files |= {name: partial(_example, random.Random(f"{seed} {name}")) for name in examples}
    write_files(folder, files, "graph")
    plan = (
        f"{len(people)} people in {len(GROUPS)} groups, {len(pairs):,} pairs who know each other; the groups of "
        f"{LABELLED * len(GROUPS)} people are trained on"
    )
    return DemoFiles(folder / "people", plan, tuple({"graph": folder / name} for name in examples))


def _example(rng: random.Random) -> bytes:
    """Return a small graph in node-link format, whose people all know someone."""
    people, pairs = sample_graph(rng, SHOWN // len(GROUPS))
    known = {name for pair in pairs for name in pair}
    nodes = [{name: value for name, value in person.items() if name != "label"} for person in people]
    nodes = [person for person in nodes if person["id"] in known]
    edges = [{"source": first, "target": second} for first, second in pairs]
    return json.dumps({"nodes": nodes, "edges": edges}, indent=1).encode()


DEMO = Demo(
    "a graph of people in groups, with noisy features",
    {
        "node_classification": DemoTask(
            "tell the group of each person from whom they know",
            write_communities,
            "attention of each person to those they know in",
            minutes=0.5,
            settings={"l2": 0.002, "train": {"evaluate_every": 50}},
        )
    },
)
