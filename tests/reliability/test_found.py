"""What the fuzzers have found: each of these once crashed, hung, or was answered with a message about Python."""

import io
import json
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from saccade.data.audio.decoding import OPENING
from saccade.data.cache import hash_file
from saccade.data.formats.graph_json import read_node_link
from saccade.data.formats.image_rows import read_image_rows
from saccade.data.formats.instructions import read_episode_files
from saccade.data.formats.pickles import UnsupportedPickle, parse_pickle
from saccade.data.formats.trajectories import TrajectorySettings, is_trajectories, read_trajectories
from saccade.data.images.pictures import PictureFiles
from saccade.data.images.trees import Zip
from saccade.data.settings import GraphSettings, ImageSettings
from saccade.data.tables.problems import Problem
from saccade.data.tables.sniffing import sniff
from saccade.data.text.tokenizer_checks import MAX_TOKEN
from saccade.data.text.tokenizer_training import train_tokenizer
from saccade.data.text.tokenizers import Tokenizer
from saccade.decode.sampling import Sampling, choose
from saccade.errors import DataError, ModelFileError
from saccade.tensor_files import read_header

HUGE = 10**400
STEPS = [{"observation": [0.5, 1.0], "action": n % 2, "done": n == 9} for n in range(10)]
GRAPH = {"nodes": [{"id": 0, "size": 1}, {"id": 1, "size": 2}], "edges": [[0, 1]], "label": "x"}


def lines(path: Path, rows: list[object]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def npz(path: Path, change: tuple[bytes, bytes]) -> Path:
    """An .npz file in which some bytes were replaced."""
    stream = io.BytesIO()
    np.savez(stream, images=np.zeros((4, 4, 4, 3), np.uint8), labels=np.arange(4) % 2)
    assert change[0] in stream.getvalue()
    path.write_bytes(stream.getvalue().replace(*change))
    return path


def test_numbers_without_end_in_steps_are_named_and_odd_actions_are_labels(tmp_path):
    path = lines(tmp_path / "steps.jsonl", [{**STEPS[0], "observation": [HUGE, 1.0]}, *STEPS[1:]])
    with pytest.raises(DataError, match=r"steps\.jsonl:1: .* is '1000.*', expected a finite number"):
        read_trajectories(path, TrajectorySettings())
    for action in (HUGE, {"a": 1}):
        path = lines(tmp_path / "steps.jsonl", [{**STEPS[0], "action": action}, *STEPS[1:]])
        assert len(read_trajectories(path, TrajectorySettings()).observations) == len(STEPS)


def test_half_a_character_in_a_graph_is_named(tmp_path):
    with pytest.raises(DataError, match=r"g\.jsonl:2: invalid JSON"):
        read_node_link(lines(tmp_path / "g.jsonl", [GRAPH, {**GRAPH, "label": "a\ud800"}]), GraphSettings())


def test_half_a_character_in_an_instruction_is_named(tmp_path):
    episode = {
        "map": ["##", "##"],
        "legend": {},
        "start": [0, 0, "north"],
        "instruction": "\ud800",
        "actions": [],
        "goal": [0, 0],
    }
    with pytest.raises(DataError, match=r"walks\.jsonl:1: half of a surrogate pair, expected valid Unicode; remove it"):
        read_episode_files(lines(tmp_path / "walks.jsonl", [episode]))


def test_ids_of_any_kind_in_coco_files_are_looked_up(tmp_path):
    coco = {"images": [{"id": {"a": 1}, "file_name": "x.png"}], "annotations": [{"image_id": [2], "caption": "a"}]}
    (tmp_path / "captions.json").write_text(json.dumps(coco))
    with pytest.raises(DataError, match=r"captions\.json: annotation 1: no picture with the id \[2\]"):
        read_image_rows(tmp_path / "captions.json", ("caption",), ImageSettings())


@pytest.mark.parametrize("change", [(b"'descr': '|u1'", b"'descr': (('|u"), (b"(4, 4, 4, 3)", b"(4, 4, x, 3)")])
def test_a_damaged_header_of_an_array_is_named(tmp_path, change):
    with pytest.raises(DataError, match=r"pictures\.npz: the array 'images' is damaged \((?!.*0x)") as error:
        read_image_rows(npz(tmp_path / "pictures.npz", change), ("label",), ImageSettings())
    assert "<ast" not in str(error.value)


def test_a_pipe_or_a_device_in_place_of_a_file_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "0.png")
    assert PictureFiles(tmp_path, ["0.png"]).read(0) == b""
    for name in ("rows.jsonl", "steps.npz"):
        os.mkfifo(tmp_path / name)
    with pytest.raises(DataError, match=r"rows\.jsonl: a pipe, expected a file; write its content to a file"):
        sniff(tmp_path / "rows.jsonl")
    assert not is_trajectories(tmp_path / "steps.npz")
    (tmp_path / "zero.bin").symlink_to("/dev/zero")
    with pytest.raises(DataError, match=r"zero\.bin: not a regular file, expected one; copy its content"):
        hash_file(tmp_path / "zero.bin")


def test_the_reason_of_a_damaged_sound_is_without_python_objects():
    message = "Error opening <_io.BytesIO object at 0x7f57620a4b30>: File contains data in an unknown format."
    assert OPENING.sub("", message) == "File contains data in an unknown format."


def test_an_entry_without_a_name_in_an_archive_is_left_out(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("x", "1")
        archive.writestr("a/b.png", "2")
    (tmp_path / "a.zip").write_bytes((tmp_path / "a.zip").read_bytes().replace(b"x", b"\0"))
    assert Zip(tmp_path / "a.zip").names == ("a/b.png",)


def test_a_damaged_pickle_is_named_without_messages_of_python():
    with pytest.raises(UnsupportedPickle, match="damaged data: a value that does not fit"):
        parse_pickle(b"\x80\x02}q\x00]q\x01K\x01s.")


def test_the_longest_value_does_not_fill_the_screen():
    assert len(str(Problem(Path("a"), 1, None, "x" * 50_000, "y"))) < 700


@pytest.mark.parametrize(("kind", "size"), [("words", 60), ("bpe", 400), ("wordpiece", 400)])
def test_a_trained_tokenizer_can_be_loaded_whatever_the_text(tmp_path, kind, size):
    train_tokenizer(kind, ["a few words", "A" * 5000, "A" * 5000], size).save(tmp_path / "tokenizer.json")
    loaded = Tokenizer.load(tmp_path / "tokenizer.json")
    assert max(map(len, loaded.pieces(range(loaded.size)))) <= MAX_TOKEN


def test_a_header_of_tensors_that_is_not_json_is_named_without_its_content(tmp_path):
    path = tmp_path / "model.safetensors"
    save_file({"weight": torch.zeros(3)}, path)
    good = path.read_bytes()
    for bad, reason in (
        (b'"wei\xffht"', r"byte 0xFF at \d+ is not UTF-8"),
        (b'"weight:', r"Expecting .* at character \d+"),
    ):
        path.write_bytes(good.replace(b'"weight"', bad))
        with pytest.raises(ModelFileError, match=rf"the header must be JSON, but is not \({reason}\)"):
            read_header(path)


def test_logits_that_overflow_when_divided_are_refused():
    logits = torch.tensor([[3e38, 1.0]])
    with pytest.raises(FloatingPointError, match="logits of the next token must be finite"):
        choose(logits, None, Sampling(temperature=0.5), torch.Generator())
