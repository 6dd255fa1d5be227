"""Export to CTranslate2: its logits, log probabilities and greedy texts are those of the model; the rest is refused."""

import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

import saccade
from saccade.core import Pretrained
from saccade.data.text.tokenizer_training import train_tokenizer
from saccade.errors import ModelFileError, UsageError
from saccade.models import presets
from saccade.models.seq2seq.interface import Vocabularies
from saccade.models.seq2seq.transformer import Translator, TranslatorConfig
from saccade.nn.rotary_scaling import RotaryScaling
from saccade.pretrained.exports import ctranslate2 as ctranslate2_export
from saccade.pretrained.exports.ctranslate2 import export
from saccade.pretrained.exports.parity import TEXT, continue_greedily
from saccade.pretrained.opening import open_pretrained
from saccade.pretrained.processors import TextProcessor
from tests.pretrained import tiny_whisper
from tests.pretrained.tiny_models import GPTS, encoder, language_model, randomize

ctranslate2 = pytest.importorskip("ctranslate2", reason="runs these folders; installed with the [export] extra")

IDS = torch.randint(300, (2, 40), generator=torch.Generator().manual_seed(1))
PUBLISHED = {**presets.TRANSLATION["tiny"]["model"]["transformer"], "dim": 32, "depth": 2, "decoder_depth": 1}
VARIANTS = {
    "yarn": {"rotary_scaling": RotaryScaling("yarn", 4.0, 32, 1.14)},
    "cosine": {"score": "cosine"},
    "qk_norm": {"score": "qk_norm", "embedding_norm": True, "logit_softcap": 3.0},
    "geglu": {"activation": "geglu", "head_dim": 32},
    "wide window": {"window": 500},
    "norms": {"update_norm": True, "norm": "plain_rms", "attention_scale": 0.1, "scale_embedding": True},
    "no positions": {"position": "none"},
}
SPECIALS = ("<|begin|>", "<|endoftext|>")


def generator(folder):
    return ctranslate2.Generator(str(folder), device="cpu", compute_type="float32", intra_threads=1)


def check_language_model(pretrained, folder):
    notes = export(pretrained, folder)
    assert notes[0] == f"{folder}: language_model for CTranslate2, float32"
    assert "over 115 tokens in 2 batches, greedy continuation of 32 tokens equal" in notes[1]
    model, network = generator(folder), pretrained.network
    with torch.no_grad():
        expected = network(IDS).numpy()
    assert np.abs(np.array(model.forward_batch(IDS.tolist())) - expected).max() < 2e-5
    names = [pretrained.processor.tokenizer.token(number) for number in IDS[0].tolist()]
    options = {"max_length": 20, "sampling_topk": 1, "include_prompt_in_result": False, "end_token": []}
    (result,) = model.generate_batch([names], **options)
    assert result.sequences_ids[0] == continue_greedily(network, IDS[0].tolist(), 20)
    assert (folder / "tokenizer.json").exists()


@pytest.mark.parametrize("name", [name for name in GPTS if name not in ("gemma3", "nanochat")])
def test_a_language_model_has_the_same_logits(name, tmp_path):
    check_language_model(language_model(name), tmp_path / "out")


@pytest.mark.parametrize("name", VARIANTS)
def test_a_variation_of_a_llama_has_the_same_logits(name, tmp_path):
    check_language_model(language_model("llama", **VARIANTS[name]), tmp_path / "out")


def translator(joint=True, **changes):
    """A translation Transformer with random weights and its tokenizers."""
    config = TranslatorConfig(**{**PUBLISHED, **changes})
    source = train_tokenizer("bpe", [TEXT], 290, SPECIALS)
    target = source if joint else train_tokenizer("words", [TEXT], 60, SPECIALS)
    network = randomize(Translator(config, Vocabularies(source.size, target.size, joint=joint)))
    ids = {"eos_ids": (target.specials["<|endoftext|>"],), "decoder_start_id": target.specials["<|begin|>"]}
    processor = TextProcessor(source, None if joint else target, **ids)
    return Pretrained(network, config, processor, None, "translation")


TRANSLATORS = {
    "published": {},
    "two vocabularies": {"joint": False, "tie_embeddings": False},
    "pre-norm": {"norm_first": True, "head_bias": True, "activation": "silu"},
    "rotary": {"position": "rotary", "norm": "rms", "bias": False, "activation": "swiglu", "embedding_norm": True},
    "plain norms": {"position": "none", "norm": "plain_rms", "norm_first": True, "activation": "reglu"},
    "groups": {"kv_heads": 2, "norm_first": True},
}


@pytest.mark.parametrize("name", TRANSLATORS)
def test_a_translator_has_the_same_log_probabilities_and_translations(name, tmp_path):
    pretrained, folder = translator(**TRANSLATORS[name]), tmp_path / "out"
    notes = export(pretrained, folder)
    assert "largest difference of log probabilities" in notes[1] and notes[1].endswith("tokens equal")
    model = ctranslate2.Translator(str(folder), device="cpu", compute_type="float32", intra_threads=1)
    processor, network = pretrained.processor, pretrained.network
    source = processor.tokenizer.encode("The eye jumps.")
    target = (processor.target_tokenizer or processor.tokenizer).encode("it rests for about a second")
    tokens = [processor.tokenizer.token(number) for number in source]
    wanted = [(processor.target_tokenizer or processor.tokenizer).token(number) for number in target]
    end = processor.tokenizer.specials["<|endoftext|>"]
    ids = torch.tensor([[*source, end]])
    with torch.no_grad():
        logits = network(ids, torch.ones_like(ids).bool(), torch.tensor([[processor.decoder_start_id, *target]]))
    labels = torch.tensor([*target, processor.eos_ids[0]])
    expected = logits[0].log_softmax(-1)[torch.arange(len(labels)), labels]
    scored = model.score_batch([tokens], [wanted])[0].log_probs
    assert np.abs(np.array(scored) - expected.numpy()).max() < 1e-4


def test_a_marian_is_exported_with_its_two_tokenizers(marian_folder, tmp_path):
    pretrained = saccade.load(str(marian_folder), device="cpu").task.to_pretrained()
    assert export(pretrained, tmp_path / "out")[1].endswith("tokens equal")


@pytest.mark.parametrize("multilingual", [False, True])
def test_a_whisper_encodes_and_writes_the_same(multilingual, tmp_path):
    tiny_whisper.write(tmp_path / "theirs", multilingual=multilingual)
    pretrained = open_pretrained(str(tmp_path / "theirs"))
    notes = export(pretrained, tmp_path / "out")
    assert "largest difference of encoded vectors" in notes[1] and notes[1].endswith("tokens equal")
    assert (tmp_path / "out" / "preprocessor_config.json").exists()
    model = ctranslate2.models.Whisper(str(tmp_path / "out"), device="cpu", compute_type="float32")
    assert model.n_mels == 12


UNSUPPORTED = {
    "activation": (lambda: language_model("nanochat"), "activation must be one of relu, .* but is squared_relu"),
    "window": (lambda: language_model("gemma3"), "window must be 0 for CTranslate2, but is 8; export with --to hf"),
    "dynamic": (
        lambda: language_model("llama", rotary_scaling=RotaryScaling("dynamic", 2.0, 64)),
        "rotary_scaling.kind must be none, linear, yarn or llama3 for CTranslate2, but is dynamic",
    ),
    "epsilon": (
        lambda: language_model("gpt2", score="qk_norm"),
        r"epsilon must be that of the score \(1e-06\) for CTranslate2, but is 1e-05",
    ),
    "encoder": (
        lambda: encoder("tagging"),
        r"must be a language model \(GPT-2, .*\), a translation Transformer .* or a Whisper, but this is a bert",
    ),
    "score of a translator": (
        lambda: translator(score="cosine", norm="rms", bias=False),
        "score must be scaled_dot for CTranslate2, but is cosine",
    ),
    "own translator": (lambda: translator(activation="squared_relu"), "activation must be one of .* but is squared"),
}


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_what_ctranslate2_does_not_compute_is_refused_by_name(name, tmp_path):
    make, message = UNSUPPORTED[name]
    with pytest.raises(UsageError, match=message):
        export(make(), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_in_use_a_missing_package_and_a_difference_leave_nothing(tmp_path, monkeypatch):
    pretrained = language_model("llama")
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "mine").write_text("mine")
    with pytest.raises(UsageError, match="used must be a new or an empty folder, but is not empty"):
        export(pretrained, tmp_path / "used")
    other = language_model("llama").network
    with torch.no_grad():
        other.head.weight[3] += 1

    def damaged(network):
        return ctranslate2_export_spec(other)

    ctranslate2_export_spec = ctranslate2_export.decoder_model_spec
    monkeypatch.setattr(ctranslate2_export, "decoder_model_spec", damaged)
    with pytest.raises(
        ModelFileError, match=r"logits of CTranslate2 .* must differ by at most .*; nothing was written"
    ):
        export(pretrained, tmp_path / "out")
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    with pytest.raises(
        UsageError, match=r"needs the package ctranslate2; install it with `pip install saccade\[export\]`"
    ):
        export(replace(pretrained), tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["used"]
