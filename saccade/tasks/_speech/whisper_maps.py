"""What Whisper attends to: the maps of every layer over sound and text, and the times of words from them.

Shapes: T tokens, K positions of the sound, M mel bins, F frames.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from saccade.core import AttentionMap, AttentionMaps, Axis, Role, TimeAxis
from saccade.data.text.axes import token_axis
from saccade.models.seq2seq.interface import Memory
from saccade.models.speech.whisper import STRIDE, Whisper
from saccade.nn.probe import RecordedRow, record
from saccade.pretrained.speech_processor import SpeechProcessor
from saccade.tasks._seq2seq.attention import is_cross
from saccade.tasks._speech.windows import Recording, Window
from saccade.tasks._speech.word_times import TimedText, attention_to_costs, time_words, warp

QUIETEST, LOUDEST = -1.0, 1.5  # of a spectrogram: black and white


class WhisperMaps:
    """Reads the attention of a network."""

    def __init__(self, model: Whisper, processor: SpeechProcessor) -> None:
        self.model, self.processor = model, processor
        self.device = model.target.weight.device

    def forward(self, window: Window) -> Tensor:
        """Return the logits (1, T, V) after each token of the prompt and the text of a window."""
        tokens = torch.tensor([[*window.prompt, *window.hypothesis.ids]], device=self.device)
        memory = self.model.encode_windows(window.features[None].to(self.device))
        logits: Tensor = self.model.head(self.model.decode(tokens, memory))
        return logits

    def axes(self, window: Window) -> dict[str, tuple[Axis, Axis]]:
        """Return the axes of the queries and keys of the encoder, of the decoder and of cross-attention."""
        tokenizer, ids = self.processor.tokenizer, window.hypothesis.ids
        sound = self.sound(window.features, self.model.positions)
        read = token_axis(Role.TARGET, tokenizer, [*window.prompt, *ids])
        written = token_axis(Role.TARGET, tokenizer, [*window.prompt[1:], *ids, self.processor.end])
        return {"encoder": (sound, sound), "decoder": (read, read), "cross": (written, sound)}

    def sound(self, features: Tensor, positions: int) -> TimeAxis:
        """Return the axis of the first positions over a spectrogram (M, F)."""
        picture = draw(features[:, : STRIDE * positions])
        return TimeAxis(Role.AUDIO, positions, self.processor.seconds_per_position, picture)

    @torch.no_grad()
    def maps(self, recording: Recording) -> AttentionMaps:
        """Return every attention map; those of a second and later window have its number before their name."""
        maps: list[AttentionMap] = []
        for number, window in enumerate(recording.windows, start=1):
            with record(self.model) as recorder:
                self.forward(window)
            axes = self.axes(window)
            before = "" if number == 1 else f"window.{number}."
            for name, recorded in recorder.items():
                queries, keys = axes["cross" if is_cross(name) else name.partition(".")[0]]
                maps.append(AttentionMap(before + name, RecordedRow(recorded, 0), queries, keys))
        return AttentionMaps(maps)

    def alignment(self, maps: AttentionMaps, window: Window) -> AttentionMap:
        """Return the mean attention of the heads that follow the sound, of the text over the sound: (1, T, K)."""
        heads = alignment_heads(self.model, self.processor)
        weights = torch.stack([maps[f"decoder.{layer}.cross"].rows(0, 1 << 30, head=head)[0] for layer, head in heads])
        written = [at for at, token in enumerate(window.hypothesis.ids) if token < self.processor.first_timestamp]
        rows = [len(window.prompt) - 1 + at for at in written]  # each row predicts the token after it
        mean = weights.mean(0)[None, rows, : window.positions]
        ids = [window.hypothesis.ids[at] for at in written]
        words = token_axis(Role.TARGET, self.processor.tokenizer, ids)
        return AttentionMap("alignment", mean, words, self.sound(window.features, window.positions))

    @torch.no_grad()
    def word_times(self, recording: Recording, task: str) -> list[TimedText]:
        """Return the words of a recording, which was transcribed or translated (`task`), with their times."""
        words: list[TimedText] = []
        language = self.processor.languages.get(recording.language)
        for window in recording.windows:
            ids = window.text_ids(self.processor.first_timestamp)
            if ids:
                prompt = self.processor.prompt(language, task, timestamps=False)
                starts = self._token_times(window, prompt, ids)
                offset = window.start * self.processor.features.seconds_per_frame
                words += time_words(self.processor.tokenizer, ids, starts, recording.language or "en", offset)
        return words

    def _token_times(self, window: Window, prompt: Sequence[int], ids: Sequence[int]) -> list[float]:
        """Return the seconds in a window at which each of its tokens, and the end, start."""
        heads = alignment_heads(self.model, self.processor)
        read = [*prompt, *ids, self.processor.end][: self.model.shape.decoder.max_positions]  # a cut text has no end
        tokens = torch.tensor([read], device=self.device)
        assert window.memory is not None
        memory = Memory(window.memory[None], torch.ones_like(window.memory[None, :, 0], dtype=torch.bool))
        with record(self.model, sorted({f"decoder.{layer}.cross" for layer, _ in heads})) as recorder:
            self.model.decode(tokens, memory)
        maps = {name: recorded.rows()[0].cpu() for name, recorded in recorder.items()}  # (H, T, K)
        weights = torch.stack([maps[f"decoder.{layer}.cross"][head] for layer, head in heads])
        costs = attention_to_costs(weights, window.positions, self.processor.median_filter)
        first = warp(costs[len(prompt) - 1 : len(prompt) + len(ids)])  # each row predicts the token after it
        return [int(position) * self.processor.seconds_per_position for position in first]


def alignment_heads(model: Whisper, processor: SpeechProcessor) -> tuple[tuple[int, int], ...]:
    """Return (layer, head) of the cross-attention from which words are aligned."""
    shape = model.shape.decoder
    upper = ((layer, head) for layer in range(shape.depth // 2, shape.depth) for head in range(shape.heads))
    return processor.alignment_heads or tuple(upper)


def draw(features: Tensor) -> Tensor:
    """Return a spectrogram (M, F) as a picture uint8 (1, M, F), the lowest bin last; louder is brighter."""
    levels = (features.clamp(QUIETEST, LOUDEST) - QUIETEST) * (255 / (LOUDEST - QUIETEST))
    return levels.round().to(torch.uint8).flip(0)[None].contiguous()
