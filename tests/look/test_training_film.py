"""The film of a training: one frame a snapshot, with its step, on one scale, of one head or the mean of all."""

import io

import pytest
import torch

from saccade.core import AttentionMap, GridAxis, Role, TokenAxis
from saccade.core.serialize import map_to_json
from saccade.errors import UsageError
from saccade.look.overlay import OverlayStyle
from saccade.look.training_film import MOST, training_film

image = pytest.importorskip("PIL.Image")
TOKENS = TokenAxis(Role.TEXT, ("the", "animal", "was", "tired"))


def snapshots(count=5, axis=TOKENS):
    """Maps of two heads that become sharper; the second head looks at the other end."""
    result = []
    for number in range(count):
        logits = torch.linspace(0, number, len(axis)).expand(len(axis), -1)
        weights = torch.stack((logits, logits.flip(1))).softmax(-1)
        entry = map_to_json(AttentionMap("encoder.0", weights, axis, axis), "uint8")
        result.append((2**number if number else 0, entry))
    return result


def frames_of(data):
    with image.open(io.BytesIO(data)) as film:
        steps = film.info["comment"].decode().splitlines()
        shown = []
        for number in range(film.n_frames):
            film.seek(number)
            shown.append((film.info["duration"], film.convert("RGB").tobytes(), film.size))
    return steps, shown


def test_every_snapshot_is_a_frame():
    steps, shown = frames_of(training_film("run · Layer 0", snapshots(), 0, OverlayStyle()))
    assert steps == ["step 0", "step 2", "step 4", "step 8", "step 16"]
    assert len({pixels for _, pixels, _ in shown}) == 5 and len({size for *_, size in shown}) == 1
    assert [duration for duration, *_ in shown] == [500] * 4 + [2500]


def test_heads_their_mean_and_the_scale_differ():
    films = [
        training_film("t", snapshots(), head, OverlayStyle(sqrt=sqrt))
        for head, sqrt in ((0, 0), (1, 0), (None, 0), (0, 1))
    ]
    assert len(set(films)) == 4


def test_the_same_weight_has_the_same_colour_at_all_steps():
    """The scale is that of all steps: the uniform weights of step 0 are light because later ones are larger."""
    alone = frames_of(training_film("t", snapshots(1), 0, OverlayStyle()))[1][0][1]
    among = frames_of(training_film("t", snapshots(), 0, OverlayStyle()))[1][0][1]
    assert sum(alone) < sum(among)


def test_over_an_image_the_mean_of_all_queries_is_shown():
    grid = GridAxis(Role.IMAGE, 2, 3, torch.randint(0, 255, (3, 20, 30), dtype=torch.uint8), ("class",))
    steps, shown = frames_of(training_film("t", snapshots(3, grid), 1, OverlayStyle()))
    assert len(steps) == 3 and len({pixels for _, pixels, _ in shown}) == 3


def test_a_head_that_is_not_there_and_a_run_without_snapshots_are_refused():
    with pytest.raises(UsageError, match="head must be 0 to 1, but is 2"):
        training_film("t", snapshots(), 2, OverlayStyle())
    with pytest.raises(UsageError, match="has none"):
        training_film("t", [], 0, OverlayStyle())


def test_of_very_many_snapshots_the_last_is_shown():
    many = [(number, entry) for number, (_, entry) in enumerate(snapshots(2) * MOST)]
    steps, _ = frames_of(training_film("t", many, 0, OverlayStyle()))
    assert len(steps) <= MOST + 1 and steps[-1] == f"step {2 * MOST - 1}"
