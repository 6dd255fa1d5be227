"""LoRA adapters in peft's layout: peft computes what we do, and we compute what peft does; the rest is refused."""

import copy
import json
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file

import saccade
from saccade.data.text.tokenizer_training import train_tokenizer
from saccade.errors import ModelFileError, UsageError
from saccade.models.text.bert import EncoderInputs
from saccade.pretrained.adapters import LoraLinear, add_lora, merge_lora
from saccade.pretrained.exports.hf import export as export_hf
from saccade.pretrained.exports.parity import TEXT
from saccade.pretrained.exports.peft import export
from saccade.pretrained.opening import open_pretrained
from tests.pretrained.tiny_models import encoder, image_classifier, language_model

peft = pytest.importorskip("peft", reason="the oracle; installed with the [test] extra")
transformers = pytest.importorskip("transformers", reason="the oracle; installed with the [test] extra")

GPT_IDS = torch.randint(300, (2, 20), generator=torch.Generator().manual_seed(1))
BERT_IDS = torch.randint(100, (2, 20), generator=torch.Generator().manual_seed(1))
AUTO = {
    "text_classification": "AutoModelForSequenceClassification",
    "regression": "AutoModelForSequenceClassification",
    "tagging": "AutoModelForTokenClassification",
    "question_answering": "AutoModelForQuestionAnswering",
}


def adapted(pretrained, part="", rank=3):
    """Add LoRA with random updates to a network, or to a part of it."""
    network = pretrained.network
    add_lora(network.get_submodule(part) if part else network, rank)
    draw = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for layer in network.modules():
            if isinstance(layer, LoraLinear):
                layer.lora_b.copy_(0.2 * torch.randn(layer.lora_b.shape, generator=draw))
    return pretrained


def without_updates(pretrained):
    """Return a copy of a model without the updates of its adapters: its base."""
    network = copy.deepcopy(pretrained.network)
    with torch.no_grad():
        for layer in network.modules():
            if isinstance(layer, LoraLinear):
                layer.lora_b.zero_()
    return replace(pretrained, network=merge_lora(network))


@pytest.mark.parametrize("name", ["gpt2", "llama", "mistral", "qwen3", "gemma3", "nanochat"])
def test_a_language_model_opens_in_peft_on_the_exported_base(name, tmp_path):
    pretrained = language_model(name, vocabulary=300)
    head = pretrained.network.head
    adapted(pretrained, "decoder")
    assert head.weight is pretrained.network.head.weight
    head.requires_grad_(False), pretrained.network.embedding.requires_grad_(False)
    export_hf(without_updates(pretrained), tmp_path / "base")
    notes = export(pretrained, tmp_path / "adapter")
    assert notes[1].startswith("parity with the adapter read back: largest difference of logits")
    base = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "base").eval()
    theirs = peft.PeftModel.from_pretrained(base, tmp_path / "adapter").eval()
    with torch.no_grad():
        expected = pretrained.network(GPT_IDS)
        torch.testing.assert_close(theirs(GPT_IDS).logits, expected, atol=1e-5, rtol=1e-4)
        reopened = open_pretrained(str(tmp_path / "adapter"), open_pretrained(str(tmp_path / "base")))
        torch.testing.assert_close(reopened.network(GPT_IDS), expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("task", AUTO)
def test_an_encoder_with_a_head_opens_in_peft_on_a_base_without_it(task, tmp_path):
    pretrained = adapted(encoder(task), "bert")
    base = encoder("masked_language_model")
    base.network.bert.load_state_dict(without_updates(pretrained).network.bert.state_dict(), strict=False)
    export_hf(base, tmp_path / "base")
    export(pretrained, tmp_path / "adapter")
    labels = {"num_labels": 1} if task == "regression" else {"num_labels": 3} if task != "question_answering" else {}
    theirs = getattr(transformers, AUTO[task]).from_pretrained(tmp_path / "base", **labels)
    theirs = peft.PeftModel.from_pretrained(theirs, tmp_path / "adapter").eval()
    config = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    assert (config["r"], config["lora_alpha"]) == (3, 3) and config["modules_to_save"]
    segments = (torch.arange(20) > 9).long().expand(2, -1)
    inputs = EncoderInputs(BERT_IDS, None, segments)
    with torch.no_grad():
        expected = pretrained.network(inputs)
        out = theirs.base_model(BERT_IDS, token_type_ids=segments)  # peft's own wrapper drops the token types
        if task == "question_answering":
            actual = torch.stack((out.start_logits, out.end_logits), -1)
        else:
            actual = out.logits[:, 0] if task == "regression" else out.logits
        wanted = expected * 2.0 + 3.0 if task == "regression" else expected
        torch.testing.assert_close(actual, wanted, atol=1e-5, rtol=1e-4)
        reopened = open_pretrained(str(tmp_path / "adapter"), open_pretrained(str(tmp_path / "base")))
        torch.testing.assert_close(reopened.network(inputs), wanted, atol=1e-5, rtol=1e-4)
    assert reopened.task == task and reopened.head.labels == pretrained.head.labels


@pytest.mark.parametrize("kind", ["Roberta", "DistilBert"])
def test_the_heads_of_other_encoders_are_saved_beside_the_adapter(kind, tmp_path):
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24}
    small = {"dim": 16, "n_layers": 1, "n_heads": 2, "hidden_dim": 24} if kind == "DistilBert" else sizes
    classes = {"vocab_size": 300, "max_position_embeddings": 42, "num_labels": 3}
    config = getattr(transformers, f"{kind}Config")(**small, **classes)
    base = getattr(transformers, f"{kind}ForSequenceClassification")(config).eval()
    base.save_pretrained(tmp_path / "base")
    if kind == "Roberta":
        tokenizer = train_tokenizer("bpe", [TEXT], 300, ("<s>", "<pad>", "</s>", "<unk>", "<mask>"))
    else:
        tokenizer = train_tokenizer("wordpiece", [TEXT], 200)
    tokenizer.save(tmp_path / "base" / "tokenizer.json")
    pretrained = adapted(open_pretrained(str(tmp_path / "base")), "bert")
    export(pretrained, tmp_path / "adapter")
    with torch.no_grad():
        for value in base.classifier.parameters():
            value.zero_()  # what the adapter does not replace would show
    theirs = peft.PeftModel.from_pretrained(base, tmp_path / "adapter").eval()
    ids = BERT_IDS.clamp(3, 80)
    with torch.no_grad():
        expected = pretrained.network(EncoderInputs(ids))
        torch.testing.assert_close(theirs(ids).logits, expected, atol=1e-5, rtol=1e-4)


def test_an_adapter_of_a_sentence_encoder_has_names_without_a_prefix(tmp_path):
    pretrained = adapted(encoder("sentence_vectors"), "bert")
    export_hf(without_updates(pretrained), tmp_path / "base")
    export(pretrained, tmp_path / "adapter")
    base = transformers.AutoModel.from_pretrained(tmp_path / "base")
    theirs = peft.PeftModel.from_pretrained(base, tmp_path / "adapter").eval()
    reopened = open_pretrained(str(tmp_path / "adapter"), open_pretrained(str(tmp_path / "base")))
    with torch.no_grad():
        expected = pretrained.network.bert(BERT_IDS)
        torch.testing.assert_close(theirs(BERT_IDS).last_hidden_state, expected, atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(reopened.network.bert(BERT_IDS), expected, atol=1e-5, rtol=1e-4)
    assert reopened.task == "sentence_vectors" and reopened.head.modes == ("mean", "cls")


def test_a_run_is_exported_and_opened_again_by_its_folder(bert_folder, tmp_path):
    data = tmp_path / "pets.csv"
    data.write_text("text,label\n" + "the cat sat,cat\nthe dog ran,dog\n" * 20)
    settings = {"base": str(bert_folder), "tune": "lora", "rank": 2, "pool": "tanh", "steps": 12, "device": "cpu"}
    run = saccade.train(data, task="text_classification", root=tmp_path / "runs", progress=False, **settings)
    model = saccade.load(run, device="cpu")
    notes = model.export(tmp_path / "adapter", format="peft")
    assert notes[0].startswith(f"{tmp_path / 'adapter'}: a LoRA adapter of {bert_folder} for peft, 12 layers, 0.0 MB")
    again = saccade.load(tmp_path / "adapter", device="cpu")
    texts = ["the red cat sat on the mat", "a dog ran"]
    for text in texts:
        assert again(text).scores == pytest.approx(model(text).scores, abs=1e-5)
    base = transformers.AutoModelForSequenceClassification.from_pretrained(bert_folder, num_labels=2)
    theirs = peft.PeftModel.from_pretrained(base, tmp_path / "adapter").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "adapter")
    with torch.no_grad():
        logits = theirs(**tokenizer(texts[0], return_tensors="pt")).logits[0]
    expected = dict(zip(model.task.labels, logits.softmax(-1).tolist(), strict=True))
    assert model(texts[0]).scores == pytest.approx(expected, abs=1e-5)


def peft_folder(folder, **settings):
    """Write a base of ours and an adapter of peft with random updates on it; return the network of peft."""
    export_hf(language_model("llama", vocabulary=300), folder / "base")
    base = transformers.AutoModelForCausalLM.from_pretrained(folder / "base")
    config = {"r": 4, "lora_alpha": 10, "target_modules": ["q_proj", "v_proj", "down_proj"], "task_type": "CAUSAL_LM"}
    theirs = peft.get_peft_model(base, peft.LoraConfig(**{**config, **settings})).eval()
    with torch.no_grad():
        for name, value in theirs.named_parameters():
            if "lora_B" in name or "modules_to_save" in name:
                value.normal_(std=0.3)
    theirs.save_pretrained(folder / "adapter")
    return theirs


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"use_rslora": True},
        {"target_modules": "all-linear", "r": 2},
        {"layers_to_transform": [1], "lora_alpha": 3},
        {"modules_to_save": ["lm_head"]},
        {"init_lora_weights": "gaussian", "lora_dropout": 0.1},
    ],
    ids=str,
)
def test_an_adapter_of_peft_is_opened_on_the_base_that_it_names(settings, tmp_path):
    theirs = peft_folder(tmp_path, **settings)
    model = saccade.load(tmp_path / "adapter", device="cpu")
    with torch.no_grad():
        torch.testing.assert_close(model.task.model(GPT_IDS), theirs(GPT_IDS).logits, atol=1e-5, rtol=1e-4)
    plain = saccade.load(tmp_path / "base", device="cpu")
    assert not torch.allclose(model.task.model(GPT_IDS), plain.task.model(GPT_IDS), atol=1e-2)


def test_an_adapter_of_gpt2_changes_transposed_weights(tmp_path):
    export_hf(language_model("gpt2", vocabulary=300), tmp_path / "base")
    base = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "base")
    config = peft.LoraConfig(r=2, target_modules=["c_attn", "c_proj", "c_fc"], fan_in_fan_out=True)
    theirs = peft.get_peft_model(base, config).eval()
    with torch.no_grad():
        for name, value in theirs.named_parameters():
            if "lora_B" in name:
                value.normal_(std=0.3)
    theirs.save_pretrained(tmp_path / "adapter")
    model = saccade.load(tmp_path / "adapter", device="cpu")
    with torch.no_grad():
        torch.testing.assert_close(model.task.model(GPT_IDS), theirs(GPT_IDS).logits, atol=1e-5, rtol=1e-4)


def test_the_base_may_be_another_folder_or_a_gguf_file(tmp_path):
    theirs = peft_folder(tmp_path)
    saccade.load(tmp_path / "base", device="cpu").export(tmp_path / "base.gguf", "gguf", dtype="f32")
    (tmp_path / "base").rename(tmp_path / "moved")
    with pytest.raises(ModelFileError, match=r"adapter_config.json: no model .*base.*; give the model .* with --base"):
        saccade.load(tmp_path / "adapter")
    for base in (tmp_path / "moved", tmp_path / "base.gguf"):
        model = saccade.load(tmp_path / "adapter", base=base, device="cpu")
        with torch.no_grad():
            torch.testing.assert_close(model.task.model(GPT_IDS), theirs(GPT_IDS).logits, atol=1e-5, rtol=1e-4)
    with pytest.raises(UsageError, match=r"base must be given for an adapter of peft only, but .*moved is a model"):
        saccade.load(tmp_path / "moved", base=tmp_path / "moved")


UNSUPPORTED = {
    "dora": ({"use_dora": True}, "use_dora must be absent or empty, but is 'True'"),
    "kind": ({"peft_type": "LOHA"}, "peft_type must be 'LORA', but is 'LOHA'"),
    "bias": ({"bias": "all"}, "bias must be 'none' or None, but is 'all'"),
    "ranks": ({"rank_pattern": {"q_proj": 2}}, "rank_pattern must be absent or empty, but is .*q_proj"),
    "factors": ({"alpha_pattern": {"q_proj": 2}}, "alpha_pattern must be absent or empty, but is .*q_proj"),
    "initial weights": ({"init_lora_weights": "pissa"}, "init_lora_weights must be True or .* but is 'pissa'"),
    "unknown": ({"brand_new": 3}, "brand_new must be absent or empty, but is '3'"),
    "rank": ({"r": 5}, r"must have matrices of rank 5, but they have the shapes \(4, 96\) and \(64, 4\)"),
    "factor": ({"lora_alpha": "x"}, "lora_alpha must be a number above 0, but is 'x'"),
    "base": ({"base_model_name_or_path": None}, "base_model_name_or_path must name the model .* but is missing"),
}


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_an_unsupported_setting_is_refused_by_name(name, tmp_path):
    peft_folder(tmp_path)
    changes, message = UNSUPPORTED[name]
    path = tmp_path / "adapter" / "adapter_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    with pytest.raises(ModelFileError, match=message):
        saccade.load(tmp_path / "adapter")


def test_tensors_that_do_not_fit_the_base_are_refused_by_name(tmp_path):
    peft_folder(tmp_path)
    path = tmp_path / "adapter" / "adapter_model.safetensors"
    tensors = load_file(path)
    first = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"
    changed = {
        "one is missing": {name: value for name, value in tensors.items() if name != first},
        "'model.layers.0.self_attn.nope.weight' is none of them": {
            name.replace("layers.0.self_attn.q_proj", "layers.0.self_attn.nope"): value
            for name, value in tensors.items()
        },
        "tensors must be finite, but one has NaN": {**tensors, first: torch.full((4, 64), torch.nan)},
        r"must have the shape of the model, but has another one .*; name the model": {
            **tensors,
            first: torch.ones(4, 9),
        },
        "a tensor must end in .lora_A.weight or .lora_B.weight, but is 'x.lora_embedding_A'": {
            **tensors,
            "base_model.model.x.lora_embedding_A": torch.ones(4, 9),
        },
    }
    for message, content in changed.items():
        save_file(content, path)
        with pytest.raises(ModelFileError, match=message):
            saccade.load(tmp_path / "adapter")
    path.unlink()
    with pytest.raises(ModelFileError, match=r"adapter_model.safetensors"):
        saccade.load(tmp_path / "adapter")


def test_a_model_without_adapters_or_of_another_task_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"must have LoRA adapters, but has none; fine-tune one with .* tune=lora"):
        export(language_model("llama"), tmp_path / "out")
    with pytest.raises(UsageError, match=r"one of a model for language_model, .* but is one for masked_language_model"):
        export(adapted(encoder("masked_language_model"), "bert"), tmp_path / "out")
    with pytest.raises(UsageError, match="but is one for image_classification; export this model with --to hf"):
        export(adapted(image_classifier(), "encoder"), tmp_path / "out")
    with pytest.raises(UsageError, match="must be a new or an empty folder, but is not empty"):
        export(adapted(language_model("llama")), tmp_path.parent)
    assert list(tmp_path.iterdir()) == []
