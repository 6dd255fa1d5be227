"""Heads over a data set: exact means, the strongest examples, ablation costs, the cache and cancellation."""

import statistics
from dataclasses import dataclass

import pytest
import torch

import saccade
from saccade.core import AttentionMap, AttentionMaps, Prediction, Role, Task, Text, TextOutput, TokenAxis
from saccade.core.cancellation import Cancelled, cancellable
from saccade.core.task import even_sample
from saccade.errors import UsageError
from saccade.look import head_cache
from saccade.look.head_cache import cached_survey
from saccade.look.head_report import HeadReport, Spread
from saccade.look.head_survey import SurveySettings, survey_heads

ROWS = [{"text": f"word{n} cat dog{n} sat here" + " again" * (n % 3)} for n in range(20)]


@dataclass(frozen=True)
class Options:
    attention: bool = False


class Fixed:
    """A task with three heads: the previous token, the first token, and all tokens alike."""

    Options, config, inputs = Options, "fixed", (Text("text"),)

    def __init__(self):
        self.weight, self.calls = torch.ones(2), 0

    def networks(self):
        layer = torch.nn.Linear(1, 2, bias=False)
        layer.weight.data = self.weight[:, None]
        return {"model": layer}

    def predict(self, inputs, options):
        assert options.attention
        for example in inputs:
            self.calls += 1
            axis = TokenAxis(Role.TEXT, ("[CLS]", *example["text"].split()))
            count = len(axis)
            first = torch.eye(count)[:1].expand(count, -1)
            maps = torch.stack([_previous(count), first, torch.full((count, count), 1 / count)])
            yield Prediction(
                example, TextOutput(""), attention=AttentionMaps([AttentionMap("encoder.0.self", maps, axis, axis)])
            )

    def rerun(self, prediction, *, layers=False):
        return Task.rerun(self, prediction)


def _previous(count):
    weights = torch.zeros(count, count)
    weights[0, 0] = 1
    weights[torch.arange(1, count), torch.arange(count - 1)] = 1
    return weights


def test_every_head_has_its_pattern_in_all_rows():
    report = survey_heads(Fixed(), ROWS, SurveySettings(ablations=0))
    previous, first, broad = report.heads
    assert [head.patterns for head in report.heads] == [{"previous token": 20}, {"first token": 20}, {"broad": 20}]
    assert previous.scores["previous token"] == pytest.approx(1) and previous.entropy.mean == pytest.approx(0, abs=1e-6)
    assert broad.entropy.mean == pytest.approx(1) and broad.entropy.deviation == pytest.approx(0, abs=1e-6)
    lengths = [1 + len(row["text"].split()) for row in ROWS]
    distances = [sum(range(length)) / length for length in lengths]
    assert first.distance.mean == pytest.approx(statistics.mean(distances))
    assert first.distance.deviation == pytest.approx(statistics.pstdev(distances))
    assert report.rows == 20 and report.rows_per_second > 0 and report.quantity == "" and report.notes == ()


def test_examples_are_the_strongest_pairs_of_words_with_their_positions():
    report = survey_heads(Fixed(), ROWS, SurveySettings(ablations=0))
    previous, first, _ = report.heads
    assert [(best.row, best.query, best.key, best.weight) for best in previous.examples[:2]] == [
        (0, 2, 1, 1),
        (1, 2, 1, 1),
    ]
    assert (previous.examples[0].query_label, previous.examples[0].key_label) == ("cat", "word0")
    assert all(best.weight == 0 for best in first.examples), "[CLS] is no word"
    assert report.inputs[0] == ROWS[0] and set(report.inputs) >= {best.row for best in previous.examples}


def test_of_many_rows_an_even_sample_is_taken():
    assert even_sample(10, 4) == [0, 2, 5, 7] and even_sample(3, 9) == [0, 1, 2] and even_sample(0, 5) == []
    task = Fixed()
    report = survey_heads(task, ROWS, SurveySettings(rows=5, ablations=0))
    assert (report.rows, task.calls) == (5, 5)
    assert {tuple(values.values()) for values in report.inputs.values()} <= {
        (ROWS[row]["text"],) for row in (0, 4, 8, 12, 16)
    }


def test_a_task_without_explanations_says_so_and_keeps_the_rest():
    report = survey_heads(Fixed(), ROWS, SurveySettings(ablations=3))
    assert report.notes == ("no ablation cost: this task cannot explain its predictions",)
    assert len(report.heads) == 3 and all(head.cost is None for head in report.heads)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rows": 0}, r"rows must be 1 to 1,000, but is 0"),
        ({"rows": 2000}, r"rows must be 1 to 1,000, but is 2,000"),
        ({"ablations": -1}, r"ablations must be 0 to 1,000, but is -1"),
        ({"layer": "encoder.0.slf"}, r"no attention 'encoder.0.slf'; did you mean 'encoder.0.self'"),
        ({"layer": "encoder.0.self", "head": 3}, r"head must be 0 to 2 in 'encoder.0.self', but is 3"),
    ],
)
def test_what_cannot_be_measured_is_told(settings, message):
    with pytest.raises(UsageError, match=message):
        survey_heads(Fixed(), ROWS, SurveySettings(**settings))
    with pytest.raises(UsageError, match="rows must be at least one"):
        survey_heads(Fixed(), [])


def test_a_survey_reports_its_progress_and_ends_when_it_is_cancelled():
    fractions, task = [], Fixed()
    survey_heads(task, ROWS, SurveySettings(ablations=0), fractions.append)
    assert fractions == sorted(fractions) and fractions[-1] == 1 and len(fractions) == 20
    fractions.clear()
    with pytest.raises(Cancelled), cancellable(lambda: len(fractions) >= 4):
        survey_heads(task, ROWS, SurveySettings(ablations=0), fractions.append)
    assert len(fractions) == 4


def test_a_report_is_kept_until_weights_rows_or_settings_change(tmp_path, monkeypatch):
    monkeypatch.setenv("SACCADE_CACHE", str(tmp_path))
    task, settings = Fixed(), SurveySettings(ablations=0)
    first = cached_survey(task, ROWS, settings)
    assert cached_survey(task, ROWS, settings) == first and task.calls == 20
    cached_survey(task, ROWS[:-1], settings)
    cached_survey(task, ROWS, SurveySettings(rows=10, ablations=0))
    assert task.calls == 20 + 19 + 10
    task.weight = torch.tensor([1.0, 1.0000001])
    cached_survey(task, ROWS, settings)
    assert task.calls == 49 + 20
    assert HeadReport.from_json(first.to_json()) == first


def test_a_damaged_entry_is_computed_again_and_said(tmp_path, monkeypatch):
    monkeypatch.setenv("SACCADE_CACHE", str(tmp_path))
    task, settings = Fixed(), SurveySettings(ablations=0)
    first = cached_survey(task, ROWS, settings)
    (file,) = tmp_path.rglob(f"{head_cache.ARRAY}.bin")
    damaged = bytearray(file.read_bytes())
    damaged[100] ^= 1
    file.write_bytes(damaged)
    again = cached_survey(task, ROWS, settings)
    assert task.calls == 40 and again.heads == first.heads
    assert "were damaged" in again.notes[0] and "have been built again" in again.notes[0]
    assert cached_survey(task, ROWS, settings).notes == ()


def test_costs_are_those_of_the_explanations(bert_folder):
    model = saccade.load(str(bert_folder))
    rows = ["the [MASK] sat", "a dog [MASK] on the mat", "the red [MASK]", "[MASK]"]
    report = model.survey_heads(rows, SurveySettings(ablations=2))
    (name, *_) = {head.map: None for head in report.heads}
    field = model.inputs[0].name
    predictions = list(model.predict([{field: rows[0]}, {field: rows[2]}], attention=True))
    for head in (0, 1):
        lost = [model.explain(prediction).ablate(name, head).lost for prediction in predictions]
        (summary,) = [entry for entry in report.heads if (entry.map, entry.head) == (name, head)]
        assert summary.cost.count == 2
        assert summary.cost.mean == pytest.approx(statistics.mean(lost), abs=1e-5)
        assert summary.cost.deviation == pytest.approx(statistics.pstdev(lost), abs=1e-5)
    one = model.survey_heads(rows, SurveySettings(ablations=2, layer=name, head=1))
    assert [(entry.map, entry.head, entry.cost.count) for entry in one.heads] == [(name, 1, 4)], "in every row"


def test_files_have_a_row_on_each_line(bert_folder, tmp_path):
    model = saccade.load(str(bert_folder))
    (tmp_path / "rows.txt").write_text("the [MASK]\n\na [MASK]\n")
    assert model.survey_heads(str(tmp_path / "rows.txt"), SurveySettings(ablations=0)).rows == 2
    with pytest.raises(UsageError, match="data must be given for a model that is not a run"):
        model.survey_heads()


def test_a_spread_is_a_mean_and_a_deviation():
    assert Spread.of([1.0, 2.0, 3.0, 6.0]) == Spread(3.0, pytest.approx(statistics.pstdev([1, 2, 3, 6])), 4)
