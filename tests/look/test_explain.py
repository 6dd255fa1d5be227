"""Explanations: nothing they do reaches another thread or stays in the model."""

import threading

import pytest
import torch
from torch import nn

from saccade.core import ForwardTrace, Prediction, Role, StepAxis, TextOutput, TokenAxis
from saccade.errors import UsageError
from saccade.look.explain import Explanation
from saccade.nn.ablation import patch_embeddings
from saccade.nn.attention import Attention

TOKENS = 5


class Network(nn.Module):
    """One attention layer and an output layer."""

    def __init__(self):
        super().__init__()
        self.attention = Attention(8, 2)
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        return self.head(self.attention(patch_embeddings(x)))


class OneLayer:
    """As much of a task as an explanation needs."""

    def __init__(self):
        self.model = Network().eval()
        self.x = torch.randn(1, TOKENS, 8)
        self.between = lambda: None

    def networks(self):
        return {"model": self.model}

    def rerun(self, prediction, *, layers=False):
        self.between()
        logits = self.model(self.x)[0]
        positions, inputs = StepAxis(Role.TARGET, tuple("01234")), TokenAxis(Role.TEXT, tuple("abcde"))
        return ForwardTrace(logits, tuple(logits.argmax(-1).tolist()), positions, (inputs,), "wxyz".__getitem__)


@pytest.fixture
def task():
    return OneLayer()


@pytest.fixture
def explanation(task):
    return Explanation(task, Prediction({"text": "a b c d e"}, TextOutput("")))


def test_a_calculation_ignores_other_threads_and_leaves_no_hook(task, explanation):
    @torch.no_grad()
    def other():
        task.model(torch.randn(3, 7, 8))

    def beside():
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()

    alone = explanation.calculation("attention", 1, 4)
    task.between = beside
    together = explanation.calculation("attention", 1, 4)
    assert torch.equal(alone.weights, together.weights) and torch.equal(alone.x, task.x[0, 4])
    with pytest.raises(UsageError, match="query must be 0 to 4 in 'attention', but is 5"):
        explanation.calculation("attention", 0, 5)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in task.model.modules())


def test_an_ablation_is_not_seen_by_another_thread(task, explanation):
    expected = task.model(task.x).detach()
    outputs = []

    def beside():
        thread = threading.Thread(target=lambda: outputs.append(task.model(task.x).detach()))
        thread.start()
        thread.join()

    task.between = beside
    effect = explanation.ablate("attention", head=0)
    assert effect.before != effect.after
    assert all(torch.equal(output, expected) for output in outputs) and len(outputs) == 2
    assert torch.equal(task.model(task.x), expected)


def test_masking_one_key_changes_one_position(explanation):
    effect = explanation.ablate("attention", head=1, query=2, key=0)
    changed = [before != after for before, after in zip(effect.before, effect.after, strict=True)]
    assert changed == [False, False, True, False, False]


def test_mistakes_are_named(explanation):
    with pytest.raises(UsageError, match="no attention 'atention' to ablate; did you mean 'attention'"):
        explanation.ablate("atention", head=0)
    with pytest.raises(UsageError, match="head must be given to ablate 'attention', but is not"):
        explanation.ablate("attention")
    with pytest.raises(UsageError, match="head must be 0 to 1 in 'attention', but is 2"):
        explanation.ablate("attention", head=2)
    with pytest.raises(UsageError, match="position must be 0 to 4, but is 5"):
        explanation.attribute(5)
    with pytest.raises(UsageError, match="method must be gradient or integrated, but is 'magic'"):
        explanation.attribute(0, "magic")
    with pytest.raises(UsageError, match="no residual stream"):
        explanation.logit_lens()


def test_importance_is_the_loss_of_each_head_and_reports_progress(explanation):
    fractions = []
    importance = explanation.importance(fractions.append)
    assert importance == {"attention": [pytest.approx(explanation.ablate("attention", head).lost) for head in (0, 1)]}
    assert fractions == [0.5, 1.0]
