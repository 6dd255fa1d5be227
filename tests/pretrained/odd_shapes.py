"""Odd but legal checkpoints of every family, compared with transformers: equal to 1e-4, or refused by name.

Add a line to SHAPES to try another one. `python tests/pretrained/odd_shapes.py` prints the outcome of each.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import load_file, save_file

from saccade.errors import ModelFileError
from saccade.models.text.heads import BertWithHead, BertWithPooling
from saccade.nn.cache import KVCache
from saccade.pretrained.config_json import read_config
from saccade.pretrained.exports.hf import write_network
from saccade.pretrained.families.heads import head_fields, read_head, with_head
from saccade.pretrained.opening import read_network

VOCABULARY, TOKENS = 61, 24
IDS = torch.randint(2, VOCABULARY - 1, (2, TOKENS), generator=torch.Generator().manual_seed(2))
KEEP = torch.arange(TOKENS) < torch.tensor([[TOKENS], [15]])
TARGET = torch.randint(2, VOCABULARY - 1, (2, 7), generator=torch.Generator().manual_seed(4))
SPECIAL = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
DECODER = {
    "vocab_size": VOCABULARY,
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 40,
    "max_position_embeddings": 64,
    **SPECIAL,
}
ENCODER = {
    "vocab_size": VOCABULARY,
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 40,
    "max_position_embeddings": 40,
}
GPT2 = {"vocab_size": VOCABULARY, "n_embd": 24, "n_layer": 2, "n_head": 4, "n_positions": 32, **SPECIAL}
DISTILBERT = {
    "vocab_size": VOCABULARY,
    "dim": 24,
    "n_layers": 2,
    "n_heads": 4,
    "hidden_dim": 40,
    "max_position_embeddings": 40,
}
MARIAN = {
    "vocab_size": VOCABULARY,
    "d_model": 24,
    "encoder_layers": 2,
    "decoder_layers": 1,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 40,
    "decoder_ffn_dim": 40,
    "max_position_embeddings": 32,
    "scale_embedding": True,
    "pad_token_id": VOCABULARY - 1,
    "eos_token_id": 0,
    "bos_token_id": None,
    "decoder_start_token_id": VOCABULARY - 1,
    "forced_eos_token_id": None,
}
Tensors = dict[str, torch.Tensor]


@dataclass(frozen=True)
class OddShape:
    """A checkpoint: a class of transformers with its config, and changes of the files it saves."""

    name: str
    model: str
    config: dict[str, Any]
    edit: dict[str, Any] = field(default_factory=dict)
    """changes of config.json after saving; None for a value removes a field, NULL writes null"""
    weights: Callable[[Tensors], Tensors] | None = None
    """changes of the tensors after saving"""
    refused: str = ""
    """the message that names what is not supported; empty: must be equal"""


NULL = object()


def _shapes(model: str, base: dict[str, Any], *cases: tuple[Any, ...]) -> list[OddShape]:
    """Return cases of one class: (name, changes of the config, edit or message, message)."""
    shapes = []
    for name, changes, *more in cases:
        options: dict[str, Any] = {}
        for value in more:
            options["refused" if isinstance(value, str) else "weights" if callable(value) else "edit"] = value
        shapes.append(OddShape(f"{model}: {name}", model, {**base, **changes}, **options))
    return shapes


def _rope(kind: str, **values: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 10000.0, **values}}


def _yarn(**values: Any) -> dict[str, Any]:
    return _rope("yarn", **{"factor": 4.0, "original_max_position_embeddings": 16, **values})


def _llama3(**values: Any) -> dict[str, Any]:
    factors = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    return _rope("llama3", **{**factors, "original_max_position_embeddings": 16, **values})


def _other(name: str) -> Callable[[Tensors], Tensors]:
    """Return a change that stores another tensor of that shape under a name: a tied matrix that differs."""
    source = {"lm_head.weight": "model.embed_tokens.weight", "cls.predictions.decoder.bias": "cls.predictions.bias"}
    source["cls.predictions.decoder.weight"] = "bert.embeddings.word_embeddings.weight"

    def change(tensors: Tensors) -> Tensors:
        original = tensors.get(source[name], tensors.get("transformer.wte.weight"))
        assert original is not None
        return {**tensors, name: original + 1}

    return change


def _same(tensors: Tensors) -> Tensors:
    """Store a tied output matrix too, as older checkpoints do."""
    return {**tensors, "lm_head.weight": tensors["model.embed_tokens.weight"].clone()}


ROPES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("rope default", _rope("default")),
    ("rope theta 500", {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}}),
    ("rope linear", _rope("linear", factor=2.0)),
    ("rope linear 7.5", _rope("linear", factor=7.5)),
    ("rope dynamic within the context", _rope("dynamic", factor=2.0)),
    ("rope dynamic beyond the context", {**_rope("dynamic", factor=3.0), "max_position_embeddings": 16}),
    ("rope yarn", _yarn()),
    ("rope yarn attention_factor", _yarn(attention_factor=1.7)),
    ("rope yarn mscale", _yarn(mscale=1.2, mscale_all_dim=0.4)),
    ("rope yarn betas", _yarn(beta_fast=8.0, beta_slow=2.0)),
    ("rope yarn truncate", _yarn(truncate=False)),
    ("rope yarn factor 1", _yarn(factor=1.0)),
    ("rope llama3", _llama3()),
    ("rope llama3 smooth", _llama3(low_freq_factor=0.5, high_freq_factor=8.0, original_max_position_embeddings=200)),
)
LLAMA_CASES = (
    ("plain", {}),
    ("one key/value head", {"num_key_value_heads": 1}),
    ("as many key/value heads", {"num_key_value_heads": 4}),
    ("tied", {"tie_word_embeddings": True}),
    ("untied", {"tie_word_embeddings": False}),
    ("one layer", {"num_hidden_layers": 1}),
    ("five layers", {"num_hidden_layers": 5}),
    ("epsilon 0", {"rms_norm_eps": 0.0}),
    ("epsilon 0.1", {"rms_norm_eps": 0.1}),
    ("gelu", {"hidden_act": "gelu"}),
    ("gelu_pytorch_tanh", {"hidden_act": "gelu_pytorch_tanh"}),
    ("relu", {"hidden_act": "relu"}),
    ("mish", {"hidden_act": "mish"}, "the activation must be one of"),
    ("relu2 gate", {"hidden_act": "relu2"}, "the activation of a gated layer must not be 'relu2'"),
)
LLAMA_EDITS = (
    ("old rope_scaling", {}, {"rope_scaling": {"type": "linear", "factor": 2.0}, "rope_parameters": None}),
    ("rope_scaling wins", {}, {"rope_scaling": {"rope_type": "linear", "factor": 3.0}}),
    ("rope_scaling default", {}, {"rope_scaling": {"rope_type": "default"}}),
    ("rope_scaling null", {}, {"rope_scaling": NULL}),
    ("rope_scaling empty", {}, {"rope_scaling": {}}),
    ("two thetas", {}, {"rope_theta": 77.0, "rope_parameters": {"rope_theta": 900.0, "rope_type": "default"}}),
    ("theta at the top", {}, {"rope_theta": 77.0, "rope_parameters": None}),
    ("theta at the top, scaled", {}, {"rope_theta": 77.0, "rope_scaling": {"type": "linear", "factor": 2.0}}),
    ("no rope at all", {}, {"rope_parameters": None}),
    ("old yarn", {}, {"rope_scaling": {"type": "yarn", "factor": 2.0, "original_max_position_embeddings": 32}}),
    ("yarn without its context", {}, {"rope_scaling": {"rope_type": "yarn", "factor": 2.0}}),
    (
        "context at the top",
        {},
        {"rope_scaling": {"rope_type": "yarn", "factor": 2.0}, "original_max_position_embeddings": 8},
    ),
    (
        "longrope",
        {},
        {"rope_scaling": {"rope_type": "longrope", "short_factor": [1.0] * 3, "long_factor": [2.0] * 3}},
        "rope_parameters must not have 'short_factor'",
    ),
    ("unknown rope", {}, {"rope_scaling": {"rope_type": "mystery", "factor": 2.0}}, "rope_type must be one of"),
    ("linear without factor", {}, {"rope_scaling": {"type": "linear"}}, "rope_parameters.factor must be a number"),
    ("factor as text", {}, {"rope_scaling": {"type": "linear", "factor": "2"}}, "factor must be a number"),
    ("partial rotary", {}, {"partial_rotary_factor": 0.5}, "partial_rotary_factor must be 1"),
    (
        "partial rotary inside",
        {},
        {"rope_parameters": {"rope_theta": 1e4, "rope_type": "default", "partial_rotary_factor": 0.5}},
        "partial_rotary_factor must be 1",
    ),
    ("no key/value heads", {"num_key_value_heads": 4}, {"num_key_value_heads": NULL}),
    ("tied with another output matrix", {"tie_word_embeddings": True}, _other("lm_head.weight"), "must equal"),
    ("tied with the same output matrix", {"tie_word_embeddings": True}, _same),
)

SHAPES: list[OddShape] = [
    *_shapes("LlamaForCausalLM", DECODER, *LLAMA_CASES, *ROPES, *LLAMA_EDITS),
    *_shapes(
        "LlamaForCausalLM",
        DECODER,
        ("head_dim 10", {"head_dim": 10}),
        ("head_dim 2", {"head_dim": 2}),
        ("attention_bias", {"attention_bias": True}),
        ("mlp_bias", {"mlp_bias": True}),
        ("all biases", {"attention_bias": True, "mlp_bias": True}),
    ),
    *_shapes(
        "MistralForCausalLM",
        DECODER,
        ("window 4", {"sliding_window": 4}),
        ("window 1", {"sliding_window": 1}),
        ("window longer than the text", {"sliding_window": 100}),
        ("no window", {"sliding_window": None}),
        ("default window", {}, {"sliding_window": None}),
        ("head_dim", {"head_dim": 16, "sliding_window": 5}),
        ("yarn", {**_yarn(), "sliding_window": None}),
        ("layer types", {}, {"layer_types": ["full_attention"] * 2}, "layer_types"),
    ),
    *_shapes(
        "Qwen2ForCausalLM",
        DECODER,
        ("plain", {}),
        ("tied", {"tie_word_embeddings": True}),
        ("window that is not used", {"sliding_window": 3}),
        ("window in the last layer", {"use_sliding_window": True, "sliding_window": 3, "max_window_layers": 1}),
        ("window in all layers", {"use_sliding_window": True, "sliding_window": 3, "max_window_layers": 0}),
        (
            "layer types",
            {
                "use_sliding_window": True,
                "sliding_window": 5,
                "layer_types": ["sliding_attention", "full_attention"],
            },
        ),
        ("window in no layer", {"use_sliding_window": True, "sliding_window": 3, "max_window_layers": 9}),
        (
            "types without a window",
            {},
            {"layer_types": ["sliding_attention", "full_attention"]},
            "sliding_window must be at least 1",
        ),
        ("types of other layers", {}, {"layer_types": ["chunked_attention"] * 2}, "layer_types must be 2 times"),
        *ROPES[2:4],
        ROPES[6],
    ),
    *_shapes(
        "Qwen3ForCausalLM",
        {**DECODER, "head_dim": 6},
        ("plain", {}),
        ("head_dim 16", {"head_dim": 16}),
        ("width not a multiple of heads", {"hidden_size": 22, "head_dim": 8}),
        ("attention_bias", {"attention_bias": True}),
        ("window", {"use_sliding_window": True, "sliding_window": 3, "max_window_layers": 1}),
        ("tied", {"tie_word_embeddings": True}),
        ("epsilon", {"rms_norm_eps": 0.05}),
        ROPES[6],
        ROPES[12],
    ),
    *_shapes(
        "SmolLM3ForCausalLM",
        {**DECODER, "num_hidden_layers": 5},
        ("every fourth layer without positions", {}),
        ("every second", {"no_rope_layer_interval": 2}),
        ("no positions", {"no_rope_layers": [0] * 5}),
        ("all positions", {"no_rope_layers": [1] * 5}),
        ("window", {"use_sliding_window": True, "sliding_window": 3, "no_rope_layers": [1, 0, 1, 0, 1]}),
        ("untied with biases", {"tie_word_embeddings": False, "attention_bias": True, "mlp_bias": True}),
        ("default theta", {}, {"rope_parameters": None}),
        ROPES[6],
    ),
    *_shapes(
        "Gemma3ForCausalLM",
        {**DECODER, "head_dim": 8, "sliding_window": 4, "query_pre_attn_scalar": 8, "num_hidden_layers": 3},
        ("windows only", {}),
        ("seven layers", {"num_hidden_layers": 7}),
        ("layer types", {"layer_types": ["full_attention", "sliding_attention", "full_attention"]}),
        ("full layers only", {"layer_types": ["full_attention"] * 3}),
        ("another scale", {"query_pre_attn_scalar": 31}),
        ("untied", {"tie_word_embeddings": False}),
        ("softcapped logits", {"final_logit_softcapping": 3.0}),
        ("attention_bias", {"attention_bias": True}),
        ("exact gelu", {"hidden_activation": "gelu"}),
        (
            "scaled global layers",
            {
                "layer_types": ["full_attention", "sliding_attention", "full_attention"],
                "rope_parameters": {
                    "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
                    "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
                },
            },
        ),
        (
            "older fields",
            {},
            {
                "rope_parameters": None,
                "layer_types": None,
                "sliding_window_pattern": 2,
                "rope_theta": 5000.0,
                "rope_local_base_freq": 300.0,
                "rope_scaling": {"rope_type": "linear", "factor": 8.0},
            },
        ),
        ("bidirectional", {"use_bidirectional_attention": True}, "use_bidirectional_attention"),
        ("softcapped scores", {}, {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping"),
        (
            "scaled windows",
            {},
            {"rope_parameters": {"sliding_attention": {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}}},
            "rope_type of sliding_attention must be default",
        ),
    ),
    *_shapes(
        "NanoChatForCausalLM",
        DECODER,
        ("plain", {}),
        ("no softcap", {"final_logit_softcapping": None}),
        ("softcap 2", {"final_logit_softcapping": 2.0}),
        ("one key/value head", {"num_key_value_heads": 1}),
        ("attention_bias", {"attention_bias": True}),
        ("gelu", {"hidden_act": "gelu"}),
        ("tied", {"tie_word_embeddings": True}),
        ("epsilon", {"rms_norm_eps": 0.05}),
        *ROPES[1:3],
        *ROPES[6:8],
    ),
    *_shapes(
        "GPT2LMHeadModel",
        GPT2,
        ("plain", {}),
        ("n_inner", {"n_inner": 7}),
        ("odd heads", {"n_embd": 15, "n_head": 5}),
        *((act, {"activation_function": act}) for act in ("relu", "gelu", "gelu_pytorch_tanh", "silu", "gelu_fast")),
        ("tanh", {"activation_function": "tanh"}, "the activation must be one of"),
        ("quick_gelu", {"activation_function": "quick_gelu"}),
        ("epsilon 0", {"layer_norm_epsilon": 0.0}),
        ("epsilon 0.1", {"layer_norm_epsilon": 0.1}),
        ("unscaled", {"scale_attn_weights": False}, "scale_attn_weights must be True"),
        ("by layer", {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx must be False"),
        ("upcast", {"reorder_and_upcast_attn": True}),
        ("untied", {"tie_word_embeddings": False}, "tie_word_embeddings must be True"),
        ("another output matrix", {}, _other("lm_head.weight"), "must equal"),
    ),
    *_shapes(
        "BertForMaskedLM",
        ENCODER,
        ("plain", {}),
        *((act, {"hidden_act": act}) for act in ("relu", "gelu_new", "silu", "gelu_pytorch_tanh")),
        ("tanh", {"hidden_act": "tanh"}, "the activation must be one of"),
        ("one segment", {"type_vocab_size": 1}),
        ("three segments", {"type_vocab_size": 3}),
        ("epsilon 0", {"layer_norm_eps": 0.0}),
        ("epsilon 0.1", {"layer_norm_eps": 0.1}),
        ("untied", {"tie_word_embeddings": False}, "tie_word_embeddings must be true for a masked language model"),
        ("another output matrix", {}, _other("cls.predictions.decoder.weight"), "must equal"),
        ("another output bias", {}, _other("cls.predictions.decoder.bias"), "must equal"),
        ("decoder", {"is_decoder": True}, "is_decoder must be False"),
        ("relative", {}, {"position_embedding_type": "relative_key"}, "position_embedding_type must be 'absolute'"),
    ),
    *_shapes("BertForPreTraining", ENCODER, ("plain", {}), ("relu", {"hidden_act": "relu"})),
    *_shapes("BertModel", ENCODER, ("plain", {}), ("untied", {"tie_word_embeddings": False})),
    *_shapes(
        "RobertaForMaskedLM",
        {**ENCODER, "type_vocab_size": 1},
        ("plain", {}),
        *((act, {"hidden_act": act}) for act in ("relu", "gelu_new", "silu")),
        ("two segments", {"type_vocab_size": 2}),
        ("epsilon 0", {"layer_norm_eps": 0.0}),
        ("untied", {"tie_word_embeddings": False}, "tie_word_embeddings must be true for a masked language model"),
        ("padding 0", {"pad_token_id": 0}, "pad_token_id must be 1"),
    ),
    *_shapes("RobertaModel", {**ENCODER, "type_vocab_size": 1}, ("plain", {}), ("relu", {"hidden_act": "relu"})),
    *_shapes(
        "DistilBertForMaskedLM",
        DISTILBERT,
        ("plain", {}),
        ("relu", {"activation": "relu"}),
        ("odd heads", {"dim": 15, "n_heads": 5}),
        ("sinusoidal", {"sinusoidal_pos_embds": True}),
        ("untied", {"tie_word_embeddings": False}, "tie_word_embeddings must be true for a masked language model"),
    ),
    *_shapes("DistilBertModel", DISTILBERT, ("plain", {}), ("gelu_new", {"activation": "gelu_new"})),
    *(
        shape
        for family, base, act in (
            ("Bert", ENCODER, "hidden_act"),
            ("Roberta", ENCODER, "hidden_act"),
            ("DistilBert", DISTILBERT, "activation"),
        )
        for head in ("SequenceClassification", "TokenClassification", "QuestionAnswering")
        for shape in _shapes(
            f"{family}For{head}",
            base,
            ("plain", {}),
            ("relu", {act: "relu"}),
            ("one layer", {"num_hidden_layers": 1}),
            *(
                ()
                if head == "QuestionAnswering"
                else (("five labels", {"num_labels": 5}), ("one name", {}, {"id2label": {"0": "a"}}, "must have"))
            ),
        )
    ),
    *(
        shape
        for model in ("BertForSequenceClassification", "RobertaForSequenceClassification")
        for shape in _shapes(
            model,
            ENCODER,
            ("several labels", {"problem_type": "multi_label_classification", "num_labels": 4}),
            ("number", {"num_labels": 1}),
            (
                "two numbers",
                {"problem_type": "regression", "num_labels": 2},
                "num_labels must be 1 for the problem_type",
            ),
            ("epsilon 0.1", {"layer_norm_eps": 0.1}),
            ("three segments", {"type_vocab_size": 3}),
        )
    ),
    *_shapes("BertForMultipleChoice", ENCODER, ("plain", {}, "but is 'BertForMultipleChoice'")),
    *_shapes("BertForNextSentencePrediction", ENCODER, ("plain", {}, "but is 'BertForNextSentencePrediction'")),
    *_shapes(
        "MarianMTModel",
        MARIAN,
        ("plain", {}),
        *((act, {"activation_function": act}) for act in ("relu", "gelu", "gelu_new")),
        ("more decoder layers", {"encoder_layers": 1, "decoder_layers": 3}),
        ("starts with the end", {"decoder_start_token_id": 0}),
        ("unscaled embeddings", {"scale_embedding": False}, "scale_embedding must be True"),
        ("other heads", {"decoder_attention_heads": 2}, "decoder_attention_heads must be encoder_attention_heads"),
        ("other widths", {"decoder_ffn_dim": 16}, "decoder_ffn_dim must be encoder_ffn_dim"),
        ("untied", {"tie_word_embeddings": False}, "tie_word_embeddings must be True"),
        (
            "separate embeddings",
            {"share_encoder_decoder_embeddings": False, "tie_word_embeddings": False},
            "must be True",
        ),
    ),
]


def save(shape: OddShape, folder: Path) -> None:
    """Save a model with random weights as transformers does, then change its files."""
    kind = getattr(transformers, shape.model)
    torch.manual_seed(1)
    model = kind(kind.config_class(**shape.config)).eval()
    with torch.no_grad():
        for name, value in model.state_dict().items():
            if value.is_floating_point() and "embed_positions" not in name:  # Marian computes those
                value.normal_(std=0.3)
    for name, module in model.named_modules():  # transformers never looks up the position of the padding
        if name.endswith("position_embeddings") and getattr(module, "padding_idx", None) is not None:
            module.weight.data[: module.padding_idx + 1] = 0.0
    model.save_pretrained(folder)
    path = folder / "config.json"
    values = {key: value for key, value in json.loads(path.read_text()).items() if shape.edit.get(key, 0) is not None}
    edit = {key: None if value is NULL else value for key, value in shape.edit.items() if value is not None}
    path.write_text(json.dumps({**values, **edit}))
    if shape.weights is not None:
        save_file(
            shape.weights(load_file(folder / "model.safetensors")), folder / "model.safetensors", {"format": "pt"}
        )


@torch.no_grad()
def expected_outputs(shape: OddShape, folder: Path) -> list[torch.Tensor]:
    """Return what transformers computes from a folder."""
    model = getattr(transformers, shape.model).from_pretrained(folder).eval()
    if shape.model == "MarianMTModel":
        return [model(IDS, attention_mask=KEEP.long(), decoder_input_ids=TARGET).logits]
    if shape.model.endswith(("CausalLM", "LMHeadModel")):
        return [model(IDS).logits]
    out = model(IDS.where(KEEP, 1), attention_mask=KEEP.long(), output_hidden_states=True)
    outputs = [state[KEEP] for state in out.hidden_states]
    if shape.model.endswith("SequenceClassification"):
        return [*outputs, out.logits]
    if shape.model.endswith("QuestionAnswering"):
        return [*outputs, torch.stack((out.start_logits, out.end_logits), dim=-1)[KEEP]]
    outputs += [out[name][KEEP] for name in ("logits", "prediction_logits") if name in out]
    return outputs + [out[name] for name in ("seq_relationship_logits", "pooler_output") if name in out]


@torch.no_grad()
def our_outputs(shape: OddShape, folder: Path) -> list[torch.Tensor]:
    """Return the same from our network; raises ModelFileError where it is refused."""
    network = read_network(folder).network
    if shape.model == "MarianMTModel":
        return [network(IDS, KEEP, TARGET)]
    if shape.model.endswith(("CausalLM", "LMHeadModel")):
        logits = network(IDS)
        if "dynamic" not in json.dumps(shape.config):  # whose cached keys depend on the length when they were computed
            cache = KVCache(TOKENS)
            steps = [network(part, cache=cache) for part in IDS.split([5, 1, TOKENS - 6], dim=1)]
            torch.testing.assert_close(torch.cat(steps, dim=1), logits, atol=1e-4, rtol=1e-4)
        return [logits]
    states: list[torch.Tensor] = []
    last = network.bert(IDS.where(KEEP, 1), KEEP, None, states=states)
    outputs = [state[KEEP] for state in states]
    if isinstance(network, BertWithPooling):
        return [*outputs, network.pooled_logits(last, KEEP)]
    if isinstance(network, BertWithHead):
        return [*outputs, network.logits(last)[KEEP]]
    if network.mlm is not None:
        outputs.append(network.mlm(last)[KEEP])
    if network.next_sentence is not None:
        outputs.append(network.next_sentence(network.bert.pooled(last)))
    elif network.bert.pooler is not None:
        outputs.append(network.bert.pooled(last))
    return outputs


def difference(ours: list[torch.Tensor], theirs: list[torch.Tensor]) -> float:
    """Return the largest difference; infinity where the outputs are not the same ones."""
    if [value.shape for value in ours] != [value.shape for value in theirs]:
        return float("inf")
    values = [float((a - b).abs().max()) for a, b in zip(ours, theirs, strict=True)]
    return max(value if value == value else float("inf") for value in values)


def try_shape(shape: OddShape, folder: Path) -> tuple[str, str]:
    """Return 'equal', 'refused' or 'differs' with the largest difference or the message; both directions if equal."""
    save(shape, folder / "theirs")
    try:
        ours = our_outputs(shape, folder / "theirs")
    except ModelFileError as error:
        return "refused", str(error)
    theirs = expected_outputs(shape, folder / "theirs")
    largest = difference(ours, theirs)
    if largest <= 1e-4:
        loaded, (family, _, values) = read_network(folder / "theirs"), read_config(folder / "theirs")
        extra = {key: shape.config[key] for key in ("pad_token_id",) if shape.config.get(key) is not None}
        head = read_head(folder / "theirs" / "config.json", family, values)
        if head is not None:
            family, extra = with_head(family, head), {**extra, **head_fields(head)}
        write_network(loaded.network, loaded.config, family, folder / "ours", extra)
        largest = max(largest, difference(expected_outputs(shape, folder / "ours"), theirs))
    return ("equal" if largest <= 1e-4 else "differs"), f"{largest:.1e}"


def main() -> int:
    """Print the outcome of every shape and a count of each."""
    counts: dict[str, int] = {}
    for shape in SHAPES:
        with tempfile.TemporaryDirectory() as folder:
            outcome, detail = try_shape(shape, Path(folder))
        counts[outcome] = counts.get(outcome, 0) + 1
        unexpected = (outcome == "refused") != bool(shape.refused) or outcome == "differs"
        print(f"{outcome:8} {shape.name}: {detail[-160:]}{'  UNEXPECTED' if unexpected else ''}")
    print(", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items())), f"of {len(SHAPES)}")
    return 1 if counts.get("differs") else 0


if __name__ == "__main__":
    sys.exit(main())
