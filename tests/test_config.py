"""Config: JSON and back, dotted overrides, help for every field, and messages with value, rule and next step."""

from __future__ import annotations

import dataclasses
import json
import math
from concurrent.futures import ThreadPoolExecutor
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import settings as chosen
from hypothesis import strategies as st

from saccade.config import from_json, override, settings, to_json
from saccade.errors import UsageError
from saccade.tasks import load_task, task_names
from saccade.training.settings import TrainConfig

fair = chosen(deadline=None, derandomize=True, max_examples=50)


@dataclasses.dataclass(frozen=True)
class Inner:
    """A group."""

    size: int = 4
    """how many"""
    share: int = 2
    """size must be a multiple"""
    mode: Literal["fast", "slow"] = "fast"
    """how"""

    def __post_init__(self) -> None:
        if self.size % self.share:
            raise ValueError(f"size must be a multiple of share, but {self.size} is not a multiple of {self.share}")


@dataclasses.dataclass(frozen=True)
class Outer:
    """All of it."""

    inner: Inner = dataclasses.field(default_factory=Inner)
    rate: float = 0.5
    """how
    quickly"""
    name: str = ""
    """called"""
    flag: bool = False
    """or not"""


@dataclasses.dataclass(frozen=True)
class More(Outer):
    """Adds a field to its parent's."""

    extra: int = 1
    """one more"""


@fair
@given(
    st.integers(1, 9).flatmap(lambda share: st.tuples(st.integers(0, 9).map(lambda n: n * share), st.just(share))),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(),
    st.booleans(),
)
def test_json_and_back(sizes: tuple[int, int], rate: float, name: str, flag: bool) -> None:
    config = Outer(Inner(*sizes, mode="slow"), rate, name, flag)
    assert from_json(Outer, json.loads(json.dumps(to_json(config)))) == config


@pytest.mark.parametrize("name", task_names())
def test_every_task_config_survives_json(name: str) -> None:
    kind = load_task(name)
    assert from_json(kind.Config, to_json(kind.Config())) == kind.Config()
    assert from_json(kind.Options, to_json(kind.Options())) == kind.Options()
    for preset in kind.presets.values():
        config = from_json(kind.Config, preset)
        assert from_json(kind.Config, to_json(config)) == config


def test_the_loop_config_survives_json() -> None:
    config = override(TrainConfig(), ["steps=3", "optim.kind=adamw"])
    assert from_json(TrainConfig, to_json(config)) == config
    assert (config.steps, config.optim.kind) == (3, "adamw")


@pytest.mark.parametrize("name", task_names())
def test_every_field_has_a_help_text(name: str) -> None:
    kind = load_task(name)
    for cls in (kind.Config, kind.Options, TrainConfig):
        result = settings(cls)
        assert result
        assert not [setting.name for setting in result if not setting.help]


def test_settings_are_dotted_with_type_default_and_help() -> None:
    result = {setting.name: setting for setting in settings(More, "x.")}
    assert list(result) == ["x.inner.size", "x.inner.share", "x.inner.mode", "x.rate", "x.name", "x.flag", "x.extra"]
    assert result["x.inner.mode"].type == "fast | slow"
    assert result["x.rate"].help == "how quickly"
    assert (result["x.extra"].type, result["x.extra"].default, result["x.extra"].help) == ("int", 1, "one more")


def test_overrides_set_fields_and_the_last_one_wins() -> None:
    result = override(Outer(), ["inner.size=8", "rate=1e-3", "name=3", "flag=true", "inner.size=6", "inner.mode=slow"])
    assert result == Outer(Inner(6, 2, "slow"), 1e-3, "3", True)
    assert override(Outer(), ["name=a=b"]).name == "a=b"
    assert override(Outer(), ["name="]).name == ""


def test_rules_between_fields_do_not_depend_on_the_order() -> None:
    overrides = ["inner.share=5", "inner.size=15"]
    assert override(Outer(), overrides) == override(Outer(), overrides[::-1]) == Outer(Inner(15, 5))


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("inner.sise=3", "no setting 'inner.sise'; did you mean 'inner.size'?"),
        ("outer.size=3", "no setting 'outer.size'; did you mean 'inner.size'?"),
        ("raet=3", "no setting 'raet'; did you mean 'rate'?"),
        ("qqqq=3", "no setting 'qqqq'; available: inner.size, inner.share, inner.mode, rate, name, flag"),
        ("inner.size=many", "inner.size must be a whole number, but is 'many'"),
        ("inner.size=2.5", "inner.size must be a whole number, but is 2.5"),
        ("inner.size=", "inner.size must be a whole number, but is ''"),
        ("rate=quick", "rate must be a number, but is 'quick'"),
        ("rate=NaN", "rate must be a finite number, but is nan"),
        ("flag=perhaps", "flag must be true or false, but is 'perhaps'"),
        ("inner.mode=slwo", "inner.mode must be 'fast' or 'slow', but is 'slwo'"),
        ("inner.size=5", "inner.size must be a multiple of share, but 5 is not a multiple of 2"),
        ("inner=5", "'inner' is a group of settings; name one of them, as in inner.size=..."),
        ("rate.x=5", "no setting 'rate.x': 'rate' is not a group of settings"),
        ("rate", "a setting must be written name=value, but is 'rate'; for example model.dim=128"),
        ("=5", "a setting must be written name=value, but is '=5'; for example model.dim=128"),
    ],
)
def test_a_wrong_override_names_value_rule_and_next_step(entry: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        override(Outer(), [entry])
    assert str(caught.value) == message
    assert caught.value.exit_code == 2


def test_a_setting_without_its_group_is_found_in_every_group() -> None:
    with pytest.raises(UsageError, match=r"no setting 'model\.depth'; did you mean one of model\.transformer\.depth, "):
        override(load_task("translation").Config(), ["model.depth=2"])


@pytest.mark.parametrize(
    "overrides",
    [
        {"inner": {"size": 6, "mode": "slow"}, "rate": 0.25},
        {"inner.size": 6, "inner.mode": "slow", "rate": 0.25},
        [{"inner": {"size": 9, "share": 3}}, "inner.size=6", {"inner": {"share": 2, "mode": "slow"}}, "rate=0.25"],
        {"inner": Inner(6, 2, "slow"), "rate": 0.25},
        [{"inner": Inner(4)}, "inner.size=6", "inner.mode=slow", "rate=0.25"],
    ],
)
def test_nested_mappings_set_fields_too(overrides: object) -> None:
    assert override(Outer(), overrides) == Outer(Inner(6, 2, "slow"), 0.25)


def test_values_of_mappings_are_not_parsed() -> None:
    assert override(Outer(), {"name": "3"}).name == "3"
    assert override(Outer(), {"name": "null", "rate": 2}).name == "null"


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"inner": {"sise": 3}}, "no setting 'inner.sise'; did you mean 'inner.size'?"),
        ({"raet": 3}, "no setting 'raet'; did you mean 'rate'?"),
        ({"inner.sise": 3}, "no setting 'inner.sise'; did you mean 'inner.size'?"),
        ({"inner": {"size": "many"}}, "inner.size must be a whole number, but is 'many'"),
        ({"inner": {"size": 5}}, "inner.size must be a multiple of share, but 5 is not a multiple of 2"),
        ({"inner": 5}, "'inner' is a group of settings; name one of them, as in inner.size=..."),
        ({"rate": {"x": 5}}, "no setting 'rate': 'rate' is not a group of settings"),
        ({"name": None}, "name must be a string, but is None"),
        ({3: 4}, "the name of a setting must be a text, but is 3; for example 'model.dim'"),
    ],
)
def test_a_wrong_mapping_names_value_rule_and_next_step(overrides: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        override(Outer(), overrides)
    assert str(caught.value) == message


def test_mappings_are_relative_to_the_prefix() -> None:
    assert override(TrainConfig(), {"optim": {"lr": 0.5}}, "train.").optim.lr == 0.5
    with pytest.raises(UsageError, match=r"^no setting 'train\.optim\.lrr'; did you mean 'train\.optim\.lr'\?$"):
        override(TrainConfig(), {"optim": {"lrr": 1}}, "train.")


def test_messages_keep_the_prefix() -> None:
    with pytest.raises(UsageError, match=r"^no setting 'train\.optim\.lrr'; did you mean 'train\.optim\.lr'\?$"):
        override(TrainConfig(), ["train.optim.lrr=1"], "train.")
    with pytest.raises(UsageError, match=r"^train\.keep must be at least 1, but is 0$"):
        override(TrainConfig(), ["train.keep=0"], "train.")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"inner": {"sise": 3}}, "no setting 'inner.sise'; did you mean 'inner.size'?"),
        ({"inner": {"size": "x"}}, "inner.size must be a whole number, but is 'x'"),
        ({"inner": {"size": 5}}, "inner.size must be a multiple of share, but 5 is not a multiple of 2"),
        ({"rate": math.inf}, "rate must be a finite number, but is inf"),
        ({"name": None}, "name must be a string, but is None"),
        ({"inner": 5}, "inner must be a group of settings, but is 5"),
        ({"nam": "x"}, "no setting 'nam'; did you mean 'name'?"),
    ],
)
def test_wrong_json_is_named(values: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        from_json(Outer, values)
    assert str(caught.value) == message


def test_configs_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Outer().rate = 3.0  # type: ignore[misc]


def test_settings_are_read_by_several_threads_at_once():
    """Parsing source in several threads fails in CPython 3.11."""
    classes = [load_task(name).Config for name in task_names()] * 4
    with ThreadPoolExecutor(8) as threads:
        read = list(threads.map(settings, classes))
    assert read == [settings(cls) for cls in classes]
    assert all(entry.help for entries in read for entry in entries)


@pytest.mark.parametrize("text", ["9" * 5000, "[" * 99999])
def test_a_text_that_no_json_reader_takes_is_an_ordinary_mistake(text):
    with pytest.raises(UsageError, match=r"^train\.steps must be a whole number, but is '[9\[]{199}$"):
        override(TrainConfig(), [f"train.steps={text}"], "train.")
