"""R68: one attention class reads a sentence, a picture, a sound, a graph and states, and its maps mean something."""

import re

import pytest
import torch
from click.testing import CliRunner

from saccade.cli import main
from saccade.core import GridAxis, NodeAxis, StepAxis, TimeAxis, TokenAxis
from saccade.lectures import lecture_names, load_lecture, r68
from saccade.lectures._modalities import EDGES, MODALITIES, SENTENCE
from saccade.nn.attention import Attention


@pytest.fixture(scope="module")
def shown():
    return {item.name: item for item in r68.run()}


def weights(shown, name):
    return shown[name].attention.weights[0]


def test_every_modality_has_a_map_with_its_own_axis(shown):
    assert list(shown) == [modality.name for modality in MODALITIES]
    kinds = [type(item.attention.queries) for item in shown.values()]
    assert kinds == [TokenAxis, GridAxis, TimeAxis, NodeAxis, StepAxis]


def test_all_networks_use_the_one_attention_class():
    for modality in MODALITIES:
        reader = r68.Reader(modality.make().features.shape[1])
        assert [type(module) for module in reader.modules() if hasattr(module, "weights")] == [Attention]


def test_rows_sum_to_one_or_are_empty_and_no_position_sees_itself(shown):
    for item in shown.values():
        rows = item.attention.weights[0]
        sums = rows.sum(1)
        assert bool(((sums - 1).abs() < 1e-5).logical_or(sums == 0).all()), item.name
        assert float(rows.diagonal().abs().max()) == 0, item.name


def test_a_repeated_word_looks_most_at_its_copy(shown):
    words, rows = SENTENCE.split(), weights(shown, "language")
    for number, word in enumerate(words):
        if words.count(word) == 2:
            assert words[int(rows[number].argmax())] == word


def test_a_cell_of_a_disc_looks_at_cells_of_the_discs(shown):
    item = shown["vision"]
    axis, (row, column) = item.attention.queries, item.style.at
    best = int(weights(shown, "vision")[row * axis.columns + column].argmax())
    side = axis.image.shape[1] // axis.rows
    top, left = (side * at + side // 2 for at in divmod(best, axis.columns))
    assert axis.image[:, top, left].tolist() == [230, 60, 50]


def test_a_frame_looks_at_frames_of_its_pitch(shown):
    rows = weights(shown, "speech")
    first, second = [0, 1, 2, 7, 8, 9], [4, 5, 10, 11, 12]  # frames within a tone
    for own, other in ((first, second), (second, first)):
        assert float(rows[own][:, own].sum(1).min()) > 0.8 and float(rows[own][:, other].sum(1).max()) < 0.1


def test_a_node_sees_its_neighbours_alone(shown):
    rows = weights(shown, "graphs")
    edges = {*EDGES, *((second, first) for first, second in EDGES)}
    seen = {(int(first), int(second)) for first, second in torch.nonzero(rows)}
    assert seen == edges


def test_a_state_sees_the_past_alone(shown):
    rows = weights(shown, "control")
    assert float(rows.triu().abs().max()) == 0 and float(rows[0].sum()) == 0


def test_the_command_lists_shows_and_writes(tmp_path, monkeypatch, shown):
    run = CliRunner().invoke
    assert lecture_names() == ["R68"]
    assert run(main, ["lectures"]).stdout == f"R68: {r68.STATEMENT}\n"
    lecture = load_lecture("r68")
    path = tmp_path / "r68.html"
    lecture.write(list(shown.values()), path)
    page = path.read_text()
    assert page.count("<figure>") == page.count("<svg") == 5 and "saccade.nn.attention.Attention" in page
    assert not re.search(r"(src|href)=.?https?:", page), "nothing is loaded from elsewhere"
    result = run(main, ["lectures", "R99"])
    assert (result.exit_code, result.stderr) == (2, "saccade: no lecture 'R99'; available: R68\n")
    monkeypatch.setattr(r68, "MODALITIES", MODALITIES[3:4])
    assert "graphs: 8 nodes" in run(main, ["lectures", "R68"]).stdout
    result = run(main, ["lectures", "R68", "--out", str(tmp_path / "r68.png")])
    assert (result.exit_code, "--out must end on .html, but is" in result.stderr) == (2, True)
