"""EfficientNet-Lite: equal to the published implementation, with batch norms folded into the convolutions."""

import json

import pytest
import torch
from safetensors.torch import save_file

from saccade.errors import ModelFileError
from saccade.models.vision.efficientnet import EfficientNet, EfficientNetConfig
from saccade.pretrained.opening import read_network

SMALL = EfficientNetConfig(stages=((1, 3, 2, 1, 8), (2, 5, 2, 2, 8)), stem=8, dim=24)


def pixels(height, width):
    generator = torch.Generator().manual_seed(1)
    return torch.randint(0, 256, (2, 3, height, width), dtype=torch.uint8, generator=generator)


def random_network(size):
    """Return the published network with random weights and statistics."""
    library = pytest.importorskip("efficientnet_lite_pytorch", reason="the oracle; installed with the [test] extra")
    torch.manual_seed(1)
    network = library.EfficientNet.from_name("efficientnet-lite0", image_size=size).eval()
    for module in network.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            torch.nn.init.uniform_(module.running_var, 0.5, 2.0)
            torch.nn.init.normal_(module.running_mean, std=0.2)
            torch.nn.init.uniform_(module.weight, 0.5, 1.5)
            torch.nn.init.normal_(module.bias, std=0.2)
    return network


@pytest.mark.parametrize("size", [(64, 64), (75, 96), (33, 50)])
def test_features_are_those_of_the_published_network(size, tmp_path):
    theirs = random_network(list(size))
    save_file(theirs.state_dict(), tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "efficientnet_lite"}))
    loaded = read_network(tmp_path)
    assert loaded.unused == () and sum(parameter.numel() for parameter in loaded.network.parameters()) == 3_350_000
    rows, columns = loaded.network.grid(*size)
    with torch.no_grad():
        ours = loaded.network(pixels(*size))
        features = theirs.extract_features(loaded.network.normalize(pixels(*size)))
    assert ours.shape == (2, rows * columns, 1280) and features.shape[-2:] == (rows, columns)
    torch.testing.assert_close(ours, features.permute(0, 2, 3, 1).flatten(1, 2), atol=1e-4, rtol=1e-4)


def test_the_grid_of_lite0_has_a_cell_for_32_x_32_pixels():
    with torch.device("meta"):
        network = EfficientNet(EfficientNetConfig())
    assert network.grid(224, 224) == (7, 7) and network.grid(225, 31) == (8, 1) and network.dim == 1280
    assert network.config.depth == 16


def test_it_can_be_fine_tuned():
    network = EfficientNet(SMALL)
    out = network(pixels(16, 24))
    assert out.shape == (2, 6, 24) and network.grid(16, 24) == (2, 3)
    out.sum().backward()
    assert all(parameter.grad is not None for parameter in network.parameters())


def test_a_wrong_stage_is_refused_with_its_numbers():
    with pytest.raises(ValueError, match=r"a stage must be 5 numbers from 1, but is \[1, 3\]"):
        EfficientNetConfig(stages=((1, 3),))


def test_a_folder_without_a_tensor_is_refused_by_name(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "efficientnet_lite"}))
    save_file({f"x{number}": torch.zeros(1) for number in range(20)}, tmp_path / "model.safetensors")
    with pytest.raises(ModelFileError, match=r"the tensor '_conv_stem\.weight' is missing"):
        read_network(tmp_path)
