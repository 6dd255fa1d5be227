"""Joint decoding: the best path of the CTC head joins the hypotheses of the beam, and both log probabilities decide."""

import itertools
from pathlib import Path

import pytest
import torch

from saccade.config import override
from saccade.core import Split
from saccade.decode.search import Search
from saccade.tasks._seq2seq import joint_search
from saccade.tasks._seq2seq.searching import search_memory
from saccade.tasks.reading import ReadingConfig, Task
from tests.tasks import picture_data
from tests.tasks.test_reading import SMALL
from tests.tasks.untrained import open_untrained


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Task:
    folder: Path = tmp_path_factory.mktemp("lines")
    data, assets = picture_data.write_lines(folder, 40), folder / "assets"
    assets.mkdir()
    return open_untrained(Task, override(ReadingConfig(), SMALL), data, assets, std=0.4)[0]


def memory_of(task: Task, rows: int = 6):
    batch = task.collate(task.splits[Split.TRAIN], list(range(rows)))
    with torch.no_grad():
        return task.model.encode(batch.pixels, batch.keep)


def log_probability(task: Task, memory, row: int, ids: tuple[int, ...], ended: bool) -> float:
    """That of one target by teacher forcing, alone; one that was cut off has no end token."""
    inputs = torch.tensor([[task.target.start, *ids]])
    logits = task.model.head(task.model.decode(inputs, memory.select(torch.tensor([row]))))[0]
    labels = torch.tensor([*ids, task.target.end])
    values = logits.log_softmax(-1).gather(1, labels[:, None])[:, 0]
    return float((values if ended else values[:-1]).sum())


@torch.no_grad()
def test_candidates_are_ordered_by_the_sum_of_both_log_probabilities(task: Task) -> None:
    memory, ctc = memory_of(task), task.model.ctc
    assert ctc is not None
    limits = [12] * len(memory.values)
    results = search_memory(task.model, memory, task.target, Search(beam=3, n_best=3), limits)
    log_probs = ctc(memory.values)
    for row, group in enumerate(results):
        assert [h.score for h in group] == sorted((h.score for h in group), reverse=True)
        for hypothesis in group:
            decoder = log_probability(task, memory, row, hypothesis.ids, hypothesis.ended)
            labels = torch.tensor([hypothesis.ids or (-1,)])
            keep = memory.keep[row : row + 1]
            own = max(joint_search.FLOOR, float(ctc.log_likelihood(log_probs[row : row + 1], keep, labels)))
            assert hypothesis.score == pytest.approx(decoder + own, abs=1e-3)


@torch.no_grad()
def test_the_best_path_of_the_head_is_a_candidate_and_a_decoder_that_skips_is_corrected(task: Task) -> None:
    memory, ctc = memory_of(task, 4), task.model.ctc
    assert ctc is not None
    paths = ctc.best_paths(ctc(memory.values), memory.keep)
    beams = search_memory(task.model, memory, task.target, Search(beam=1), [12] * 4)  # of the decoder alone
    ranked = joint_search.rank_jointly(task.model, memory, task.target, beams, [100] * 4)
    for path, group in zip(paths, ranked, strict=True):
        assert tuple(path) in {h.ids for h in group}
    short = joint_search.rank_jointly(task.model, memory, task.target, beams, [0] * 4)
    assert [len(group) for group in short] == [len(group) for group in beams], "longer than the limit"
    other = [task.target.start]  # no path starts with this
    assert [
        len(group) for group in joint_search.rank_jointly(task.model, memory, task.target, beams, [100] * 4, other)
    ] == [len(group) for group in beams]


@torch.no_grad()
def test_a_best_path_has_no_repetitions_and_no_blanks(task: Task) -> None:
    ctc = task.model.ctc
    assert ctc is not None
    frames = [2, 2, ctc.blank, 2, 3, 3, ctc.blank, ctc.blank]
    log_probs = torch.full((1, len(frames), ctc.blank + 1), -9.0)
    for at, label in enumerate(frames):
        log_probs[0, at, label] = 0
    keep = torch.ones(1, len(frames) // ctc.frames, dtype=torch.bool)
    assert ctc.best_paths(log_probs, keep) == [[2, 2, 3]]
    keep[0, -2:] = False  # the last four frames are padding
    merged = [label for label, _ in itertools.groupby(frames[:4]) if label != ctc.blank]
    assert ctc.best_paths(log_probs, keep) == [merged]
