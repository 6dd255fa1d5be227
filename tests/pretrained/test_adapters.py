"""LoRA: the initial update is 0, only the low-rank matrices are trained, and merging preserves the outputs."""

import torch
from torch import nn

from saccade.models.text.bert import Bert, BertConfig
from saccade.pretrained.adapters import LoraLinear, add_lora, merge_lora


def model():
    torch.manual_seed(1)
    encoder = Bert(BertConfig(dim=16, depth=2, heads=2, hidden=24, dropout=0.0, embedding_dropout=0.0), 30)
    for value in encoder.parameters():
        nn.init.normal_(value, std=0.3)
    return encoder


IDS = torch.randint(30, (2, 7), generator=torch.Generator().manual_seed(1))


def test_outputs_are_unchanged_at_first_and_only_the_low_rank_matrices_are_trained():
    plain, tuned = model(), model()
    add_lora(tuned, 3)
    torch.testing.assert_close(tuned(IDS), plain(IDS))
    trainable = {name for name, value in tuned.named_parameters() if value.requires_grad}
    assert trainable == {
        f"encoder.{layer}.{part}.{name}"
        for layer in (0, 1)
        for part in ("self.qkv", "self.out", "feed.up", "feed.down")
        for name in ("lora_a", "lora_b")
    }
    assert sum(value.numel() for value in tuned.parameters() if value.requires_grad) == 2 * 3 * (16 + 48 + 32 + 40 + 40)
    tuned(IDS).sum().backward()
    assert all((value.grad is not None) == value.requires_grad for value in tuned.parameters())


def test_names_of_the_weights_stay_and_merging_returns_an_equivalent_copy():
    plain, tuned = model(), model()
    add_lora(tuned, 2)
    assert plain.state_dict().keys() < tuned.state_dict().keys()
    with torch.no_grad():
        for name, value in tuned.named_parameters():
            if name.endswith("lora_b"):
                value.normal_(std=0.2)
    changed = tuned(IDS)
    assert not torch.allclose(changed, plain(IDS), atol=1e-2)
    before = {name: value.clone() for name, value in tuned.state_dict().items()}
    merged = merge_lora(tuned)
    assert merged.state_dict().keys() == plain.state_dict().keys()
    assert all(type(module) is not LoraLinear for module in merged.modules())
    torch.testing.assert_close(merged(IDS), changed, atol=1e-5, rtol=1e-5)
    assert all(torch.equal(value, before[name]) for name, value in tuned.state_dict().items())  # not modified
    assert torch.equal(tuned(IDS), changed)
    assert not {value.data_ptr() for value in merged.parameters()} & {value.data_ptr() for value in tuned.parameters()}


def test_a_model_without_adapters_is_returned_as_it_is():
    plain = model()
    assert merge_lora(plain) is plain
