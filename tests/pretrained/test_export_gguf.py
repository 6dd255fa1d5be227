"""Export to GGUF: the file has the logits and tokens of the model, in our reader and in llama.cpp."""

import json
import os
import re
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

from saccade.data.text.tokenizer_training import train_tokenizer
from saccade.data.text.tokenizers import Tokenizer
from saccade.errors import ModelFileError, ResourceError, UsageError
from saccade.nn.rotary_scaling import RotaryScaling
from saccade.pretrained.exports import gguf as gguf_export
from saccade.pretrained.exports.gguf import FAMILIES, export
from saccade.pretrained.exports.gguf_tokenizer import TEXTS
from saccade.pretrained.exports.parity import TEXT
from saccade.pretrained.gguf import read_gguf
from saccade.pretrained.processors import TextProcessor
from tests.pretrained.tiny_models import GPTS, LLAMA3, encoder, language_model, sentencepiece_processor

gguf = pytest.importorskip("gguf", reason="writes these files; installed with the [export] extra")

EXPORTABLE = [name for name, (family, _) in GPTS.items() if family in FAMILIES]
IDS = torch.randint(300, (2, 40), generator=torch.Generator().manual_seed(1))
LLAMA_PYTHON = os.environ.get("SACCADE_LLAMA_PYTHON", sys.executable)  # an interpreter that has llama-cpp-python
LLAMA = """
import json, sys
from llama_cpp import Llama
request = json.load(sys.stdin)
model = Llama(request["path"], logits_all=True, n_ctx=128, n_threads=1, type_k=0, type_v=0, verbose=False)
tokens = [model.tokenize(text.encode(), add_bos=True, special=True) for text in request["texts"]]
model.eval(request["ids"])
json.dump({"tokens": tokens, "logits": model.scores[: len(request["ids"])].tolist()}, sys.stdout)
"""


def logits(network, ids=IDS):
    with torch.no_grad():
        return network(ids)


@pytest.fixture(scope="session")
def llama_cpp():
    """Return a function that runs a file in llama.cpp; skip the test where that is not installed."""
    probe = subprocess.run([LLAMA_PYTHON, "-c", "import llama_cpp"], capture_output=True)
    if probe.returncode:
        pytest.skip("llama-cpp-python is not installed; SACCADE_LLAMA_PYTHON may name an interpreter that has it")

    def run(path, ids):
        request = json.dumps({"path": str(path), "ids": ids, "texts": TEXTS})
        done = subprocess.run([LLAMA_PYTHON, "-c", LLAMA], input=request, capture_output=True, text=True, check=True)
        return json.loads(done.stdout)

    return run


@pytest.mark.parametrize("name", EXPORTABLE)
def test_a_file_in_float32_has_the_same_logits_tokens_and_settings(name, tmp_path):
    pretrained, path = language_model(name), tmp_path / "a.gguf"
    notes = export(pretrained, path, "f32")
    assert notes[1:] == [
        "parity with the file read back: largest difference of logits 0 over 64 tokens, greedy continuation of 32 "
        "tokens equal",
        "equal weights; 228 tokens of texts equal",
    ]
    reopened, unused = read_gguf(path)
    assert torch.equal(logits(reopened.network), logits(pretrained.network)) and unused == ()
    processor = reopened.processor
    assert (processor.bos_id, processor.eos_ids, processor.chat_template) == (0, (0, 1), "{{ messages }}")
    assert processor.tokenizer.specials == {"<|endoftext|>": 0, "<|im_end|>": 1}
    assert {tensor.tensor_type.name for tensor in gguf.GGUFReader(path).tensors} == {"F32"}
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("name", [*EXPORTABLE, "gemma3-linear"])
def test_llama_cpp_computes_the_same_logits_and_tokens(name, tmp_path, llama_cpp):
    changes = {"rotary_scaling": RotaryScaling("linear", 4.0, 128)} if name == "gemma3-linear" else {}
    name, path = name.removesuffix("-linear") if changes else name, tmp_path / "a.gguf"
    pretrained = language_model(name, vocabulary=300, **changes)
    export(pretrained, path, "f32")
    out = llama_cpp(path, IDS[0].tolist())
    assert out["tokens"] == [pretrained.processor.encode_prompt(text) for text in TEXTS]
    expected = logits(pretrained.network)[0].numpy()
    # GELU is a table in half precision there.
    limit = 1e-2 if name in ("gpt2", "gemma3") else 1e-4
    assert np.abs(np.array(out["logits"]) - expected).max() < limit * np.abs(expected).max()


@pytest.mark.parametrize("gemma", [False, True])
def test_a_sentencepiece_tokenizer_gives_the_same_tokens(gemma, tmp_path, request):
    processor, path = sentencepiece_processor(gemma=gemma), tmp_path / "a.gguf"
    pretrained = replace(language_model("gemma3" if gemma else "mistral", vocabulary=430), processor=processor)
    notes = export(pretrained, path, "f32")
    assert re.fullmatch(r"equal weights; \d+ tokens of texts equal", notes[2])
    reopened = read_gguf(path)[0].processor
    expected = [processor.encode_prompt(text) for text in TEXTS]
    assert [reopened.encode_prompt(text) for text in TEXTS] == expected
    assert reopened.tokenizer.decode(expected[0]) == processor.tokenizer.decode(expected[0]) == TEXTS[0]
    assert request.getfixturevalue("llama_cpp")(path, IDS[0].tolist())["tokens"] == expected


def test_a_sentencepiece_tokenizer_with_other_rules_is_refused(tmp_path):
    rules = sentencepiece_processor().tokenizer.to_json()
    rules["normalizer"] = {"type": "Lowercase"}
    (tmp_path / "tokenizer.json").write_text(json.dumps(rules))
    processor = TextProcessor(Tokenizer.load(tmp_path / "tokenizer.json"))
    pretrained = replace(language_model("llama", vocabulary=430), processor=processor)
    with pytest.raises(UsageError, match=r"must only replace spaces, but has the normalizer \['Lowercase'\]"):
        export(pretrained, tmp_path / "a.gguf")


@pytest.mark.parametrize(("dtype", "limit"), [("f16", 2**-11), ("q8_0", 4.5e-3)])
@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_smaller_types_round_each_weight_by_the_step_of_the_type(name, dtype, limit, tmp_path):
    pretrained, path = language_model(name), tmp_path / "a.gguf"
    notes = export(pretrained, path, dtype)
    restored = read_gguf(path)[0].network
    for key, value in pretrained.network.named_parameters():
        error = (restored.get_parameter(key) - value).abs().max() / value.abs().max()
        assert error <= limit and (error > 0) == (value.dim() == 2 and "position" not in key), key
    assert "weights rounded by at most" in notes[2] and f"for llama.cpp, {dtype}," in notes[0]
    stored = {tensor.name: tensor.tensor_type.name for tensor in gguf.GGUFReader(path).tensors}
    assert stored["token_embd.weight"] == dtype.upper() and stored["output_norm.weight"] == "F32"


def test_rows_that_do_not_fit_the_blocks_are_stored_in_half_precision(tmp_path):
    notes = export(language_model("llama", hidden=80), tmp_path / "a.gguf", "q8_0")
    assert notes[0].endswith("; 2 tensors whose rows are no multiple of 32 as f16")


def test_the_beginning_token_of_prompts_is_kept(tmp_path):
    pretrained = language_model("llama")
    tokenizer = pretrained.processor.tokenizer
    rules = tokenizer.to_json()
    rules["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<|im_end|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<|im_end|>": {"id": "<|im_end|>", "ids": [1], "tokens": ["<|im_end|>"]}},
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(rules))
    tokenizer = type(tokenizer).load(tmp_path / "tokenizer.json")
    processor = replace(pretrained.processor, tokenizer=tokenizer, parse_special=True, bos_id=1)
    export(replace(pretrained, processor=processor), tmp_path / "a.gguf")
    assert read_gguf(tmp_path / "a.gguf")[0].processor.encode_prompt("The")[0] == 1
    other = replace(processor, bos_id=0)
    with pytest.raises(UsageError, match=r"nothing but the beginning token around a prompt for GGUF, but adds \[1\]"):
        export(replace(pretrained, processor=other), tmp_path / "b.gguf")


UNSUPPORTED = {
    "nanochat": (
        lambda: language_model("nanochat"),
        r"one of llama, qwen2, qwen3, smollm3, gemma3_text, gpt2, mistral, but this is a nanochat; train one of",
    ),
    "scaling of gemma3": (
        lambda: language_model("gemma3", rotary_scaling=LLAMA3),
        "rotary_scaling.kind must be none or linear for a gemma3 of llama.cpp, but is llama3",
    ),
    "windows of gemma3": (
        lambda: language_model("gemma3", full_layers=(1,)),
        r"full_layers must be \(5,\) for a gemma3 of llama.cpp, but is \(1,\)",
    ),
    "window": (
        lambda: language_model("mistral", window=16),
        "window must be 0 for a llama of llama.cpp, but is 16; export with --to hf",
    ),
    "yarn": (
        lambda: language_model("llama", rotary_scaling=RotaryScaling("yarn", 4.0, 32)),
        "rotary_scaling.kind must be none or linear or llama3 for a llama of llama.cpp, but is yarn",
    ),
    "activation": (
        lambda: language_model("gpt2", activation="gelu"),
        "activation must be gelu_tanh for a gpt2 of llama.cpp, but is gelu",
    ),
    "layers without positions": (
        lambda: language_model("smollm3", unrotated_layers=(1,)),
        r"unrotated_layers must be \(3,\) for a smollm3 of llama.cpp, but is \(1,\)",
    ),
    "encoder": (lambda: encoder("tagging"), "must be one of llama, .* but this is a bert"),
    "characters": (
        lambda: replace(language_model("llama"), processor=TextProcessor(train_tokenizer("characters", [TEXT], 100))),
        "must be byte-level or SentencePiece BPE for GGUF, but is a WordLevel with the decoder Fuse; train a language",
    ),
    "prefix space": (
        lambda: replace(
            language_model("llama"),
            processor=TextProcessor(train_tokenizer("bpe", [TEXT], 300, add_prefix_space=True)),
        ),
        "which is known of gpt-2, smollm, llama-bpe, qwen2, but this one splits by .*ByteLevel",
    ),
}


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_what_llama_cpp_does_not_compute_is_refused_by_name(name, tmp_path):
    make, message = UNSUPPORTED[name]
    with pytest.raises(UsageError, match=message):
        export(make(), tmp_path / "a.gguf")
    assert list(tmp_path.iterdir()) == []


def test_a_name_that_exists_or_is_no_gguf_file_and_an_unknown_type_are_refused(tmp_path):
    pretrained, taken = language_model("llama"), tmp_path / "taken.gguf"
    taken.write_text("mine")
    with pytest.raises(UsageError, match=r"taken.gguf must be a new file, but exists; name another one"):
        export(pretrained, taken)
    with pytest.raises(UsageError, match=r"the file must end in .gguf, but is .*out; name it .*out.gguf"):
        export(pretrained, tmp_path / "out")
    with pytest.raises(UsageError, match="dtype must be one of f32, f16, q8_0 for gguf, but is 'q4_0'"):
        export(pretrained, tmp_path / "a.gguf", "q4_0")
    assert taken.read_text() == "mine"


def test_a_missing_package_names_the_command_that_installs_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(UsageError, match=r"pip install saccade\[gguf\]"):
        export(language_model("llama"), tmp_path / "a.gguf")


def test_a_file_that_differs_is_refused_and_removed(tmp_path, monkeypatch):
    pretrained = language_model("llama")
    write = gguf_export._write

    def damaged(path, name, architecture, values, tensors, dtype):
        tensors["blk.0.ffn_up.weight"] = tensors["blk.0.ffn_up.weight"] * 1.01
        return write(path, name, architecture, values, tensors, dtype)

    monkeypatch.setattr(gguf_export, "_write", damaged)
    with pytest.raises(ModelFileError, match=r"weights of the file read back must differ by at most 1.0e-06 .* but"):
        export(pretrained, tmp_path / "a.gguf", "f32")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(gguf_export, "_write", full)
    with pytest.raises(ResourceError, match="no space left to save"):
        export(pretrained, tmp_path / "a.gguf", "f32")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_weight_that_is_not_finite_is_refused_by_name(value, tmp_path):
    pretrained = language_model(EXPORTABLE[0])
    with torch.no_grad():
        pretrained.network.get_parameter("decoder.0.feed.up.weight")[1, 2] = value
    with pytest.raises(ModelFileError, match=r"'transformer\.h\.0\.mlp\.c_fc\.weight' must be finite, but has NaN"):
        export(pretrained, tmp_path / "a.gguf", "f16")
    assert not (tmp_path / "a.gguf").exists()
