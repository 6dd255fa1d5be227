"""A tiny Whisper with random weights, its tokenizer and settings, as transformers writes it; windows of a second."""

import json

import torch
import transformers

from saccade.data.text.alphabets import BYTES
from saccade.data.text.vocabularies import byte_level_bpe
from saccade.pretrained.audio_processor import LogMel

SECONDS, RATE, POSITIONS = 1, 16_000, 50
WORDS = (("t", "h"), ("th", "e"), ("Ġ", "the"), ("Ġ", "a"), ("i", "n"), ("Ġa", "n"))
SPECIALS = (
    *("endoftext", "startoftranscript", "en", "de", "fr", "translate", "transcribe"),
    *("startoflm", "startofprev", "nospeech", "notimestamps"),
)


def vocabulary():
    """Return the 256 bytes and a few pairs."""
    tokens = [*sorted(BYTES), *(left + right for left, right in WORDS)]
    return {token: number for number, token in enumerate(tokens)}


IDS = {name: len(vocabulary()) + number for number, name in enumerate(SPECIALS)}
FIRST_TIMESTAMP = IDS["notimestamps"] + 1
ROWS = FIRST_TIMESTAMP + POSITIONS + 1


def write(folder, *, multilingual=False, stamps=False, seed=12, **generation):
    """Write a model to a folder; returns transformers' network.

    stamps: it may write timestamps, which a trained model does only where it is asked to.
    """
    ids = {"bos_token_id": IDS["endoftext"], "eos_token_id": IDS["endoftext"], "pad_token_id": IDS["endoftext"]}
    ids["decoder_start_token_id"] = IDS["startoftranscript"]
    config = transformers.WhisperConfig(
        vocab_size=ROWS,
        num_mel_bins=12,
        d_model=24,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=3,
        encoder_ffn_dim=40,
        decoder_ffn_dim=40,
        max_source_positions=POSITIONS,
        max_target_positions=24,
        begin_suppress_tokens=None,
        **ids,
    )
    torch.manual_seed(seed)
    model = transformers.WhisperForConditionalGeneration(config).eval()
    with torch.no_grad():
        for value in model.state_dict().values():
            value.normal_(std=0.4)
        last = model.model.decoder.layer_norm  # without a bias that prefers one token, texts vary
        last.weight.fill_(1.0)
        last.bias.zero_()
        model.model.decoder.embed_positions.weight.normal_(std=1.5)
    values = {
        **ids,
        "no_timestamps_token_id": IDS["notimestamps"],
        "is_multilingual": multilingual,
        "suppress_tokens": [1, 2, 7, IDS["startoftranscript"], IDS["transcribe"], IDS["translate"]],
        "begin_suppress_tokens": [5, IDS["endoftext"]],
        "alignment_heads": [[0, 1], [1, 0], [1, 2]],
        "max_initial_timestamp_index": 20,
        "max_length": 24,
        "return_timestamps": False,
    }
    if not stamps:
        values["suppress_tokens"] += range(FIRST_TIMESTAMP, ROWS)
    if multilingual:
        values["lang_to_id"] = {f"<|{code}|>": IDS[code] for code in ("en", "de", "fr")}
        values["task_to_id"] = {task: IDS[task] for task in ("transcribe", "translate")}
    model.generation_config = transformers.GenerationConfig(**{**values, **generation})
    model.save_pretrained(folder)
    added = [f"<|{0.02 * number:.2f}|>" for number in range(POSITIONS + 1)]
    specials = [f"<|{name}|>" for name in SPECIALS]
    byte_level_bpe(folder, vocabulary(), WORDS, specials, added=added).save(folder / "tokenizer.json")
    roles = dict.fromkeys(("bos_token", "eos_token", "unk_token", "pad_token"), "<|endoftext|>")
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "WhisperTokenizer", **roles}))
    features = LogMel(feature_size=12, chunk_length=SECONDS)
    (folder / "preprocessor_config.json").write_text(json.dumps(features.to_json()))
    return model


def sound(seconds, seed=1):
    """Return samples of a few tones that change."""
    draw = torch.Generator().manual_seed(seed)
    time = torch.arange(int(seconds * RATE)) / RATE
    pitch = 200 + 900 * torch.rand(1 + int(seconds * 8), generator=draw).repeat_interleave(RATE // 8)[: len(time)]
    return 0.3 * torch.sin(2 * torch.pi * pitch * time) + 0.01 * torch.randn(len(time), generator=draw)
