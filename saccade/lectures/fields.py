"""Other fields, R63 to R67: pictures, pictures with texts, imitation and graphs."""

from __future__ import annotations

import copy
import math
from pathlib import Path

import torch
from torch import Tensor

from saccade.core import NodeAxis
from saccade.demo.cartpole import write_cartpole
from saccade.demo.communities import write_communities
from saccade.lectures import _pictures as pictures
from saccade.lectures._row import Demonstration, Row
from saccade.lectures._training import Written, train_model
from saccade.look.figure import AttentionFigure
from saccade.models.policy.imitation import Discriminator
from saccade.models.policy.policy import MLPConfig, Scale
from saccade.models.vision.clip import CLIP, CLIPConfig, TextConfig
from saccade.models.vision.vit import ViT, ViTConfig

STACK = ("dim=32", "depth=2", "heads=2", "hidden=64")
POLICY = (
    *("environment=CartPole-v1", "episodes=10", "model.architecture=transformer", "model.history=4"),
    *(f"model.transformer.{setting}" for setting in ("dim=32", "depth=1", "heads=2", "hidden=64")),
)


@torch.no_grad()
def vision_transformer(show: Demonstration) -> None:
    """R63: a picture as (H/p)(W/p) + 1 tokens; a folder of pictures -> classifier, with attention over the patches."""
    rows = []
    for size, patch in ((224, 16), (32, 4), (12, 4)):
        config = ViTConfig(dim=8, depth=1, heads=1, hidden=8, image_size=size, patch=patch, class_token=True)
        tokens = ViT(config)(torch.zeros(1, 3, size, size, dtype=torch.uint8)).shape[1]
        rows.append((f"{size} x {size}", patch, tokens))
        show.equal(f"{size} x {size} in patches of {patch}: tokens", tokens, (size // patch) ** 2 + 1)
    show.table("tokens of a picture: (H/p)(W/p) + 1", ("picture", "patch p", "tokens"), rows)
    with torch.enable_grad():
        trained = train_model(
            lambda folder: (pictures.write_classes(folder), None),
            "image_classification",
            60,
            "model.architecture=vit",
            *(f"model.vit.{setting}" for setting in (*STACK, "patch=4")),
            *("batch_size=24", "augment.flip=false", "train.precision=float32"),
        )
    trained.show(show, "accuracy")
    prediction = trained.model(pictures.square("green", "right", 215))
    show.figure("a green square", f"{prediction.text}: attention over the patches", AttentionFigure.of(prediction))
    show.equal("class of a new picture", prediction.text, "green")
    show.above("accuracy on validation pictures, %", trained.metrics["accuracy"], 90)


def _write_captions(folder: Path) -> Written:
    rows = [
        (pictures.square(colour, place, shade), [[f"a {colour} square on the {place}"]])
        for colour, place, shade in pictures.scenes(16)
    ]
    return pictures.write_table(folder, ["caption"], rows), None


def clip(show: Demonstration) -> None:
    """R64: pictures and captions in one space: retrieval both ways, zero-shot classes, a symmetric loss."""
    part = ("dim=32", "depth=1", "heads=2", "hidden=64", "dropout=0")
    trained = train_model(
        _write_captions,
        "image_text",
        150,
        "encoder.cnn.widths=[16,16]",
        "encoder.cnn.attention_stage=1",
        *(f"{side}.{setting}" for side in ("image", "text") for setting in part),
        *("projection=16", "batch_size=32", "vocabulary_size=90", "augment.shift=0", "augment.colour=0"),
    )
    trained.show(show, "text_to_image_recall_at_1", "image_to_text_recall_at_1", "mean_recall", "chance")
    names = ",".join(pictures.COLOURS)
    rows, right = [], 0
    for colour in pictures.COLOURS:
        answer = trained.model(
            pictures.square(colour, "left", 215), classes=names, template="a {} square on the left"
        ).text
        rows.append((f"{colour} square", answer))
        right += answer == colour
    show.table("zero-shot classes", ("picture", "class"), rows)
    show.above("mean recall, %, above chance", trained.metrics["mean_recall"] - trained.metrics["chance"], 10)
    show.above("zero-shot classes that are right, of 4", right, 2)
    torch.manual_seed(1)
    vision = ViTConfig(dim=8, depth=1, heads=1, hidden=8, image_size=8, patch=4)
    network = CLIP.from_config(
        CLIPConfig(vision=vision, text=TextConfig(dim=8, depth=1, heads=1, hidden=8), projection=4), 20
    )
    pixels, ids = torch.randint(0, 256, (5, 3, 8, 8), dtype=torch.uint8), torch.randint(3, 20, (5, 6))
    loss = network(pixels, ids)
    logits = network.logits(network.image_vectors(pixels), network.text_vectors(ids))
    own = torch.arange(5)
    images, texts = (torch.nn.functional.cross_entropy(side, own) for side in (logits, logits.t()))
    show.same("loss = half of images -> texts + half of texts -> images", loss, (images + texts) / 2, 1e-5)
    exchanged = copy.copy(network)
    exchanged.__dict__ |= {"image_vectors": network.text_vectors, "text_vectors": lambda x, _: network.image_vectors(x)}
    show.same("and so symmetric: images and texts exchanged", exchanged(ids, pixels), loss, 1e-6)
    show.above("what either half alone is not: difference of the halves", (images - texts).abs().item(), 1e-4)


def cloning(show: Demonstration) -> None:
    """R65: behaviour cloning: a file of trajectories -> policy -> return, against the expert."""
    trained = train_model(
        lambda folder: (write_cartpole(folder, episodes=6).train, None),
        "behaviour_cloning",
        150,
        *POLICY,
        "batch_size=64",
    )
    names = ("return", "return_random", "accuracy")
    trained.show(show, *(name for name in names if name in trained.metrics))
    show.plot("training", "step", "loss", {"loss": trained.losses()})
    show.above("return of the policy (the expert reaches 500 at most)", trained.metrics["return"], 150)
    show.above("times the return of random actions", trained.metrics["return"] / trained.metrics["return_random"], 4)


def _discriminator(policy: Tensor, expert: Tensor) -> Discriminator:
    """Return a discriminator of a one-step problem with two actions, trained on those of policy and expert."""
    torch.manual_seed(0)
    network = Discriminator(MLPConfig(hidden=16), Scale((0.0,), (1.0,)), labels=2)
    optimizer = torch.optim.Adam(network.parameters(), 0.02)
    state = torch.zeros(len(policy), 1)
    for _ in range(150):
        loss = network((state, policy), (state, expert), torch.rand(len(policy), 1), 0.0)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return network


def adversarial(show: Demonstration) -> None:
    """R66: GAIL, Algorithm 1: D goes up on the policy (log D), down on the expert (log(1 - D)); T11: the sign."""
    policy, expert = torch.tensor([0] * 30 + [1] * 10), torch.tensor([1] * 40)
    network = _discriminator(policy, expert)
    with torch.no_grad():
        cost = network.cost(torch.zeros(2, 1), torch.tensor([0, 1]))
    optimum = [1.0, 10 / 50]
    rows = [
        (f"action {a}", f"{n} of 40", f"{m} of 40", cost[a].exp().item(), cost[a].item())
        for a, n, m in ((0, 30, 0), (1, 10, 40))
    ]
    show.table("one step, two actions", ("", "policy", "expert", "D", "cost log D"), rows)
    show.close("D of the action that both take: policy / (policy + expert)", cost[1].exp().item(), optimum[1], 0.05)
    show.above("D of the action of the policy alone", cost[0].exp().item(), 0.8)
    show.below(
        "equation 18: the policy minimises log D, so the expert's action costs less, by",
        (cost[1] - cost[0]).item(),
        -0.5,
    )
    equal = _discriminator(expert, expert)
    show.close("a policy like the expert: D", equal.cost(torch.zeros(1, 1), torch.tensor([1])).exp().item(), 0.5, 0.05)
    trained = train_model(
        lambda folder: (write_cartpole(folder, episodes=6).train, None),
        "adversarial_imitation",
        8,
        *POLICY,
        *("environments=8", "rollout_steps=64", "batch_size=128", "max_steps=200", "value_steps=2"),
        evaluations=8,
    )
    trained.show(show, "return", "return_random")
    curves = {name: trained.losses(name) for name in ("loss_discriminator", "loss_policy")}
    show.plot("losses", "step", "loss", {name: points for name, points in curves.items() if points})
    returns, random = trained.scores("return"), trained.metrics["return_random"]
    reference = [(step, random) for step, _ in returns]
    show.plot("return", "step", "return", {"policy": returns, "random actions": reference})
    show.equal("evaluations of the return", len(returns), 8)
    show.above(
        "return of the policy, relative to random actions",
        trained.metrics["return"] / trained.metrics["return_random"],
        1.2,
    )
    show.holds(
        "the discriminator's loss is finite at every step",
        all(math.isfinite(y) for points in curves.values() for _, y in points) and any(curves.values()),
    )


def graphs(show: Demonstration) -> None:
    """R67: a graph file -> node classifier; a node attends to its neighbours alone."""
    trained = train_model(
        lambda folder: (write_communities(folder, members=40).train, None),
        "node_classification",
        100,
        "l2=0.002",
    )
    trained.show(show, "accuracy")
    nodes = [
        {"id": f"p{n}", **{f"likes_{name}": float(n // 4 == at) for at, name in enumerate(GROUPS)}} for n in range(8)
    ]
    pairs = [(0, 1), (0, 2), (1, 3), (2, 3), (4, 5), (4, 6), (5, 7), (6, 7), (3, 4)]
    graph = {"nodes": nodes, "edges": [{"source": f"p{a}", "target": f"p{b}"} for a, b in pairs]}
    prediction = trained.model(graph)
    figure = AttentionFigure.of(prediction)
    show.figure("edges by attention", "two groups of four people", figure)
    attention = next(iter(prediction.attention.values()))
    assert isinstance(attention.keys, NodeAxis)
    weights = attention.weights.mean(0)
    allowed = torch.eye(8, dtype=torch.bool)
    for a, b in pairs:
        allowed[a, b] = allowed[b, a] = True
    show.equal("largest weight on a node that is no neighbour", weights[~allowed].max().item(), 0.0)
    show.close("weights of a node sum to", [weights.sum(1).min().item(), weights.sum(1).max().item()], [1.0, 1.0], 1e-4)
    show.above("accuracy on people whose group was not given, % (by chance 20)", trained.metrics["accuracy"], 50)


GROUPS = ("chess", "choir", "garden", "rowing", "theatre")
ROWS = (
    Row(
        "R63",
        "Vision Transformer: (H/p)(W/p) + 1 tokens",
        vision_transformer,
        6,
        extras=("images",),
        also="saccade demo shapes",
    ),
    Row(
        "R64",
        "CLIP: retrieval both ways, zero-shot classes, symmetric loss",
        clip,
        10,
        extras=("images",),
        also="saccade demo shapes --task image_text",
    ),
    Row("R65", "Behaviour cloning", cloning, 10, extras=("rl",), also="saccade demo cartpole"),
    Row(
        "R66",
        "GAIL: Algorithm 1, equations 17 and 18",
        adversarial,
        12,
        extras=("rl",),
        also="saccade demo cartpole --task adversarial_imitation",
    ),
    Row("R67", "Graphs: attention along the edges alone", graphs, 5, also="saccade demo communities"),
)
