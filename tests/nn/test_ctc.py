"""CTC: the loss is that of all alignments, padded positions do not count, and several labels fit into a position."""

import itertools

import pytest
import torch

from saccade.nn.ctc import CTCHead

VOCABULARY = 3


def make(frames: int = 1) -> CTCHead:
    torch.manual_seed(1)
    return CTCHead(4, VOCABULARY, frames).double()


def collapse(path: tuple[int, ...]) -> list[int]:
    """Merge repetitions, then remove blanks."""
    merged = [label for label, _ in itertools.groupby(path)]
    return [label for label in merged if label != VOCABULARY]


def likelihood(probs: torch.Tensor, labels: list[int]) -> float:
    """The probability of labels, summed over every path through probs (frames, V + 1)."""
    paths = itertools.product(range(VOCABULARY + 1), repeat=len(probs))
    return sum(
        float(torch.stack([probs[at, label] for at, label in enumerate(path)]).prod())
        for path in paths
        if collapse(path) == labels
    )


@pytest.mark.parametrize("frames", [1, 2])
def test_the_loss_is_that_of_all_alignments_per_label(frames: int) -> None:
    head, memory = make(frames), torch.randn(2, 4 // frames, 4, dtype=torch.double)
    keep = torch.tensor([[True] * (4 // frames), [True] * (4 // frames - 1) + [False]])
    labels = torch.tensor([[0, 0, -1], [2, -1, -1]])
    probs = head(memory).detach().exp()
    assert probs.shape == (2, 4, VOCABULARY + 1)
    torch.testing.assert_close(probs.sum(-1), torch.ones(2, 4, dtype=torch.double))
    expected = [likelihood(probs[0], [0, 0]), likelihood(probs[1, : 4 - frames], [2])]
    loss = head.loss(memory, keep, labels)
    assert float(loss.detach()) == pytest.approx(-sum(torch.tensor(expected).double().log()) / 3)


@torch.no_grad()
def test_micro_batches_add_up_to_the_loss_of_the_batch_with_a_given_count() -> None:
    head, memory, keep = make(), torch.randn(2, 4, 4, dtype=torch.double), torch.ones(2, 4, dtype=torch.bool)
    labels = torch.tensor([[0, 1, 2], [2, -1, -1]])
    whole = head.loss(memory, keep, labels, 6)  # with an end token in each row
    parts = [
        head.loss(memory[row : row + 1], keep[:1], labels[row : row + 1], count) for row, count in ((0, 4), (1, 2))
    ]
    assert float(whole) == pytest.approx(float(4 * parts[0] + 2 * parts[1]) / 6)


@torch.no_grad()
def test_what_stands_in_padded_positions_does_not_matter() -> None:
    head, memory = make(), torch.randn(1, 5, 4, dtype=torch.double)
    keep, labels = torch.arange(5)[None] < 3, torch.tensor([[1, 2]])
    changed = memory.clone()
    changed[:, 3:] = 100
    assert torch.equal(head.loss(memory, keep, labels), head.loss(changed, keep, labels))
    assert float(head.loss(memory, keep, labels)) == pytest.approx(float(head.loss(memory[:, :3], keep[:, :3], labels)))


def test_labels_that_do_not_fit_are_ignored_and_give_no_gradient() -> None:
    head, memory = make(), torch.randn(2, 3, 4, dtype=torch.double, requires_grad=True)
    keep = torch.ones(2, 3, dtype=torch.bool)
    labels = torch.tensor([[0, 0, 0], [0, 1, -1]])  # equal labels need a blank between them: five frames
    head.loss(memory, keep, labels).backward()
    assert memory.grad is not None
    assert float(memory.grad[0].abs().max()) == 0 and float(memory.grad[1].abs().max()) > 0
