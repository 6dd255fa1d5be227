"""LoRA: nothing changes at first, only the small matrices learn, and a merged model does the same."""

import torch
from torch import nn

from saccade.models.text.bert import Bert, BertConfig
from saccade.pretrained import lora


def model():
    torch.manual_seed(1)
    made = Bert(BertConfig(dim=16, depth=2, heads=2, hidden=24, dropout=0.0, embedding_dropout=0.0), 30)
    for value in made.parameters():
        nn.init.normal_(value, std=0.3)
    return made


IDS = torch.randint(30, (2, 7), generator=torch.Generator().manual_seed(1))


def test_at_first_nothing_changes_and_only_the_small_matrices_learn():
    plain, tuned = model(), model()
    lora.add(tuned, 3)
    torch.testing.assert_close(tuned(IDS), plain(IDS))
    learned = {name for name, value in tuned.named_parameters() if value.requires_grad}
    assert learned == {
        f"encoder.{layer}.{part}.{name}"
        for layer in (0, 1)
        for part in ("self.qkv", "self.out", "feed.up", "feed.down")
        for name in ("lower", "upper")
    }
    assert sum(value.numel() for value in tuned.parameters() if value.requires_grad) == 2 * 3 * (16 + 48 + 32 + 40 + 40)
    tuned(IDS).sum().backward()
    assert all((value.grad is not None) == value.requires_grad for value in tuned.parameters())


def test_names_of_the_old_weights_stay_and_merging_keeps_what_was_learned():
    plain, tuned = model(), model()
    lora.add(tuned, 2)
    assert plain.state_dict().keys() < tuned.state_dict().keys()
    with torch.no_grad():
        for name, value in tuned.named_parameters():
            if name.endswith("upper"):
                value.normal_(std=0.2)
    changed = tuned(IDS)
    assert not torch.allclose(changed, plain(IDS), atol=1e-2)
    lora.merge(tuned)
    assert tuned.state_dict().keys() == plain.state_dict().keys()
    assert all(type(module) is not lora.LoraLinear for module in tuned.modules())
    torch.testing.assert_close(tuned(IDS), changed, atol=1e-5, rtol=1e-5)
