"""Text models of transformers as token models: recognised by their config and forward, without importing transformers.

Shapes: B rows, S source tokens, T tokens, V outputs.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from saccade.checks.token_models import MOST, SEED, SpecialToken, TokenModel, Vocabulary, pad_rows
from saccade.errors import UsageError

ROLES = ("bos", "eos", "pad")
SOURCE = 9  # tokens of the source that the decoder of an encoder-decoder model attends to


def is_foreign(model: object) -> bool:
    """Whether an object is a model of transformers, or looks and behaves like one."""
    config = getattr(model, "config", None)
    return isinstance(model, nn.Module) and hasattr(config, "model_type") and hasattr(config, "to_dict")


def foreign_model(model: Any) -> ForeignModel:
    """Return the view of a model of transformers; one that does not read tokens is refused."""
    if getattr(model, "main_input_name", "input_ids") != "input_ids":
        raise UsageError(
            f"a model of transformers must read input_ids to be checked, but {type(model).__name__} reads "
            f"{model.main_input_name}; save it with save_pretrained and check the folder"
        )
    config = model.config
    limit = getattr(config, "max_position_embeddings", None) or getattr(config, "n_positions", None)
    kind: type[ForeignModel] = ForeignEncoder
    if getattr(config, "is_encoder_decoder", False):
        kind = ForeignSeq2Seq
        limit = None if getattr(config, "relative_attention_num_buckets", None) else limit  # T5 has no limit
    elif hasattr(model, "can_generate") and model.can_generate():
        kind = ForeignCausal
    if limit is not None and config.model_type in ("roberta", "xlm-roberta", "camembert", "longformer"):
        limit -= config.pad_token_id + 1  # their positions start after that of the padding
    return kind(model, vocabulary=config.vocab_size, limit=limit)


@dataclass
class ForeignModel(TokenModel):
    """A text model of transformers."""

    sides: tuple[str, ...] = ("right",)

    def call(self, **inputs: Any) -> Any:
        """Call the model; inputs that its forward does not take are left out."""
        accepted = inspect.signature(self.network.forward).parameters
        return self.network(**{name: value for name, value in inputs.items() if name in accepted})

    def loss(self, rows: Sequence[Sequence[int]]) -> tuple[Tensor, int] | None:
        """Return the mean loss of a padded batch and the number of labels it averages; None: the model has no loss."""
        return None

    def row_without_keys(self, rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        """Return the outputs of a batch, and those of the same batch with a further row that is padding alone."""
        width = len(rows[0])
        ids, keep = self.tensor(rows), torch.ones(len(rows), width, dtype=torch.long, device=self.device)
        more = torch.cat((ids, ids[:1])), torch.cat((keep, torch.zeros_like(keep[:1])))
        return self.outputs(ids, keep), self.outputs(*more)

    def outputs(self, ids: Tensor, keep: Tensor) -> Tensor:
        """Return the outputs (B, T, V) of a batch with its attention mask."""
        raise NotImplementedError

    def attentions(self, ids: Tensor) -> list[Tensor]:
        """Return the attention weights (B, H, Q, K) of every layer that a model with eager attention returns."""
        inputs = {"input_ids": ids, "decoder_input_ids": ids, "attention_mask": torch.ones_like(ids)}
        accepted = inspect.signature(self.network.forward).parameters
        if "output_attentions" not in accepted and all(p.kind != p.VAR_KEYWORD for p in accepted.values()):
            return []
        given = {name: value for name, value in inputs.items() if name in accepted}
        result = self.network(**given, output_attentions=True)
        names = ("attentions", "encoder_attentions", "decoder_attentions", "cross_attentions")
        return [weights for name in names for weights in getattr(result, name, None) or () if weights is not None]


def output_of(result: Any) -> Tensor:
    """Return the tensor (B, T, V) that a model of transformers returns for each position."""
    for name in ("logits", "prediction_logits", "last_hidden_state"):
        value = getattr(result, name, None)
        if isinstance(value, Tensor) and value.dim() == 3:
            return value
    hidden = getattr(result, "hidden_states", None)  # a classifier: what its encoder returns
    if hidden:
        last: Tensor = hidden[-1]
        return last
    raise UsageError(f"a model must return logits or hidden states for each position, but returns {type(result)}")


@dataclass
class ForeignEncoder(ForeignModel):
    """An encoder with or without a head."""

    def logits(self, ids: Tensor) -> Tensor:
        return self.outputs(ids, torch.ones_like(ids))

    def outputs(self, ids: Tensor, keep: Tensor) -> Tensor:
        return output_of(self.call(input_ids=ids, attention_mask=keep, output_hidden_states=True))

    def without_positions(self, ids: Tensor) -> Tensor | None:
        """Return the outputs with every token at the first position; None: positions cannot be given."""
        if "position_ids" not in inspect.signature(self.network.forward).parameters:
            return None
        zeros = torch.zeros_like(ids)
        return output_of(
            self.call(input_ids=ids, attention_mask=zeros + 1, position_ids=zeros, output_hidden_states=True)
        )

    def loss(self, rows: Sequence[Sequence[int]]) -> tuple[Tensor, int] | None:
        """Of a masked language model: the loss of predicting every token."""
        ids, keep = pad_rows(rows, "right", 0)
        mask = torch.tensor(keep, dtype=torch.long, device=self.device)
        if "labels" not in inspect.signature(self.network.forward).parameters:
            return None
        if self.logits(self.tensor([rows[0]])).shape[-1] != self.vocabulary:
            return None
        labels = self.tensor(ids).masked_fill(mask == 0, -100)
        loss = getattr(self.call(input_ids=self.tensor(ids), attention_mask=mask, labels=labels), "loss", None)
        return None if loss is None else (loss, sum(map(len, rows)))

    def padded(self, rows: Sequence[Sequence[int]], side: str, fill: int) -> list[Tensor]:
        ids, keep = pad_rows(rows, side, fill)
        out = self.outputs(self.tensor(ids), torch.tensor(keep, dtype=torch.long, device=self.device))
        return [out[number, : len(row)] for number, row in enumerate(rows)]


@dataclass
class ForeignCausal(ForeignModel):
    """A language model."""

    causal: ClassVar[bool] = True
    cached: ClassVar[bool] = True
    sides: tuple[str, ...] = ("right", "left")

    def logits(self, ids: Tensor) -> Tensor:
        return self.outputs(ids, torch.ones_like(ids))

    def outputs(self, ids: Tensor, keep: Tensor) -> Tensor:
        return output_of(self.call(input_ids=ids, attention_mask=keep, use_cache=False))

    def padded(self, rows: Sequence[Sequence[int]], side: str, fill: int) -> list[Tensor]:
        """Positions count real tokens, as `generate` counts them."""
        ids, keep = pad_rows(rows, side, fill)
        mask = torch.tensor(keep, dtype=torch.long, device=self.device)
        positions = (mask.cumsum(-1) - 1).clamp_min(0)
        out = output_of(
            self.call(input_ids=self.tensor(ids), attention_mask=mask, position_ids=positions, use_cache=False)
        )
        return [out[number][torch.tensor(keep[number])] for number in range(len(rows))]

    def loss(self, rows: Sequence[Sequence[int]]) -> tuple[Tensor, int] | None:
        ids, keep = pad_rows(rows, "right", 0)
        mask = torch.tensor(keep, dtype=torch.long, device=self.device)
        labels = self.tensor(ids).masked_fill(mask == 0, -100)
        loss = getattr(
            self.call(input_ids=self.tensor(ids), attention_mask=mask, labels=labels, use_cache=False), "loss", None
        )
        return None if loss is None else (loss, sum(len(row) - 1 for row in rows))

    def begin(self, rows: int) -> dict[str, Any]:
        return {"past": None, "length": 0}

    def step(self, state: dict[str, Any], ids: Tensor) -> Tensor:
        total = state["length"] + ids.shape[1]
        mask = torch.ones(len(ids), total, dtype=torch.long, device=self.device)
        result = self.call(input_ids=ids, attention_mask=mask, past_key_values=state["past"], use_cache=True)
        state["past"], state["length"] = result.past_key_values, total
        return output_of(result)

    def reorder(self, state: dict[str, Any], rows: Tensor) -> None:
        reorder_past(self.network, state, rows)


@dataclass
class ForeignSeq2Seq(ForeignModel):
    """An encoder-decoder model; targets attend to one fixed source."""

    causal: ClassVar[bool] = True
    cached: ClassVar[bool] = True
    sides: tuple[str, ...] = field(default=("right",))

    def _source(self, length: int, row: int) -> list[int]:
        generator = torch.Generator().manual_seed(SEED + 100 + row)
        return torch.randint(self.vocabulary, (4 * MOST,), generator=generator)[:length].tolist()

    def _encoded(self, rows: int) -> dict[str, Any]:
        """Return the encoded source for some rows."""
        ids = self.tensor([self._source(SOURCE, 0)] * rows)
        mask = torch.ones_like(ids)
        return {
            "encoder_outputs": self.network.get_encoder()(input_ids=ids, attention_mask=mask),
            "attention_mask": mask,
        }

    def logits(self, ids: Tensor) -> Tensor:
        return output_of(self.call(**self._encoded(len(ids)), decoder_input_ids=ids, use_cache=False))

    def outputs(self, ids: Tensor, keep: Tensor) -> Tensor:
        targets = self.tensor([self.sample(4)] * len(ids))
        return output_of(self.call(input_ids=ids, attention_mask=keep, decoder_input_ids=targets, use_cache=False))

    def padded(self, rows: Sequence[Sequence[int]], side: str, fill: int) -> list[Tensor]:
        """Return the outputs of one target after each source of as many tokens as the row has."""
        ids, keep = pad_rows([self._source(len(row), number) for number, row in enumerate(rows)], side, fill)
        return list(self.outputs(self.tensor(ids), torch.tensor(keep, dtype=torch.long, device=self.device)).unbind())

    def single(self, row: Sequence[int], number: int = 0) -> Tensor:
        ids = self.tensor([self._source(len(row), number)])
        return self.outputs(ids, torch.ones_like(ids))[0]

    def loss(self, rows: Sequence[Sequence[int]]) -> tuple[Tensor, int] | None:
        ids, keep = pad_rows(rows, "right", 0)
        labels = self.tensor(ids).masked_fill(~torch.tensor(keep, device=self.device), -100)
        sources = self.tensor([self._source(SOURCE, 0)] * len(rows))
        loss = getattr(self.call(input_ids=sources, labels=labels, use_cache=False), "loss", None)
        return None if loss is None else (loss, sum(map(len, rows)))

    def begin(self, rows: int) -> dict[str, Any]:
        return {"past": None, "encoded": self._encoded(rows)}

    def step(self, state: dict[str, Any], ids: Tensor) -> Tensor:
        encoded = state["encoded"]
        if len(encoded["attention_mask"]) != len(ids):
            encoded = state["encoded"] = self._encoded(len(ids))
        result = self.call(**encoded, decoder_input_ids=ids, past_key_values=state["past"], use_cache=True)
        state["past"] = result.past_key_values
        return output_of(result)

    def reorder(self, state: dict[str, Any], rows: Tensor) -> None:
        reorder_past(self.network, state, rows)


def eager_copy(view: ForeignModel) -> ForeignModel | None:
    """Return a copy with eager attention, which returns its weights; None: the model cannot switch to it."""
    if not hasattr(view.network, "set_attn_implementation"):
        return None
    other = copy.copy(view)
    other.network = copy.deepcopy(view.network)
    other.network.set_attn_implementation("eager")
    return other


def reorder_past(network: Any, state: dict[str, Any], rows: Tensor) -> None:
    """Reorder the cache as the beam search of transformers does: by the model's own function where it has one."""
    if hasattr(network, "_reorder_cache"):
        state["past"] = network._reorder_cache(state["past"], rows)
    else:
        state["past"].reorder_cache(rows)


def foreign_vocabulary(model: Any, tokenizer: Any) -> Vocabulary | None:
    """Return the tokenizer beside the embedding and the configs of a model; None: no tokenizer is given."""
    if tokenizer is None:
        return None
    generation = getattr(model, "generation_config", None)
    generates = hasattr(model, "can_generate") and bool(model.can_generate())
    configs = [model.config, generation] if generates else [model.config]
    specials = [special for role in ROLES for config in configs for special in _specials(role, config, tokenizer)]
    ends = getattr(generation, "eos_token_id", None) if generates else None
    ends = getattr(model.config, "eos_token_id", None) if ends is None else ends
    output = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
    pad = getattr(model.config, "pad_token_id", None)
    return Vocabulary(
        "tokenizer",
        tokens=max(tokenizer.get_vocab().values()) + 1,
        rows=model.get_input_embeddings().weight.shape[0],
        outputs=None if output is None else output.weight.shape[0],
        specials=tuple(dict.fromkeys(specials)),
        ends=() if ends is None else tuple(ends) if isinstance(ends, list | tuple) else (int(ends),),
        pad=getattr(tokenizer, "pad_token_id", None) if pad is None else pad,
        generates=generates,
    )


def _specials(role: str, config: Any, tokenizer: Any) -> list[SpecialToken]:
    """Return the ids of a special token in a config, each beside that of the tokenizer; one of several may be it."""
    used, named = (getattr(owner, f"{role}_token_id", None) for owner in (config, tokenizer))
    if used is None or named is None:
        return []
    numbers = list(used) if isinstance(used, list | tuple) else [used]
    return [SpecialToken(role, int(named if named in numbers else numbers[0]), int(named))]
