"""Fixtures of the tests of encoder tasks: a task with loaded data and random weights, without dropout."""

import pytest
import torch

from saccade.config import override
from saccade.tasks import load_task

TINY = [
    "model.dim=16",
    "model.depth=2",
    "model.heads=2",
    "model.hidden=24",
    "vocabulary_size=90",
    "batch_tokens=200",
]
NO_DROPOUT = ["model.dropout=0", "model.embedding_dropout=0"]


@pytest.fixture
def ready(tmp_path, monkeypatch):
    """Return an untrained task with the data of a file loaded; all weights are random, also those of the head."""
    monkeypatch.setenv("SACCADE_CACHE", str(tmp_path / "cache"))

    def make(name, data, *overrides):
        kind = load_task(name)
        config = override(kind.Config(), [*TINY, *NO_DROPOUT, *overrides])
        assets = tmp_path / f"assets-{len(list(tmp_path.iterdir()))}"
        assets.mkdir()
        kind.prepare(config, data, assets)
        task = kind.open(config, assets)
        torch.manual_seed(11)
        with torch.no_grad():
            for value in task.model.parameters():
                value.normal_(std=0.5)
        task.model.eval()
        task.load_data(data)
        return task

    return make


@pytest.fixture
def predict():
    """Return the prediction of a task for one example."""

    def answer(task, inputs, **options):
        (prediction,) = task.predict([inputs], task.Options(**options))
        return prediction

    return answer


@pytest.fixture
def alone():
    """Return the vectors (T, D) of one encoded text, encoded alone and without padding."""

    def read(task, encoded):
        ids, second = encoded[:2]
        segments = (torch.arange(len(ids)) >= second).long()
        return task.model.bert(torch.tensor([ids]), None, segments[None])[0]

    return read


@pytest.fixture
def loss_of():
    """Return the loss of a batch, as in the training loop."""

    def compute(task, batch):
        ((name, loss),) = task.losses(batch, task.networks())
        assert name == "model"
        return float(loss.detach())

    return compute


@pytest.fixture
def whole_and_parts(loss_of):
    """Return the loss of a step as one batch and as micro-batches, each with its number of batches."""

    def losses(make, *overrides):
        whole, parts = make("micro_batches=1", *overrides), make("micro_batches=3", *overrides)
        parts.model.load_state_dict(whole.model.state_dict())
        results = []
        for task in (whole, parts):
            batches = task.source("train", 1).at(0)
            total = sum(batch.count for batch in batches)
            results.append(sum(loss_of(task, batch) * batch.count / total for batch in batches))
            results.append(len(batches))
        return results

    return losses


@pytest.fixture
def batched_as_alone():
    """Check that a batch is predicted as each example alone, in order, and return the predictions."""

    def check(task, examples, **options):
        together = list(task.predict(examples, task.Options(**options)))
        assert [answer.inputs for answer in together] == list(examples)
        for example, answer in zip(examples, together, strict=True):
            (single,) = task.predict([example], task.Options(**options))
            assert answer.text == single.text
            assert type(answer.output) is type(single.output)
            assert answer.scores.keys() == single.scores.keys()
            assert dict(answer.scores) == pytest.approx(dict(single.scores), rel=1e-4, abs=1e-5)
        return together

    return check
