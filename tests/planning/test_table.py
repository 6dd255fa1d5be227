"""The published table: each count as it is known, each estimate of the right order, and the price to the dollar."""

import json
from dataclasses import replace

import pytest
from click.testing import CliRunner

import saccade
from saccade.cli import main
from saccade.errors import UsageError
from saccade.planning.counting import build, count, parameters, usual_count
from saccade.planning.shapes import ARCHITECTURES

COUNTS = {  # counted by hand or by other code bases, in millions
    "transformer-base": 63.1,
    "transformer-large": 214.2,
    "bert-base": 109.5,
    "bert-large": 335.1,
    "xlnet-large": 360.3,
    "roberta": 355.4,
    "gpt2": 1557.6112,
    "megatron-lm": 8320,
    "turing-nlg": 17180,
    "gpt3": 174600,
    "gopher": 279700,
}
STATED = [65e6, 213e6, 110e6, 340e6, 340e6, 355e6, 1.5e9, 8.3e9, 17e9, 175e9, 280e9]


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_each_row_has_the_known_count(name: str) -> None:
    assert count(ARCHITECTURES[name]).total / 1e6 == pytest.approx(COUNTS[name], rel=1e-3)


def test_exact_counts_of_published_checkpoints() -> None:
    exact = {"gpt2": 1_557_611_200, "bert-base": 109_482_240, "bert-large": 335_141_888}
    exact |= {"roberta": 355_359_744, "xlnet-large": 360_268_800}
    assert {name: count(ARCHITECTURES[name]).total for name in exact} == exact


def test_relative_positions_make_the_difference_of_gopher_and_xlnet() -> None:
    gopher, xlnet = ARCHITECTURES["gopher"], ARCHITECTURES["xlnet-large"]
    assert usual_count(gopher) / 1e9 == pytest.approx(258.3, abs=0.05)
    assert usual_count(xlnet) / 1e6 == pytest.approx(335.1, abs=0.05)
    assert count(gopher).terms == {"relative-position projection of each layer": 80 * 16384**2}


def test_the_table_has_the_stated_rows_and_each_time_is_within_a_factor_of_about_four() -> None:
    rows = saccade.plan(progress=False)["rows"]
    assert [row["stated"] for row in rows] == STATED
    for row in rows:
        if row.get("published_hours"):
            assert 1 / 4.1 < row["estimated_hours"] / row["published_hours"] < 4.1, row["name"]
    assert [row["dollars"] for row in rows if "dollars" in row] == [3_768_320.0]


def test_the_command_prints_the_table() -> None:
    result = CliRunner().invoke(main, ["plan", "--table"])
    assert result.exit_code == 0 and "Gopher: 4096 chips x 920 hours x $1 = $3,768,320" in result.stdout
    assert "258.3B" in result.stdout and "335.1M" in result.stdout and "1,557,611,200" in result.stdout
    rows = json.loads(CliRunner().invoke(main, ["plan", "--table", "--json"]).stdout)["rows"]
    assert (rows[0]["layers"], rows[0]["width"], rows[0]["heads"]) == (12, 512, 8)


def test_the_meta_device_counts_what_a_real_module_has() -> None:
    for kind in ("transformer-base", "bert-base", "gpt2"):
        small = published_small(kind)
        assert parameters(build(small)) == parameters(build(small, "cpu"))


def published_small(kind: str):
    return replace(ARCHITECTURES[kind], dim=32, depth=2, heads=4, vocabulary=50, context=16)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["gpt5"], "no data file, run or model 'gpt5'; did you mean 'gpt3'?"),
        (["transformer-base", "heads=6"], "dim must be a multiple of heads, but 512 is not a multiple of 6"),
        (["gpt2", "depth=0"], "depth must be at least 1, but is 0"),
        (["gpt2", "--device", "a10"], "no device 'a10'; did you mean 'a100'?"),
        (["gpt2", "--task", "translation"], "has its own settings, but task translation was given"),
        (["gpt2", "--measure"], "measure is for runs, but 'gpt2' is none"),
        ([], "plan needs data, a run or a published model, or --table"),
    ],
)
def test_mistakes_are_named(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(main, ["plan", *arguments])
    assert result.exit_code == 2 and message in result.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"devices": -1}, "devices must be at least 1, but is -1"),
        ({"utilisation": 1.5}, "utilisation must be above 0 and at most 1, but is 1.5"),
        ({"price": -2.0}, "price must be 0 or more, but is -2.0"),
        ({"batch": 0}, "batch must be at least 1, but is 0"),
        ({"tokens": -1.0}, "tokens must be 0 or more, but is -1"),
    ],
)
def test_options_out_of_range_are_named(options: dict[str, float], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        saccade.plan("gpt2", progress=False, **options)
