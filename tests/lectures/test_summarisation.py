"""Lecture row R48: summaries by any sequence-to-sequence model; how long the inputs and outputs of known data are."""

import random

from saccade.config import override
from saccade.data.lengths import PUBLISHED, length_table
from saccade.models.seq2seq.architectures import Architecture
from saccade.tasks import translation
from saccade.tasks.summarisation import SummaryConfig, Task


def test_r48_the_table_of_the_lecture():
    assert [f"{name}: in {one}, out {other}, {count} examples" for name, one, other, count in PUBLISHED] == [
        "Gigaword: in 10^1, out 10^1, 10^6 examples",
        "CNN/DailyMail: in 10^2-10^3, out 10^1, 10^5 examples",
        "WikiSum: in 10^2-10^6, out 10^1-10^3, 10^6 examples",
    ]


def test_r48_sizes_that_were_published_fall_into_their_rows():
    """Gigaword: 31 words to 8, here 31 to 10; CNN/DailyMail: 781 to 56, nine in ten below 1,300."""
    gigaword = length_table([(31, 10), (28, 12), (36, 11)])
    assert gigaword[3] == "your data     in 10^1, out 10^1, 10^0 examples"
    news = length_table([(781, 56)] * 80 + [(1300, 90)] * 20)
    assert news[3] == "your data     in 10^2-10^3, out 10^1, 10^2 examples"


def test_r48_every_translation_architecture_can_summarise(tmp_path):
    """If you can use sequence to sequence you can use a Transformer: one task, every architecture, the same data."""
    assert issubclass(Task, translation.Task)
    draw = random.Random(0)
    rows = [[draw.choice(["red", "blue", "cat", "dog", "sat", "ran"]) for _ in range(30)] for _ in range(60)]
    data = tmp_path / "documents.tsv"
    data.write_text("document\tsummary\n" + "".join(f"{' '.join(row)}\t{' '.join(row[:3])}\n" for row in rows))
    Task.prepare(SummaryConfig(), data, tmp_path)
    for architecture in Architecture.__args__:
        task = Task.open(override(SummaryConfig(), [f"model.architecture={architecture}", "max_summary=4"]), tmp_path)
        notes = task.load_data(data)
        assert "your data     in 10^1, out 10^0, 10^1 examples" in notes
        assert "Gigaword      in 10^1, out 10^1, 10^6 examples" in notes
        options = task.Options(prefix="red cat", attention=False)
        task.model.eval()
        (answer,) = task.predict([{"document": " ".join(rows[0])}], options)
        assert answer.text.startswith("red cat")
