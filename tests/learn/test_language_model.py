"""Each small preset learns a text that can be learnt, in seconds: a part that silently does nothing fails here."""

import pytest

import saccade

SENTENCES = ["the cat sat on the mat. ", "a dog ran in the park. ", "two birds sing at dawn. "]


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """Sentences that follow each other in a fixed way, but for which one comes: at best about 0.05 nats a letter."""
    path = tmp_path_factory.mktemp("learn") / "text.txt"
    state, sentences = 1, []
    for _ in range(1200):
        state = (state * 1103515245 + 12345) % 2**31
        sentences.append(SENTENCES[state // 65536 % 3])
    path.write_text("".join(sentences))
    return path


@pytest.mark.parametrize(
    ("preset", "overrides", "reached"),
    [
        ("tiny", [], 0.10),
        ("llama-tiny", ["model.max_positions=64"], 0.12),
        ("gpt2-tiny", ["train.optim.kind=adamw", "train.optim.lr=3e-3", "train.optim.schedule=cosine"], 0.25),
    ],
)
def test_a_preset_learns(preset, overrides, reached, text, tmp_path):
    run = saccade.train(text, steps=120, preset=preset, root=tmp_path, batch_size=8, overrides=overrides)
    assert run.metrics["loss"] < reached


def test_a_trained_model_generates_what_it_learned(text, tmp_path):
    model = saccade.load(saccade.train(text, steps=120, preset="tiny", root=tmp_path, batch_size=8))
    assert model("the cat s", temperature=0, max_new_tokens=15).text == "at on the mat. "
    assert model("two ", temperature=0.5, max_new_tokens=200, stop="dawn").text == "birds sing at "
