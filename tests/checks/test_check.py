"""The function and the command: reports, refusals, exit codes, and that a check never changes a model."""

import json
import re
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from click.testing import CliRunner

import saccade
from saccade.checks import list_invariants
from saccade.checks.differences import first_difference
from saccade.checks.invariants import overlap
from saccade.checks.report import CheckReport, Result
from saccade.checks.subject import task_subject
from saccade.cli import main
from saccade.core import Split
from saccade.errors import ModelFileError, UsageError
from tests.checks.planted import change_batches
from tests.checks.planted_texts import PIECES


@pytest.fixture
def model(tiny_run):
    return saccade.load(tiny_run("language_model"), device="cpu", log=lambda message: None)


def call(*arguments):
    return CliRunner().invoke(main, list(map(str, arguments)), catch_exceptions=False)


def test_a_check_changes_neither_the_weights_nor_the_mode_nor_the_task(model):
    network = model.task.model
    network.train()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    attributes, modules = dict(vars(model.task)), [id(module) for module in network.modules()]
    torch.manual_seed(3)
    state = torch.get_rng_state()
    assert saccade.check(model).passed
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert all(value.grad is None for value in network.parameters())
    assert all(module.training for module in network.modules())
    assert not any(module._forward_hooks for module in network.modules())
    assert [id(module) for module in network.modules()] == modules
    assert vars(model.task).keys() == attributes.keys()
    assert all(vars(model.task)[name] is value for name, value in attributes.items())


def test_results_are_found_by_name_and_written_as_json(model):
    report = saccade.check(model, only=["cache", "lookahead"])
    assert [result.name for result in report.results] == ["lookahead", "cache"]
    assert report["cache"].status == "passed" and report.exit_code == 0
    record = report.to_json()
    assert record["passed"] is True and record["results"][1]["message"] == report["cache"].message
    assert json.loads(json.dumps(record)) == record
    assert "passed   cache" in str(report)
    with pytest.raises(KeyError, match="no invariant 'beams' in this report; there are: lookahead, cache"):
        report["beams"]


def test_a_failure_decides_the_exit_code_and_a_warning_does_not():
    warned = CheckReport("x", [Result("warning", "m", name="heads"), Result("skipped", "m", name="nodes")])
    assert warned.passed and warned.exit_code == 0 and warned.summary() == "x: 0 passed, 1 warning, 0 failed, 1 skipped"
    failed = CheckReport("x", [Result("failed", "<b>", "e", "w", name="cache")])
    assert not failed.passed and failed.exit_code == 1
    assert "&lt;b&gt;" in failed._repr_html_() and "look at: w" in failed._repr_html_()


def test_other_things_than_models_are_refused(model):
    with pytest.raises(UsageError, match=r"model must be a run, a ref, a saccade.Model or a .* but is int"):
        saccade.check(3)
    with pytest.raises(UsageError, match="tokenizer must be given for a model of transformers only"):
        saccade.check(model, tokenizer=object())
    with pytest.raises(UsageError, match="no invariant 'cach'; did you mean 'cache'"):
        saccade.check(model, only=["cach"])


def test_a_model_of_images_of_transformers_is_refused_by_name():
    transformers = pytest.importorskip("transformers", reason="the oracle; installed with the [test] extra")
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    vit = transformers.ViTModel(transformers.ViTConfig(**sizes, image_size=8, patch_size=4))
    with pytest.raises(UsageError, match="must read input_ids to be checked, but ViTModel reads pixel_values; save it"):
        saccade.check(vit)


def test_the_smallest_example_is_shown(model):
    """A bug at distance three: the first row that is long enough, and the first position that is wrong."""
    network = model.task.model
    forward = type(network).forward

    def changed(self, ids, *given, **more):
        logits = forward(self, ids, *given, **more)
        if ids.shape[1] < 4 or not logits.dim():
            return logits
        return torch.cat((logits[:, :1] + 0.1 * ids[:, 3:4, None], logits[:, 1:]), dim=1)

    network.__class__ = type("GPT", (type(network),), {"forward": changed})
    result = saccade.check(model, only=["lookahead"])["lookahead"]
    assert result.status == "failed" and result.message.startswith("token 3 changes the output of position 0: ")
    assert result.where.startswith("the network (GPT")


@pytest.mark.parametrize(
    ("ends", "learned", "status", "message"),
    [
        (True, True, "passed", r"end \d+, which is among the labels of step 0"),
        (False, True, "passed", r"end \d+, which is neither in the data of \d+ steps nor among their labels"),
        (
            True,
            False,
            "failed",
            r"no label of \d+ steps is the end token \d+, though it stands \d+ times in the data: .*",
        ),
    ],
)
def test_the_end_of_a_text_is_looked_for_among_the_labels(tiny_run, monkeypatch, ends, learned, status, message):
    """Of a language model, whose windows need not have one."""
    model = saccade.load(tiny_run("language_model", *PIECES), device="cpu", log=lambda message: None)
    (end,) = model.task.eos_ids

    def change(batch):
        ids = batch.ids.masked_fill(batch.ids == end, end + 1)
        ids[:, ::9] = end if ends else end + 1
        return replace(batch, ids=ids, learned=None if learned else ids[:, 1:] != end)

    change_batches(model.task, change)
    result = saccade.check(model, only=["stopping"])["stopping"]
    assert result.status == status and re.fullmatch(message, result.message), str(result)


@pytest.mark.parametrize(
    ("train", "valid", "status", "message"),
    [
        (40, 40, "failed", r"1 of 1 validation examples \(100%\) are also training examples"),
        (200, 20, "skipped", "20 validation and 200 training tokens have no window of 32 to compare"),
        (20, 200, "skipped", "200 validation and 20 training tokens have no window of 32 to compare"),
    ],
)
def test_short_running_texts_are_not_compared(model, train, valid, status, message):
    subject = task_subject("short", model.task, data=model.data)
    for split, size in ((Split.TRAIN, train), (Split.VALID, valid)):
        subject.task.shards[split] = replace(subject.task.shards[split], ids=np.arange(size) % 9)
    outcome = overlap.run(subject)
    assert outcome.status == status and re.fullmatch(message, outcome.message)


def test_a_run_whose_tokenizer_has_changed_is_refused(tiny_run, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(tiny_run("text_classification"), run)
    (tokenizer,) = (run / "assets").glob("tokenizer*")
    tokenizer.write_text(tokenizer.read_text() + " ")
    result = call("check", run, "--quiet")
    assert result.exit_code == ModelFileError.exit_code
    assert f"{tokenizer.name} has changed since the run was trained; restore it from a" in result.stderr


def test_data_that_have_changed_are_not_used(tiny_run, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(tiny_run("text_classification"), run)
    described = json.loads((run / "run.json").read_text())
    other = tmp_path / "rows.tsv"
    other.write_text("text\tlabel\n" + "a cat\tpet\na dog\tnone\n" * 20)
    (run / "run.json").write_text(json.dumps({**described, "data": str(other)}))
    report = saccade.check(run)
    assert report.passed, str(report)
    assert report["overlap"].message.startswith("the data of the run cannot be used: ")
    assert "the data have changed since run 'run' started" in report["overlap"].message


def test_differences_are_found_in_nan_and_infinity():
    one = torch.tensor([1.0, float("inf"), float("nan")])
    assert first_difference(one, one.clone()) is None
    found = first_difference(torch.tensor([1.0, 2.0]), torch.tensor([1.0, float("nan")]))
    assert found is not None and found.index == (1,)
    with pytest.raises(ValueError, match=r"shape \(2,\), but have \(1,\)"):
        first_difference(torch.zeros(2), torch.zeros(1))


def test_the_command_prints_a_table_and_returns_the_exit_code(tiny_run, monkeypatch):
    run = tiny_run("language_model")
    result = call("check", run, "--quiet", "--only", "cache", "--only", "padding")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert [line.split()[:2] for line in lines[:2]] == [["passed", "padding"], ["passed", "cache"]]
    assert lines[-1] == "run: 2 passed, 0 failed, 0 skipped" and "\x1b" not in result.stdout
    monkeypatch.setattr(
        "saccade.checks.invariants.cache.first_difference", lambda one, two: first_difference(one, -two)
    )
    result = call("check", run, "--quiet", "--json", "--only", "cache")
    assert result.exit_code == 1
    (failed,) = json.loads(result.stdout)["results"]
    assert failed["status"] == "failed" and failed["message"].startswith("with a cache the output of position 0 is ")
    assert failed["example"].startswith("ids [") and failed["where"]


def test_the_command_lists_the_invariants_and_refuses_what_it_does_not_know(tiny_run):
    shown = call("check", "--list").stdout.splitlines()
    assert len(shown) == len(list_invariants()) == 21
    assert [line.split()[0] for line in shown[:3]] == ["batch", "padding", "lookahead"]
    assert json.loads(call("check", "--list", "--json").stdout) == list_invariants()
    result = call("check")
    assert result.exit_code == 2 and "REF must be given, a run or a model" in result.stderr
    result = call("check", tiny_run("language_model"), "--only", "zzzz")
    assert result.exit_code == 2 and "no invariant 'zzzz'; available: batch, padding" in result.stderr
