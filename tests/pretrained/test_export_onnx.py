"""Export to ONNX: onnxruntime computes what the model does, for other sizes than the example; the rest is refused."""

import json
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

import saccade
from saccade.errors import ModelFileError, UsageError
from saccade.models.vision.architectures import ENCODERS
from saccade.models.vision.classifier import ImageClassifier
from saccade.models.vision.resnet import ResNetConfig
from saccade.nn.rotary_scaling import RotaryScaling
from saccade.pretrained.exports import onnx as onnx_export
from saccade.pretrained.exports.onnx import export
from saccade.pretrained.opening import open_pretrained
from tests.pretrained import tiny_whisper
from tests.pretrained.tiny_models import GPTS, encoder, image_classifier, language_model, randomize

runtime = pytest.importorskip("onnxruntime", reason="runs these files; installed with the [export] extra")
onnx = pytest.importorskip("onnx", reason="reads these files; installed with the [export] extra")


def session(folder):
    return runtime.InferenceSession(str(folder / "model.onnx"), providers=["CPUExecutionProvider"])


def ids_of(rows, tokens, vocabulary=100):
    return torch.randint(vocabulary, (rows, tokens), generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize("name", [*GPTS, "yarn"])
def test_a_language_model_has_the_same_logits_with_and_without_a_cache(name, tmp_path):
    changes = {"rotary_scaling": RotaryScaling("yarn", 4.0, 32, 1.14)} if name == "yarn" else {}
    pretrained, folder = language_model("llama" if name == "yarn" else name, **changes), tmp_path / "out"
    notes = export(pretrained, folder)
    assert notes[1].startswith("parity with onnxruntime: largest difference of logits ")
    assert notes[1].endswith(" over 121 tokens in 5 batches, greedy continuation of 32 tokens equal")
    graph, config, ids = session(folder), pretrained.config, ids_of(4, 50)
    names = [entry.name for entry in graph.get_inputs()]
    assert names[:3] == ["input_ids", "past_key_values.0.key", "past_key_values.0.value"]
    assert len(names) == 1 + 2 * config.depth
    empty = np.zeros((4, config.kv_heads or config.heads, 0, config.head_width), np.float32)
    with torch.no_grad():
        expected = pretrained.network(ids).numpy()
    out = graph.run(None, {**dict.fromkeys(names, empty), "input_ids": ids[:, :21].numpy()})
    np.testing.assert_allclose(out[0], expected[:, :21], atol=1e-4)
    step = graph.run(None, {**dict(zip(names[1:], out[1:], strict=True)), "input_ids": ids[:, 21:].numpy()})
    np.testing.assert_allclose(step[0], expected[:, 21:], atol=1e-4)
    assert sorted(path.name for path in folder.iterdir()) == [
        *("README.md", "model.onnx", "tokenizer.json", "tokenizer_config.json"),
    ]


OUTPUTS = {
    "masked_language_model": ["logits", "next_sentence_logits"],
    "text_classification": ["logits"],
    "regression": ["logits"],
    "tagging": ["logits"],
    "question_answering": ["start_logits", "end_logits"],
    "sentence_vectors": ["last_hidden_state", "sentence_embedding"],
}


@pytest.mark.parametrize("task", OUTPUTS)
def test_an_encoder_has_the_same_outputs_with_padding(task, tmp_path):
    pretrained, folder = encoder(task), tmp_path / "out"
    notes = export(pretrained, folder)
    assert f"largest difference of {' and '.join(OUTPUTS[task])} " in notes[1]
    graph = session(folder)
    assert [entry.name for entry in graph.get_outputs()] == OUTPUTS[task]
    ids, keep = ids_of(5, 29), torch.arange(29) < torch.tensor([[29], [3], [17], [1], [29]])
    segments = (torch.arange(29) > 11).long().expand(5, -1)
    feed = {"input_ids": ids, "attention_mask": keep.long(), "token_type_ids": segments}
    out = graph.run(None, {name: value.numpy() for name, value in feed.items()})
    with torch.no_grad():
        features = pretrained.network.bert(ids, keep, segments)
        network = pretrained.network
        if task == "masked_language_model":
            expected = [network.mlm(features), network.next_sentence(network.bert.pooled(features))]
        elif task == "sentence_vectors":
            expected = [features, network.pooling(features, keep)]
        elif task == "question_answering":
            expected = list(network.logits(features).unbind(-1))
        elif task == "tagging":
            expected = [network.logits(features)]
        else:
            expected = [network.pooled_logits(features, keep)]
    if task == "regression":
        expected = [3.0 + 2.0 * expected[0]]  # the number itself
    for actual, value in zip(out, expected, strict=True):
        real = keep.numpy() if value.dim() > 1 and value.shape[1] == 29 else np.ones(len(value), bool)
        np.testing.assert_allclose(actual[real], value.numpy()[real], atol=1e-4)
    described = {entry.key: entry.value for entry in onnx.load(folder / "model.onnx").metadata_props}
    assert described["task"] == task and described["max_positions"] == "40"
    if task in ("tagging", "text_classification"):
        assert json.loads(described["labels"]) == ["no", "maybe", "yes"]


@pytest.mark.parametrize("position", ["rotary", "sinusoidal"])
def test_an_encoder_of_our_own_architecture_is_exported_too(position, tmp_path):
    changes = {"position": position, "norm": "plain_rms", "score": "cosine", "norm_first": True, "segments": 0}
    pretrained = encoder("text_classification", **changes, activation="squared_relu", bias=False)
    export(pretrained, tmp_path / "out")
    graph = session(tmp_path / "out")
    assert [entry.name for entry in graph.get_inputs()] == ["input_ids", "attention_mask"]
    ids = ids_of(2, 70)  # its positions have no end
    out = graph.run(None, {"input_ids": ids.numpy(), "attention_mask": np.ones((2, 70), np.int64)})
    with torch.no_grad():
        expected = pretrained.network.pooled_logits(pretrained.network.bert(ids), None)
    np.testing.assert_allclose(out[0], expected.numpy(), atol=1e-4)


@pytest.mark.parametrize("changes", [{}, {"pooling": "mean", "image_width": 40}, {"position": "sinusoidal"}], ids=str)
def test_an_image_classifier_reads_bytes_of_any_number_of_images(changes, tmp_path):
    pretrained, folder = image_classifier(**changes), tmp_path / "out"
    notes = export(pretrained, folder)
    width = changes.get("image_width", 24)
    assert "largest difference of logits " in notes[1] and f"over 4 images of 24 x {width} pixels" in notes[1]
    pixels = torch.randint(256, (7, 3, 24, width), dtype=torch.uint8)
    (out,) = session(folder).run(None, {"pixel_values": pixels.numpy()})
    with torch.no_grad():
        np.testing.assert_allclose(out, pretrained.network(pixels).numpy(), atol=1e-4)
    assert (folder / "preprocessor_config.json").exists()


@pytest.mark.parametrize("name", ["cnn", "cnn+attention"])
def test_a_convolutional_classifier_is_exported(name, tmp_path):
    create = ENCODERS[name][1]
    network = ImageClassifier(create(ResNetConfig(widths=(8, 16), heads=2), 24), 3)
    classifier = replace(image_classifier(), network=randomize(network), config=network.encoder.config)
    export(classifier, tmp_path / "out")
    pixels = torch.randint(256, (2, 3, 24, 24), dtype=torch.uint8)
    (out,) = session(tmp_path / "out").run(None, {"pixel_values": pixels.numpy()})
    with torch.no_grad():
        np.testing.assert_allclose(out, network(pixels).numpy(), atol=1e-4)


def test_what_cannot_be_exported_exactly_is_refused_by_name(tmp_path, marian_folder):
    tiny_whisper.write(tmp_path / "whisper")
    whisper = open_pretrained(str(tmp_path / "whisper"))
    translator = open_pretrained(str(marian_folder))
    for pretrained, kind in ((whisper, "whisper"), (translator, "marian")):
        with pytest.raises(
            UsageError, match=rf"must be a language model, an encoder .* but this is a {kind}; see docs"
        ):
            export(pretrained, tmp_path / "out")
    dynamic = language_model("llama", rotary_scaling=RotaryScaling("dynamic", 2.0, 64))
    with pytest.raises(UsageError, match=r"rotary_scaling.kind must not be dynamic for ONNX"):
        export(dynamic, tmp_path / "out")
    with pytest.raises(UsageError, match="whisper must be a new or an empty folder, but is not empty"):
        export(dynamic, tmp_path / "whisper")
    assert [path.name for path in tmp_path.iterdir()] == ["whisper"]


@pytest.mark.parametrize("package", ["onnx", "onnxscript", "onnxruntime"])
def test_a_missing_package_names_the_command_that_installs_it(package, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(
        UsageError, match=rf"needs the package {package}; install it with `pip install saccade\[export\]`"
    ):
        export(language_model("gpt2"), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_graph_that_differs_is_refused_and_removed(tmp_path, monkeypatch):
    expressible, other = onnx_export.expressible, language_model("gpt2")
    monkeypatch.setattr(onnx_export, "expressible", lambda _: expressible(language_model("gpt2").network))
    with torch.no_grad():
        other.network.embedding.weight.mul_(1.1)
    with pytest.raises(
        ModelFileError, match=r"logits of onnxruntime must differ by at most .* but differ by .*; nothing"
    ):
        export(other, tmp_path / "out")
    monkeypatch.setattr(onnx_export, "expressible", lambda network: network.eval())  # with complex numbers
    with pytest.raises(UsageError, match=r"torch cannot express this network in ONNX: .*; export it with --to hf"):
        export(language_model("llama"), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_format_and_a_type_that_do_not_exist_are_refused(bert_folder, tmp_path):
    model = saccade.load(bert_folder, device="cpu")
    with pytest.raises(
        UsageError, match=r"format must be one of hf, onnx, gguf, ctranslate2, peft, but is 'onx'; did you"
    ):
        model.export(tmp_path / "out", format="onx")
    with pytest.raises(UsageError, match=r"dtype must be f32 for onnx, but is 'q8_0'; gguf has f32, f16, q8_0"):
        model.export(tmp_path / "out", format="onnx", dtype="q8_0")
