"""Reading: lines of different widths in a batch, attention along the text, scores, and learning."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import saccade
from saccade.config import override
from saccade.core import GridAxis, Pretrained, Role, Split
from saccade.errors import UsageError
from saccade.metrics.reading import score_reading
from saccade.tasks import reading
from saccade.tasks.reading import LineFormat, ReadingConfig, ReadingOptions, Task, pad_line, stack_lines
from tests.tasks import picture_data
from tests.tasks.battery import DECODER, LINES
from tests.tasks.untrained import open_untrained

SMALL = [*DECODER, *LINES, "model.encoder.widths=[8,16]", "height=16", "batch_size=16"]
WEAK = ["augment.shift=0.5", "augment.slant=0.05", "augment.contrast=0.1", "augment.noise=5"]
LSTM = ["model.decoder=lstm", "model.lstm.dim=16", "model.lstm.hidden=16"]


def make(folder: Path, *overrides: str) -> Task:
    """Return an untrained model with large random weights, so that its outputs vary."""
    data, assets = picture_data.write_lines(folder, 60), folder / "assets"
    assets.mkdir()
    return open_untrained(Task, override(ReadingConfig(), [*SMALL, *overrides]), data, assets, std=0.4)[0]


@pytest.fixture(scope="module", params=["transformer", "lstm"])
def task(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Task]:
    yield make(tmp_path_factory.mktemp("lines"), *(LSTM if request.param == "lstm" else []))


def line(text: str) -> dict[str, Any]:
    return {"image": torch.from_numpy(np.array(picture_data.line(text))).permute(2, 0, 1)}


def test_lines_of_similar_width_are_batched_and_padded(task: Task) -> None:
    examples = task.splits[Split.TRAIN]
    source = task.source(Split.VALID, 1)
    spreads = []
    for batch in (task.source(Split.TRAIN, 1).at(step)[0] for step in range(task.source(Split.TRAIN, 1).per_epoch)):
        assert batch.pixels.shape[1:3] == (3, 16) and batch.pixels.shape[3] == 4 * batch.keep.shape[1]
        columns = [-(-int(width) // 4) for width in examples.images.shapes[list(batch.pictures), 1]]
        assert batch.keep.sum(1).tolist() == columns
        spreads.append(max(columns) - min(columns))
    whole = np.ptp(examples.lengths)
    assert max(spreads) < whole and source.per_epoch >= 1


def test_a_line_in_a_batch_is_read_as_alone(task: Task) -> None:
    inputs = [line(text) for text in ("a", "bcd", "edcba")]
    together = list(task.predict(inputs, ReadingOptions()))
    for example, prediction in zip(inputs, together, strict=True):
        (alone,) = task.predict([example], ReadingOptions())
        assert prediction.text == alone.text
        assert prediction.scores == pytest.approx(dict(alone.scores), abs=1e-4)


def test_padding_repeats_the_last_column() -> None:
    pixels = torch.arange(3 * 2 * 5, dtype=torch.uint8).view(3, 2, 5)
    padded = pad_line(pixels)
    assert padded.shape == (3, 2, 8) and torch.equal(padded[:, :, :5], pixels)
    assert all(torch.equal(padded[:, :, column], pixels[:, :, 4]) for column in (5, 6, 7))
    assert torch.equal(pad_line(padded), padded)
    batch, keep = stack_lines([padded, pad_line(pixels[:, :, :2])])
    assert batch.shape == (2, 3, 2, 8) and keep.tolist() == [[True, True], [True, False]]


def test_images_are_read_at_one_height_with_their_aspect() -> None:
    format = LineFormat(16, 64)
    tall = format.read(torch.zeros(3, 32, 80, dtype=torch.uint8))
    assert tall.shape == (3, 16, 40)
    assert format.read(torch.zeros(3, 16, 33, dtype=torch.uint8)).shape == (3, 16, 36), "a multiple of a column"
    assert format.read(torch.zeros(3, 16, 400, dtype=torch.uint8)).shape == (3, 16, 64), "compressed"
    assert format.read(torch.zeros(1, 16, 1, dtype=torch.uint8)).shape == (3, 16, 4)


def test_training_images_are_changed_by_the_seed_and_others_are_not(task: Task) -> None:
    first, again = (task.source(Split.TRAIN, 1).at(2)[0] for _ in range(2))
    assert torch.equal(first.pixels, again.pixels)
    images = [task.example_source(task.splits[Split.TRAIN], 0)]
    plain = stack_lines([pad_line(task.splits[Split.TRAIN].images[number]) for number in first.pictures])[0]
    assert not torch.equal(first.pixels, plain) and images[0].shape[1] == 16
    (valid,) = task.source(Split.VALID, 1).at(0)
    assert torch.equal(
        valid.pixels, stack_lines([pad_line(task.splits[Split.VALID].images[n]) for n in valid.pictures])[0]
    )


def test_the_scores_are_those_of_the_predictions(task: Task) -> None:
    evaluation = task.evaluate(Split.VALID)
    assert evaluation.values.keys() == reading.METRICS.keys()
    examples = task.splits[Split.VALID]
    images = [{"image": task.example_source(examples, row)} for row in range(len(examples))]
    outputs = [one.text for one in task.predict(images, ReadingOptions(beam=task.config.search.beam))]
    expected = score_reading(outputs, list(examples.rows.texts["text"]))
    assert evaluation["cer"] == pytest.approx(expected["character_error"].value)
    assert evaluation["wer"] == pytest.approx(expected["word_error"].value)
    assert evaluation["exact"] == pytest.approx(expected["exact"].value)
    assert evaluation.complete and not task.evaluate(Split.VALID, quick=True).complete


def test_letters_attend_to_columns_of_the_line(task: Task) -> None:
    (prediction,) = task.predict([line("abc")], ReadingOptions())
    alignment = prediction.alignment
    assert alignment is not None and isinstance(alignment.keys, GridAxis)
    width = prediction.trace[0].shape[2]
    assert (alignment.keys.rows, alignment.keys.columns) == (1, width // 4)
    assert alignment.keys.role == Role.IMAGE and alignment.queries.role == Role.TARGET
    weights = alignment.weights.sum(-1)
    torch.testing.assert_close(weights, torch.ones_like(weights))
    tokens = list(task.stream(line("abc"), ReadingOptions()))
    assert "".join(token.text for token in tokens) == prediction.text
    assert len(tokens[0].prompt) == width // 4


def test_unknown_characters_are_reported(tmp_path: Path) -> None:
    task = make(tmp_path)
    other = picture_data.write_rows(tmp_path / "other", [(picture_data.line("xyz"), ["xa"])] * 2, "text")
    notes = task.load_data(other, eval_only=True)
    assert notes[0] == "texts for evaluation: 2, of 2 images"
    assert any(note.startswith("2 of 4 characters of the evaluation texts are unknown") for note in notes)


def test_of_data_with_parts_the_test_part_is_evaluated(tmp_path: Path) -> None:
    task = make(tmp_path)
    other = picture_data.write_rows(tmp_path / "other", [(picture_data.line("ab"), ["ab"])] * 3, "text")
    rows = [f"{number:03}.png,ab,{part}" for number, part in enumerate(("train", "val", "test"))]
    (other / "metadata.csv").write_text("\n".join(["file_name,text,split", *rows, ""]))
    notes = task.load_data(other, eval_only=True)
    assert notes[0] == "texts for evaluation: 1, of 1 images"
    assert task.data_notes == ("evaluated: the test part of the data, 1 of 3 rows",)
    assert Path(task.splits[Split.VALID].rows.pictures.name(2)).name == "002.png"
    assert task.splits[Split.VALID].rows.picture.tolist() == [2]
    task.load_data(other)
    assert task.data_notes == ()


def test_settings_that_cannot_be_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"height must be a multiple of 16, as every stage .* but is 40"):
        ReadingConfig(height=40)
    with pytest.raises(ValueError, match="batch_size must be at least 1, but is 0"):
        ReadingConfig(batch_size=0)
    with pytest.raises(ValueError, match="label_smoothing must be at least 0 and below 1, but is 1"):
        ReadingConfig(label_smoothing=1)
    with pytest.raises(ValueError, match="tune must be all without a base, but is head"):
        ReadingConfig(tune="head")
    other = Pretrained(torch.nn.Linear(1, 1), None, None, None, "captioning")
    with pytest.raises(UsageError, match="base must be a run of the task reading, but x is a captioning; train such a"):
        Task.prepare(ReadingConfig(base="x"), tmp_path, tmp_path, base=other)


@pytest.mark.parametrize("tune", ["all", "lora", "head"])
@pytest.mark.parametrize("decoder", [[], LSTM])
def test_a_run_is_the_base_of_another_one(tune: str, decoder: list[str], tmp_path: Path) -> None:
    base = make(tmp_path, *decoder).to_pretrained()
    config = ReadingConfig(base="x", tune=tune)  # the shape and the height are those of the base
    source = base.network.state_dict()
    for letters, known in (("abc", True), ("abxyz", False)):
        (tmp_path / letters / "assets").mkdir(parents=True)
        data = picture_data.write_lines(tmp_path / letters, 40, letters)
        notes = Task.prepare(config, data, tmp_path / letters / "assets", base=base)
        assert any("with its alphabet" in note for note in notes) is known
        task = Task.open(config, tmp_path / letters / "assets")
        own = task.model.state_dict()
        loaded = {name for name, value in source.items() if own[name].shape == value.shape and value.equal(own[name])}
        new = {name for name in source.keys() - loaded if not name.endswith("num_batches_tracked")}
        assert all(name.startswith(reading.OF_ALPHABET) for name in new) and bool(new) is not known
        trained = {name for name, value in task.model.encoder.named_parameters() if value.requires_grad}
        assert bool(trained) is (tune != "head") and all("lora" in name for name in trained) is (tune != "all")
        assert next(task.model.decoder.parameters()).requires_grad
        task.load_data(data)
        ((_, loss),) = task.losses(task.source(Split.TRAIN, 1).at(0)[0], task.networks())
        assert bool(loss.isfinite()) and task.format.height == 16
    assert task.to_pretrained().network.state_dict().keys() == source.keys(), "adapters are merged"


def test_a_run_of_a_run_is_trained_and_opened(tmp_path: Path) -> None:
    data = picture_data.write_lines(tmp_path, 40)
    settings = [*SMALL, "train.steps=1", "train.device=cpu"]
    base = saccade.train(data, task="reading", root=tmp_path, name="first", overrides=settings, progress=False)
    settings = [f"base={base.path}", "tune=lora", "train.steps=1", "train.device=cpu"]
    run = saccade.train(data, task="reading", root=tmp_path, name="second", overrides=settings, progress=False)
    assert isinstance(saccade.load(run)(picture_data.line("ab")).text, str)


def test_words_are_learned_and_the_gaze_moves_along_them(tmp_path: Path) -> None:
    data = picture_data.write_lines(tmp_path, 400)
    settings = [*SMALL, *WEAK, "train.steps=250", "train.device=cpu", "ctc=1.25"]  # short words: its loss is small
    run = saccade.train(data, task="reading", root=tmp_path, overrides=settings, progress=False)
    assert run.metrics["exact"] >= 80 and run.metrics["cer"] < 12
    model = saccade.load(run)
    answer = model(picture_data.line("dabe"))
    assert answer.text == "dabe"
    columns = torch.arange(answer.alignment.shape[2], dtype=torch.float32)
    centres = (answer.alignment.weights[0] * columns).sum(-1)
    assert bool((centres.diff() > 0).all()), "from left to right"
