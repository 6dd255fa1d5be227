"""Subject: what is checked, in one form for runs and imported models of ours and for models of transformers."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from saccade.checks.differences import dtype_of
from saccade.checks.examples import (
    Example,
    fast_options,
    generated_examples,
    own_examples,
    tokenizers_of,
    usable_examples,
)
from saccade.checks.foreign_models import ForeignModel, foreign_model, foreign_vocabulary
from saccade.checks.token_models import (
    BertModel,
    DecoderModel,
    GPTModel,
    PolicyModel,
    SpecialToken,
    TokenModel,
    Vocabulary,
)
from saccade.core import Prediction, Source, Split, Task
from saccade.data.text.tokenizers import BEGIN, END
from saccade.errors import SaccadeError
from saccade.models.policy.policy import Policy
from saccade.models.seq2seq.interface import Seq2Seq
from saccade.models.text.bert import Bert
from saccade.models.text.gpt import GPT
from saccade.nn.attention import Attention
from saccade.runs.folder import Run


@dataclass
class Subject:
    """A model with all that the invariants need; nothing here changes the model."""

    name: str
    networks: Mapping[str, nn.Module]
    task: Task | None = None
    """a copy of the task of the model, with its own data loaded where there are any; it shares the networks"""
    run: Run | None = None
    """the folder of the run"""
    no_data: str = ""
    """why there are no data; empty: they are loaded into the task"""
    foreign: ForeignModel | None = None
    tokenizer: Any = None
    """of a model of transformers"""

    @cached_property
    def tokens(self) -> list[TokenModel]:
        """The views of the networks that read a sequence."""
        if self.foreign is not None:
            return [self.foreign]
        return [view for name, network in self.networks.items() for view in _views(self.task, name, network)]

    @cached_property
    def dtype(self) -> torch.dtype:
        """The least exact type of the weights."""
        return dtype_of(self.networks.values())

    @cached_property
    def examples(self) -> list[Example]:
        """Inputs of predictions; raises NoExamples where there are none."""
        assert self.task is not None
        own = [] if self.no_data else own_examples(self.task)
        return usable_examples(self.task, own or generated_examples(self.task))

    @cached_property
    def predictions(self) -> list[Prediction]:
        """The predictions of the examples, each computed alone."""
        return [self.predict([example])[0] for example in self.examples]

    def predict(self, examples: Sequence[Example]) -> list[Prediction]:
        assert self.task is not None
        return list(self.task.predict(examples, fast_options(self.task)))

    def attentions(self) -> Iterator[tuple[str, Attention]]:
        """Yield the attention layers of ours, by name."""
        for network, module in self.networks.items():
            prefix = "" if len(self.networks) == 1 else f"{network}."
            for name, layer in module.named_modules():
                if isinstance(layer, Attention):
                    yield prefix + name, layer

    def copies(self) -> dict[str, nn.Module]:
        """Return deep copies of the networks, which may be changed."""
        return dict(copy.deepcopy(dict(self.networks)))

    def with_networks(self, networks: Mapping[str, nn.Module]) -> Subject:
        """Return the same subject with other networks of the same classes."""
        foreign = None if self.foreign is None else self.foreign.of(networks["model"])
        task = None if self.task is None else substitute(self.task, self.networks, networks)
        other = Subject(self.name, networks, task, self.run, self.no_data, foreign, self.tokenizer)  # type: ignore[arg-type]
        if "examples" in self.__dict__:
            other.__dict__["examples"] = self.examples
        return other

    def source(self, split: Split, micro_batches: int = 0, larger: int = 1, augment: bool = True) -> Source:
        """Return the batches of a split of the run's own data.

        `micro_batches` replaces the setting; `larger` multiplies the size of a batch, which then has more lengths;
        without `augment` training examples are as they are stored.
        """
        task: Any = copy.copy(self.task)
        if not augment and hasattr(task, "augmented"):
            task.augmented = getattr(task, "unchanged", lambda batch, seed: batch)
        if micro_batches:
            sizes = [name for name in ("batch_tokens", "batch_size") if hasattr(task.config, name)]
            changes = {name: larger * getattr(task.config, name) for name in sizes}
            task.config = replace(task.config, micro_batches=micro_batches, **changes)
        source: Source = task.source(split, 1)
        return source

    def on_device(self, batches: Sequence[Any]) -> list[Any]:
        """Return batches on the device of the networks."""
        assert self.task is not None
        return [batch.to(self.task.device()) for batch in batches]

    @cached_property
    def vocabularies(self) -> list[Vocabulary]:
        """The tokenizers beside the embeddings they belong to."""
        if self.foreign is not None:
            one = foreign_vocabulary(self.foreign.network, self.tokenizer)
            return [] if one is None else [one]
        return list(_vocabularies(self.task, self.networks))


def task_subject(
    name: str, task: Task, *, run: Run | None = None, data: Path | None = None, fingerprint: str = ""
) -> Subject:
    """Return the subject of a task of ours; its data are loaded into a copy."""
    own = substitute(task, {}, {})  # texts are generated by the network itself, not by compiled code
    reason = "the model has no data: it is not a run" if data is None else ""
    if data is not None:
        try:
            own.load_data(data)
            if fingerprint:
                own.check_fingerprint(fingerprint, data, name)
        except SaccadeError as error:
            own, reason = copy.copy(task), f"the data of the run cannot be used: {error}"
    return Subject(name, own.networks(), own, run, reason)


def foreign_subject(model: Any, tokenizer: Any) -> Subject:
    """Return the subject of a model of transformers."""
    view = foreign_model(model)
    return Subject(type(model).__name__, {"model": model}, foreign=view, tokenizer=tokenizer, no_data=NO_FOREIGN_DATA)


NO_FOREIGN_DATA = "a model of transformers brings no data"


def substitute(task: Task, networks: Mapping[str, nn.Module], others: Mapping[str, nn.Module]) -> Task:
    """Return a copy of a task with other networks; what it has compiled for the old ones is left out."""
    changed = copy.copy(task)
    replaced = {id(network): others[name] for name, network in networks.items()}
    for name, value in vars(task).items():
        if id(value) in replaced:
            setattr(changed, name, replaced[id(value)])
    if hasattr(changed, "_runners"):
        changed._runners = None
    return changed


def _views(task: Task | None, name: str, network: nn.Module) -> Iterator[TokenModel]:
    if isinstance(network, GPT):
        size = network.embedding.num_embeddings
        yield GPTModel(network, name, size, network.config.max_positions)
    elif isinstance(network, Policy) and network.encoder is not None:
        yield PolicyModel(network, name, limit=network.encoder.config.max_positions)
    elif isinstance(network, Seq2Seq) and task is not None:
        yield _decoder(task, name, network)
    else:
        for path, part in network.named_modules():
            if isinstance(part, Bert):
                yield BertModel(network, name, part.embedding.num_embeddings, part.config.max_positions, path=path)


def _decoder(task: Task, name: str, network: Seq2Seq) -> DecoderModel:
    size, source = network.head.out_features, getattr(network, "source", None)
    positions = getattr(getattr(network, "config", None), "max_positions", None)
    if isinstance(source, nn.Embedding):
        return DecoderModel(network, name, size, positions, source_vocabulary=source.num_embeddings)
    return DecoderModel(network, name, size, positions, source=_encoded_source(task, name, network))


def _encoded_source(task: Task, name: str, network: Seq2Seq) -> tuple[Tensor, Tensor]:
    """Return what the task gives the encoder for its first example: a shallow copy of the network writes it down."""
    seen: list[tuple[Tensor, Tensor]] = []
    shadow = copy.copy(network)

    def encode(source: Tensor, keep: Tensor) -> Any:
        seen.append((source, keep))
        return network.encode(source, keep)

    shadow.__dict__["encode"] = encode
    copied = substitute(task, {name: network}, {name: shadow})
    subject = Subject("", {name: shadow}, copied, no_data="" if getattr(task, "splits", None) else "none")
    copied.rerun(subject.predictions[0])
    source, keep = seen[-1]
    return source[:1], keep[:1]


def _vocabularies(task: Any, networks: Mapping[str, nn.Module]) -> Iterator[Vocabulary]:
    network = next(iter(networks.values()))
    if isinstance(network, GPT):
        yield _gpt_vocabulary(task, network)
        return
    if isinstance(network, Seq2Seq):
        yield from _seq2seq_vocabularies(task, network)
        return
    rows = [
        part.num_embeddings for one in networks.values() for part in one.modules() if isinstance(part, nn.Embedding)
    ]
    for tokenizer in list(tokenizers_of(task))[:1]:
        yield Vocabulary("tokenizer", tokenizer.size, max(rows, default=0))


def _gpt_vocabulary(task: Any, network: GPT) -> Vocabulary:
    tokenizer, ends = task.tokenizer, tuple(task.eos_ids)
    written = task.processor.special_tokens.get("eos_token", "" if task.processor.eos_ids else END)
    named = tokenizer.id(written) if written in tokenizer.specials else None
    wrong = [SpecialToken("end", number, named) for number in ends[:1] if named is not None and named not in ends]
    right = [SpecialToken("end", named, named)] if named is not None and named in ends else []
    rows = network.embedding.num_embeddings
    specials = (*wrong, *right)
    return Vocabulary("tokenizer", tokenizer.size, rows, network.head.out_features, specials, ends, generates=True)


def _seq2seq_vocabularies(task: Any, network: Seq2Seq) -> Iterator[Vocabulary]:
    outputs, target = network.head.out_features, getattr(network, "target", None)
    rows = target.num_embeddings if isinstance(target, nn.Embedding) else outputs
    tokenizers = getattr(task, "tokenizers", None)
    if tokenizers is not None:  # pairs of texts
        source, special = tokenizers.source, tokenizers.special
        embedding = getattr(network, "source", target)
        end = SpecialToken("end", special.source_end, source.specials.get(END))
        source_rows = embedding.num_embeddings if isinstance(embedding, nn.Embedding) else source.size
        yield Vocabulary("source tokenizer", source.size, source_rows, specials=(end,))
        output = tokenizers.output
    else:
        output = getattr(task, "target", None)
    if output is None:  # Whisper
        processor = task.processor
        yield Vocabulary("tokenizer", processor.tokenizer.size, rows, outputs, ends=(processor.end,), generates=True)
        return
    named = output.tokenizer.specials
    specials = (SpecialToken("start", output.start, named.get(BEGIN)), SpecialToken("end", output.end, named.get(END)))
    yield Vocabulary(
        "target tokenizer", output.tokenizer.size, rows, outputs, specials, ends=(output.end,), generates=True
    )
