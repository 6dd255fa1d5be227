"""Odd but legal checkpoints of Whisper, compared with transformers: equal to 1e-4, or refused by name.

`python tests/pretrained/odd_speech.py` prints the outcome of each.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file, save_file

from saccade.errors import ModelFileError
from saccade.nn.cache import KVCache
from saccade.pretrained.config_json import read_config
from saccade.pretrained.exports.hf import write_network
from saccade.pretrained.opening import read_network
from tests.pretrained.odd_shapes import OddShape, difference

VOCABULARY, TOKENS = 61, 9
WHISPER = {
    "vocab_size": VOCABULARY,
    "num_mel_bins": 7,
    "d_model": 24,
    "encoder_layers": 2,
    "decoder_layers": 1,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 40,
    "decoder_ffn_dim": 40,
    "max_source_positions": 15,
    "max_target_positions": 20,
    "pad_token_id": 3,
    "bos_token_id": 3,
    "eos_token_id": 3,
    "decoder_start_token_id": 4,
    "begin_suppress_tokens": None,
}


def openai_names(tensors):
    """Rename the tensors of transformers to those of OpenAI's checkpoints, as they are stored: float16."""
    changes = (
        ("model.", ""),
        ("self_attn_layer_norm", "attn_ln"),
        ("encoder_attn_layer_norm", "cross_attn_ln"),
        ("final_layer_norm", "mlp_ln"),
        ("encoder.layer_norm", "encoder.ln_post"),
        ("decoder.layer_norm", "decoder.ln"),
        ("self_attn", "attn"),
        ("encoder_attn", "cross_attn"),
        ("q_proj", "query"),
        ("k_proj", "key"),
        ("v_proj", "value"),
        ("out_proj", "out"),
        ("fc1", "mlp.0"),
        ("fc2", "mlp.2"),
        ("layers", "blocks"),
        ("embed_positions.weight", "positional_embedding"),
        ("embed_tokens", "token_embedding"),
    )
    renamed = {}
    for name, tensor in tensors.items():
        for theirs, openai in changes:
            name = name.replace(theirs, openai)
        if name != "proj_out.weight":
            renamed[name] = tensor
    return renamed


def other_output(tensors):
    return {**tensors, "proj_out.weight": tensors["model.decoder.embed_tokens.weight"] + 1}


def _shapes(*cases):
    shapes = []
    for name, changes, *more in cases:
        options = {}
        for value in more:
            options["refused" if isinstance(value, str) else "weights" if callable(value) else "edit"] = value
        model = "WhisperForConditionalGeneration"
        shapes.append(OddShape(f"{model}: {name}", model, {**WHISPER, **changes}, **options))
    return shapes


SHAPES = _shapes(
    ("plain", {}),
    ("names of OpenAI", {}, openai_names),
    ("untied", {"tie_word_embeddings": False}),
    ("other heads in the decoder", {"decoder_attention_heads": 2}),
    ("heads of 10 and 6", {"d_model": 30, "encoder_attention_heads": 3, "decoder_attention_heads": 5}),
    ("other inner widths", {"encoder_ffn_dim": 7, "decoder_ffn_dim": 33}),
    ("three decoder layers, one encoder layer", {"encoder_layers": 1, "decoder_layers": 3}),
    ("128 mels", {"num_mel_bins": 128}),
    ("one mel", {"num_mel_bins": 1}),
    ("31 positions", {"max_source_positions": 31}),
    ("one position", {"max_source_positions": 1}),
    ("11 target positions", {"max_target_positions": 11}),
    ("vocabulary of 51,865", {"vocab_size": 51_865}),
    *((act, {"activation_function": act}) for act in ("relu", "silu", "gelu_new", "quick_gelu")),
    ("dropout", {"dropout": 0.2, "attention_dropout": 0.1, "activation_dropout": 0.1}),
    ("tanh", {"activation_function": "tanh"}, "the activation must be one of"),
    ("scaled embeddings", {"scale_embedding": True}, "scale_embedding must be False, but is True"),
    ("not an encoder-decoder", {}, {"is_encoder_decoder": False}, "is_encoder_decoder must be True, but is False"),
    ("another output matrix", {}, other_output, "'proj_out.weight' must equal 'model.decoder.embed_tokens.weight'"),
    (
        "a classifier",
        {},
        {"architectures": ["WhisperForAudioClassification"]},
        "but is ['WhisperForAudioClassification']",
    ),
    ("odd heads", {}, {"encoder_attention_heads": 5}, "dim must be a multiple of heads, but 24 is not"),
    ("other mels", {}, {"num_mel_bins": 8}, "'frames.weight' must have the shape (24, 8, 3), but has (24, 7, 3)"),
)


def save(shape, folder):
    """Save a model with random weights as transformers does, then change its files."""
    torch.manual_seed(1)
    model = transformers.WhisperForConditionalGeneration(transformers.WhisperConfig(**shape.config)).eval()
    with torch.no_grad():
        for value in model.state_dict().values():
            value.normal_(std=0.3)
    model.save_pretrained(folder)
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **shape.edit}))
    if shape.weights is not None:
        tensors = shape.weights(load_file(folder / "model.safetensors"))
        save_file({name: value.contiguous() for name, value in tensors.items()}, folder / "model.safetensors")
    return model


def inputs(shape):
    """Return spectrograms and ids."""
    draw = torch.Generator().manual_seed(2)
    frames = 2 * shape.config["max_source_positions"]
    return torch.randn(2, shape.config["num_mel_bins"], frames, generator=draw), torch.randint(
        5, VOCABULARY, (2, TOKENS), generator=draw
    )


@torch.no_grad()
def our_logits(shape, folder):
    """Return the logits of our network, computed at once and, equal to them, step by step with a cache."""
    network = read_network(folder).network
    mel, ids = inputs(shape)
    memory = network.encode_windows(mel)
    logits = network.head(network.decode(ids, memory))
    cache = KVCache(TOKENS)
    steps = [network.head(network.decode(part, memory, cache=cache)) for part in ids.split([4, 1, TOKENS - 5], dim=1)]
    torch.testing.assert_close(torch.cat(steps, dim=1), logits, atol=1e-4, rtol=1e-4)
    return [memory.values, logits]


@torch.no_grad()
def their_logits(shape, model):
    mel, ids = inputs(shape)
    out = model.eval()(mel, decoder_input_ids=ids)
    return [out.encoder_last_hidden_state, out.logits]


def try_shape(shape, folder):
    """Return 'equal', 'refused' or 'differs' with the largest difference or the message; both directions if equal."""
    model = save(shape, folder / "theirs")
    try:
        ours = our_logits(shape, folder / "theirs")
    except ModelFileError as error:
        return "refused", str(error)
    theirs = their_logits(shape, model)
    largest = difference(ours, theirs)
    if largest <= 1e-4:
        loaded, (family, _, _) = read_network(folder / "theirs"), read_config(folder / "theirs")
        write_network(loaded.network, loaded.config, family, folder / "ours", {"pad_token_id": 3})
        exported = transformers.WhisperForConditionalGeneration.from_pretrained(folder / "ours")
        largest = max(largest, difference(their_logits(shape, exported), theirs))
    return ("equal" if largest <= 1e-4 else "differs"), f"{largest:.1e}"


def main() -> int:
    """Print the outcome of every shape."""
    failed = 0
    for shape in SHAPES:
        with tempfile.TemporaryDirectory() as folder:
            outcome, detail = try_shape(shape, Path(folder))
        unexpected = (outcome == "refused") != bool(shape.refused) or shape.refused not in detail
        failed += unexpected or outcome == "differs"
        print(f"{outcome:8} {shape.name}: {detail[-160:]}{'  UNEXPECTED' if unexpected else ''}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
