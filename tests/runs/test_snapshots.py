"""Glimpses: what is kept of a step, and that a long or deep model does not fill the disk."""

import base64
import json

import numpy as np
import torch

from saccade.core.task import AttentionMap, Axis, Prediction
from saccade.runs import snapshots as glimpses
from saccade.runs.snapshots import pack, write_snapshot


def example(layers=2, tokens=5):
    axis = Axis("words", tuple(f"t{n}" for n in range(tokens)))
    maps = [AttentionMap(f"layer.{n}", torch.rand(3, tokens, tokens).softmax(-1), axis, axis) for n in range(layers)]
    return Prediction("in", "out", {}, tuple(maps))


def test_weights_come_back_to_a_byte(tmp_path):
    one = example()
    write_snapshot(tmp_path, 7, pack([one]))
    found = json.loads((tmp_path / "attention" / "step-00000007.json").read_text())
    assert found["step"] == 7
    (kept,) = found["examples"]
    assert kept["input"] == "in" and [part["name"] for part in kept["maps"]] == ["layer.0", "layer.1"]
    numbers = np.frombuffer(base64.b64decode(kept["maps"][1]["weights"]), np.uint8).reshape(3, 5, 5) / 255
    assert np.abs(numbers - one.maps[1].weights.numpy()).max() <= 0.5 / 255 + 1e-6


def test_long_texts_and_deep_models_are_cut(tmp_path, monkeypatch):
    monkeypatch.setattr(glimpses, "WEIGHTS", 3 * 48 * 48 * 2)
    write_snapshot(tmp_path, 1, pack([example(layers=8, tokens=100)]))
    found = json.loads((tmp_path / "attention" / "step-00000001.json").read_text())
    maps = found["examples"][0]["maps"]
    assert [part["name"] for part in maps] == ["layer.0", "layer.4"]
    assert len(maps[0]["queries"]) == 48


def test_nothing_is_written_of_nothing(tmp_path):
    write_snapshot(tmp_path, 1, pack([Prediction("in", "out")]))
    write_snapshot(tmp_path, 1, [])
    assert not (tmp_path / "attention").exists()
