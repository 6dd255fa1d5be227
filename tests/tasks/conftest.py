"""What the tests of encoder tasks share: a task made ready on a small file, with no dropout and a head that speaks."""

import pytest
import torch

from saccade.config import override
from saccade.tasks import load_task

TINY = ["model.dim=16", "model.depth=2", "model.heads=2", "model.hidden=24", "vocabulary=90", "tokens=200"]
QUIET = ["model.dropout=0", "model.embedding_dropout=0"]


@pytest.fixture
def ready(tmp_path):
    """Make a task ready on a file, without training it; every weight is random, the zeros of a fresh head too."""

    def make(name, data, *words):
        kind = load_task(name)
        config = override(kind.Config(), [*TINY, *QUIET, *words])
        assets = tmp_path / f"assets-{len(list(tmp_path.iterdir()))}"
        assets.mkdir()
        kind.prepare(config, data, assets)
        opened = kind.open(config, assets)
        torch.manual_seed(11)
        with torch.no_grad():
            for value in opened.model.parameters():
                value.normal_(std=0.5)
        opened.load_data(data)
        return opened

    return make


@pytest.fixture
def alone():
    """The vectors (T, D) of one framed row that goes through the encoder by itself, without padding."""

    def read(opened, framed):
        row, second = framed
        segments = (torch.arange(len(row)) >= second).long()
        return opened.model.bert(torch.tensor([row]), None, segments[None])[0]

    return read


@pytest.fixture
def whole_and_parts():
    """The loss of a step at once, and what the loop makes of the same step in parts."""

    def losses(make, *words):
        whole, parts = make("parts=1", *words), make("parts=3", *words)
        parts.model.load_state_dict(whole.model.state_dict())
        found = []
        for opened in (whole, parts):
            batches = opened.batches("train", 1).at(0)
            total = sum(part.count for part in batches)
            found.append(sum(float(next(opened.losses(part))[1]) * part.count / total for part in batches))
            found.append(len(batches))
        return found

    return losses
