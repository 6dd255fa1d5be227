"""The engine of translators: many sources at once, each as a plain greedy loop translates it."""

import pytest
import torch

from saccade.core.generation import TextRequest
from saccade.errors import UsageError
from saccade.models.seq2seq.interface import DecoderState
from saccade.tasks._seq2seq.attention import source_tensors
from saccade.tasks.translation import Task
from tests.tasks.test_translation import TINY, digits, make, sentences

GREEDY = {"temperature": 0.0, "ignore_eos": True}


@pytest.fixture(scope="module", params=TINY)
def task(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Task:
    folder = tmp_path_factory.mktemp("engine")
    return make(folder, digits(150), f"model.architecture={request.param}", *TINY[request.param])


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> Task:
    return make(tmp_path_factory.mktemp("bpe"), sentences(), *TINY["transformer"], "data.vocabulary_size=300")


@torch.no_grad()
def greedy(task: Task, source: str, count: int) -> str:
    """The most probable tokens, one by one, not ended by the end token: an untrained model may begin with it."""
    ids, special = task.tokenizers.source.encode(source), task.tokenizers.special
    state = DecoderState(task.model, task.model.encode(*source_tensors(task.model, task.tokenizers, ids)), 100)
    target = [special.target_start]
    for _ in range(min(count, task._max_target(len(ids) + 1))):
        target.append(int(state.step(torch.tensor([target[-1:]])).argmax()))
    return task.tokenizers.output.decode(target[1:])


def generate(task: Task, sources: list[str], rows: int, **options) -> list[str]:
    """Texts of requests that join while others are generated, and end at different lengths."""
    engine, texts, waiting = task.engine(rows), {}, list(enumerate(sources))
    while waiting or len(engine):
        if waiting:
            number, source = waiting.pop(0)
            request = TextRequest(engine.encode(source), max_new_tokens=4 + 3 * number, **{**GREEDY, **options})
            texts[engine.add(request)] = ""
        for event in engine.step():
            texts[event.number] += event.text
    return list(texts.values())


def test_requests_that_join_and_leave_are_translated_as_each_alone(task: Task) -> None:
    sources = [source for source, _ in digits(150)[:9]]
    expected = [greedy(task, source, 4 + 3 * number) for number, source in enumerate(sources)]
    assert len(set(expected)) > 1
    for rows in (1, 3, 9):
        assert generate(task, sources, rows) == expected


def test_sources_of_different_lengths_in_byte_pairs(translator: Task) -> None:
    sources = [source for source, _ in sentences()[:6]]
    expected = [greedy(translator, source, 4 + 3 * number) for number, source in enumerate(sources)]
    assert generate(translator, sources, 4) == expected


def test_a_sampled_translation_depends_on_its_seed_alone(translator: Task) -> None:
    sources = [source for source, _ in sentences()[:4]]
    options = {"temperature": 1.0, "seed": 7}
    together = generate(translator, sources, 4, **options)
    assert together == generate(translator, sources, 1, **options)
    assert together != generate(translator, sources, 4, temperature=1.0, seed=8)


def test_a_translator_has_no_chat_template_and_refuses_what_it_cannot_read(translator: Task) -> None:
    engine = translator.engine(2)
    with pytest.raises(UsageError, match="this model translates texts: it has no chat template"):
        engine.encode_chat([{"role": "user", "content": "a"}])
    size = translator.tokenizers.source.size
    with pytest.raises(UsageError, match=f"a token must be from 0 to {size - 1}"):
        engine.check(TextRequest([size]))
    with pytest.raises(UsageError, match="fewer tokens than the context of 1,024, but has 1,024"):
        engine.check(TextRequest([1] * 1024, slide=False))
