"""The report: its sentences, escaping, charts, and how a real browser shows it."""

import re

import pytest

from saccade.comparison import charts, report
from saccade.comparison.summary import solved_length, summary, text_table


def test_the_summary_names_the_best_model_and_the_loss_on_long_sources(result):
    sentences = summary(result)
    assert any(line.startswith("convolution could not be trained: its process was killed") for line in sentences)
    assert "Universal Transformer is best with 25.0 BLEU; the RNN is last with 10.0." in sentences
    assert (
        "At 8 and more source tokens the RNN loses 16.0 BLEU against RNN + attention (2.0 against 18.0); "
        "below 8 tokens the difference is +10.0." in sentences
    )


def test_the_summary_names_the_length_up_to_which_each_model_copies(result):
    sentences = summary(result)
    (copying,) = [line for line in sentences if line.startswith("Copying")]
    assert copying.endswith("RNN up to 10 symbols; RNN + attention and Universal Transformer up to 1,000 symbols.")
    (reversing,) = [line for line in sentences if line.startswith("Reversing")]
    assert reversing.endswith("RNN at no tested length.")


def test_a_length_is_solved_only_if_every_shorter_one_is():
    assert solved_length({"10": 95.0, "100": 20.0, "1000": 95.0}) == 10
    assert solved_length({"1000": 95.0, "10": 95.0, "100": 91.0}) == 1000
    assert solved_length({"10": 89.9}) == 0


def test_the_summary_has_the_growth_of_the_memory_of_attention(result):
    assert summary(result)[-1].endswith("doubling the tokens costs 4.0 and 2.0 times as much.")


def test_the_table_for_the_terminal_is_aligned(result):
    lines = text_table(result)
    assert lines[0].startswith("model") and lines[0].endswith("translating s")
    assert lines[1].startswith("rnn ") and " 10.0 " in lines[1]
    assert re.fullmatch(r"convolution\s+failed", lines[3])
    assert len({line.index(word) for line, word in zip(lines[1:3], ("1,234,567", "1,234,567"), strict=True)}) == 1


def test_the_page_has_every_section_and_names_no_other_file(result):
    text = report.page(result)
    for title in (
        "Models",
        "Quality by source length",
        "Learning curves",
        "Fixed-vector bottleneck",
        "Receptive field of the encoder",
        "Example",
        "Memory of attention",
        "Setup",
    ):
        assert f"<h2>{title}</h2>" in text
    assert "No attention: one vector for the entire source." in text
    assert "source steps" in text
    links = re.sub(r"http://www\.w3\.org/2000/svg", "", text)
    assert not re.search(r"https?:|src=|href=|@import|url\(", links)


def test_every_text_is_escaped(result, evil):
    text = report.page(result)
    assert evil not in text and "<script" not in text
    assert text.count("<style>") == text.count("</style>") == 1


def test_the_best_of_each_score_is_bold_and_a_failure_is_shown(result):
    text = report.page(result)
    assert '<td class="best">25.0</td>' in text
    assert '<td class="best">10.0</td>' not in text
    assert "its process was killed &lt;/style&gt;" in text


def test_without_a_probe_there_is_no_section_for_it(result):
    for model in result["models"]:
        model.pop("copy", None)
        model.pop("reverse", None)
    assert "Fixed-vector bottleneck" not in report.page(result)


def test_ticks_are_round_and_enclose_all_values():
    assert charts.nice_ticks(0, 23.4) == (0, 5, 10, 15, 20, 25)
    assert charts.nice_ticks(0.31, 0.34)[0] <= 0.31 and charts.nice_ticks(0.31, 0.34)[-1] >= 0.34
    assert charts.nice_ticks(5, 5)[0] <= 5 < charts.nice_ticks(5, 5)[-1]


def test_a_logarithmic_scale_gives_each_factor_the_same_width():
    scale = charts.Scale(10, 1000, 0, 200, logarithmic=True)
    assert [scale(10), scale(100), scale(1000)] == pytest.approx([0, 100, 200])


def test_a_strip_is_white_where_a_value_is_0():
    drawn = charts.strip("reach", [0.0, 1.0, 1e-3])
    assert re.findall(r'fill-opacity="([^"]+)"', drawn) == ["0", "1", "0.5"]


@pytest.mark.parametrize("width", [1100, 400])
def test_the_page_fits_a_browser_without_errors(browser, result, tmp_path, width):
    file, errors = tmp_path / "report.html", []
    file.write_text(report.page(result), encoding="utf-8")
    context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme="dark")
    tab = context.new_page()
    tab.on("console", lambda message: errors.append(message.text))
    tab.on("pageerror", lambda error: errors.append(str(error)))
    tab.goto(file.as_uri())
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    assert tab.evaluate("getComputedStyle(document.documentElement).backgroundColor") == "rgb(21, 24, 28)"
    drawn = tab.evaluate("[...document.querySelectorAll('.chart .line')].map(x => getComputedStyle(x).stroke)")
    assert len(drawn) > 10 and "none" not in drawn and len(set(drawn)) == 3
    assert tab.evaluate("window.hacked") is None
    assert not errors
    context.close()
