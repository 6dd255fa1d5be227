"""Generator and discriminator: sizes, labels, losses, and attention as the probe reads it."""

import pytest
import torch
import torch.nn.functional as F

from saccade.models.vision.gan import Discriminator, GanConfig, Generator, fitting_size, normalized
from saccade.nn.probe import RecordedRow, watch

TINY = GanConfig(noise=6, generator_width=4, discriminator_width=4)


def noise(rows=3):
    return torch.randn(rows, TINY.noise)


@pytest.mark.parametrize("size", [16, 20, 24, 28, 32, 40, 64])
@pytest.mark.parametrize("channels", [1, 3])
def test_images_have_the_size_of_the_data(size, channels):
    generator, discriminator = (kind(TINY, size, channels).eval() for kind in (Generator, Discriminator))
    images = generator.images(noise())
    assert images.shape == (3, channels, size, size) and float(images.detach().abs().max()) <= 1
    assert discriminator.scores(images).shape == (3,)


@pytest.mark.parametrize(("size", "expected"), [(16, 16), (17, 16), (28, 28), (30, 28), (32, 32), (63, 56), (64, 64)])
def test_the_size_is_rounded_down_to_one_that_can_be_halved(size, expected):
    assert fitting_size(size) == expected


def test_the_grid_of_the_attention_can_be_chosen():
    config = GanConfig(noise=6, generator_width=4, discriminator_width=4, attention=8)
    generator, discriminator = Generator(config, 32, 1).eval(), Discriminator(config, 32, 1).eval()
    with torch.no_grad(), watch(generator) as drawn, watch(discriminator) as judged:
        discriminator.scores(generator.images(noise()))
    assert [recorded.shape[2:] for recorded in (*drawn.values(), *judged.values())] == [(64, 64), (64, 64)]
    with pytest.raises(
        ValueError, match="attention must be 0 or one of 32, 16, 8, 4 for images of 32 pixels, but is 7"
    ):
        Generator(GanConfig(attention=7), 32, 1)


def test_the_losses_are_those_of_the_hinge():
    generator, discriminator = (kind(TINY, 16, 1, 3).eval() for kind in (Generator, Discriminator))
    real = torch.randint(0, 256, (5, 1, 16, 16), dtype=torch.uint8)
    labels, fake_labels = torch.tensor([0, 1, 2, 0, 1]), torch.tensor([2, 0, 1])
    fake = generator.images(noise(), fake_labels).detach()
    expected = (1 - discriminator.scores(normalized(real), labels)).clamp_min(0).mean()
    expected = expected + (1 + discriminator.scores(fake, fake_labels)).clamp_min(0).mean()
    torch.testing.assert_close(discriminator(real, labels, fake, fake_labels), expected)
    z = noise()
    expected = -discriminator.scores(generator.images(z, fake_labels), fake_labels).mean()
    torch.testing.assert_close(generator(z, fake_labels, discriminator), expected)


def test_labels_change_the_image_and_the_score():
    generator, discriminator = (kind(TINY, 16, 1, 2).eval() for kind in (Generator, Discriminator))
    with torch.no_grad():
        for value in generator.parameters():
            value.add_(0.3 * torch.randn_like(value))
    z = noise(1)
    first, second = (generator.images(z, torch.tensor([label])) for label in (0, 1))
    assert not torch.equal(first, second)
    assert not torch.equal(*(discriminator.scores(first, torch.tensor([label])) for label in (0, 1)))


def test_the_gradient_of_the_generator_comes_through_the_discriminator():
    generator, discriminator = (kind(TINY, 16, 1) for kind in (Generator, Discriminator))
    generator(noise(), None, discriminator).backward()
    attention = generator.generator_attention
    assert all(value.grad is not None for value in generator.parameters())
    assert float(attention.gain.grad.abs()) > 0
    assert float(attention.attention.out.parametrizations.weight.original.grad.abs().max()) == 0  # the gain is 0


def test_the_probe_reads_the_weights_of_a_plain_calculation():
    generator, name, seen = Generator(TINY, 16, 1).eval(), "generator_attention.attention", []
    layer = generator.get_submodule(name)
    handle = layer.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    with torch.no_grad(), watch(generator) as recorder:
        generator.images(noise(2))
        handle.remove()
    with torch.no_grad():
        q, k, _ = F.linear(seen[0], layer.qkv.weight, layer.qkv.bias).chunk(3, -1)
        expected = (q @ k.transpose(1, 2) / q.shape[-1] ** 0.5).softmax(-1)
    for row in range(2):
        torch.testing.assert_close(RecordedRow(recorder[name], row).rows(0, 64)[0], expected[row])
