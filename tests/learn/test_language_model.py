"""Each small preset learns a text that can be learnt, in seconds: a part that silently does nothing fails here."""

import pytest

from saccade import api

SENTENCES = ["the cat sat on the mat. ", "a dog ran in the park. ", "two birds sing at dawn. "]


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """Sentences that follow each other in a fixed way, but for which one comes: at best about 0.05 nats a letter."""
    path = tmp_path_factory.mktemp("learn") / "text.txt"
    state, words = 1, []
    for _ in range(1200):
        state = (state * 1103515245 + 12345) % 2**31
        words.append(SENTENCES[state // 65536 % 3])
    path.write_text("".join(words))
    return path


@pytest.mark.parametrize(
    ("preset", "words", "reached"),
    [
        ("tiny", [], 0.10),
        ("llama-tiny", ["model.max_positions=64"], 0.12),
        ("gpt2-tiny", ["train.optim.kind=adamw", "train.optim.lr=3e-3", "train.optim.schedule=cosine"], 0.25),
    ],
)
def test_a_preset_learns(preset, words, reached, text, tmp_path):
    trained = api.train(text, [*words, "train.steps=120", "batch=8"], preset=preset, root=tmp_path)
    assert trained.scores["loss"] < reached


def test_a_learnt_model_writes_what_it_learnt(text, tmp_path):
    trained = api.train(text, ["train.steps=120", "batch=8"], preset="tiny", root=tmp_path)
    opened = api.load(trained.run.folder)
    answer = api.predict(opened, "the cat s", ["temperature=0", "length=15"]).output
    assert answer == "at on the mat. "
    drawn = api.predict(opened, "two ", ["temperature=0.5", "length=200", "stop=dawn"]).output
    assert drawn == "birds sing at "
