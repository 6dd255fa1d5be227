"""The Hugging Face hub: weights, configs and tokenizers by owner/name; never code, never pickles."""

from __future__ import annotations

import re
from pathlib import Path

from saccade.errors import ResourceError

HUB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}/[A-Za-z0-9][A-Za-z0-9._-]{0,95}")
ALLOWED_FILES = [
    *("config.json", "generation_config.json", "model.safetensors", "model.safetensors.index.json"),
    *("model-*-of-*.safetensors", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"),
    *("added_tokens.json", "vocab.txt", "vocab.json", "merges.txt", "source.spm", "target.spm"),
    *("modules.json", "sentence_*_config.json", "config_sentence_transformers.json", "*_Pooling/config.json"),
    *("*_Normalize/config.json", "0_Transformer/*.json", "0_Transformer/*.txt", "0_Transformer/model.safetensors"),
    *("chat_template.jinja", "adapter_config.json", "adapter_model.safetensors"),
]


def is_hub_id(ref: str) -> bool:
    """Whether a reference has the form owner/name."""
    return bool(HUB_ID.fullmatch(ref))


def download_model(repo_id: str) -> Path:
    """Return the folder of a model in the hub's own cache, downloaded if necessary; allowed file names only."""
    import huggingface_hub
    from huggingface_hub.errors import HfHubHTTPError

    try:
        return Path(huggingface_hub.snapshot_download(repo_id, allow_patterns=ALLOWED_FILES))
    except (HfHubHTTPError, OSError, ValueError) as error:
        raise _unavailable(repo_id, error) from error


def download_file(repo_id: str, name: str) -> Path:
    """Return one file of a model in the hub's own cache, downloaded if necessary."""
    import huggingface_hub
    from huggingface_hub.errors import HfHubHTTPError

    try:
        return Path(huggingface_hub.hf_hub_download(repo_id, name))
    except (HfHubHTTPError, OSError, ValueError) as error:
        raise _unavailable(repo_id, error) from error


def _unavailable(repo_id: str, error: Exception) -> ResourceError:
    reason = " ".join(str(error).split())[:200]
    return ResourceError(
        f"there is no folder '{repo_id}', and it cannot be downloaded from the hub ({type(error).__name__}: {reason}); "
        "check the name, the network, HF_ENDPOINT and HF_HUB_OFFLINE"
    )
