"""Every test begins from the same random numbers."""

import pytest
import torch
from hypothesis import settings

settings.register_profile("saccade", deadline=None, max_examples=25, derandomize=True)
settings.load_profile("saccade")


@pytest.fixture(autouse=True)
def seeded():
    """One seed, and one thread: tensors this small only wait for a second one."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def bert_folder(tmp_path_factory):
    """A tiny random BERT as transformers writes it: words of one letter, two letters and cats and dogs."""
    transformers = pytest.importorskip("transformers", reason="the oracle; installed with the [test] extra")
    folder = tmp_path_factory.mktemp("bert")
    letters = "abcdefghijklmnopqrstuvwxyz0123456789"
    words = ["the", "cat", "dog", "sat", "ran", "red", "blue", "on", "mat", ".", ",", "?", "!", "-"]
    vocabulary = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        *words,
        *letters,
        *(f"##{letter}" for letter in letters),
    ]
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in vocabulary))
    (folder / "tokenizer_config.json").write_text('{"do_lower_case": true}')
    config = transformers.BertConfig(
        vocab_size=len(vocabulary) + 3,  # filled up, as many published ones are
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=40,
    )
    torch.manual_seed(5)
    model = transformers.BertForPreTraining(config)
    with torch.no_grad():
        for value in model.parameters():
            value.normal_(std=0.3)
    model.save_pretrained(folder)
    return folder
