"""Foreign models as tasks: what comes from elsewhere answers like a run of one's own."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch

from saccade.core.task import Task
from saccade.data.formats.bitext import Sides
from saccade.errors import UsageError
from saccade.models.seq2seq.architectures import Seq2SeqConfig
from saccade.models.seq2seq.transformer import Translator
from saccade.models.text.bert import BertForPreTraining, SentenceEncoder
from saccade.models.text.gpt import GPT
from saccade.pretrained.catalogue import CATALOGUE
from saccade.pretrained.gguf import Opened
from saccade.pretrained.opening import open_model
from saccade.tasks import language_model, masked_language_model, sentence_vectors, translation

NEVER = -1e4  # as a logit
HUB = re.compile(r"[\w.-]+/[\w.-]+")


def is_foreign(word: str) -> bool:
    """Whether a word can mean a model from elsewhere: of the catalogue, a folder or file of one, or owner/name."""
    path = Path(word)
    if word in CATALOGUE or path.suffix == ".gguf" or (path / "config.json").is_file():
        return True
    return bool(HUB.fullmatch(word)) and not path.parent.exists()


def open_task(word: str) -> Task:
    """A language model, a guesser of hidden words or an encoder of sentences, by what the model is."""
    opened = open_model(word)
    model, shape, tokenizer = opened.foreign.model, opened.foreign.config, opened.tokenizer
    with torch.device("meta"):  # the network is there already
        if isinstance(model, GPT):
            config = language_model.TextConfig(model=shape)
            return language_model.Task(config, tokenizer, model, begin=opened.begin, end=opened.end)
        if isinstance(model, Translator):
            return _translator(opened)
        if not isinstance(model, BertForPreTraining):
            raise UsageError(f"{word} is a {opened.foreign.family.name}, which no task here can run as it is")
        if model.words is not None:
            masked = masked_language_model.MaskedConfig(
                max_length=shape.max_positions, following=model.next is not None
            )
            task = masked_language_model.Task(masked, tokenizer, shape)
            task.model = model
            return task
        vectors = sentence_vectors.Task.of(
            sentence_vectors.VectorConfig(max_length=shape.max_positions), tokenizer, shape
        )
    vectors.model = SentenceEncoder.around(model.bert)
    return vectors


def _translator(opened: Opened) -> Task:
    """A translator with the marks of its own vocabulary; what begins a target is never written in it."""
    model: Any = opened.foreign.model
    tokenizer = opened.tokenizer
    if opened.begin is None or opened.end is None:
        raise UsageError("config.json must have decoder_start_token_id and eos_token_id, but has not both")
    config = translation.TranslationConfig(model=Seq2SeqConfig(transformer=opened.foreign.config))
    sides = Sides(tokenizer, opened.target or tokenizer)
    task = translation.Task(config, sides, (opened.end, opened.begin, opened.end))
    if model.head.bias is not None:
        model.head.bias.data[opened.begin] = NEVER
    task.model = model
    return task
