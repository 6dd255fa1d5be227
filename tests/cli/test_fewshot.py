"""`saccade fewshot`: tables of examples and tests, scores on stdout, reports and answers in files."""

import json

import pytest

from saccade.tasks._language_model import memory
from tests.cli.test_chat import TINY, call, write_folder


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    """A folder with a pretrained model of 200 positions, a run, and tables of examples."""
    folder = tmp_path_factory.mktemp("fewshot")
    (folder / "examples.tsv").write_text("input\toutput\n" + "".join(f"{n}\t{n + 1}\n" for n in range(10, 25)))
    (folder / "test.tsv").write_text("input\toutput\n" + "".join(f"{n}\t{n + 1}\n" for n in (30, 31, 32)))
    text = "".join(f"Input: {number}\nOutput: {number + 1}\n\n" for number in range(200))
    (folder / "numbers.txt").write_text(text)
    write_folder(folder / "llama", "", 200)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("SACCADE_CACHE", str(folder / "cache"))
        assert call("train", "numbers.txt", "--name", "numbers", "--steps", "4", *TINY).exit_code == 0
        yield folder


def test_scores_are_printed_by_number_of_examples(workspace):
    arguments = ["fewshot", "examples.tsv", "test.tsv", "--model", "./llama", "--orders", "2"]
    result = call(*arguments, "--answers", "answers.jsonl", "--out", "report.html")
    assert result.exit_code == 0, result.stderr
    header, *rows = result.stdout.splitlines()
    assert header.split() == ["examples", "exact", "match", "chrF"]
    counts = [row.split()[0] for row in rows[:-1] if row[:1].isdigit()]
    assert counts[:3] == ["0", "1", "2"] and "15" not in counts
    assert "is more than the context of 200: not tried with" in result.stderr
    assert "wrote answers.jsonl\nwrote report.html\n" in result.stderr
    records = [json.loads(line) for line in (workspace / "answers.jsonl").read_text().splitlines()]
    assert {record["input"] for record in records} == {"30", "31", "32"}
    assert len(records) == 3 * (1 + 2 * (len(counts) - 1))
    scores = json.loads(call(*arguments, "--json").stdout)
    assert [str(row["examples"]) for row in scores["scores"]] == counts
    assert scores["baseline"]["name"] == "copying the input" and len(scores["notes"]) == 1


def test_as_many_rows_are_answered_together_as_fit_into_memory(workspace, monkeypatch):
    arguments = ["fewshot", "examples.tsv", "test.tsv", "--model", "./llama", "--counts", "0,2", "--json"]
    expected = json.loads(call(*arguments).stdout)
    monkeypatch.setattr(memory, "machine_bytes", lambda: 1)
    assert json.loads(call(*arguments).stdout) == expected


def test_a_run_of_our_own_and_a_template(workspace):
    arguments = ["--template", r"{input}\nOutput: {output}", "--counts", "0,1"]
    result = call("fewshot", "examples.tsv", "test.tsv", "--model", "numbers", *arguments, "--out", "chart.svg")
    assert result.exit_code == 0, result.stderr
    assert [line.split()[0] for line in result.stdout.splitlines()[1:3]] == ["0", "1"]
    assert (workspace / "chart.svg").read_text().startswith("<svg ")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["examples.tsv"], 2, "EXAMPLES and TEST must be two files, but one is missing; or try --demo"),
        (["examples.tsv", "test.tsv", "--demo"], 2, "--demo has examples and test rows of its own"),
        (["none.tsv", "test.tsv"], 3, "none.tsv"),
        (["bad.tsv", "test.tsv"], 3, "bad.tsv:3: 1 column, expected 2"),
        (
            ["examples.tsv", "test.tsv", "--source", "no"],
            3,
            "examples.tsv:1: no column called 'no', expected one of: input, output",
        ),
        (["examples.tsv", "test.tsv", "--counts", "1,x"], 2, "with commas, such as 0,1,2,4, but one is 'x'"),
        (["examples.tsv", "test.tsv", "--counts", "99"], 2, "counts must be from 0 to 15, the number of examples"),
        (["examples.tsv", "test.tsv", "--template", "{input}"], 2, "must have {input} once and {output} at its end"),
        (["examples.tsv", "test.tsv", "--out", "a.pdf"], 2, "must end with .html or .svg, but is 'a.pdf'"),
        (["examples.tsv", "long.tsv"], 2, "shorten the rows, or choose a model with a longer context"),
    ],
)
def test_a_mistake_has_one_message_and_an_exit_code(arguments, code, message, workspace):
    (workspace / "bad.tsv").write_text("input\toutput\n1\t2\n3\n4\t5\n")
    (workspace / "long.tsv").write_text("input\toutput\n" + "x" * 300 + "\t2\n3\t4\n")
    result = call("fewshot", *arguments, "--model", "./llama")
    assert result.exit_code == code, result.stderr
    assert message in result.stderr and "Traceback" not in result.stderr


def test_a_model_that_continues_no_text_is_refused(bert_folder, workspace):
    result = call("fewshot", "--demo", "--model", bert_folder)
    assert result.exit_code == 2 and "does not continue texts" in result.stderr


@pytest.mark.slow
def test_the_demo_with_smollm2(get_model):
    get_model("smollm2")
    result = call("fewshot", "--demo", "--model", "smollm2", "--counts", "0,1", "--json")
    zero, one = json.loads(result.stdout)["scores"]
    assert one["chrf"] > zero["chrf"]
