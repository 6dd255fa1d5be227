"""Continuations: outputs that a page watches token by token, steers, stops and branches."""

from __future__ import annotations

import base64
import secrets
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from saccade.core import GeneratedToken, StreamControl, Weights
from saccade.core.cancellation import Cancelled, cancellable
from saccade.core.serialize import pack
from saccade.errors import UsageError, suggest
from saccade.look.labels import visible
from saccade.look.names import map_titles
from saccade.model import Model
from saccade.studio.sessions import GENERATED, LABEL, OVERHEAD
from saccade.studio.work import Slots

TOP = 12  # most probable tokens of a step that are shown
LOGITS = 128 << 20  # bytes of the distributions of one continuation; the oldest are dropped first
CELLS = 1 << 22  # most weights of one response
LIVE = ("temperature", "top_k", "top_p")  # options that are printed with every token
Line = dict[str, Any]
readable = lru_cache(1 << 14)(visible)  # of the same few tokens at every step


@dataclass
class Step:
    """A token of a continuation and what it was chosen from."""

    token: GeneratedToken
    line: Line
    given: bool = False
    """whether the user chose it"""


class Continuation:
    """One output: its tokens so far with their distributions and attention; a thread generates, others read."""

    def __init__(
        self, name: str, model: Model, inputs: Mapping[str, Any], options: Mapping[str, Any], steps: Sequence[Step] = ()
    ) -> None:
        """Begin with the given steps; the output may have as many tokens as the options and the context allow."""
        self.id, self.name, self.model, self.inputs = secrets.token_urlsafe(9), name, model, inputs
        self.options, self.given = dict(options), tuple(steps)
        self.known = {setting.name: setting.default for setting in model.options}
        self.room = self._room()
        if self.room is not None:
            self.options[GENERATED] = min(self.options.get(GENERATED, self.known[GENERATED]), self.room)
        self.control = StreamControl([step.token.id for step in steps], model.read_options(**self.options))
        self.steps, self.prompt = list[Step](), tuple[str, ...]()
        self.maps: Mapping[str, Weights] = {}
        self.map, self.head = "", -1
        self.first = 0  # query that led to the first token
        self._kept, self._forgotten = 0, 0  # bytes of distributions, and how many of the first steps have none
        self._stopped, self._lock = threading.Event(), threading.Lock()

    def _room(self) -> int | None:
        """Return how many tokens fit into the context after the prompt; None: the task decides."""
        if GENERATED not in self.known:
            return None
        rooms = [
            length.limit - length.tokens + 1  # the last token is not read
            for length in self.model.input_lengths(self.inputs, **self.options)
            if length.limit is not None
        ]
        return max(0, min(rooms)) if rooms else None

    # Generating

    def lines(self, slots: Slots) -> Iterator[Line]:
        """Generate: yield what the continuation is, a line for each token, and how it ended."""
        yield {"id": self.id}
        recorded = {"attention": True} if "attention" in self.known else {}
        tokens = self.model.stream(**self.inputs, **{**self.options, **recorded}, control=self.control)
        turn: AbstractContextManager[None] = nullcontext()
        described, finish = False, ""
        while not self._stopped.is_set():
            try:
                with turn, self._lock, cancellable(self._stopped.is_set):
                    token = next(tokens, None)
                    if token is None:
                        break
                    lines = self._advance(token)
                    if not described and len(self.steps) > len(self.given):
                        described = True
                        lines = [self._description(), *lines]
            except Cancelled:
                self._stopped.set()
                break
            yield from lines
            finish = token.finish or finish
            turn = slots.turn() if token.distribution is not None else nullcontext()
        if not described:
            yield self._description()
        yield {"end": "stopped" if self._stopped.is_set() else self._reason(finish), "tokens": len(self.steps)}

    def _reason(self, finish: str) -> str:
        full = self.room is not None and len(self.steps) >= self.room
        return "context" if full and finish != "stop" else finish or "stop"

    def _advance(self, token: GeneratedToken) -> list[Line]:
        """Keep a token; returns its line."""
        self.prompt, self.maps = token.prompt, token.attention
        number = len(self.steps)
        if token.id < 0:  # text alone
            return [{"text": token.text}] if token.text else []
        if number < len(self.given):
            step = self.given[number]
            line = {**step.line, "text": token.text, "given": step.given}
            self.steps.append(Step(step.token, line, step.given))
            self._forget()
            return [line]
        if number == len(self.given):
            self.first = max((weights.shape[1] for weights in self.maps.values()), default=1) - 1 - number
        line = {"step": number, "id": token.id, "token": readable(token.token), "text": token.text}
        line |= {"settings": self._settings(token.options), "end": token.finish == "stop"}
        line |= self._probabilities(token, token.options)
        self.steps.append(Step(token, line))
        self._forget()
        return [{**line, **self._row(number)}]

    def _settings(self, options: Any) -> dict[str, Any]:
        return {} if options is None else {name: getattr(options, name) for name in LIVE if hasattr(options, name)}

    def _probabilities(self, token: GeneratedToken, options: Any) -> Line:
        """Return the most probable tokens with their probabilities under some options; none without a distribution."""
        if token.distribution is None:
            return {"candidates": []}
        top = token.distribution.next_tokens(options, TOP, token.id)
        candidates = [[c.id, readable(c.token), c.probability, c.model_probability] for c in top.candidates]
        return {"candidates": candidates, "kept": top.kept, "vocabulary": top.vocabulary}

    def _forget(self) -> None:
        """Drop the oldest distributions beyond the limit; their probabilities as they were shown remain."""
        newest = self.steps[-1].token.distribution
        self._kept += 0 if newest is None else newest.nbytes
        while self._kept > LOGITS and self._forgotten < len(self.steps):
            step = self.steps[self._forgotten]
            self._forgotten += 1
            if step.token.distribution is not None:
                self._kept -= step.token.distribution.nbytes
                step.token = GeneratedToken(step.token.token, step.token.text, id=step.token.id)

    def _description(self) -> Line:
        """Return the prompt and the maps, once the model has run."""
        titles = map_titles(self.maps)
        shapes = {name: weights.shape for name, weights in self.maps.items() if weights.shape[0]}
        maps = [{"name": name, "title": titles[name], "heads": shape[0]} for name, shape in shapes.items()]
        seed = {"seed": self.options.get("seed", self.known["seed"])} if "seed" in self.known else {}
        return {
            "prompt": [visible(label) for label in self.prompt],
            "self": GENERATED in self.known,
            "first": self.first,
            "maps": maps,
            "settings": {**self._settings(self.control.options), **seed},
            "given": len(self.given),
            "room": self.room,
        }

    def _row(self, step: int) -> Line:
        """Return the newest row of the map that is shown."""
        weights = self.maps.get(self.map)
        if weights is None or self.head >= weights.shape[0]:
            return {}
        packed = self._pack(weights, self.first + step, self.first + step + 1, self.head)
        return {"row": base64.b64encode(packed).decode(), "map": self.map, "head": self.head}

    @staticmethod
    def _pack(weights: Weights, first: int, last: int, head: int) -> bytes:
        rows = weights.rows(first, last, head=None if head < 0 else head)
        return pack(rows.mean(0), "uint16")

    # Steering and reading

    def stop(self) -> None:
        """End before the next token."""
        self._stopped.set()

    def show(self, name: str, head: int) -> None:
        """Choose the map and the head (-1: the mean) whose rows come with the tokens."""
        self.map, self.head = name, head

    def set_options(self, options: Mapping[str, Any]) -> None:
        """Change the options of the tokens that are generated next."""
        self.control.options = self.model.read_options(**{**self.options, **options})

    def distribution(self, number: int, options: Mapping[str, Any]) -> Line:
        """Return the probabilities of one step as other options would shape them."""
        token = self.step(number).token
        if token.distribution is None:
            raise UsageError("the distribution of this token is no longer kept; its probabilities are those it had")
        return self._probabilities(token, self.model.read_options(**{**self.options, **options}))

    def step(self, number: int) -> Step:
        if not 0 <= number < len(self.steps):
            raise UsageError(f"step must be below {len(self.steps)}, but is {number}")
        return self.steps[number]

    def rows(self, name: str, head: int, first: int, last: int) -> Line:
        """Return rows of a map that are computed already: from a query to another, over all keys of the last."""
        with self._lock:
            if name not in self.maps:
                raise UsageError(f"no attention '{name}'{suggest(name, list(self.maps))}")
            heads, queries, keys = self.maps[name].shape
            if head >= heads:
                raise UsageError(f"head must be below {heads}, but is {head}")
            last = min(last, queries)
            if (last - first) * keys > CELLS:
                last = first + max(1, CELLS // keys)
            if first >= last:
                raise UsageError(f"first must be below {min(last, queries)}, but is {first}")
            return {
                "columns": keys,
                "last": last,
                "cells": base64.b64encode(self._pack(self.maps[name], first, last, head)).decode(),
            }

    def branch(self, keep: int, token: int | None) -> list[Step]:
        """Return the first steps of another continuation, with a token of the user's choice after them."""
        if not 0 <= keep <= len(self.steps):
            raise UsageError(f"keep must be at most {len(self.steps)}, but is {keep}")
        steps = list(self.steps[:keep])
        if token is None:
            return steps
        parent = self.step(keep)
        if parent.token.distribution is None:
            raise UsageError("the distribution of this token is no longer kept; branch at a later one")
        size = int(parent.line["vocabulary"])
        if not 0 <= token < size:
            raise UsageError(f"token must be from 0 to {size - 1}, but is {token}")
        chosen = GeneratedToken("", "", id=token, distribution=parent.token.distribution, options=parent.token.options)
        line = {**parent.line, **self._probabilities(chosen, chosen.options), "id": token, "end": False}
        line["token"] = next(entry[1] for entry in line["candidates"] if entry[0] == token)
        return [*steps, Step(chosen, line, given=True)]

    @property
    def nbytes(self) -> int:
        """Bytes of memory, about: distributions, queries and keys, labels."""
        kept = sum(step.token.distribution.nbytes for step in [*self.steps] if step.token.distribution)
        maps = sum(weights.nbytes for weights in [*self.maps.values()])
        return OVERHEAD + kept + maps + LABEL * (TOP + 2) * len(self.steps)
