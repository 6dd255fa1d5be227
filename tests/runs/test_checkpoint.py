"""Checkpoints: what is read is what was saved, all or nothing, and the best and newest are kept."""

import errno
import json
import math
import shutil
from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from saccade import atomic_io
from saccade.errors import ModelFileError, ResourceError
from saccade.runs import checkpoint
from saccade.runs.checkpoint import Checkpoint
from saccade.runs.state import State
from saccade.runs.weights import optimizer_tensors, restore, restore_optimizers, weights
from saccade.tensor_files import read_header
from saccade.training.optim import OptimConfig, build_optimizers, state_shapes

PARTS = ("model", "optimizer", "average")


def example(step: int = 5) -> Checkpoint:
    generator = torch.Generator().manual_seed(step)
    parts = {part: {"a.b": torch.randn(3, 4, generator=generator), "n": torch.tensor(7)} for part in PARTS}
    return Checkpoint(step, parts, State(elapsed=1.25, best={"step": step, "score": 0.1}, kept=[step]))


def same(one: Checkpoint, other: Checkpoint) -> bool:
    return (
        (one.step, one.state) == (other.step, other.state)
        and one.parts.keys() == other.parts.keys()
        and all(
            one.parts[part].keys() == other.parts[part].keys()
            and all(torch.equal(value, other.parts[part][name]) for name, value in one.parts[part].items())
            for part in one.parts
        )
    )


def test_round_trip(tmp_path: Path) -> None:
    path = checkpoint.save(tmp_path, example())
    assert path.name == "step-000005"
    assert same(checkpoint.read(path, PARTS), example())
    assert sorted(file.name for file in path.iterdir()) == [
        "average.safetensors",
        "manifest.json",
        "model.safetensors",
        "optimizer.safetensors",
        "state.json",
    ]
    assert checkpoint.read(path, ("model",)).parts.keys() == {"model"}


def test_half_precision_and_views_survive(tmp_path: Path) -> None:
    square = torch.arange(6.0).reshape(2, 3)
    parts = {"model": {"half": torch.ones(2, dtype=torch.bfloat16), "view": square.T}, "optimizer": {}}
    result = checkpoint.read(checkpoint.save(tmp_path, Checkpoint(1, parts, State())))
    assert result.parts["model"]["half"].dtype == torch.bfloat16
    assert torch.equal(result.parts["model"]["view"], square.T)


@pytest.mark.parametrize("place", ["save_file", "_fingerprint", "sync_folder", "write"])
@pytest.mark.parametrize("kind", ["full", "killed"])
def test_an_error_while_saving_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, kind: str
) -> None:
    checkpoint.save(tmp_path, example(5))

    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device") if kind == "full" else SystemExit()

    with monkeypatch.context() as patch:
        where = (atomic_io, "write") if place == "write" else (checkpoint, place)
        patch.setattr(*where, fail)
        if kind == "full":
            with pytest.raises(
                ResourceError, match=r"no space left to save .*step-000006: .*No space left.*`saccade resume`"
            ):
                checkpoint.save(tmp_path, example(6))
        else:
            with pytest.raises(SystemExit):
                checkpoint.save(tmp_path, example(6))
    assert checkpoint.steps(tmp_path) == [5]
    result = checkpoint.newest(tmp_path, pytest.fail)
    assert result is not None
    assert same(result, example(5))
    checkpoint.save(tmp_path, example(6))  # what was left half written is no obstacle
    assert checkpoint.steps(tmp_path) == [5, 6]


def test_another_error_is_reported_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ResourceError, match=r"file was deleted or moved while it was in use, and step-000005 cannot"):
        checkpoint.save(tmp_path / "file", example(5))


def test_prune_keeps_the_newest_and_the_best_and_clears_halves(tmp_path: Path) -> None:
    for step in (1, 2, 3, 4, 5):
        checkpoint.save(tmp_path, example(step))
    (tmp_path / "step-000006.tmp").mkdir()
    checkpoint.prune(tmp_path, [2, 4, 5])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-000002", "step-000004", "step-000005"]


def test_a_kill_while_a_checkpoint_is_deleted_leaves_all_of_it_or_nothing_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for step in (1, 2):
        checkpoint.save(tmp_path, example(step))
    rmtree = shutil.rmtree

    def killed(path: Path, **how: object) -> None:
        if path.exists():
            (path / "manifest.json").unlink()
            raise SystemExit

    monkeypatch.setattr(shutil, "rmtree", killed)
    with pytest.raises(SystemExit):
        checkpoint.prune(tmp_path, [2])
    assert checkpoint.steps(tmp_path) == [2]
    monkeypatch.setattr(shutil, "rmtree", rmtree)
    checkpoint.prune(tmp_path, [2])
    assert [path.name for path in tmp_path.iterdir()] == ["step-000002"]


def test_falling_back_names_the_file(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        checkpoint.save(tmp_path, example(step))
    (checkpoint.at(tmp_path, 3) / "state.json").unlink()
    file = checkpoint.at(tmp_path, 2) / "model.safetensors"
    file.write_bytes(file.read_bytes() + b"x")
    messages: list[str] = []
    result = checkpoint.newest(tmp_path, messages.append)
    assert result is not None
    assert result.step == 1
    size = file.stat().st_size
    assert messages == [
        f"checkpoint of step 3 cannot be used: {checkpoint.at(tmp_path, 3) / 'state.json'} is missing; "
        "falling back to the one before",
        f"checkpoint of step 2 cannot be used: {file} must have {size - 1} bytes, but has {size}; "
        "falling back to the one before",
    ]
    shutil.rmtree(checkpoint.at(tmp_path, 1))
    with pytest.raises(ModelFileError, match=r"none of the 2 checkpoints in .* can be used: .*state\.json is missing"):
        checkpoint.newest(tmp_path, messages.append)


def test_no_checkpoint_is_none(tmp_path: Path) -> None:
    assert checkpoint.newest(tmp_path / "none", pytest.fail) is None
    assert checkpoint.newest(tmp_path, pytest.fail) is None


def test_another_format_asks_for_an_update(tmp_path: Path) -> None:
    path = checkpoint.save(tmp_path, example(1))
    manifest = json.loads((path / "manifest.json").read_bytes())
    del manifest["seal"]
    (path / "manifest.json").write_bytes(atomic_io.seal({**manifest, "format": 99}))
    with pytest.raises(
        ModelFileError, match="format must be 3, but is 99; open it with the version of saccade that wrote it"
    ):
        checkpoint.read(path)


@pytest.mark.parametrize("files", [[], {}, {"state.json": {"bytes": 0, "sha256": ""}}])
def test_a_manifest_must_list_what_is_needed(tmp_path: Path, files: object) -> None:
    path = checkpoint.save(tmp_path, example(1))
    (path / "manifest.json").write_bytes(atomic_io.seal({"format": 3, "step": 1, "files": files}))
    with pytest.raises(ModelFileError, match=r"manifest\.json must list model\.safetensors and state\.json"):
        checkpoint.read(path)


def test_a_file_that_the_manifest_does_not_list_is_not_read(tmp_path: Path) -> None:
    path = checkpoint.save(tmp_path, example(1))
    (path / "other.safetensors").write_bytes((path / "model.safetensors").read_bytes())
    assert checkpoint.read(path, ("model", "other")).parts.keys() == {"model"}
    assert "other" not in checkpoint.read(path).parts


def test_a_header_that_is_too_large_is_refused_before_it_is_read(tmp_path: Path) -> None:
    file = tmp_path / "big.safetensors"
    file.write_bytes((1 << 40).to_bytes(8, "little") + b"{}")
    with pytest.raises(ModelFileError, match=r"must have at most 33,554,432 bytes, but has 1,099,511,627,776"):
        read_header(file)
    many = json.dumps({str(i): 0 for i in range(100_001)}).encode()
    file.write_bytes(len(many).to_bytes(8, "little") + many)
    with pytest.raises(ModelFileError, match=r"must hold at most 100,000 tensors, but holds 100,001"):
        read_header(file)


def test_a_manifest_cannot_name_files_elsewhere(tmp_path: Path) -> None:
    path = checkpoint.save(tmp_path, example(1))
    manifest = json.loads((path / "manifest.json").read_bytes())
    del manifest["seal"]
    files = {**manifest["files"], "../../secret": {"bytes": 0, "sha256": ""}}
    (path / "manifest.json").write_bytes(atomic_io.seal({**manifest, "files": files}))
    with pytest.raises(ModelFileError, match=r"must list no other files than .*, but lists \.\./\.\./secret"):
        checkpoint.verify(path)


def test_predicting_does_not_need_the_optimizer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = checkpoint.save(tmp_path, example(1))
    hashed: list[str] = []
    fingerprint = checkpoint._fingerprint
    monkeypatch.setattr(checkpoint, "_fingerprint", lambda file: hashed.append(file.name) or fingerprint(file))
    assert checkpoint.read_weights(path).parts.keys() == {"average"}
    assert sorted(hashed) == ["average.safetensors", "state.json"]
    (path / "optimizer.safetensors").unlink()
    (path / "average.safetensors").write_bytes(b"damaged")
    with pytest.raises(ModelFileError, match=r"average\.safetensors must have \d+ bytes, but has 7"):
        checkpoint.read_weights(path)


def test_too_little_space_is_refused_with_both_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10, 0, 7_000_000))
    checkpoint.check_space(tmp_path, 1_750_000, 4)
    with pytest.raises(ResourceError, match=r"must have 8\.0 MB free for 4 checkpoints, but has 7\.0 MB"):
        checkpoint.check_space(tmp_path, 2_000_000, 4)


def test_a_small_json_file_is_the_old_or_the_new_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.json"
    atomic_io.write_json(path, {"a": 1})

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(atomic_io.os, "fsync", full)
    with pytest.raises(ResourceError, match=r"no space left to save .*a\.json"):
        atomic_io.write_json(path, {"a": 2})
    assert json.loads(path.read_bytes()) == {"a": 1}


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.inner, self.head = nn.Embedding(5, 4), nn.Linear(4, 4), nn.Linear(4, 5, bias=False)
        self.head.weight = self.embedding.weight
        self.register_buffer("seen", torch.zeros(1))
        self.register_buffer("table", torch.ones(2), persistent=False)


def trained(kind: str, steps: int) -> tuple[dict[str, nn.Module], dict[str, list[torch.optim.Optimizer]]]:
    torch.manual_seed(1)
    net = Tied()
    networks = {"model": net}
    optimizers = {"model": build_optimizers(OptimConfig(kind=kind, lr=0.01, matrix_lr=0.01), net)}
    for step in range(steps):
        move(networks, optimizers, step)
    return networks, optimizers


def move(networks: dict[str, nn.Module], optimizers: dict[str, list[torch.optim.Optimizer]], seed: int) -> None:
    torch.manual_seed(seed)
    for parameter in networks["model"].parameters():
        parameter.grad = torch.randn_like(parameter)
    for optimizer in optimizers["model"]:
        optimizer.step()


@pytest.mark.parametrize("kind", ["muon", "adamw"])
def test_weights_and_optimizers_continue_as_if_nothing_had_happened(tmp_path: Path, kind: str) -> None:
    networks, optimizers = trained(kind, 3)
    parts = {"model": weights(networks), "optimizer": optimizer_tensors(networks, optimizers)}
    assert "head.weight" not in parts["model"]  # a tied weight is there once
    assert "seen" in parts["model"]
    assert "table" not in parts["model"]
    result = checkpoint.read(checkpoint.save(tmp_path, Checkpoint(3, parts, State())))
    again, fresh = trained(kind, 0)
    restore(again, result.parts["model"], "here")
    restore_optimizers(again, fresh, result.parts["optimizer"], state_shapes, "here")
    assert again["model"].head.weight is again["model"].embedding.weight
    for step in range(3, 6):
        move(networks, optimizers, step)
        move(again, fresh, step)
    for name, value in weights(networks).items():
        assert torch.equal(value, weights(again)[name]), name


def test_weights_that_do_not_fit_are_named() -> None:
    net = {"model": nn.Linear(2, 3)}
    with pytest.raises(
        ModelFileError, match=r"here does not fit the model: missing \['bias'\], unexpected \['other'\]"
    ):
        restore(net, {"weight": torch.zeros(3, 2), "other": torch.zeros(1)}, "here")
    with pytest.raises(ModelFileError, match=r"here: weight must have shape \(3, 2\), but has \(2, 3\)"):
        restore(net, {"weight": torch.zeros(2, 3), "bias": torch.zeros(3)}, "here")
    with pytest.raises(ModelFileError, match=r"here: weight must be torch\.float32, but is torch\.float64"):
        restore(net, {"weight": torch.zeros(3, 2, dtype=torch.float64), "bias": torch.zeros(3)}, "here")
    with pytest.raises(ModelFileError, match="here: bias must hold finite numbers, but does not"):
        restore(net, {"weight": torch.zeros(3, 2), "bias": torch.full((3,), torch.nan)}, "here")


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"model/gone/step": torch.zeros(())}, "has a state of 'model/gone', but the model has no such parameter"),
        ({"step": torch.zeros(())}, "has a state of '', but the model has no such parameter"),
        ({"model/bias/step": torch.zeros(())}, "must have exp_avg, exp_avg_sq, step of 'model/bias', but has step"),
        ({"model/weight/momentum": torch.zeros(2, 3)}, r"momentum of 'model/weight' must have shape \(3, 2\)"),
        ({"model/weight/momentum": torch.zeros(3, 2).int()}, "must be torch.float32, but is torch.int32"),
        ({"model/weight/momentum": torch.full((3, 2), torch.inf)}, "must hold finite numbers, but does not"),
    ],
)
def test_a_state_of_an_optimizer_that_does_not_fit_is_named(tensors: dict[str, torch.Tensor], message: str) -> None:
    net = {"model": nn.Linear(2, 3)}
    optimizers = {"model": build_optimizers(OptimConfig(), net["model"])}
    with pytest.raises(ModelFileError, match=f"here: .*{message}"):
        restore_optimizers(net, optimizers, tensors, state_shapes, "here")


def reseal(path: Path, change: Any, name: str = "state.json") -> None:
    """Change a file of a checkpoint and give it a valid manifest again, as an attacker would."""
    file = path / name
    file.write_bytes(change(file.read_bytes()))
    manifest = json.loads((path / "manifest.json").read_bytes())
    del manifest["seal"]
    manifest["files"][name] = checkpoint._fingerprint(file)
    (path / "manifest.json").write_bytes(atomic_io.seal(manifest))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"elapsed": "long"}, "elapsed must be a number"),
        ({"elapsed": -1.0}, "elapsed, unimproved and the bytes of journals must be 0 or more"),
        ({"elapsed": 10**400}, "elapsed must be"),
        ({"best": [1]}, "best must be a dictionary"),
        ({"best": {"step": 2, "score": 0.1}}, r"best must hold numbers, a step from 1 to 1 and a finite score"),
        ({"best": {"step": "1", "score": 0.1}}, "best must hold numbers, a step"),
        ({"best": {"step": 1, "score": math.nan}}, "best must hold numbers, a step"),
        ({"best": {"step": 1, "score": None}}, "best must hold numbers, a step"),
        ({"best": {"score": 0.1}}, "best must hold numbers, a step"),
        ({"kept": [1, 99]}, "kept and scheduled must be steps up to 1"),
        ({"kept": "all"}, "kept must be a list"),
        ({"scheduled": [-5]}, "kept and scheduled must be steps up to 1"),
        ({"unimproved": None}, "unimproved must be a whole number"),
        ({"stopped": {}}, "stopped must be true or false"),
        ({"environment": 3}, "environment must be a dictionary"),
        ({"journals": {"metrics.jsonl": 7}}, "journals must be"),
        ({"journals": {"metrics.jsonl": {"bytes": -1, "sha256": ""}}}, "bytes of journals must be 0 or more"),
        ({"budget": None}, "budget must be a dictionary"),
        ({"more": 1}, "no setting 'more'"),
    ],
)
def test_a_resealed_state_with_odd_values_is_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    path = checkpoint.save(tmp_path, example(1))
    reseal(path, lambda data: json.dumps({**json.loads(data), **changes}).encode())
    with pytest.raises(ModelFileError, match=rf"state\.json.*{message}"):
        checkpoint.read(path)


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff\xfe", b"{" * 10_000, b'{"elapsed": 1}'])
def test_a_resealed_state_that_is_no_state_is_refused(tmp_path: Path, content: bytes) -> None:
    path = checkpoint.save(tmp_path, example(1))
    reseal(path, lambda data: content)
    with pytest.raises(ModelFileError, match=r"state\.json"):
        checkpoint.read(path)


def test_a_resealed_manifest_of_another_step_is_refused(tmp_path: Path) -> None:
    path = checkpoint.save(tmp_path, example(1))
    path.rename(path.with_name("step-000007"))
    with pytest.raises(ModelFileError, match="must be of the step step-000007 is named for, but is of 1"):
        checkpoint.read(path.with_name("step-000007"))


def test_weights_of_two_networks_have_different_names() -> None:
    networks = {"one": nn.Linear(1, 1), "two": nn.Linear(1, 1)}
    assert set(weights(networks)) == {"one.weight", "one.bias", "two.weight", "two.bias"}
