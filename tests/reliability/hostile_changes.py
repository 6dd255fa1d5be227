"""Changes that make the folder of a language model or of an encoder hostile: huge, nested, odd and broken values."""

import base64
import json
import os
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file

Change = Callable[[random.Random, Path], str]
CHANGES: list[Change] = []


def change(function: Change) -> Change:
    """Register a way to make a folder hostile; it returns what was done."""
    CHANGES.append(function)
    return function


def edit(folder: Path, name: str, function: Callable[[dict[str, Any]], None]) -> None:
    path = folder / name
    content = json.loads(path.read_text()) if path.exists() else {}
    function(content)
    path.write_text(json.dumps(content))


def size_of(rng: random.Random, largest: float) -> int:
    """A size between 1 and `largest`, small ones as often as large ones."""
    return int(largest ** rng.random()) + 1


def step(rng: random.Random) -> dict[str, Any]:
    """A normalizer, pre-tokenizer, post-processor or decoder with odd values."""
    text = rng.choice("a ▁é\0😀") * size_of(rng, 3e7 if rng.random() < 0.2 else 500)
    number = rng.choice([0, 1, -1, 2, 1 << 31, 1 << 63, size_of(rng, 1e6)])
    pattern = {rng.choice(["String", "Regex"]): rng.choice([text[:300], "", "(a+)+$", " ", "a"])}
    return rng.choice(
        [
            {"type": "Prepend", "prepend": text},
            {"type": "Replace", "pattern": pattern, "content": text},
            {"type": "Strip", "strip_left": True, "strip_right": True},
            {"type": "Strip", "content": "t", "start": number, "stop": number},
            {"type": "Strip", "content": text, "start": 1, "stop": 0},
            {"type": "Precompiled", "precompiled_charsmap": charsmap(rng)},
            {"type": rng.choice(["NFC", "NFD", "NFKC", "NFKD", "Lowercase", "Nmt", "StripAccents"])},
            {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "lowercase": number > 1},
            {"type": "Split", "pattern": pattern, "behavior": "Isolated", "invert": rng.random() < 0.5},
            {"type": "Metaspace", "replacement": text[:2], "prepend_scheme": "always", "split": True},
            {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
            {"type": "WordPiece", "prefix": text, "cleanup": True},
            {"type": "BPEDecoder", "suffix": text},
            {"type": "CTC", "pad_token": text, "word_delimiter_token": text, "cleanup": True},
            {"type": "Fuse"},
            {"type": "ByteFallback"},
            {"type": "RobertaProcessing", "sep": [text[:9], number], "cls": [text[:9], number]},
            {"type": "BertProcessing", "sep": ["a", number], "cls": ["b", 3]},
            template(rng),
        ]
    )


def charsmap(rng: random.Random) -> str:
    """A table of characters with a plausible size and random content."""
    units = rng.choice([0, 1, 256, size_of(rng, 1e5)])
    trie = rng.randbytes(4 * units)
    if rng.random() < 0.5:  # labels that are found
        trie = b"".join(
            struct.pack("<I", (rng.randrange(1 << 22) << 10) | (at % 256)) for at in range(min(units, 4096))
        )
    size = rng.choice([len(trie), len(trie) + 4, 1 << 31, 3])
    return base64.b64encode(struct.pack("<I", size) + trie + b"a\0" * size_of(rng, 1e6)).decode()


def template(rng: random.Random) -> dict[str, Any]:
    entries = size_of(rng, 2e5)
    row = {"SpecialToken": {"id": "<s>", "type_id": 0}}
    ids = [rng.choice([0, 1, 319, 320, 1 << 31])] * size_of(rng, 1e5)
    return {
        "type": "TemplateProcessing",
        "single": [row] * entries + [{"Sequence": {"id": rng.choice("AB"), "type_id": 0}}],
        "pair": [row],
        "special_tokens": {"<s>": {"id": "<s>", "ids": ids, "tokens": ["<s>"] * len(ids)}},
    }


@change
def one_step(rng: random.Random, folder: Path) -> str:
    name, part = rng.choice(["normalizer", "pre_tokenizer", "post_processor", "decoder"]), step(rng)
    edit(folder, "tokenizer.json", lambda content: content.update({name: part}))
    return f"{name} {str(part)[:60]}"


@change
def many_steps(rng: random.Random, folder: Path) -> str:
    name, key = rng.choice([("normalizer", "normalizers"), ("pre_tokenizer", "pretokenizers"), ("decoder", "decoders")])
    part, count = step(rng), size_of(rng, 3e5)
    if len(str(part)) * count > 2e7:
        count = int(2e7 // len(str(part))) + 1
    edit(folder, "tokenizer.json", lambda content: content.update({name: {"type": "Sequence", key: [part] * count}}))
    return f"{count:,} times {str(part)[:60]}"


@change
def nested_steps(rng: random.Random, folder: Path) -> str:
    depth, copies = rng.choice([(size_of(rng, 2e5), 1), (rng.randrange(1, 18), 2)])
    start, end, part = '{"type": "Sequence", "normalizers": [', "]}", '{"type": "NFC"}'
    if copies == 1:
        part = start * depth + part + end * depth
    else:
        for _ in range(depth):
            part = start + ",".join([part] * copies) + end
    edit(folder, "tokenizer.json", lambda content: content.update(normalizer="PART"))
    path = folder / "tokenizer.json"
    path.write_text(path.read_text().replace('"PART"', part))
    return f"{depth} levels of {copies}"


@change
def added_tokens(rng: random.Random, folder: Path) -> str:
    count, length = size_of(rng, 3e5), size_of(rng, 300)
    if count * length > 2e7:
        count = int(2e7 // length)
    flags = {name: rng.random() < 0.5 for name in ("single_word", "lstrip", "rstrip", "normalized", "special")}
    rows = [{"id": 281 + at, "content": f"{at:x}" + "x" * length, **flags} for at in range(count)]
    edit(folder, "tokenizer.json", lambda content: content["added_tokens"].extend(rows))
    return f"{count:,} added tokens of {length} characters"


@change
def named_tokens(rng: random.Random, folder: Path) -> str:
    role = rng.choice(
        ["bos_token", "eos_token", "pad_token", "tool_token", "additional_special_tokens", "chat_template"]
    )
    value = rng.choice(
        [
            "x" * size_of(rng, 1e7),
            3,
            [],
            {},
            ["a"] * size_of(rng, 1e5),
            {"content": "a"},
            {"content": 3},
            None,
            "\0",
            "",
        ]
    )
    edit(folder, "tokenizer_config.json", lambda content: content.update({role: value}))
    return f"{role} {str(value)[:60]}"


@change
def vocabulary(rng: random.Random, folder: Path) -> str:
    count, length = size_of(rng, 1e6), size_of(rng, 1e6)
    if count * length > 3e7:
        count = int(3e7 // length) + 1
    kind = rng.choice(["BPE", "Unigram", "WordPiece", "WordLevel"])
    tokens = ["<unk>", *(f"{at:x}" + "a" * (length - 1) for at in range(count))]
    vocab: Any = {token: at for at, token in enumerate(tokens)}
    if kind == "Unigram":
        vocab = [[token, rng.choice([0.0, -1.0, 1e300, -1e308])] for token in tokens]
    model = {"type": kind, "vocab": vocab, "unk_token": "<unk>", "unk_id": rng.choice([0, 1, 1 << 40, None])}
    model |= {
        "merges": [],
        "continuing_subword_prefix": "##",
        "max_input_chars_per_word": rng.choice([1, 100, 1 << 60]),
    }
    edit(folder, "tokenizer.json", lambda content: content.update(model=model))
    return f"{kind} of {count:,} tokens of {length:,} characters"


@change
def merges(rng: random.Random, folder: Path) -> str:
    pair = rng.choice([["t", "h"], "t h", "t", ["t"], ["t", "h", "e"], 3, None, ["a" * 100_000, "b"], ["é", "é"]])
    count = size_of(rng, 5e5 if len(str(pair)) < 20 else 50)
    edit(folder, "tokenizer.json", lambda content: content["model"].update(merges=[pair] * count))
    return f"{count:,} merges {str(pair)[:60]}"


@change
def model_values(rng: random.Random, folder: Path) -> str:
    name = rng.choice(
        ["unk_token", "dropout", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", "byte_fallback", "type"]
    )
    value = rng.choice([None, True, 0.5, 1.0, -1, "", "a" * size_of(rng, 1e7), [], {}, "BPE", "Unigram", "WordPiece"])
    edit(folder, "tokenizer.json", lambda content: content["model"].update({name: value}))
    return f"model {name} {str(value)[:60]}"


@change
def config_value(rng: random.Random, folder: Path) -> str:
    config = json.loads((folder / "config.json").read_text())
    name = rng.choice(
        [*config, "eos_token_id", "bos_token_id", "rope_scaling", "head_dim", "auto_map", "tokenizer_class"]
    )
    value = rng.choice(
        [
            0,
            -1,
            1,
            3,
            1 << 20,
            1 << 40,
            10**400,
            1e300,
            -0.0,
            "8",
            "x" * 100_000,
            [],
            [[]],
            {},
            None,
            True,
            [1] * 100_000,
        ]
    )
    edit(folder, "config.json", lambda content: content.update({name: value}))
    return f"config {name} {str(value)[:60]}"


@change
def generation_value(rng: random.Random, folder: Path) -> str:
    value = rng.choice([0, -1, 319, 320, 1 << 70, "x", [], [[1]], {}, None, True, [1] * 100_000])
    edit(folder, "generation_config.json", lambda content: content.update(eos_token_id=value, bos_token_id=value))
    return f"generation_config {str(value)[:60]}"


@change
def header(rng: random.Random, folder: Path) -> str:
    path = folder / "model.safetensors"
    content = path.read_bytes()
    size = struct.unpack("<Q", content[:8])[0]
    rows, data = json.loads(content[8 : 8 + size]), content[8 + size :]
    name = rng.choice([key for key in rows if key != "__metadata__"])
    field = rng.choice(["dtype", "shape", "data_offsets"])
    value = rng.choice([[0, 1 << 40], [1 << 39, 1 << 39], [-1, -1], [], [0, 0], "F8", "F64", 3, None, [1] * 9, ["a"]])
    rows[name] = {**rows[name], field: value}
    text = json.dumps(rows).encode()
    path.write_bytes(struct.pack("<Q", rng.choice([len(text), len(text), len(text), 1 << 60, 0])) + text + data)
    return f"safetensors {field} {value}"


@change
def weights(rng: random.Random, folder: Path) -> str:
    tensors = load_file(folder / "model.safetensors")
    name = rng.choice(sorted(tensors))
    value = rng.choice([float("nan"), float("inf"), 1e38, 0.0])
    tensors[name] = tensors[name] * 0 + value
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    return f"{name} all {value}"


@change
def damaged_bytes(rng: random.Random, folder: Path) -> str:
    path = folder / rng.choice(["config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"])
    content = bytearray(path.read_bytes())
    for _ in range(rng.choice([1, 1, 3, 20])):
        content[rng.randrange(len(content))] = rng.randrange(256)
    end = rng.randrange(len(content)) if rng.random() < 0.3 else len(content)
    path.write_bytes(bytes(content[:end]))
    return f"bytes of {path.name}, {end:,} of {len(content):,}"


@change
def special_file(rng: random.Random, folder: Path) -> str:
    names = ("config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors", "generation_config.json")
    path = folder / rng.choice((*names, "chat_template.jinja", "added_tokens.json", "special_tokens_map.json"))
    path.unlink(missing_ok=True)
    kind = rng.choice(["pipe", "folder", "/dev/zero", "/etc/passwd", "itself", "missing", "../../../etc/hostname"])
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to(path if kind == "itself" else kind)
    return f"{path.name} is {kind}"


@change
def odd_text(rng: random.Random, folder: Path) -> str:
    path = folder / rng.choice(["config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json"])
    depth = size_of(rng, 1e6)
    opening, name = rng.choice(["[", '{"a":', "{},", "[],", '"\\ud800",', "1e999,", "9" * 50]), path.name
    path.write_text(('{"a": [' if "," in opening else '{"a": ') + opening * depth)
    return f"{name} of {depth:,} times {opening[:10]}"
