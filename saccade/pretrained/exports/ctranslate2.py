"""The format ctranslate2: language models, translators and Whisper in float32 for CTranslate2."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from saccade.atomic_io import new_folder
from saccade.core import Pretrained
from saccade.data.text.tokenizers import Tokenizer
from saccade.errors import UsageError
from saccade.models.seq2seq.transformer import Translator
from saccade.models.speech.whisper import STRIDE, Whisper
from saccade.models.text.gpt import GPT
from saccade.pretrained.adapters import merge_lora
from saccade.pretrained.exports.ctranslate2_specs import (
    ctranslate2_library,
    decoder_model_spec,
    norm_epsilon,
    translator_spec,
    whisper_spec,
)
from saccade.pretrained.exports.hf import check_new_folder
from saccade.pretrained.exports.parity import (
    CONTINUED,
    SEED,
    Greedy,
    Parity,
    compare,
    continue_greedily,
    sample_ids,
    sample_lengths,
    sample_text,
)
from saccade.pretrained.speech_processor import write_speech_processor

SUPPORTED = (
    "a language model (GPT-2, Llama, Mistral, Qwen2, Qwen3, SmolLM3), a translation Transformer (Marian) or a Whisper"
)
SOURCE, TARGET, TOKENIZER = "source_tokenizer.json", "target_tokenizer.json", "tokenizer.json"
LENGTHS = ((5, 4), (9, 12), (17, 8))  # tokens of the sources and of the targets that are compared


def export(pretrained: Pretrained, folder: Path) -> list[str]:
    """Write a folder for CTranslate2; return notes on what was written and the parity with it."""
    check_new_folder(folder)
    library, network = ctranslate2_library(), merge_lora(pretrained.network).eval()
    exporters: dict[type, Callable[[Pretrained, Any, Path], Parity]] = {
        GPT: _language_model,
        Translator: _translator,
        Whisper: _whisper,
    }
    exporter = next((function for kind, function in exporters.items() if type(network) is kind), None)
    if exporter is None:
        kind = pretrained.task if pretrained.family is None else pretrained.family.name
        raise UsageError(f"a model for CTranslate2 must be {SUPPORTED}, but this is a {kind}")
    with new_folder(folder) as temporary:
        parity = exporter(pretrained, network, temporary)
        line = parity.require(f"CTranslate2 {library.__version__}")
        (temporary / "README.md").write_text(
            f"# {folder.name}\n\nExported by Saccade for CTranslate2.\n\n{line}\n", encoding="utf-8"
        )
    return [f"{folder}: {pretrained.task} for CTranslate2, float32", line]


def _save(spec: Any, folder: Path) -> None:
    spec.validate()
    spec.optimize("float32")
    spec.save(str(folder))


def vocabulary(tokenizer: Tokenizer, rows: int, unnamed: str = "<extra_id_{}>") -> list[str]:
    """Return a token for each row of an embedding; those without one are named by their number."""

    def token(number: int) -> str:
        try:
            return tokenizer.token(number)
        except IndexError:
            return unnamed.format(number)

    tokens = [token(number) for number in range(rows)]
    if len(set(tokens)) < rows:
        raise UsageError("the tokens of a model for CTranslate2 must be different, but one occurs twice")
    return tokens


def _language_model(pretrained: Pretrained, network: GPT, folder: Path) -> Parity:
    spec, processor, rows = decoder_model_spec(network), pretrained.processor, network.embedding.num_embeddings
    tokens = vocabulary(processor.tokenizer, rows)
    end = tokens[processor.eos_ids[0]] if processor.eos_ids else tokens[0]
    start = end if processor.bos_id is None else tokens[processor.bos_id]
    spec.register_vocabulary(tokens)
    for name, token in (("bos_token", start), ("eos_token", end), ("unk_token", end)):
        setattr(spec.config, name, token)
    spec.config.layer_norm_epsilon = norm_epsilon(network.config)
    _save(spec, folder)
    processor.tokenizer.save(folder / TOKENIZER)
    generator = ctranslate2_library().Generator(str(folder), device="cpu", compute_type="float32")
    count, continued = sample_lengths(network.config.max_positions)
    text, batch = sample_text(processor.tokenizer, rows, count), sample_ids(rows, 3, min(count, 17))
    outputs = [torch.from_numpy(np.array(generator.forward_batch(ids))) for ids in ([text], batch.tolist())]
    with torch.no_grad():
        pairs = [(network(ids), out) for ids, out in zip((torch.tensor([text]), batch), outputs, strict=True)]
    result = generator.generate_batch(
        [[tokens[number] for number in text]],
        max_length=continued,
        min_length=continued,
        beam_size=1,
        sampling_topk=1,
        include_prompt_in_result=False,
        end_token=[],
    )
    greedy = _greedy(continue_greedily(network, text, continued), result[0].sequences_ids[0])
    return Parity(*compare(pairs), "logits", f"{len(text) + batch.numel()} tokens in 2 batches", greedy)


def _greedy(expected: Sequence[int], actual: Sequence[int]) -> Greedy:
    """Compare two continuations; if one ends earlier, they differ there."""
    length = max(len(expected), len(actual))
    equal = next((at for at in range(length) if list(expected[at : at + 1]) != list(actual[at : at + 1])), length)
    return Greedy(equal, length)


def _translator(pretrained: Pretrained, network: Translator, folder: Path) -> Parity:
    spec, processor = translator_spec(network), pretrained.processor
    source, target = processor.tokenizer, processor.target_tokenizer or processor.tokenizer
    source_tokens = vocabulary(source, network.source.num_embeddings)
    target_tokens = vocabulary(target, network.target.num_embeddings)
    end, start = target_tokens[processor.eos_ids[0]], target_tokens[processor.decoder_start_id]
    if end not in source_tokens:
        raise UsageError(f"the source of a translator for CTranslate2 must have the end token {end!r}, but has not")
    spec.register_source_vocabulary(source_tokens)
    spec.register_target_vocabulary(target_tokens)
    values = {"bos_token": start, "eos_token": end, "unk_token": end, "decoder_start_token": start}
    for name, value in {**values, "add_source_eos": True, "layer_norm_epsilon": norm_epsilon(network.config)}.items():
        setattr(spec.config, name, value)
    _save(spec, folder)
    if processor.target_tokenizer is None:
        source.save(folder / TOKENIZER)
    else:
        source.save(folder / SOURCE)
        target.save(folder / TARGET)
    translator = ctranslate2_library().Translator(str(folder), device="cpu", compute_type="float32")
    ids = (source_tokens.index(end), processor.decoder_start_id, processor.eos_ids[0])
    return _compare_translator(network, translator, (source_tokens, target_tokens), ids)


@torch.no_grad()
def _compare_translator(
    network: Translator, translator: Any, tokens: tuple[list[str], list[str]], special: tuple[int, int, int]
) -> Parity:
    """Compare the log probabilities of random targets, and greedy translations."""
    source_end, start, end = special
    pairs, equal, total, count = [], 0, 0, 0
    for source_length, target_length in LENGTHS:
        source = [number for number in sample_ids(len(tokens[0]), 1, source_length)[0].tolist() if number != source_end]
        target = [
            number for number in sample_ids(len(tokens[1]), 1, target_length)[0].tolist() if number not in special
        ]
        words, answer = [tokens[0][number] for number in source], [tokens[1][number] for number in target]
        scored = translator.score_batch([words], [answer])[0].log_probs
        encoded = torch.tensor([[*source, source_end]])
        logits = network(encoded, torch.ones_like(encoded, dtype=torch.bool), torch.tensor([[start, *target]]))
        expected = logits[0].log_softmax(-1).gather(1, torch.tensor([*target, end])[:, None])[:, 0]
        pairs.append((expected, torch.tensor(scored)))
        translated = translator.translate_batch([words], beam_size=1, max_decoding_length=CONTINUED)[0].hypotheses[0]
        greedy = _greedy(_translate(network, encoded, start, end), [tokens[1].index(token) for token in translated])
        equal, total, count = equal + greedy.equal, total + greedy.count, count + len(target) + 1
    extent = f"{count} tokens of {len(LENGTHS)} pairs"
    return Parity(*compare(pairs), "log probabilities", extent, Greedy(equal, total))


def _translate(network: Translator, source: Tensor, start: int, end: int) -> list[int]:
    """Return the greedy translation of a source, without the end token."""
    memory, ids = network.encode(source, torch.ones_like(source, dtype=torch.bool)), [start]
    for _ in range(CONTINUED):
        ids.append(int(network.head(network.decode(torch.tensor([ids]), memory))[0, -1].argmax()))
        if ids[-1] == end:
            return ids[1:-1]
    return ids[1:]


def _whisper(pretrained: Pretrained, network: Whisper, folder: Path) -> Parity:
    spec, processor = whisper_spec(network), pretrained.processor
    rows, first = network.target.num_embeddings, processor.first_timestamp
    tokens = vocabulary(processor.tokenizer, rows)
    for number in range(first, rows):  # timestamps
        tokens[number] = f"<|{(number - first) * processor.seconds_per_position:.2f}|>"
    spec.register_vocabulary(tokens)
    layers, heads = network.decoder.depth, network.config.heads
    upper = [(layer, head) for layer in range(layers // 2, layers) for head in range(heads)]
    values = {
        "suppress_ids": list(processor.suppressed),
        "suppress_ids_begin": list(processor.suppressed_first),
        "lang_ids": sorted(processor.languages.values()),
        "alignment_heads": [list(pair) for pair in processor.alignment_heads or upper],
    }
    for name, value in values.items():
        setattr(spec.config, name, value)
    _save(spec, folder)
    write_speech_processor(processor, folder)
    model = ctranslate2_library().models.Whisper(str(folder), device="cpu", compute_type="float32")
    return _compare_whisper(network, processor, model)


@torch.no_grad()
def _compare_whisper(network: Whisper, processor: Any, model: Any) -> Parity:
    """Compare the vectors of a random spectrogram, and the greedy text of it."""
    shape, view = network.shape, ctranslate2_library().StorageView
    generator = torch.Generator().manual_seed(SEED)
    sound = torch.randn(1, shape.mels, STRIDE * network.positions, generator=generator)
    memory = network.encode_windows(sound)
    encoded = torch.from_numpy(np.array(model.encode(view.from_array(sound.numpy()))))
    language = next(iter(processor.languages.values()), None)
    prompt = list(processor.prompt(language, "transcribe", timestamps=False))
    count = min(CONTINUED, shape.decoder.max_positions - len(prompt))
    result = model.generate(
        view.from_array(sound.numpy()),
        [prompt],
        beam_size=1,
        max_length=2 * count,  # half of it is generated
        suppress_blank=False,
        suppress_tokens=[processor.end],  # noise has no text
    )
    ids = list(prompt)
    for _ in range(count):
        logits = network.head(network.decode(torch.tensor([ids]), memory))[0, -1]
        logits[processor.end] = -torch.inf
        ids.append(int(logits.argmax()))
    greedy = _greedy(ids[len(prompt) :], result[0].sequences_ids[0])
    extent = f"{memory.values.shape[1]} positions of sound"
    return Parity(*compare([(memory.values, encoded)]), "encoded vectors", extent, greedy)
