"""Suggestions: a misspelt name gets the closest valid one, or the list of valid ones."""

import pytest

from saccade.errors import suggest
from saccade.models.presets import GPT


@pytest.mark.parametrize(
    "name, choices, hint",
    [
        ("gpt2-small", list(GPT), "; did you mean 'gpt2'?"),
        ("gpt2-tiney", list(GPT), "; did you mean 'gpt2-tiny'?"),
        ("gpt2-xxl", list(GPT), "; did you mean 'gpt2-xl'?"),
        ("gtp2", list(GPT), "; did you mean 'gpt2'?"),
        ("minilm-l6-v2", ["minilm", "smollm2"], "; did you mean 'minilm'?"),
        ("smolm2", ["minilm", "smollm2"], "; did you mean 'smollm2'?"),
        ("model.dmi", ["model.dim", "model"], "; did you mean 'model.dim'?"),
        ("data.tokenizer", ["data.header", "data.valid", "model.dim"], "; available: data.header, data.valid"),
        ("data.vaild", ["data.header", "data.valid"], "; did you mean 'data.valid'?"),
        ("modle.dim", ["model.dim", "model.depth"], "; did you mean 'model.dim'?"),
        ("lable", ["label", "text"], "; did you mean 'label'?"),
        ("nope", ["label", "text"], "; available: label, text"),
        ("nope", [], ""),
    ],
)
def test_the_closest_name_is_suggested(name: str, choices: list[str], hint: str) -> None:
    assert suggest(name, choices) == hint


def test_a_long_list_of_names_is_cut() -> None:
    assert suggest("zzz", [f"a{number}" for number in range(23)]).endswith("a18, a19 and 3 more")
