"""Few-shot prompts: what the model gets, which numbers of examples fit, scores by number and order."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saccade.core.generation import TextEngine, TextEvent
from saccade.errors import UsageError
from saccade.fewshot.experiment import Trial, run
from saccade.fewshot.prompts import DEMO_EXAMPLES, DEMO_TEMPLATE, DEMO_TEST, PromptTemplate, read_examples
from saccade.fewshot.report import text_answers, text_table, write_report

EXAMPLES = [(word, word.upper()) for word in ("ab", "cd", "ef", "gh", "ij")]
TEST = [("kl", "KL"), ("mn", "MN"), ("op", "OP")]


class Copyist(TextEngine):
    """Upper-cases the input if it has seen at least two examples, else copies it; tokens are characters."""

    rows = 2

    def __init__(self, context: int = 1000) -> None:
        self.context, self.requests, self.live = context, [], []

    def encode(self, text):
        return [ord(letter) for letter in text]

    def encode_chat(self, messages):
        raise NotImplementedError

    def check(self, request):
        assert len(request.ids) + request.max_new_tokens <= self.context and request.temperature == 0

    def add(self, request):
        self.requests.append(request)
        self.live.append(len(self.requests))
        return len(self.requests)

    def remove(self, number):
        raise NotImplementedError

    def step(self):
        events = []
        for number in self.live[: self.rows]:
            prompt = "".join(map(chr, self.requests[number - 1].ids))
            *examples, last = re.findall("Input: (.*)", prompt)
            text = last.upper() if len(examples) >= 2 else last
            events.append(TextEvent(number, f" {text}", finish="stop"))
        self.live = self.live[self.rows :]
        return events[::-1]

    def __len__(self):
        return len(self.live)


def test_the_score_rises_with_the_number_of_examples():
    engine = Copyist()
    result = run(Trial(EXAMPLES, TEST), engine)
    assert [(row["examples"], row["exact"]) for row in result.rows()] == [(0, 0), (1, 0), (2, 100), (4, 100), (5, 100)]
    assert result.baseline == {"exact": 0.0, "chrf": 0.0} and result.baseline_name == "copying the input"
    prompts = ["".join(map(chr, request.ids)) for request in engine.requests]
    assert prompts[0] == "Input: kl\nOutput:"
    assert prompts[6] == "Input: ab\nOutput: AB\n\nInput: cd\nOutput: CD\n\nInput: kl\nOutput:"
    assert all(tuple(request.stop) == ("\n",) for request in engine.requests)
    assert [record["answer"] for record in result.records()][6:9] == ["KL", "MN", "OP"]  # in the order of the rows


def test_every_order_is_a_permutation_of_its_own_and_the_first_that_of_the_file():
    trial = Trial(EXAMPLES, TEST, orders=3)
    orders = [trial.chosen(5, order) for order in range(3)]
    assert orders[0] == EXAMPLES and all(sorted(order) == sorted(EXAMPLES) for order in orders)
    assert len({tuple(order) for order in orders}) == 3 and trial.chosen(5, 1) == orders[1]
    assert trial.chosen(2, 1) == orders[1][:2]
    result = run(trial, Copyist())
    assert [row["orders"] for row in result.rows()] == [1, 3, 3, 3, 3]
    assert result.rows()[2]["exact_range"] == [100, 100]
    assert text_table(result)[-1] == "mean over 3 orders of the examples, and the range"
    assert re.fullmatch(r"2 +100\.0 \(100\.0 to 100\.0\) +100\.0 \(100\.0 to 100\.0\)", text_table(result)[3])


def test_examples_that_do_not_fit_are_left_out_by_name():
    result = run(Trial(EXAMPLES, TEST), Copyist(context=80))
    assert [row["examples"] for row in result.rows()] == [0, 1, 2]
    assert result.notes == (
        "4 examples with the longest test row have 105 tokens, which with 11 for the answer is more than the context "
        "of 80: not tried with 4, 5 examples",
    )
    with pytest.raises(
        UsageError, match=r"0 examples with the longest test row have 17 tokens.*context of 20; shorten"
    ):
        run(Trial(EXAMPLES, TEST), Copyist(context=20))


def test_labels_have_an_accuracy_and_the_score_of_the_most_frequent_one():
    labelled = [("a", "Good"), ("b", "Bad"), ("c", "Good"), ("d", "Good")]
    trial = Trial(labelled, [("good", "Good"), ("bad.", "Bad")])
    assert trial.labels == ["Bad", "Good"]
    result = run(trial, Copyist())
    assert result.rows()[0]["accuracy"] == 100 and result.rows()[0]["exact"] == 0
    assert (result.baseline["accuracy"], result.baseline_name) == (50, "always answering 'Good'")
    assert Trial(EXAMPLES, TEST).labels == [] and Trial(DEMO_EXAMPLES, DEMO_TEST).labels == []


@given(
    st.lists(st.tuples(st.text("ab \n", min_size=1), st.text("ab", min_size=1)), max_size=4),
    st.sampled_from(["{input}={output}", "Input: {input}\nOutput: {output}", "Q: {input}\n\nA:\n{output}"]),
)
def test_a_prompt_is_the_beginning_of_the_prompt_with_its_answer(examples, text):
    template = PromptTemplate(text, "Do this.")
    prompt = template.prompt(examples, "x")
    assert prompt.startswith("Do this.\n\n") and prompt == prompt.rstrip()
    assert template.prompt([*examples, ("x", "y")], "z").startswith(prompt)


def test_outputs_of_several_lines_end_at_the_next_example():
    assert PromptTemplate().stops(["a\nb", "c"]) == ("\n\nInput:",)


@pytest.mark.parametrize(
    "text", ["{input}", "{output}", "{output} {input}", "{input} {input} {output}", "{input} {output} x"]
)
def test_a_template_without_its_parts_is_refused(text):
    with pytest.raises(UsageError, match=r"must have \{input\} once and \{output\} at its end.*but is"):
        PromptTemplate(text)


def test_numbers_of_examples_are_checked():
    assert Trial(EXAMPLES, TEST, counts=(4, 0, 4)).numbers == [0, 4]
    with pytest.raises(UsageError, match="counts must be from 0 to 5, the number of examples, but one is 6"):
        Trial(EXAMPLES, TEST, counts=(6,))
    with pytest.raises(UsageError, match="orders must be at least 1, but is 0"):
        Trial(EXAMPLES, TEST, orders=0)


def test_tables_are_read_as_pairs(tmp_path):
    (tmp_path / "a.csv").write_text("input,output,note\nab,AB,x\ncd,CD,y\n")
    assert read_examples(tmp_path / "a.csv") == EXAMPLES[:2]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"q": a, "b": b}) + "\n" for a, b in EXAMPLES))
    assert read_examples(tmp_path / "a.jsonl", "q", "b") == EXAMPLES


def test_the_report_is_a_page_or_a_chart(tmp_path):
    trial = Trial([("<b>", "<i>"), *EXAMPLES], [("<script>", "x"), *TEST], orders=2)
    result = run(trial, Copyist())
    write_report(result, tmp_path / "a.html", "model")
    page = (tmp_path / "a.html").read_text()
    assert "<script>" not in page and "&lt;script&gt;" in page and page.count('<svg class="chart"') == 2
    assert "Input: &lt;b&gt;\nOutput: &lt;i&gt;" in page
    write_report(result, tmp_path / "a.svg", "model")
    drawing = (tmp_path / "a.svg").read_text()
    assert drawing.startswith('<svg xmlns="http://www.w3.org/2000/svg"') and drawing.count('class="line"') == 3
    assert text_answers(result)[0] == "answers with 6 examples:" and "  kl -> KL (correct)" in text_answers(result)


def test_the_demo_is_that_of_the_paper():
    prompt = PromptTemplate(DEMO_TEMPLATE).prompt(DEMO_EXAMPLES[:1], DEMO_TEST[0][0])
    assert prompt == (
        "Poor English input: I eated the purple berries.\nGood English output: I ate the purple berries.\n\n"
        "Poor English input: I'd be more than happy to work with you in another project.\nGood English output:"
    )
    assert DEMO_TEST[0][1].endswith("on another project.")
