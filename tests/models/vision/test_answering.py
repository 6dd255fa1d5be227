"""Visual question answering: hops by hand, shared images, positions, vectors computed before."""

from itertools import pairwise

import pytest
import torch
from torch import nn

from saccade.models.vision.answering import AnsweringConfig, VisualAnswering
from saccade.models.vision.resnet import ResNet, ResNetConfig
from saccade.nn.probe import watch
from saccade.nn.transformer import TransformerConfig

SHAPE = TransformerConfig(dim=8, depth=1, heads=2, hidden=16)


@pytest.fixture
def model() -> VisualAnswering:
    encoder = ResNet(ResNetConfig(widths=(6, 6), attention_stage=1), attention=False, size=16)
    network = VisualAnswering(encoder, AnsweringConfig(SHAPE, hops=3), 20, 5)
    for value in network.parameters():
        nn.init.normal_(value, std=0.5)
    return network.eval()


def inputs(questions: int = 4, images: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
    pixels = torch.randint(0, 256, (images, 3, 16, 16), dtype=torch.uint8)
    return pixels, torch.randint(0, 20, (questions, 5))


@torch.no_grad()
def test_each_hop_adds_what_the_question_attends_to(model: VisualAnswering) -> None:
    pixels, ids = inputs()
    states: list[torch.Tensor] = []
    logits = model(pixels, ids, states=states)
    cells = model.cells(pixels)
    assert len(states) == 3
    for hop, (before, after) in enumerate(pairwise(states), 2):
        attention = model.get_submodule(f"hop{hop}")
        torch.testing.assert_close(after, before + attention(model.norm(before[:, None]), cells)[:, 0])
    torch.testing.assert_close(logits, model.head(model.norm(states[-1])))


@torch.no_grad()
def test_the_weights_of_words_and_hops_over_the_grid_sum_to_1(model: VisualAnswering) -> None:
    pixels, ids = inputs()
    with watch(model) as maps:
        model(pixels, ids)
    assert list(maps) == ["question.0.self", "question.0.cross", "hop1", "hop2", "hop3"]
    for name, queries in (("question.0.cross", 5), ("hop1", 1), ("hop2", 1), ("hop3", 1)):
        assert maps[name].shape == (4, 2, queries, 16)
        torch.testing.assert_close(maps[name].rows().sum(-1), torch.ones(4, 2, queries))


@torch.no_grad()
def test_questions_on_one_image_share_it(model: VisualAnswering) -> None:
    pixels, ids = inputs(questions=6, images=2)
    torch.testing.assert_close(model(pixels, ids), model(pixels.repeat_interleave(3, 0), ids))


@torch.no_grad()
def test_padding_changes_nothing(model: VisualAnswering) -> None:
    pixels, ids = inputs()
    keep = torch.arange(8)[None] < torch.tensor([5, 3, 4, 5])[:, None]
    padded = nn.functional.pad(ids, (0, 3), value=7)
    for row, length in enumerate((5, 3, 4, 5)):
        alone = model(pixels[row : row + 1], ids[row : row + 1, :length])
        torch.testing.assert_close(model(pixels, padded, keep)[row : row + 1], alone)


@torch.no_grad()
def test_vectors_computed_before_give_the_same_answer(model: VisualAnswering) -> None:
    pixels, ids = inputs()
    torch.testing.assert_close(model(model.encoder(pixels), ids), model(pixels, ids))


@torch.no_grad()
def test_the_place_of_a_cell_matters(model: VisualAnswering) -> None:
    _, ids = inputs()
    vectors = torch.randn(4, 16, 6)
    assert not torch.allclose(model(vectors, ids), model(vectors.flip(1), ids), atol=1e-4)


@torch.no_grad()
def test_the_loss_is_the_cross_entropy_with_the_answers_of_people(model: VisualAnswering) -> None:
    pixels, ids = inputs()
    targets = torch.tensor([[1.0, 0, 0, 0, 0], [0.3, 0.7, 0, 0, 0], [0, 0, 0, 0, 1], [0, 0, 0, 0, 0]])
    log_probs = model(pixels, ids).log_softmax(-1)
    expected = -(log_probs[0, 0] + 0.3 * log_probs[1, 0] + 0.7 * log_probs[1, 1] + log_probs[2, 4]) / 3
    torch.testing.assert_close(model(pixels, ids, targets=targets), expected)


def test_wrong_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match="hops must be at least 1, but is 0"):
        AnsweringConfig(SHAPE, hops=0)
    with pytest.raises(ValueError, match=r"question.dim must be a multiple of 4 for positions on a grid, but is 6"):
        AnsweringConfig(TransformerConfig(dim=6, heads=1))
