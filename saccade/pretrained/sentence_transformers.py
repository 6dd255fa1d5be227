"""Folders of sentence-transformers: the modules after the encoder (pooling, normalization), read and written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from saccade.atomic_io import write_json
from saccade.errors import ModelFileError
from saccade.models.text.pooling import POOLING_MODES, PoolingMode
from saccade.pretrained.strict_json import read_list, read_object

MODULES, POOLING_FOLDER, NORMALIZE_FOLDER = "modules.json", "1_Pooling", "2_Normalize"
TRANSFORMER_CONFIGS = tuple(f"sentence_{name}_config.json" for name in ("bert", "roberta", "distilbert"))
MODEL_CONFIG = "config_sentence_transformers.json"
# The flags that older versions wrote instead of pooling_mode, in the order in which the vectors are concatenated.
FLAGS: dict[str, PoolingMode] = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
# Arguments for transformers' loaders, which change the network or the tokenizer; only this one does not.
ARGUMENTS = tuple(
    f"{kind}_{name}" for kind in ("model", "tokenizer", "processor", "config") for name in ("args", "kwargs")
)
HARMLESS = {"add_pooling_layer"}


@dataclass(frozen=True)
class SentenceModules:
    """What turns the token vectors of an encoder into the vector of a text."""

    modes: tuple[PoolingMode, ...] = ("mean",)
    normalize: bool = False
    max_length: int | None = None
    """maximum number of tokens; None: that of the tokenizer or the encoder"""
    lowercase: bool = False
    """whether texts are lower-cased before the tokenizer"""
    prompt: str = ""
    """put before every text"""
    include_prompt: bool = True
    """whether the tokens of the prompt are pooled"""


def encoder_folder(folder: Path) -> Path:
    """Return the folder of the encoder in a folder of sentence-transformers; any other folder is returned as it is."""
    if not (folder / MODULES).exists():
        return folder
    return folder / str(_modules(folder)[0]["path"])


def read_modules(folder: Path) -> SentenceModules | None:
    """Return the modules after the encoder; None: the folder is not one of a sentence encoder."""
    if not (folder / MODULES).exists():
        return None
    modules, path = _modules(folder), folder / MODULES
    transformer = _transformer_settings(folder / modules[0]["path"])
    if transformer.get("transformer_task") == "sequence-classification":  # a cross-encoder, which is a classifier
        return None
    kinds = [module["type"].rpartition(".")[2] for module in modules]
    if kinds[:2] != ["Transformer", "Pooling"] or set(kinds[2:]) - {"Normalize"}:
        raise ModelFileError(
            f"{path}: the modules must be Transformer, Pooling and perhaps Normalize, but are {', '.join(kinds)[:80]}; "
            "this sentence encoder is not supported"
        )
    modes, include_prompt = _read_pooling(folder / modules[1]["path"] / "config.json")
    for module in modules[2:]:
        _check_normalize(folder / module["path"] / "config.json")
    return SentenceModules(
        modes=modes,
        normalize=len(modules) > 2,
        max_length=transformer.get("max_seq_length"),
        lowercase=bool(transformer.get("do_lower_case")),
        prompt=_read_prompt(folder / MODEL_CONFIG),
        include_prompt=include_prompt,
    )


def _modules(folder: Path) -> list[dict[str, Any]]:
    """Return the entries of modules.json; a module may only lie in the folder or in one directly below it."""
    path = folder / MODULES
    modules = read_list(path)
    for module in modules:
        place, kind = (module.get("path"), module.get("type")) if isinstance(module, dict) else (None, None)
        if not isinstance(place, str) or place != Path(place).name or place == "..":
            raise _damaged(path, f"the path of a module must be the name of a folder, but is {str(place)[:80]!r}")
        if not isinstance(kind, str) or not kind.startswith("sentence_transformers."):
            raise _refusal(
                path, f"the type of a module must be one of sentence_transformers, but is {str(kind)[:80]!r}"
            )
    if not modules:
        raise _damaged(path, "there must be a module, but there is none")
    return modules


def _transformer_settings(folder: Path) -> dict[str, Any]:
    """Return the settings of the encoder: maximum length and lower-casing."""
    path = next((folder / name for name in TRANSFORMER_CONFIGS if (folder / name).exists()), None)
    if path is None:
        return {}
    settings = read_object(path)
    length, lowercase = settings.get("max_seq_length"), settings.get("do_lower_case")
    if length is not None and (not isinstance(length, int) or isinstance(length, bool) or length < 3):
        raise _refusal(path, f"max_seq_length must be null or at least 3, but is {str(length)[:80]!r}")
    if lowercase is not None and not isinstance(lowercase, bool):
        raise _refusal(path, f"do_lower_case must be true or false, but is {str(lowercase)[:80]!r}")
    _check_outputs(path, settings)
    for name in (*ARGUMENTS, "processing_kwargs"):
        given = settings.get(name) or {}
        if not isinstance(given, dict) or set(given) - HARMLESS:
            raise _refusal(path, f"{name} must be empty, but is {str(given)[:80]!r}")
    if settings.get("transformer_task") not in (None, "feature-extraction", "sequence-classification"):
        raise _refusal(
            path, f"transformer_task must be feature-extraction, but is {str(settings['transformer_task'])[:80]!r}"
        )
    return settings


def _check_outputs(path: Path, settings: Mapping[str, Any]) -> None:
    """Refuse token vectors that are not those of the last layer."""
    if settings.get("transformer_task") == "sequence-classification":
        return
    modalities = settings.get("modality_config")
    expected = {"method": "forward", "method_output_name": "last_hidden_state"}
    if modalities is not None and (not isinstance(modalities, dict) or modalities.get("text") != expected):
        raise _refusal(path, f"modality_config.text must be {expected}, but modality_config is {str(modalities)[:80]}")
    if settings.get("module_output_name") not in (None, "token_embeddings"):
        name = settings["module_output_name"]
        raise _refusal(path, f"module_output_name must be token_embeddings, but is {str(name)[:80]!r}")


def _read_pooling(path: Path) -> tuple[tuple[PoolingMode, ...], bool]:
    """Return the pooling modes and whether the tokens of a prompt are pooled."""
    settings = read_object(path)
    for name in (*FLAGS, "include_prompt"):
        if not isinstance(settings.get(name, True), bool):
            raise _refusal(path, f"{name} must be true or false, but is {str(settings[name])[:80]!r}")
    given = settings.get("pooling_mode")
    if given is None:
        given = [mode for flag, mode in FLAGS.items() if settings.get(flag)] or ["mean"]
    names = [given] if isinstance(given, str) else given
    valid = tuple(mode for name in names for mode in POOLING_MODES if mode == name) if isinstance(names, list) else ()
    unknown = sorted(name for name in settings if name.startswith("pooling_mode_") and name not in FLAGS)
    if not valid or len(valid) != len(names):
        raise _refusal(path, f"pooling_mode must be of {', '.join(POOLING_MODES)}, but is {str(given)[:80]!r}")
    if unknown:
        raise _refusal(path, f"a pooling mode must be one of {', '.join(FLAGS)}, but one is {unknown[0][:80]!r}")
    return valid, bool(settings.get("include_prompt", True))


def _check_normalize(path: Path) -> None:
    """Refuse a normalization of anything but the vector of a text."""
    settings = read_object(path) if path.exists() else {}
    for name in ("module_input_name", "module_output_name"):
        if settings.get(name) not in (None, "sentence_embedding"):
            raise _refusal(path, f"{name} must be sentence_embedding, but is {str(settings[name])[:80]!r}")


def _read_prompt(path: Path) -> str:
    """Return the prompt that is put before every text by default."""
    settings: Mapping[str, Any] = read_object(path) if path.exists() else {}
    if settings.get("model_type") not in (None, "SentenceTransformer"):
        raise _refusal(path, f"model_type must be SentenceTransformer, but is {str(settings['model_type'])[:80]!r}")
    name, prompts = settings.get("default_prompt_name"), settings.get("prompts") or {}
    if name is None:
        return ""
    prompt = prompts.get(name) if isinstance(prompts, dict) and isinstance(name, str) else None
    if not isinstance(prompt, str):
        raise _damaged(path, f"default_prompt_name must name one of prompts, but is {str(name)[:80]!r}")
    return prompt


def write_modules(modules: SentenceModules, dim: int, folder: Path) -> None:
    """Write the modules of a sentence encoder beside its encoder."""
    kinds = ["Transformer", "Pooling", *(["Normalize"] if modules.normalize else [])]
    paths = ["", POOLING_FOLDER, NORMALIZE_FOLDER]
    entries = [
        {"idx": number, "name": str(number), "path": paths[number], "type": f"sentence_transformers.models.{kind}"}
        for number, kind in enumerate(kinds)
    ]
    for name in paths[1 : len(kinds)]:
        (folder / name).mkdir()
    write_json(folder / MODULES, entries)
    settings = {"max_seq_length": modules.max_length, "do_lower_case": modules.lowercase}
    write_json(folder / TRANSFORMER_CONFIGS[0], settings)
    pooling: dict[str, Any] = {flag: mode in modules.modes for flag, mode in FLAGS.items()}
    if modules.modes != tuple(mode for mode in FLAGS.values() if mode in modules.modes):
        pooling = {"pooling_mode": list(modules.modes)}  # flags have no order
    pooling |= {"word_embedding_dimension": dim, "include_prompt": modules.include_prompt}
    write_json(folder / POOLING_FOLDER / "config.json", pooling)
    prompts = {"prompts": {"default": modules.prompt}, "default_prompt_name": "default"} if modules.prompt else {}
    write_json(folder / MODEL_CONFIG, {"prompts": {}, "default_prompt_name": None, **prompts})


def _refusal(path: Path, rule: str) -> ModelFileError:
    return ModelFileError(f"{path}: {rule}; this sentence encoder is not supported")


def _damaged(path: Path, rule: str) -> ModelFileError:
    return ModelFileError(f"{path}: {rule}; download the model again")
