"""The engine: cached as uncached, past the end of the context, and each row as if it were alone."""

from itertools import islice
from typing import ClassVar

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from saccade.decode.engine import Engine, Event, Request
from saccade.decode.runner import Piece, TorchRunner
from saccade.decode.sampling import Sampling, choose, penalize
from saccade.models.text.gpt import GPT, GPTConfig
from saccade.nn.cache import KVCache

CONTEXT, VOCABULARY = 12, 11
GREEDY = Sampling(temperature=0)
SHAPES = {
    "rotary": {"position": "rotary"},
    "learned": {"position": "learned", "score": "scaled_dot", "kv_heads": 1},
    "sinusoidal": {"position": "sinusoidal", "norm_first": False},
    "window": {"position": "rotary", "window": 5},
}


def make(shape: dict[str, object]) -> GPT:
    torch.manual_seed(0)
    net = GPT(GPTConfig(dim=16, depth=2, heads=2, hidden=32, max_positions=CONTEXT, **shape), VOCABULARY)
    for parameter in net.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return net.eval()


@pytest.fixture(scope="module")
def model() -> GPT:
    return make({})


@pytest.fixture(scope="module")
def models() -> dict[str, GPT]:
    return {name: make(shape).double() for name, shape in SHAPES.items()}


def make_engine(model, context: int = CONTEXT, rows: int = 6) -> Engine:
    return Engine(TorchRunner(model, rows, context), context)


def generate(model, request: Request, context: int = CONTEXT):
    """The tokens of one request without its stop id."""
    engine = make_engine(model, context, rows=1)
    engine.add(request)
    while len(engine):
        for event in engine.step():
            if event.finish != "stop":
                yield event.token


def generated(model: GPT, ids: list[int], count: int, sampling: Sampling, seed: int = 1) -> list[int]:
    return list(generate(model, Request(ids, sampling, seed, count)))


@torch.no_grad()
def uncached(model: GPT, ids: list[int], count: int) -> list[int]:
    """Greedy without a cache: everything in the context is read again for every token."""
    every, window = list(ids), ids[-CONTEXT:]
    for _ in range(count):
        if len(window) > CONTEXT:
            window = every[-(CONTEXT // 2) :]
        token = int(model(torch.tensor([window]))[0, -1].argmax())
        every, window = [*every, token], [*window, token]
    return every[len(ids) :]


@torch.no_grad()
def one_row(model: GPT, ids: Tensor, sampling: Sampling, seed: int):
    """The loop for one row, in the plainest form; Generation must give the same numbers bit for bit."""
    generator = torch.Generator().manual_seed(seed)
    used, unread, cache = ids, ids[:, -CONTEXT:], KVCache(CONTEXT)
    while True:
        if cache.longest + unread.shape[1] > CONTEXT:
            cache, unread = KVCache(CONTEXT), used[:, -max(1, CONTEXT // 2) :]
        logits = model(unread, cache=cache)[:, -1]
        chosen = choose(logits, used, sampling, generator)
        yield int(chosen), logits
        unread = chosen[:, None]
        used = torch.cat((used, unread), dim=1)


@pytest.mark.parametrize("length", [1, 5, CONTEXT - 1, CONTEXT, 3 * CONTEXT])
def test_a_cache_changes_nothing_also_past_the_context(model: GPT, length: int) -> None:
    ids = torch.randint(VOCABULARY, (length,), generator=torch.Generator().manual_seed(length)).tolist()
    assert generated(model, ids, 40, GREEDY) == uncached(model, ids, 40)


@pytest.mark.parametrize("length", [1, 5, CONTEXT, 3 * CONTEXT])
@pytest.mark.parametrize("sampling", [GREEDY, Sampling(0.9, top_k=5, repetition_penalty=1.3)], ids=["greedy", "drawn"])
def test_one_row_is_bit_identical_to_the_plain_loop(model: GPT, length: int, sampling: Sampling) -> None:
    ids = torch.randint(VOCABULARY, (1, length), generator=torch.Generator().manual_seed(length))
    logits = Spy(model)
    found = list(generate(logits, Request(ids[0].tolist(), sampling, 7, 40)))
    expected = list(islice(one_row(model, ids, sampling, 7), 40))
    assert found == [token for token, _ in expected]
    assert all(torch.equal(mine, plain) for mine, (_, plain) in zip(logits.last, expected, strict=True))


class Spy:
    """A model whose logits of the last position are kept."""

    def __init__(self, model: GPT) -> None:
        self.model, self.last = model, []
        self.parameters = model.parameters

    def __call__(self, ids: Tensor, *, cache: KVCache | None = None) -> Tensor:
        logits = self.model(ids, cache=cache)
        self.last.append(logits[:, -1])
        return logits


requests = st.builds(
    Request,
    ids=st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=2 * CONTEXT),
    sampling=st.sampled_from([GREEDY, Sampling(1.0), Sampling(0.7, top_k=4), Sampling(0.9, repetition_penalty=1.5)]),
    seed=st.integers(0, 99),
    max_new_tokens=st.integers(0, 2 * CONTEXT),
    stop_ids=st.sampled_from([(), (3,), (1, 7)]),
)


@settings(deadline=None, max_examples=40)
@given(
    shape=st.sampled_from(list(SHAPES)),
    arrivals=st.lists(st.tuples(st.integers(0, 6), requests), min_size=1, max_size=5),
    removals=st.lists(st.tuples(st.integers(0, 20), st.integers(0, 4)), max_size=2),
)
def test_a_row_is_the_same_alone_and_with_others_that_join_and_leave(models, shape, arrivals, removals) -> None:
    """Mixed lengths, samplings, stop ids and full contexts; some rows are removed in between."""
    model = models[shape]
    engine, found, rows, removed = make_engine(model), {}, [], set()
    waiting = sorted(arrivals, key=lambda arrival: arrival[0])
    for step in range(60):
        while waiting and waiting[0][0] <= step:
            rows.append(waiting.pop(0)[1])
            assert engine.add(rows[-1]) == len(rows) - 1
            found[len(rows) - 1] = []
        for when, row in removals:
            if when == step and row < len(rows):
                engine.remove(row)
                removed.add(row)
        for event in engine.step():
            found[event.number].append(event.token)
    assert not len(engine)
    for number, request in enumerate(rows):
        alone = list(generate(model, request))
        tokens = found[number]
        if tokens and tokens[-1] in request.stop_ids:
            tokens = tokens[:-1]
        assert tokens == (alone[: len(tokens)] if number in removed else alone)


@pytest.mark.parametrize("shape", SHAPES)
def test_logits_of_a_row_do_not_depend_on_other_rows(models, shape: str, monkeypatch) -> None:
    """Row 0 runs from the beginning; others of other lengths join, leave and fill their context beside it."""
    logits: list[Tensor] = []
    plain = Engine._choose

    def spy(engine: Engine, row, values: Tensor) -> Event:
        if row.number == 0:
            logits.append(values)
        return plain(engine, row, values)

    monkeypatch.setattr(Engine, "_choose", spy)
    first = Request([1, 2, 3], GREEDY, 1, 30)
    list(generate(models[shape], first))
    alone, engine = torch.cat(logits), make_engine(models[shape])
    logits.clear()
    engine.add(first)
    sizes = []
    for step in range(30):
        if step in (2, 3, 9):
            engine.add(Request(list(range(step, 0, -1)) * 2, Sampling(1.0), step, 3 * step))
        sizes.append(len(engine.step()))
    assert sizes[:4] == [1, 1, 2, 3] and sizes[8:13] == [2, 3, 3, 3, 2]
    torch.testing.assert_close(torch.cat(logits), alone, atol=1e-10, rtol=1e-10)


def test_uninitialized_memory_is_never_read(models) -> None:
    """New memory filled with nan, as torch does on demand, while rows of different lengths join and leave."""
    requests = [Request([number + 1] * length, GREEDY, 1, 20 - length) for number, length in enumerate((2, 9, 5))]
    alone = [list(generate(models["rotary"], request)) for request in requests]
    together: dict[int, list[int]] = {number: [] for number in range(len(requests))}
    torch.use_deterministic_algorithms(True)
    try:
        engine = make_engine(models["rotary"])
        for request in requests:
            engine.add(request)
            for event in engine.step():
                together[event.number].append(event.token)
        while len(engine):
            for event in engine.step():
                together[event.number].append(event.token)
    finally:
        torch.use_deterministic_algorithms(False)
    assert list(together.values()) == alone


def test_equal_requests_return_equal_tokens_in_the_order_they_were_added(model: GPT) -> None:
    engine = make_engine(model)
    requests = [Request([1, 2], Sampling(1.0), 5, 4), Request([4], GREEDY, 1, 2), Request([1, 2], Sampling(1.0), 5, 4)]
    for request in requests:
        engine.add(request)
    steps = [engine.step() for _ in range(4)]
    assert [[event.number for event in step] for step in steps[:2]] == [[0, 1, 2]] * 2
    assert [len(step) for step in steps] == [3, 3, 2, 2]
    assert (
        [step[0].token for step in steps]
        == [step[-1].token for step in steps]
        == generated(model, [1, 2], 4, Sampling(1.0), 5)
    )
    assert len(engine) == 0 and engine.step() == []


def test_a_stop_id_ends_its_row_and_is_not_yielded(model: GPT) -> None:
    ids = generated(model, [1, 2, 3], 20, GREEDY)
    stop = ids[6]
    request = Request([1, 2, 3], GREEDY, 1, 20, stop_ids=(stop,))
    assert list(generate(model, request)) == ids[: ids.index(stop)]
    engine = make_engine(model)
    engine.add(request)
    tokens = []
    while len(engine):
        tokens += [event.token for event in engine.step()]
    assert tokens == ids[: ids.index(stop) + 1]


def test_random_tokens_depend_only_on_the_seed(model: GPT) -> None:
    first = generated(model, [1, 2, 3], 30, Sampling(temperature=1), seed=4)
    torch.rand(3)
    assert first == generated(model, [1, 2, 3], 30, Sampling(temperature=1), seed=4)
    assert first != generated(model, [1, 2, 3], 30, Sampling(temperature=1), seed=5)


def test_a_penalty_applies_to_the_prompt_and_to_generated_tokens(model: GPT) -> None:
    found = generated(model, [1, 2], 8, Sampling(temperature=0, repetition_penalty=3.0))
    used = torch.tensor([[1, 2]])
    for _ in range(8):
        with torch.no_grad():
            logits = model(used)[:, -1]
        used = torch.cat((used, penalize(logits, used, 3.0).argmax(-1, keepdim=True)), dim=1)
    assert found == used[0, 2:].tolist()
    assert found != generated(model, [1, 2], 8, GREEDY)


def test_no_gradient_is_kept(model: GPT) -> None:
    spy = Spy(model)
    list(generate(spy, Request([1], GREEDY, 1, 3)))
    assert not any(logits.requires_grad for logits in spy.last)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_the_last_token_is_not_read(model: GPT) -> None:
    spy = Spy(model)
    tokens = generate(spy, Request([1, 2], GREEDY, 1, 3), CONTEXT)
    assert spy.last == []  # nothing is computed before the first token is asked for
    assert len(list(tokens)) == 3 == len(spy.last)


def test_a_context_of_one_token() -> None:
    torch.manual_seed(0)
    net = GPT(GPTConfig(dim=8, depth=1, heads=1, hidden=8, max_positions=1), 5).eval()
    assert len(list(generate(net, Request([1, 2], GREEDY, 1, 4), 1))) == 4


def test_a_prompt_without_tokens_is_refused() -> None:
    with pytest.raises(ValueError, match="ids must have at least one token, but are empty"):
        Request([])


class Recording(TorchRunner):
    """A runner that keeps the pieces it was given."""

    pieces: ClassVar[list[Piece]] = []

    def forward(self, pieces):
        self.pieces.extend(pieces)
        return super().forward(pieces)


def test_nothing_is_guessed_where_the_bits_depend_on_how_tokens_are_split(model):
    engine = Engine(Recording(model, 1, CONTEXT), CONTEXT)
    engine.add(Request([4, 5, 6, 4, 5, 6], GREEDY, max_new_tokens=6, lookup=5))
    tokens = [event.token for _ in range(6) for event in engine.step()]
    assert tokens == generated(model, [4, 5, 6, 4, 5, 6], 6, GREEDY)
    assert [len(piece.ids) for piece in Recording.pieces] == [6, 1, 1, 1, 1, 1]


def test_logits_that_are_not_finite_end_their_row_alone(model):
    class Broken(TorchRunner):
        def forward(self, pieces):
            results = super().forward(pieces)
            return [
                logits * float("nan") if piece.row == 1 and piece.start == 4 else logits
                for piece, logits in zip(pieces, results, strict=True)
            ]

    expected = generated(model, [1, 2, 3], 8, GREEDY)
    engine = Engine(Broken(model, 2, CONTEXT), CONTEXT)
    for _ in range(2):
        engine.add(Request([1, 2, 3], GREEDY, max_new_tokens=8))
    events = [event for _ in range(9) for event in engine.step()]
    assert [event.token for event in events if event.number == 0] == expected
    assert [(event.token, event.finish) for event in events if event.number == 1] == [
        *((token, "") for token in expected[:2]),
        (-1, "error"),
    ]
    assert len(engine) == 0


@pytest.mark.parametrize("penalty", [0.0, 1.5])
def test_given_tokens_continue_the_random_choices(model: GPT, penalty: float) -> None:
    """A text that is stopped and continued is that without the pause, penalties for its own tokens included."""
    sampling = Sampling(1.0, presence_penalty=penalty)
    whole = generated(model, [1, 2, 3], 12, sampling, seed=7)
    request = Request([1, 2, 3, *whole[:5]], sampling, 7, 7, given=5)
    assert list(generate(model, request)) == whole[5:]


def test_settings_may_change_between_tokens(model: GPT) -> None:
    settings = [Sampling(2.0)]
    engine = make_engine(model, rows=1)
    engine.add(Request([1, 2, 3], max_new_tokens=10, current=lambda: settings[0]))
    events = []
    while len(engine):
        events += engine.step()
        if len(events) == 4:
            settings[0] = Sampling(0.0)
    assert [event.sampling.temperature for event in events] == [2.0] * 4 + [0.0] * 6
    for event in events[4:]:
        assert event.token == int(event.logits.argmax())
