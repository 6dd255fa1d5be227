"""saccade heads: every head over the lines of a file, as text and as JSON, and what cannot be measured."""

import json

from click.testing import CliRunner

from saccade.cli import main


def run(*arguments):
    return CliRunner().invoke(main, ["heads", *map(str, arguments)])


def test_heads_are_printed_and_given_as_json(bert_folder, tmp_path):
    file = tmp_path / "rows.txt"
    file.write_text("the [MASK] sat\nthe dog [MASK]\n\nred [MASK]\n")
    shown = run(bert_folder, "--data", file, "--ablations", 2)
    assert shown.exit_code == 0, shown.output
    assert shown.stdout.count("entropy ") == 4 and " cost " in shown.stdout and "3 rows, " in shown.stderr
    report = json.loads(run(bert_folder, "--data", file, "--ablations", 2, "--json").stdout)
    assert report["rows"] == 3 and len(report["heads"]) == 4
    assert [head["cost"]["count"] for head in report["heads"]] == [2] * 4
    layer = report["heads"][3]["map"]
    (one,) = json.loads(run(bert_folder, "--data", file, "--layer", layer, "--head", 1, "--json").stdout)["heads"]
    assert (one["map"], one["head"], one["cost"]["count"]) == (layer, 1, 3)


def test_mistakes_are_told(bert_folder, tmp_path):
    file = tmp_path / "rows.txt"
    file.write_bytes(b"caf\xe9\n")
    for arguments, message in (
        ((bert_folder,), "data must be given for a model that is not a run"),
        ((bert_folder, "--data", file), "data must be a readable file of UTF-8"),
        ((bert_folder, "--data", __file__, "--rows", 0), "rows must be 1 to 1,000, but is 0"),
    ):
        result = run(*arguments)
        assert result.exit_code == 2 and message in result.stderr
