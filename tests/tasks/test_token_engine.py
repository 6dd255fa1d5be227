"""The text of an engine: what a tokenizer with spaces in its words adds to a prompt, and the bytes of each token."""

import pytest
import torch

from saccade.core.generation import TextRequest
from saccade.serve.texts import Choice
from saccade.tasks._language_model.generation import GenerationOptions, TextGenerator
from saccade.tasks._token_engine import TokenEngine
from tests.data.test_tokenizers import SENTENCE_PIECES

ANSWER = [SENTENCE_PIECES.id(token) for token in ("▁Paris", ".", "▁The")]


class Script:
    """A runner that generates given tokens after prompts of some length."""

    rows, capacity, reuse = 1, 64, 0

    def __init__(self, prompt):
        self.prompt = prompt

    def forward(self, pieces):
        logits = torch.zeros(1, SENTENCE_PIECES.size)
        logits[0, ANSWER[pieces[0].start + len(pieces[0].ids) - self.prompt]] = 9.0
        return [logits]


class Scripted(TokenEngine):
    def encode(self, text):
        return SENTENCE_PIECES.encode(text)

    def encode_chat(self, messages):
        raise NotImplementedError


@pytest.mark.parametrize(
    ("prompt", "expected", "offsets"),
    [(["<s>", "▁is"], " Paris. The", [0, 6, 7]), (["<s>"], "Paris. The", [0, 5, 6])],
)
def test_a_text_and_the_offsets_of_its_tokens_agree(prompt, expected, offsets):
    ids = [SENTENCE_PIECES.id(token) for token in prompt]
    engine, choice = Scripted(Script(len(ids)), SENTENCE_PIECES, 64, ()), Choice()
    engine.add(TextRequest(ids, max_new_tokens=len(ANSWER), temperature=0, logprobs=2))
    while len(engine):
        for event in engine.step():
            choice.feed(event, scored=True)
    assert choice.text == expected and [token.offset for token in choice.tokens] == offsets
    assert b"".join(token.token.data for token in choice.tokens).decode() == choice.text
    assert all(token.top[0] == token.token for token in choice.tokens)


class Scripts:
    """Makes runners that follow the script."""

    def __init__(self, prompt):
        self.prompt = prompt

    def make(self, rows, capacity):
        return Script(self.prompt)


def test_a_prediction_has_the_space_before_its_first_word():
    ids = [SENTENCE_PIECES.id(token) for token in ("<s>", "▁is")]
    generator = TextGenerator(None, SENTENCE_PIECES, 64, runners=Scripts(len(ids)))
    options = GenerationOptions(max_new_tokens=len(ANSWER), temperature=0)
    (continuation,) = generator.continue_all([ids], options)
    assert continuation.text == " Paris. The" == "".join(str(token) for token in generator.stream(ids, options))
