"""Odd tokenizers: each gives the ids and texts of transformers, or is refused by name."""

import importlib.util
import sys
from pathlib import Path

import pytest

pytest.importorskip("transformers", reason="the oracle; installed with the [test] extra")


def load(name):
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


odd = load("odd_tokenizers")


@pytest.mark.parametrize("name", odd.CASES)
def test_an_odd_tokenizer_is_that_of_transformers_or_refused_by_name(name, tmp_path):
    outcome = odd.run(name, tmp_path / "model")
    expected = odd.CASES[name].refused
    if expected:
        assert outcome.startswith("refused: ") and expected in outcome
    else:
        assert outcome == "equal"


def test_the_comparison_can_fail(tmp_path):
    config = odd.write(odd.CASES["gpt2 with a beginning"], tmp_path / "a")
    odd.write(odd.CASES["gpt2"], tmp_path / "b")
    ours = odd.read_text_processor(tmp_path / "a", config)
    import transformers

    assert odd.differences(ours, transformers.AutoTokenizer.from_pretrained(tmp_path / "b"))
    assert len(odd.CASES) >= 60
