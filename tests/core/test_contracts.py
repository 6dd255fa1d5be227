"""Axes, attention maps, metrics and callbacks."""

import json

import pytest
import torch

from saccade.core.attention import AttentionMap, AttentionMaps
from saccade.core.axes import Axis, GridAxis, NodeAxis, Role, StepAxis, TimeAxis, TokenAxis
from saccade.core.callback import Callback, Callbacks
from saccade.core.evaluation import Metric, Table

AXES = [
    TokenAxis(Role.TEXT, ("to", "ken", "s"), (0, 0, 1)),
    GridAxis(Role.IMAGE, 2, 3, extra=("class",)),
    TimeAxis(Role.AUDIO, 3, 0.02),
    NodeAxis(Role.GRAPH, ("a", "b"), ((0, 1),), ((0.0, 1.0), (1.0, 0.0))),
    StepAxis(Role.STATE, ("left", "right")),
]


def test_every_axis_class_is_here():
    assert {type(axis) for axis in AXES} == set(Axis.__subclasses__())


@pytest.mark.parametrize("axis", AXES, ids=lambda axis: axis.kind)
def test_an_axis_has_a_label_for_each_position_and_describes_itself(axis):
    described = json.loads(json.dumps(axis.to_json()))
    assert len(axis) == len(axis.labels) == len(described["labels"])
    assert described["kind"] == axis.kind and described["role"] == axis.role


def test_kinds_of_axes_differ():
    assert len({axis.kind for axis in AXES}) == len(AXES)


def test_a_grid_is_read_row_by_row_after_its_extra_positions():
    assert AXES[1].labels == ("class", "0,0", "0,1", "0,2", "1,0", "1,1", "1,2")


def test_frames_are_labelled_in_seconds():
    assert AXES[2].labels == ("0.00", "0.02", "0.04")


def test_rows_of_a_map_by_head_and_step():
    weights = torch.rand(2, 5, 3)
    axis = StepAxis(Role.STATE, tuple("abcde"))
    one = AttentionMap("encoder.0.self", weights, axis, axis)
    assert one.shape == (2, 5, 3)
    torch.testing.assert_close(one.rows(1, 5, step=2, head=1), weights[1:2, 1:5:2])
    torch.testing.assert_close(one.weights, weights)


def test_a_missing_map_lists_the_existing_ones():
    axis = AXES[0]
    maps = AttentionMaps([AttentionMap(name, torch.ones(1, 3, 3), axis, axis) for name in ("a", "b")])
    assert list(maps) == ["a", "b"] and maps["b"].name == "b"
    with pytest.raises(KeyError, match="no attention 'c'; there are: a, b"):
        maps["c"]


def test_a_metric_knows_its_direction():
    assert Metric("bleu", True, "BLEU").better(2.0, 1.0) and not Metric("bleu", True).better(1.0, 1.0)
    assert Metric("loss", False, "nats").better(1.0, 2.0)


def test_a_table_is_aligned_and_escapes_bars():
    table = Table("confusion", ("true", "a|b"), (("a|b", "10"),))
    assert table.to_markdown() == ["| true | a\\|b |", "| ---- | ---- |", "| a\\|b | 10   |"]


def test_callbacks_receive_every_event_in_order():
    heard = []

    class Listener(Callback):
        def log(self, message):
            heard.append(message)

        def on_progress(self, stage, fraction):
            heard.append((stage, fraction))

        def on_step(self, record, progress, total):
            heard.append(record["step"])

        def on_evaluation(self, record, sample):
            heard.append(sample)

    both = Callbacks([Listener(), Callback(), Listener()])
    both.log("hello")
    both.on_progress("reading", 0.5)
    both.on_step({"step": 3}, 0.1, None)
    both.on_evaluation({}, "a sample")
    assert heard == ["hello"] * 2 + [("reading", 0.5)] * 2 + [3, 3] + ["a sample"] * 2
