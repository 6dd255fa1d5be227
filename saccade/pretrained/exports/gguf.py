"""The format gguf: GPT-2 and Llama-family language models as one file for llama.cpp."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from saccade.atomic_io import save_error
from saccade.core import Pretrained
from saccade.errors import UsageError
from saccade.models.text.gpt import GPT, GPTConfig
from saccade.pretrained.adapters import merge_lora
from saccade.pretrained.exports.gguf_tokenizer import check_tokenizer, tokenizer_values
from saccade.pretrained.exports.hf import find_family
from saccade.pretrained.exports.parity import Parity, compare, compare_greedy, sample_lengths, sample_text
from saccade.pretrained.families.mapping import to_checkpoint
from saccade.pretrained.families.rope import write_rope
from saccade.pretrained.gguf import FREQUENCIES, ROPE_PARAMETERS, frequency_factors, gguf_library, read_gguf
from saccade.pretrained.gguf_architectures import ARCHITECTURES, Architecture

TYPES = {"f32": "F32", "f16": "F16", "q8_0": "Q8_0"}
FILE_TYPES = {"f32": 0, "f16": 1, "q8_0": 7}  # general.file_type
ROUNDING = {"f32": 0.0, "f16": 2**-11, "q8_0": 4.5e-3}  # of the largest weight of a tensor
FAMILIES = {**{entry.published.name: name for name, entry in ARCHITECTURES.items()}, "mistral": "llama"}
"""architectures of llama.cpp by the names of families"""
ACTIVATIONS = {"gpt2": "gelu_tanh", "gemma3": "geglu_tanh"}  # of the others: swiglu
GEMMA3_INTERVAL, GEMMA3_LOCAL_BASE = 6, 10000.0  # of the layers without a window; of the rotary positions with one
SCALINGS = ("none", "linear", "llama3")
NO_ROPE_INTERVAL = 4  # of a SmolLM3 in llama.cpp


def export(pretrained: Pretrained, path: Path, dtype: str = "f16") -> list[str]:
    """Write a .gguf file; return notes on what was written and the parity of the file that is read back."""
    if path.suffix != ".gguf":
        raise UsageError(f"the file must end in .gguf, but is {path}; name it {path.with_suffix('.gguf')}")
    if path.exists():
        raise UsageError(f"{path} must be a new file, but exists; name another one")
    if dtype not in TYPES:
        raise UsageError(f"dtype must be one of {', '.join(TYPES)} for gguf, but is '{dtype}'")
    gguf_library()
    network = merge_lora(pretrained.network).eval()
    if not isinstance(network, GPT):
        kind = pretrained.task if pretrained.family is None else pretrained.family.name
        raise UsageError(f"a model for GGUF must be one of {', '.join(FAMILIES)}, but this is a {kind}")
    architecture, fields = _architecture(network, pretrained)
    values = {
        **architecture.values(fields),
        **_rope_values(architecture, network.config),
        **tokenizer_values(pretrained.processor, network.embedding.num_embeddings),
    }
    tensors = _tensors(network, architecture)
    temporary = path.with_name(f".{path.name[:-5]}.tmp.gguf")
    try:
        temporary.parent.mkdir(parents=True, exist_ok=True)
        rounded = _write(temporary, path.stem, architecture, values, tensors, dtype)
        lines = _parity(pretrained, network, temporary, dtype)
        temporary.rename(path)
    except OSError as error:
        raise save_error(path, error) from error
    finally:
        temporary.unlink(missing_ok=True)
    size = f"{path.stat().st_size / 1e6:,.1f} MB"
    also = f"; {rounded} tensors whose rows are no multiple of 32 as f16" if rounded else ""
    return [f"{path}: a {architecture.name} for llama.cpp, {dtype}, {size}{also}", *lines]


def _architecture(network: GPT, pretrained: Pretrained) -> tuple[Architecture, dict[str, Any]]:
    """Return the architecture of llama.cpp that computes what a network does, and the fields of its config.json."""
    config = network.config
    family = find_family(network, config, pretrained.family)
    if family.name not in FAMILIES:
        raise UsageError(
            f"a model for GGUF must be one of {', '.join(FAMILIES)}, but this is a {family.name}; train one of the "
            "presets gpt2-... or llama-..."
        )
    architecture = ARCHITECTURES[FAMILIES[family.name]]
    activation = ACTIVATIONS.get(architecture.name, "swiglu")
    scaling, scalings = config.rotary_scaling.kind, SCALINGS[:2] if architecture.name == "gemma3" else SCALINGS
    unrotated = tuple(range(NO_ROPE_INTERVAL - 1, config.depth, NO_ROPE_INTERVAL))
    rules: dict[str, tuple[Any, Any]] = {
        "activation": (config.activation, activation),
        "window": (config.window if config.window < config.max_positions else 0, 0),
        "unrotated_layers": (config.unrotated_layers, unrotated if architecture.name == "smollm3" else ()),
        "rotary_scaling.kind": (scaling, scaling if scaling in scalings else " or ".join(scalings)),
        "attention_scale": (config.attention_scale, 0.0),
        "logit_softcap": (config.logit_softcap, 0.0),
    }
    if architecture.name == "gemma3":
        rules |= {
            "window": (config.window > 0, True),
            "full_layers": (config.full_layers, tuple(range(GEMMA3_INTERVAL - 1, config.depth, GEMMA3_INTERVAL))),
            "window_rotary_base": (config.window_rotary_base, GEMMA3_LOCAL_BASE),
            "attention_scale": (config.attention_scale or config.head_width**-0.5, config.head_width**-0.5),
            "qkv_bias": (config.qkv_bias, False),
        }
    for name, (value, wanted) in rules.items():
        if value != wanted:
            raise UsageError(
                f"{name} must be {wanted} for a {architecture.name} of llama.cpp, but is {value}; export with --to hf"
            )
    return architecture, {**family.write_config(config, network), "rope_theta": config.rotary_base}


def _rope_values(architecture: Architecture, config: GPTConfig) -> dict[str, Any]:
    """Return the keys of rotary positions that are not fields of config.json."""
    if config.position != "rotary":
        return {}
    name, scaling = architecture.name, config.rotary_scaling
    values: dict[str, Any] = {
        f"{name}.rope.dimension_count": config.head_width,
        f"{name}.attention.value_length": config.head_width,
    }
    if scaling.kind == "linear":
        values |= {f"{name}.rope.scaling.type": "linear", f"{name}.rope.scaling.factor": scaling.factor}
    if scaling.kind == "llama3":
        values[ROPE_PARAMETERS] = json.dumps(write_rope(config.rotary_base, scaling))
    return values


def _tensors(network: GPT, architecture: Architecture) -> dict[str, Tensor]:
    """Return the tensors of the file by name."""
    parameters = {name: value.detach().cpu().float() for name, value in network.named_parameters()}
    stored = to_checkpoint(architecture.family.mappings(network.config), parameters)
    tensors = {architecture.gguf_name(name): tensor for name, tensor in stored.items()}
    if network.config.rotary_scaling.kind == "llama3":
        tensors[FREQUENCIES] = frequency_factors(network.config)
    return tensors


def _write(
    path: Path, name: str, architecture: Architecture, values: dict[str, Any], tensors: dict[str, Tensor], dtype: str
) -> int:
    """Write the file; return the number of matrices that do not fit the blocks of the type and became f16."""
    library, fallbacks = gguf_library(), 0
    path.unlink(missing_ok=True)  # left by a kill
    writer = library.GGUFWriter(path, architecture.name)
    writer.add_name(name)
    writer.add_file_type(FILE_TYPES[dtype])
    writer.add_quantization_version(library.GGML_QUANT_VERSION)
    for key, value in values.items():
        _add_value(writer, key, value)
    for key, tensor in tensors.items():
        kind = library.GGMLQuantizationType[TYPES[dtype]]
        if tensor.dim() < 2 or key == "position_embd.weight":  # as llama.cpp's own converter
            kind = library.GGMLQuantizationType.F32
        elif tensor.shape[-1] % library.GGML_QUANT_SIZES[kind][0]:
            kind, fallbacks = library.GGMLQuantizationType.F16, fallbacks + 1
        data = np.ascontiguousarray(tensor.numpy())
        writer.add_tensor(key, library.quantize(data, kind), raw_dtype=kind)
    try:
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
    finally:
        writer.close()
    return fallbacks


def _add_value(writer: Any, key: str, value: Any) -> None:
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    else:
        writer.add_array(key, value)


@torch.no_grad()
def _parity(pretrained: Pretrained, network: GPT, path: Path, dtype: str) -> list[str]:
    """Read the file back and return the lines that say how weights, logits and tokens of texts compare."""
    reopened, tool = read_gguf(path)[0], "the file read back"
    restored = reopened.network.eval()
    tokens, continued = sample_lengths(network.config.max_positions)
    text = sample_text(pretrained.processor.tokenizer, network.embedding.num_embeddings, tokens)

    def next_token(ids: list[int]) -> int:
        return int(restored(torch.tensor([ids]))[0, -1].argmax())

    greedy, ids = compare_greedy(network, text, continued, next_token), torch.tensor([text])
    parity = Parity(*compare([(network(ids), restored(ids))]), "logits", f"{tokens} tokens", greedy)
    rounding = _largest_rounding(network, restored)
    Parity(rounding, 0.0, "weights", "all tensors").require(tool, ROUNDING[dtype] + 1e-6)
    count = check_tokenizer(pretrained.processor, reopened.processor)
    exact = dtype == "f32"
    line = parity.require(tool) if exact else f"parity with {tool}: {parity}"
    share = "equal weights" if not rounding else f"weights rounded by at most {rounding:.1e} of the largest of a tensor"
    return [line, f"{share}; {count} tokens of texts equal"]


def _largest_rounding(network: GPT, restored: torch.nn.Module) -> float:
    """Return the largest difference of a weight from that of the file, as a share of the largest of its tensor."""
    largest = 0.0
    for name, value in network.named_parameters():
        difference = float((value - restored.get_parameter(name)).abs().max())
        largest = max(largest, difference / max(float(value.abs().max()), 1e-30) if difference else 0.0)
    return largest
