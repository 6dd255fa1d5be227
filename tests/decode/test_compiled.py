"""Compiled decoding: equal to torch, and the same bits in any batch, split of a prompt and number of threads."""

import os
import platform
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch

from saccade.decode.engine import Engine, Request
from saccade.decode.runner import Piece, TorchRunner
from saccade.decode.runners import Runners
from saccade.decode.sampling import Sampling
from saccade.models.text.gpt import GPT, GPTConfig
from saccade.nn.probe import watch
from saccade.nn.quantized import QuantizedLinear, round_int4, round_int8
from saccade.pretrained.quantize import quantize_weights

pytest.importorskip("numba", reason="the extra 'fast' is not installed")
from saccade.decode.compiled import emitter, functions
from saccade.decode.compiled.barrier import wait
from saccade.decode.compiled.runner import CompiledModel, CompiledRunner, unsupported
from saccade.decode.compiled.team import Team

VOCABULARY, CONTEXT, LENGTH = 50, 64, 40
GPT2 = {"norm": "layer", "position": "learned", "score": "scaled_dot", "bias": True, "tie_embeddings": True}
SHAPES = {
    "default": {},
    "gpt2": {**GPT2, "embedding_norm": False, "activation": "gelu_tanh", "init": "gpt2"},
    "llama": {"norm": "rms", "score": "scaled_dot", "kv_heads": 1, "activation": "swiglu", "embedding_norm": False},
    "sinusoidal": {"activation": "gelu", "norm": "layer", "position": "sinusoidal", "score": "cosine"},
    "gemma": {
        **{"norm": "rms", "update_norm": True, "scale_embedding": True, "score": "learned_qk_norm", "window": 7},
        **{"activation": "geglu_tanh", "full_layers": (1,), "window_rotary_base": 500.0, "logit_softcap": 5.0},
        **{"head_dim": 24, "unrotated_layers": (2,)},
    },
    "bias": {"qkv_bias": True, "out_bias": True, "feed_bias": True, "activation": "quick_gelu", "attention_scale": 0.3},
    "relu": {"activation": "relu", "position": "none"},
    "gated": {"activation": "reglu", "epsilon": 1e-3},
}
KINDS = ("float32", "float16", "int8", "int4")


def make(shape: str, kind: str = "float32") -> GPT:
    """A network whose widths are no multiples of a vector."""
    torch.manual_seed(0)
    net = GPT(GPTConfig(dim=72, depth=3, heads=2, hidden=136, max_positions=CONTEXT, **SHAPES[shape]), VOCABULARY)
    for parameter in net.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    return net.eval() if kind == "float32" else quantize_weights(net.eval(), kind)


def token_ids(count: int = LENGTH, seed: int = 1) -> list[int]:
    return torch.randint(VOCABULARY, (count,), generator=torch.Generator().manual_seed(seed)).tolist()


def runner(model: GPT, rows: int = 3, threads: int = 2) -> CompiledRunner:
    return CompiledRunner(CompiledModel(model), rows, CONTEXT, threads)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_logits_equal_those_of_the_modules(shape: str, kind: str) -> None:
    model, ids = make(shape, kind), token_ids()
    with torch.no_grad():
        expected = model(torch.tensor([ids]))[0]
    (logits,) = runner(model).forward([Piece(1, 0, ids, every=True)])
    tolerance = 2e-6 if kind.startswith("float") else 1e-3  # activations of 15 bits
    assert (logits - expected).abs().max() < tolerance * expected.abs().max()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", ["default", "gpt2", "gemma"])
def test_a_token_has_the_same_bits_in_any_batch_split_and_team(shape: str, kind: str) -> None:
    model, ids = make(shape, kind), token_ids()
    (whole,) = runner(model).forward([Piece(1, 0, ids, every=True)])
    (alone,) = runner(model, threads=1).forward([Piece(0, 0, ids, every=True)])
    assert torch.equal(whole, alone)
    single = runner(model)
    steps = [single.forward([Piece(2, at, [ids[at]]), Piece(0, at, [3])])[0] for at in range(LENGTH)]
    assert torch.equal(torch.cat(steps), whole)
    for size in (3, 13, 17):
        parts = runner(model, rows=20)
        others = [Piece(row, 0, token_ids(1, row)) for row in range(1, 20)]
        pieces = [[Piece(0, at, ids[at : at + size], every=True), *others] for at in range(0, LENGTH, size)]
        assert torch.equal(torch.cat([parts.forward(group)[0] for group in pieces]), whole)


@pytest.mark.parametrize("kind", ["float32", "int8"])
@pytest.mark.parametrize("shape", SHAPES)
def test_recorded_attention_equals_that_of_the_modules(shape: str, kind: str) -> None:
    model, ids = make(shape, kind), token_ids()
    with torch.no_grad(), watch(model) as expected:
        model(torch.tensor([ids]))
    run = runner(model, rows=1)
    maps = run.record()
    for first, last in ((0, 20), (15, 39), (37, LENGTH)):  # a row that goes back, and further
        run.forward([Piece(0, first, ids[first:last])])
    assert list(maps) == list(expected)
    for name, weights in maps.items():
        whole = expected[name].rows()[0]
        assert weights.shape == whole.shape == (2, LENGTH, LENGTH)
        close = {"atol": 1e-5 if kind == "float32" else 2e-3, "rtol": 1e-4}
        torch.testing.assert_close(weights.rows(0, LENGTH), whole, **close)
        torch.testing.assert_close(weights.rows(3, LENGTH, step=7, head=1), whole[1:, 3::7], **close)
        torch.testing.assert_close(weights.select(torch.tensor([0, 30])), whole[:, [0, 30]], **close)
        assert weights.nbytes > 0


def test_recording_changes_no_number_and_needs_one_row() -> None:
    model, ids = make("default"), token_ids()
    run = runner(model, rows=1)
    run.record()
    (recorded,) = run.forward([Piece(0, 0, ids, every=True)])
    (plain,) = runner(model, rows=1).forward([Piece(0, 0, ids, every=True)])
    assert torch.equal(recorded, plain)
    with pytest.raises(ValueError, match="rows must be 1 to record attention, but are 3"):
        runner(model).record()


def test_a_copied_beginning_continues_with_the_same_bits() -> None:
    model, ids = make("default"), token_ids()
    run = runner(model)
    run.forward([Piece(0, 0, ids)])
    run.copy(0, 2, 21)
    (whole,) = run.forward([Piece(1, 0, ids)])
    (copied,) = run.forward([Piece(2, 21, ids[21:])])
    assert torch.equal(copied, whole)


@pytest.mark.parametrize("kind", ["float32", "int8", "int4"])
@pytest.mark.parametrize("lookup", [0, 6])
def test_requests_together_equal_requests_alone(kind: str, lookup: int) -> None:
    """Mixed lengths, shared beginnings, sampling and full contexts, with and without guesses."""
    model = make("default", kind)
    compiled = CompiledModel(model)
    shared = token_ids(30, 5)
    prompts = [token_ids(1 + 7 * number, number) for number in range(6)] + [[*shared, 1], [*shared, 2], shared * 2]
    requests = [
        Request(ids, Sampling(0.9 * (number % 2), repetition_penalty=1.2 if number == 3 else 1.0), number, 50)
        for number, ids in enumerate(prompts)
    ]

    def run(rows: int, batch: list[Request]) -> tuple[list[list[int]], Engine]:
        engine = Engine(CompiledRunner(compiled, rows, CONTEXT, 2), CONTEXT)
        tokens: dict[int, list[int]] = {engine.add(request): [] for request in batch}
        while len(engine):
            for event in engine.step():
                tokens[event.number].append(event.token)
        return list(tokens.values()), engine

    alone = [run(1, [request])[0][0] for request in requests]
    together, engine = run(4, [Request(**{**vars(request), "lookup": lookup}) for request in requests])
    assert together == alone
    assert engine.reused >= 30  # the second prompt with the shared beginning does not compute it again


def test_guesses_save_steps_where_a_text_repeats_itself() -> None:
    """A model that copies: its output is what followed the same tokens before."""
    model = make("default")
    steps = {}
    for lookup in (0, 5):
        engine = Engine(runner(model), CONTEXT)
        engine.add(Request([4, 5, 6, 4, 5, 6], Sampling(temperature=0), max_new_tokens=40, lookup=lookup))
        tokens: list[int] = []
        steps[lookup] = 0
        while len(engine):
            tokens += [event.token for event in engine.step()]
            steps[lookup] += 1
        steps[lookup, "tokens"] = tokens
    assert steps[0, "tokens"] == steps[5, "tokens"]
    assert steps[5] < steps[0]


@pytest.mark.parametrize("cancelled", [False, True])
@pytest.mark.parametrize("compiled", [False, True])
def test_numbers_that_are_not_finite_leave_the_cache_with_their_request(compiled: bool, cancelled: bool) -> None:
    """A token whose embedding is not a number: requests in the same row later, alone and together, do not notice."""
    torch.manual_seed(0)
    model = GPT(GPTConfig(dim=16, depth=2, heads=2, hidden=32, max_positions=300), VOCABULARY).eval()
    with torch.no_grad():
        model.embedding.weight[0, 3] = float("nan")
    later = [
        Request(ids, Sampling(temperature=0), max_new_tokens=12, logit_bias={0: -100.0})
        for ids in ([7, 8, 9], [7, 8, 9, *range(1, 40)])
    ]

    def run(engine: Engine) -> dict[int, list[int]]:
        tokens: dict[int, list[int]] = {engine.add(request): [] for request in later}
        while len(engine):
            for event in engine.step():
                tokens[event.number].append(event.token)
        return tokens

    def make_engine() -> Engine:
        return Engine(CompiledRunner(CompiledModel(model), 2, 300, 1) if compiled else TorchRunner(model, 2, 300), 300)

    engine = make_engine()
    numbers = [engine.add(Request([7, 8, start, *[0] * 200])) for start in (9, 5)]
    if cancelled:
        assert engine.step() == []  # the prompts are not read yet
        for number in numbers:
            engine.remove(number)
    else:
        events = [event for _ in range(4) for event in engine.step()]
        assert sorted((event.number, event.token, event.finish) for event in events) == [
            (number, -1, "error") for number in numbers
        ]
    assert len(engine) == 0
    engine.reused, fresh = 0, make_engine()
    expected = list(run(fresh).values())
    assert [len(tokens) for tokens in expected] == [12, 12]
    assert list(run(engine).values()) == expected
    assert engine.reused == fresh.reused


def test_a_weight_that_is_not_a_number_reaches_the_logits() -> None:
    for kind in KINDS:
        model = make("default", kind)
        with torch.no_grad():
            model.embedding.weight[3, 5] = float("nan")
        assert not runner(model).forward([Piece(0, 0, [1, 3])])[0].isfinite().any()


def test_the_activation_functions_are_those_of_torch() -> None:
    x = torch.linspace(-12, 12, 4001)
    expected = {
        "relu": torch.relu(x),
        "squared_relu": torch.relu(x) ** 2,
        "gelu": torch.nn.functional.gelu(x.double()).float(),
        "gelu_tanh": torch.nn.functional.gelu(x.double(), approximate="tanh").float(),
        "quick_gelu": x * torch.sigmoid(1.702 * x),
        "silu": torch.nn.functional.silu(x),
    }
    for number, name in enumerate(functions.ACTIVATIONS):
        values = x.numpy().copy()
        functions.activate(values, number)
        np.testing.assert_allclose(values, expected[name].numpy(), atol=1e-6, rtol=1e-5, err_msg=name)


def test_quantized_weights_are_close_and_scales_fit_into_16_bits() -> None:
    weight = torch.randn(48, 100, generator=torch.Generator().manual_seed(1))
    weight[7] = 0
    integers, scales = round_int8(weight)
    assert (integers * scales[:, None] - weight).abs().max() <= scales.max() / 2 + 1e-6
    integers, scales = round_int4(weight)
    assert scales.shape == (48, 4, 2) and integers.min() == 0 and integers.max() == 15
    assert torch.equal(scales, scales.bfloat16().float())
    scale, offset = scales.repeat_interleave(32, 1)[:, :100].unbind(2)
    error = (integers * scale + offset - weight).square().mean() / weight.square().mean()
    assert error < 0.01


def test_float16_refuses_weights_that_are_too_large() -> None:
    layer = torch.nn.Linear(4, 4)
    with torch.no_grad():
        layer.weight[0, 0] = 1e6
    with pytest.raises(OverflowError, match="weights must be at most 65504 for float16, but one is 1e\\+06"):
        QuantizedLinear(layer, "float16")


def test_what_cannot_be_compiled_runs_by_torch() -> None:
    config = GPTConfig(dim=16, depth=1, heads=2, hidden=32, max_positions=16, norm_first=False)
    model = GPT(config, VOCABULARY).eval()
    assert unsupported(model) == "post-norm"
    assert unsupported(make("default").double()) == "the type torch.float64"
    assert unsupported(torch.nn.Linear(2, 2)) == "a Linear"
    assert isinstance(Runners(model).make(2, 16), TorchRunner)
    assert isinstance(Runners(make("default")).make(2, 16), CompiledRunner)


def test_memory_for_scores_is_large_enough_for_every_position() -> None:
    """The last token of a full context sees all others."""
    model, ids = make("llama"), token_ids(CONTEXT)
    with torch.no_grad():
        expected = model(torch.tensor([ids]))[0, -1]
    (logits,) = runner(model).forward([Piece(0, 0, ids)])
    torch.testing.assert_close(logits[0], expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("piece", "limit"), [(Piece(0, 0, [VOCABULARY]), 49), (Piece(3, 0, [1]), 2), (Piece(0, 60, [1] * 5), 63)]
)
def test_memory_outside_of_the_cache_is_never_touched(piece: Piece, limit: int) -> None:
    with pytest.raises(ValueError, match=f"must be from 0 to {limit}, but one is not"):
        runner(make("default")).forward([piece])


def test_an_interrupt_before_the_call_leaves_no_thread_waiting() -> None:
    class Interrupted(Exception):
        pass

    crew = Team(2)
    calls = []

    def work(thread: int, threads: int) -> None:
        calls.append(thread)
        if thread == 0 and len(calls) < 3 and not crew.state[0]:
            crew.state[0] = 1
            raise Interrupted
        wait(crew.state[1:].ctypes.data, threads)
        if thread == 0:
            crew.state[8] += 1

    with pytest.raises(Interrupted):
        crew.run(work, ())
    crew.run(work, ())
    assert sorted(calls) == [0, 0, 0, 1, 1]  # the interrupted call was made again, then one without an interrupt


def test_several_threads_generate_with_one_model_at_once() -> None:
    compiled, ids = CompiledModel(make("default")), token_ids()
    (expected,) = CompiledRunner(compiled, 1, CONTEXT, 2).forward([Piece(0, 0, ids, every=True)])
    results: list[torch.Tensor] = []

    def work() -> None:
        run = CompiledRunner(compiled, 1, CONTEXT, 2)
        results.append(torch.cat([run.forward([Piece(0, at, [ids[at]])])[0] for at in range(LENGTH)]))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 3 and all(torch.equal(result, expected) for result in results)


@pytest.mark.slow
@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="compiles for x86 processors")
def test_processors_without_avx512_give_the_same_numbers(tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "NUMBA_CPU_NAME": "haswell",
        "NUMBA_CPU_FEATURES": "+avx,+avx2,+fma,+f16c,+sse4.1,+sse4.2,+popcnt",
        "NUMBA_CACHE_DIR": str(tmp_path),
    }
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", __file__, "-k"]
    chosen = "test_logits_equal and gpt2 or test_a_token_has and gemma"
    result = subprocess.run([*command, chosen], env=environment, capture_output=True, text=True, timeout=500)
    assert result.returncode == 0 and "8 passed" in result.stdout, result.stdout[-3000:]


def test_a_processor_without_the_instructions_runs_by_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emitter, "REQUIRED", ("avx2", "no_such_instruction"))
    reason = "code for a processor without NO_SUCH_INSTRUCTION cannot be compiled"
    assert Runners(make("default")).slow_reason() == reason
    assert isinstance(Runners(make("default")).make(1, CONTEXT), TorchRunner)
