"""Traced steps against real ones: FLOPs by torch's counter, memory by saved tensors, variants, caches and splits."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import saccade
from saccade.models.text.gpt import GPT, GPTConfig
from saccade.nn.cache import RowCache
from saccade.planning import splits
from saccade.planning.counting import build
from saccade.planning.flops import forward_flops
from saccade.planning.hardware import DEVICES
from saccade.planning.memory import RECIPES, kv_cache, kv_cache_of
from saccade.planning.published import _activations, _loss, _trace
from saccade.planning.shapes import ARCHITECTURES
from saccade.planning.steps import TracedNetworks, one_loss
from saccade.training.optim import OptimConfig, build_optimizers

SMALL = {"dim": 32, "depth": 2, "heads": 4, "vocabulary": 50, "context": 16}


def small(kind: str, **others: int):
    return replace(ARCHITECTURES[kind], **{**SMALL, **others})


@pytest.mark.parametrize("kind", ["transformer-base", "bert-base", "gpt2"])
def test_the_formula_counts_the_flops_that_torch_counts(kind: str) -> None:
    architecture = small(kind)
    network, ids = build(architecture), torch.zeros(1, 16, dtype=torch.int64, device="meta")
    with FlopCounterMode(display=False) as counter:
        _loss(network, ids)
    assert counter.get_total_flops() == forward_flops(architecture)


def gpt(**others: int) -> tuple[GPT, torch.Tensor]:
    torch.manual_seed(1)
    config = GPTConfig(**{"dim": 64, "depth": 3, "heads": 2, "hidden": 256, "max_positions": 64, **others})
    return GPT(config, 50), torch.randint(0, 50, (4, 64))


def traced(network: nn.Module, kind: str = "adamw") -> TracedNetworks:
    return TracedNetworks({"model": network}, lambda _, each: build_optimizers(OptimConfig(kind=kind), each))


def test_activations_are_the_saved_tensors_of_a_real_forward_pass() -> None:
    network, ids = gpt()
    kept: dict[int, torch.UntypedStorage] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        kept[tensor.untyped_storage()._cdata] = tensor.untyped_storage()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = network.train()(ids, ids)
    parameters = {parameter.untyped_storage()._cdata for parameter in network.parameters()}
    saved = sum(
        storage.nbytes() for key, storage in kept.items() if key not in parameters | {ids.untyped_storage()._cdata}
    )
    del loss
    predicted = traced(network).trace(one_loss("model", lambda model: model(ids, ids)))
    assert predicted.activations == pytest.approx(saved, rel=0.05)


@pytest.mark.parametrize("kind", ["adamw", "muon", "sgd"])
def test_optimizer_state_is_that_of_a_real_step(kind: str) -> None:
    network, ids = gpt()
    optimizers = build_optimizers(OptimConfig(kind=kind), network)  # type: ignore[arg-type]
    network(ids, ids).backward()
    for optimizer in optimizers:
        optimizer.step()
    states = [value for optimizer in optimizers for state in optimizer.state.values() for value in state.values()]
    storages = {value.untyped_storage()._cdata: value.untyped_storage().nbytes() for value in states}
    fake = traced(network, kind)
    fake.trace(one_loss("model", lambda model: model(ids, ids)))
    assert fake.optimizer_state == sum(storages.values())


def test_checkpointing_and_fused_attention_save_memory_and_checkpointing_costs_a_forward_pass() -> None:
    network, ids = gpt(depth=8)
    fake = traced(network)
    losses = one_loss("model", lambda model: model(ids, ids))
    plain, saving = fake.trace(losses), fake.trace(losses, checkpointing=True)
    assert saving.activations < plain.activations / 4 and saving.working < plain.working / 2
    assert 1.2 < saving.flops / plain.flops < 1.4
    assert fake.trace(losses, fused=False).activations > plain.activations


@pytest.mark.slow
def test_a_deep_stack_is_extrapolated_exactly() -> None:
    deep = small("gpt2", depth=30)
    for fused, checkpointing in ((True, False), (False, True)):
        whole = _trace(deep, 1, fused=fused, checkpointing=checkpointing)
        assert _activations(deep, 1, fused, checkpointing) == whole


def test_the_kv_cache_is_what_the_engine_allocates() -> None:
    network, _ = gpt()
    rows = RowCache(1, network.config.max_positions)
    with torch.no_grad():
        network(torch.zeros(1, 3, dtype=torch.int64), cache=rows.select(0, [0]))
    allocated = sum(buffer.nbytes for buffers in rows._buffers.values() for buffer in buffers)
    assert kv_cache_of([network]) == allocated
    assert kv_cache(ARCHITECTURES["gpt3"]) == 2 * 96 * 12288 * 2048 * 2
    assert kv_cache(ARCHITECTURES["bert-base"]) == 0


def test_splits_follow_their_formulas() -> None:
    load = splits.Load(10**9, 20, 1000, 100, 2, 10**9, RECIPES["mixed"], 4)
    data, shard = splits.data_parallel(load, 4), splits.fully_sharded(load, 4)
    tensor, pipe = splits.tensor_parallel(load, 4), splits.pipeline_parallel(load, 4)
    assert (data.states, data.sent) == (16e9, 2 * 3 / 4 * 2e9)
    assert (shard.states, shard.sent) == (16e9 / 4 + 4e9 / 20, 3 / 4 * 6e9)
    assert (tensor.states, tensor.sent) == (4e9, 4 * 4 * 20 * 2 * 3 / 4 * 2 * 100 * 1000 * 2)
    assert (pipe.states, pipe.sent, pipe.idle) == (4e9, 2 * 4 * 2 * 100 * 1000 * 2, 3 / 7)


def test_all_splits_compute_the_same_step() -> None:
    """Of 32 micro-batches: FSDP over 16 devices gathers the weights for two of them, each of two machines has 16."""
    load = splits.Load(10**9, 20, 1000, 100, 2, 10**9, RECIPES["mixed"], 32)
    data, shard, tensor, pipe, both = splits.splits(load, 16)
    assert data.sent == 2 * 15 / 16 * 2e9
    assert shard.sent == 2 * 15 / 16 * 6e9
    reduced = 4 * 20 * 2 * 7 / 8 * 2 * 100 * 1000 * 2  # of one micro-batch, by one of eight devices
    assert (tensor.devices, tensor.sent) == (8, 32 * reduced)
    assert (pipe.sent, pipe.idle) == (2 * 32 * 2 * 100 * 1000 * 2, 15 / 47)
    assert (both.devices, both.sent) == (16, 16 * reduced + 16 * 1 / 2 * 6e9 / 8)
    twice = splits.splits(replace(load, micro_batches=64), 16)
    assert [after.sent / before.sent for before, after in zip((shard, tensor, pipe, both), twice[1:], strict=True)] == [
        2
    ] * 4


def test_the_advice_is_the_simplest_split_that_fits() -> None:
    device = DEVICES["a100"]
    for parameters, split in ((10**8, "data parallel"), (10**10, "FSDP"), (3 * 10**12, "no split fits")):
        load = splits.Load(parameters, 50, 1000, 100, 1, 10**9, RECIPES["mixed"], 64)
        assert splits.advice(load, device, 64).startswith(split)


def test_a_published_model_is_planned_with_its_splits() -> None:
    result = saccade.plan(
        "gpt3", overrides=["depth=2"], device="a100", devices=16, price=2.0, split=True, progress=False
    )
    assert [each["name"] for each in result["splits"]][:2] == ["data parallel (DDP)", "FSDP (ZeRO-3)"]
    assert result["dollars"] == pytest.approx(16 * result["hours"] * 2.0)
    assert "working memory" in str(result) and "sent per step" in str(result)
    assert "splits of one step of 16 rows, in micro-batches of 1:" in str(result)
