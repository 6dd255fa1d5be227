"""Hostile model files: each is refused quickly, in one line, with exit code 4, and no code in it is ever run."""

import base64
import json
import os
import pickle
import select
import shutil
import struct
import subprocess
import sys
import zipfile

import pytest
import torch
from safetensors.torch import load_file, save_file

from saccade.data.text.alphabets import BYTES
from saccade.data.text.tokenizer_training import train_tokenizer
from saccade.pretrained.exports.hf import write_network
from saccade.pretrained.families import FAMILIES

pytest.importorskip("gguf", reason="reads GGUF files; installed with the [gguf] extra")

TIME_LIMIT = 5.0  # seconds
MEMORY_LIMIT = 6 << 30  # bytes of address space, far above what a tiny model needs
CASES = {}


def case(name):
    """Register a function that makes a hostile file in a valid folder and returns the arguments of `saccade models`."""

    def register(function):
        assert name not in CASES
        CASES[name] = function
        return function

    return register


def add_cases(title, rows, make):
    """Add a case for each row, all built by one function."""
    for name, row in rows.items():
        CASES[f"{title}: {name}"] = lambda folder, row=row: make(folder, row)


# a valid folder, which the cases change


def valid_folder(folder):
    """A tiny BERT without faults."""
    family = FAMILIES["bert"]
    tokenizer = train_tokenizer("wordpiece", ["the cat sat on the mat"], 60)
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    fields = family.fields(vocab_size=tokenizer.size, max_position_embeddings=16, **sizes)
    config = family.read_config(fields, frozenset())
    write_network(family.build(config, fields, frozenset()), config, family, folder)
    tokenizer.save(folder / "tokenizer.json")
    return folder


def show(folder):
    return ["show", str(folder)]


def with_config(folder, values):
    """config.json with other values; None removes a field."""
    path = folder / "config.json"
    config = {**json.loads(path.read_text()), **values}
    path.write_text(json.dumps({name: value for name, value in config.items() if value is not None}))
    return show(folder)


class Evil:
    """A pickle that runs a command when it is unpickled."""

    def __reduce__(self):
        return os.system, (f"touch {os.environ['CANARY']}",)


def evil():
    return pickle.dumps({"weight": Evil()})


# pickles


def only_pickle(folder, name):
    (folder / "model.safetensors").unlink()
    (folder / name).write_bytes(evil())
    return show(folder)


def overwrite_with_pickle(folder, name):
    (folder / name).write_bytes(evil())
    return show(folder)


add_cases("pickle alone", {name: name for name in ("pytorch_model.bin", "model.pt", "weights.pth")}, only_pickle)
add_cases(
    "pickle as", {name: name for name in ("model.safetensors", "config.json", "tokenizer.json")}, overwrite_with_pickle
)


@case("pickle as vocab.txt")
def _(folder):
    (folder / "tokenizer.json").unlink()
    return overwrite_with_pickle(folder, "vocab.txt")


@case("pickle as gguf")
def _(folder):
    (folder / "a.gguf").write_bytes(evil())
    return show(folder / "a.gguf")


def convert(folder, make):
    """A pytorch_model.bin that the user allows to be opened."""
    (folder / "model.safetensors").unlink()
    make(folder / "pytorch_model.bin")
    return ["convert", str(folder), "--allow-pickle"]


def expanded(path):
    torch.save({"a": torch.zeros(1).expand(1 << 40)}, path)


def truncated(path):
    torch.save({"a": torch.zeros(1000)}, path)
    path.write_bytes(path.read_bytes()[:-700])


def compressed(path):
    """Weights that are a few bytes in the file and many in memory."""
    torch.save({"a": torch.zeros(5_000_000)}, path)
    with zipfile.ZipFile(path) as old:
        members = [(member.filename, old.read(member)) for member in old.infolist()]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new:
        for name, content in members:
            new.writestr(name, content)


PICKLES = {
    "code": lambda path: path.write_bytes(evil()),
    "code in a zip": lambda path: torch.save({"a": Evil()}, path),
    "eval": lambda path: path.write_bytes(b"cbuiltins\neval\n(S'1/0'\ntR."),
    "old protocol": lambda path: path.write_bytes(pickle.dumps(Evil(), protocol=0)),
    "empty": lambda path: path.write_bytes(b""),
    "noise": lambda path: path.write_bytes(bytes(range(256)) * 40),
    "truncated": truncated,
    "list": lambda path: torch.save([torch.zeros(2)], path),
    "numbers": lambda path: torch.save({"a": 3}, path),
    "expanded": expanded,
    "compressed": compressed,
    "nested": lambda path: torch.save({"a": {"b": torch.zeros(2)}}, path),
    "whole module": lambda path: torch.save(torch.nn.Linear(2, 2), path),
    "endless opcode": lambda path: path.write_bytes(b"\x80\x04" + b"(" * 100_000 + b"\x8e" + b"\xff" * 7 + b"\x7f"),
}
add_cases("convert", PICKLES, convert)


@case("convert without the flag")
def _(folder):
    return convert(folder, lambda path: path.write_bytes(evil()))[:2]


# config.json

CONFIGS = {
    "auto_map": {"auto_map": {"AutoModel": "modeling.Evil"}},
    "custom code": {"model_type": "evil", "auto_map": {"AutoConfig": "configuration.Evil"}},
    "a type that is a list": {"model_type": ["bert"]},
    "no type": {"model_type": None},
    "a type with control characters": {"model_type": "bert\n\x07\x1b[2Jroot"},
    "a long type": {"model_type": "b" * 5_000_000},
    "absurd width": {"hidden_size": 10**12},
    "absurd vocabulary": {"vocab_size": 10**9},
    "absurd depth": {"num_hidden_layers": 10**7},
    "absurd positions": {"max_position_embeddings": 1 << 60},
    "largest of all": {"vocab_size": 2_000_000, "hidden_size": 1 << 16, "num_attention_heads": 1},
    "more layers than tensors": {"num_hidden_layers": 500},
    "negative width": {"hidden_size": -8},
    "no heads": {"num_attention_heads": 0},
    "indivisible heads": {"num_attention_heads": 3},
    "no width": {"hidden_size": 0},
    "width as string": {"hidden_size": "8"},
    "huge width as string": {"hidden_size": "9" * 30},
    "width as boolean": {"num_hidden_layers": True},
    "width as list": {"hidden_size": [8]},
    "width as object": {"hidden_size": {"a": 8}},
    "fractional depth": {"num_hidden_layers": 0.5},
    "vocabulary size missing": {"vocab_size": None},
    "not a number": {"layer_norm_eps": float("nan")},
    "infinite": {"hidden_dropout_prob": float("inf")},
    "dropout above 1": {"hidden_dropout_prob": 17.0},
    "negative epsilon": {"layer_norm_eps": -1.0},
    "activation": {"hidden_act": "__import__('os').system('x')"},
    "decoder": {"is_decoder": True},
    "relative positions": {"position_embedding_type": "relative_key"},
    "shape mismatch": {"intermediate_size": 9},
}
add_cases("config", CONFIGS, with_config)


def with_content(name):
    def make(folder, content):
        (folder / name).write_bytes(content)
        return show(folder)

    return make


TEXTS = {
    "deep": b'{"a":' + b"[" * 300_000,
    "huge number": b'{"model_type": "bert", "vocab_size": ' + b"9" * 100_000 + b"}",
    "duplicate key": b'{"model_type": "bert", "vocab_size": 60, "vocab_size": 61}',
    "list": b"[1]",
    "empty": b"",
    "not utf-8": b'{"model_type": "\xff"}',
    "utf-16": '{"model_type": "bert"}'.encode("utf-16"),
    "too large": b" " * (17 << 20),
}
add_cases("config.json", TEXTS, with_content("config.json"))
add_cases(
    "tokenizer_config.json",
    {"deep": TEXTS["deep"], "duplicate key": b'{"a": 1, "a": 2}'},
    with_content("tokenizer_config.json"),
)


def with_special_file(name):
    def make(folder, kind):
        (folder / name).unlink()
        if kind == "pipe":
            os.mkfifo(folder / name)
        else:
            (folder / name).symlink_to({"device": "/dev/zero", "itself": folder / name}[kind])
        return show(folder)

    return make


for file in ("config.json", "model.safetensors", "tokenizer.json"):
    add_cases(f"{file} is a", {kind: kind for kind in ("pipe", "device", "itself")}, with_special_file(file))


# shards


def with_index(folder, names):
    """An index that names these files for the tensors."""
    (folder / "model.safetensors").rename(folder.parent / "outside.safetensors")
    table = {f"t{at}": name for at, name in enumerate(names)} if isinstance(names, list) else names
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": table}))
    return show(folder)


SHARDS = {
    "parent": ["../outside.safetensors"],
    "absolute": ["/tmp/outside.safetensors"],
    "home": ["~/outside.safetensors"],
    "address": ["https://example.org/model.safetensors"],
    "file address": ["file:///etc/passwd.safetensors"],
    "backslashes": ["..\\outside.safetensors"],
    "nul": ["a\0.safetensors"],
    "newline": ["a.safetensors\n"],
    "itself": ["model.safetensors.index.json"],
    "folder": ["."],
    "pickle": ["pytorch_model.bin"],
    "missing": ["model-00001-of-00002.safetensors"],
    "many": [f"m{at}.safetensors" for at in range(2000)],
    "number": [3],
    "nothing": {},
    "text": "model.safetensors",
    "long": ["a" * 100_000 + ".safetensors"],
}
add_cases("index", SHARDS, with_index)


@case("index: links in a circle")
def _(folder):
    (folder / "a.safetensors").symlink_to(folder / "b.safetensors")
    (folder / "b.safetensors").symlink_to(folder / "a.safetensors")
    return with_index(folder, ["a.safetensors", "b.safetensors"])


@case("index: one tensor in two files")
def _(folder):
    for name in ("a.safetensors", "b.safetensors"):
        save_file({"x": torch.zeros(2)}, folder / name)
    return with_index(folder, ["a.safetensors", "b.safetensors"])


# safetensors


def with_header(folder, change):
    """model.safetensors with another header before the same data."""
    path = folder / "model.safetensors"
    content = path.read_bytes()
    size = struct.unpack("<Q", content[:8])[0]
    header, data = json.loads(content[8 : 8 + size]), content[8 + size :]
    new = change(header)
    text = new if isinstance(new, bytes) else json.dumps(new).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return show(folder)


NAME = "embeddings.word_embeddings.weight"
QUERY, KEY = "encoder.layer.0.attention.self.query.weight", "encoder.layer.0.attention.self.key.weight"


def entry(**values):
    return lambda header: {**header, NAME: {**header[NAME], **values}}


def enlarged(header):
    """Every tensor with enormous sizes."""
    return {
        name: {**row, "shape": [10**9 for _ in row["shape"]]} if "shape" in row else row for name, row in header.items()
    }


HEADERS = {
    "overlap": entry(data_offsets=[0, 1920]),
    "out of the file": entry(data_offsets=[1 << 40, (1 << 40) + 1920]),
    "backwards": entry(data_offsets=[1920, 0]),
    "negative offset": entry(data_offsets=[-1920, 0]),
    "three offsets": entry(data_offsets=[0, 10, 1920]),
    "negative shape": entry(shape=[-60, -8]),
    "huge shape": entry(shape=[1 << 39, 1 << 39]),
    "overflowing shape": entry(shape=[1 << 32, 1 << 32, 1 << 32]),
    "broken shape": entry(shape=[60.5, 8]),
    "shape as string": entry(shape="60"),
    "shape of booleans": entry(shape=[True, True]),
    "many dimensions": entry(shape=[1] * 1000),
    "shape mismatch": entry(shape=[8, 60]),
    "unknown type": entry(dtype="F999"),
    "dtype with control characters": entry(dtype="F32\n\x07\x1b[2Jroot"),
    "type as list": entry(dtype=["F32"]),
    "entry as string": lambda header: {**header, NAME: "F32"},
    "all enlarged": enlarged,
    "list": lambda header: [header],
    "empty": lambda header: {},
    "not JSON": lambda header: b"\x80\x04evil",
    "deep": lambda header: b'{"a":' + b"[" * 300_000,
    "duplicate key": lambda header: (
        json.dumps(header)[:-1] + f', "{NAME}": ' + json.dumps({**header[NAME], "shape": [1, 480]}) + "}"
    ).encode(),
    "too many": lambda header: {
        f"t{at}": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for at in range(100_001)
    },
}
add_cases("safetensors", HEADERS, with_header)
SIZES = {
    "empty": b"",
    "seven bytes": b"1234567",
    "huge header": struct.pack("<Q", 1 << 62) + b"{}",
    "header past the end": struct.pack("<Q", 1 << 20) + b"{}",
    "zeros": bytes(1000),
    "web page": b"<!DOCTYPE html><html>404</html>",
    "pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 90868376\n",
}
add_cases("safetensors file", SIZES, with_content("model.safetensors"))


@case("safetensors: truncated")
def _(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-5])
    return show(folder)


def with_tensors(folder, change):
    """model.safetensors as a complete file with other tensors."""
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")
    return show(folder)


TENSORS = {
    "missing": lambda tensors: tensors.pop(NAME),
    "no known tensor": lambda tensors: (tensors.clear(), tensors.update(x=torch.zeros(1))),
    "float8": lambda tensors: tensors.update({NAME: tensors[NAME].to(torch.float8_e4m3fn)}),
    "integers": lambda tensors: tensors.update({NAME: tensors[NAME].long()}),
    "transposed": lambda tensors: tensors.update({NAME: tensors[NAME].t().contiguous()}),
    "flat": lambda tensors: tensors.update({NAME: tensors[NAME].flatten()}),
    "one number": lambda tensors: tensors.update({NAME: torch.tensor(1.0)}),
    "query without rows": lambda tensors: tensors.update({QUERY: torch.zeros(0, 8)}),
    "swapped rows": lambda tensors: tensors.update({QUERY: torch.zeros(4, 8), KEY: torch.zeros(12, 8)}),
    "query width mismatch": lambda tensors: tensors.update({QUERY: torch.zeros(8, 7)}),
    "query of three dimensions": lambda tensors: tensors.update({QUERY: torch.zeros(2, 4, 8)}),
}
add_cases("safetensors tensor", TENSORS, with_tensors)


@case("index: a name with control characters in two files")
def _(folder):
    for name in ("a.safetensors", "b.safetensors"):
        save_file({"x\n\x07\x1b[2Jroot": torch.zeros(1)}, folder / name)
    return with_index(folder, ["a.safetensors", "b.safetensors"])


# tokenizers


def with_tokenizer(folder, change):
    """tokenizer.json with a change."""
    path = folder / "tokenizer.json"
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    return show(folder)


def split(pattern):
    step = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    return lambda content: content.update(pre_tokenizer=step)


def replaced(count):
    step = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
    return lambda content: content.update(normalizer={"type": "Sequence", "normalizers": [step] * count})


def vocabulary(**tokens):
    return lambda content: content["model"]["vocab"].update(tokens)


def nested(depth):
    step = {"type": "NFC"}
    for _ in range(depth):
        step = {"type": "Sequence", "normalizers": [step]}
    return step


def charsmap(trie, replacements=b"a\0", value=0):
    """A table of characters in base64; the trie may have a place for the value of its key."""
    filled = trie.replace(b"VALU", struct.pack("<I", value))
    return base64.b64encode(struct.pack("<I", len(filled)) + filled + replacements).decode()


def letter_a():
    """A trie with the single key "a"."""
    units = [0] * 512
    units[0] = 256 << 10  # the children of the root start at 256
    at = 256 ^ ord("a")
    units[at] = (256 << 10) | (1 << 8) | ord("a")  # a leaf, whose value is at `at` ^ 256
    packed = [struct.pack("<I", unit) for unit in units]
    packed[at ^ 256] = b"VALU"
    return b"".join(packed)


LETTER_A = letter_a()


def unigram(content):
    content.update(model={"type": "Unigram", "unk_id": 99, "vocab": [["a", 0.0]]})


TOKENIZERS = {
    "bomb": split("(a+)+$"),
    "bomb by references": split(r"(a*)*\1b"),
    "long pattern": split("a" * 10_000),
    "replacements": replaced(40),
    "bomb in a replacement": lambda content: content.update(
        normalizer={"type": "Replace", "pattern": {"Regex": "(.*)*x"}, "content": ""}
    ),
    "huge id": vocabulary(evil=1 << 40),
    "negative id": vocabulary(evil=-1),
    "duplicate id": vocabulary(evil=3),
    "fractional id": vocabulary(evil=1.5),
    "id beyond the model": vocabulary(evil=1_999_999),
    "added beyond the model": lambda content: content["added_tokens"].append({"id": 1 << 31, "content": "x"}),
    "added as string": lambda content: content.update(added_tokens="evil"),
    "unknown model": lambda content: content["model"].update(type="Python"),
    "unknown step": lambda content: content.update(pre_tokenizer={"type": "Exec", "command": "x"}),
    "step of a long name": lambda content: content.update(pre_tokenizer={"type": "E" * 1_000_000}),
    "no vocabulary": lambda content: content["model"].update(vocab={}),
    "unigram": unigram,
    "precompiled": lambda content: content.update(normalizer={"type": "Precompiled", "precompiled_charsmap": "AAAA"}),
    "template": lambda content: content.update(post_processor={"type": "TemplateProcessing", "single": 3}),
    "prefix of 28 MB": lambda content: content.update(normalizer={"type": "Prepend", "prepend": "a" * 28_000_000}),
    "replacement of 28 MB": lambda content: content.update(
        normalizer={"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 28_000_000}
    ),
    "replacement of nothing": lambda content: content.update(
        normalizer={"type": "Replace", "pattern": {"String": ""}, "content": "a"}
    ),
    "template of a million entries": lambda content: content.update(
        post_processor={
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}] * 1_000_000,
            "pair": [],
            "special_tokens": {},
        }
    ),
    "a million ids of one token": lambda content: content.update(
        post_processor={
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}],
            "pair": [],
            "special_tokens": {"[CLS]": {"id": "[CLS]", "ids": [2] * 1_000_000, "tokens": ["[CLS]"] * 1_000_000}},
        }
    ),
    "a million normalizers": lambda content: content.update(
        normalizer={"type": "Sequence", "normalizers": [{"type": "NFC"}] * 1_000_000}
    ),
    "a hundred normalizers": lambda content: content.update(
        normalizer={"type": "Sequence", "normalizers": [{"type": "NFC"}] * 100}
    ),
    "nested normalizers": lambda content: content.update(normalizer=nested(100)),
    "long token": vocabulary(**{"a" * 2_000_000: 30}),
    "many long added tokens": lambda content: content["added_tokens"].extend(
        {"id": 40 + at, "content": f"{at}" + "x" * 200} for at in range(15_000)
    ),
    "added token with an unknown flag": lambda content: content["added_tokens"][0].update(evil=True),
    "unigram of long pieces": lambda content: content.update(
        model={"type": "Unigram", "unk_id": 0, "vocab": [[f"{at}" + "x" * 900, 0.0] for at in range(8000)]}
    ),
    "unigram score": lambda content: content.update(
        model={"type": "Unigram", "unk_id": 0, "vocab": [["a", float("nan")]]}
    ),
    "merges without the prefix inside words": lambda content: content.update(
        model={
            "type": "BPE",
            "vocab": {"a": 0, "b": 1, "ab": 2},
            "merges": [["a", "b"]],
            "continuing_subword_prefix": "#####",
        }
    ),
    "strip beyond a token": lambda content: content.update(
        decoder={"type": "Strip", "content": "t", "start": 0, "stop": 9}
    ),
    "charsmap that points outside": lambda content: content.update(
        normalizer={"type": "Precompiled", "precompiled_charsmap": charsmap(bytes(range(256)) * 8)}
    ),
    "charsmap with a long replacement": lambda content: content.update(
        normalizer={"type": "Precompiled", "precompiled_charsmap": charsmap(LETTER_A, b"x" * 100_000 + b"\0")}
    ),
    "charsmap that replaces by half a character": lambda content: content.update(
        normalizer={"type": "Precompiled", "precompiled_charsmap": charsmap(LETTER_A, "\u00e9x\0".encode(), 1)}
    ),
}
add_cases("tokenizer", TOKENIZERS, with_tokenizer)


# A class of transformers takes the vocabulary alone: as it is, the whole file must be checked.
def with_plain_tokenizer(folder, change):
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    return with_tokenizer(folder, change)


add_cases("plain tokenizer", TOKENIZERS, with_plain_tokenizer)


def with_settings(folder, settings):
    """tokenizer.json with settings beside it."""
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return show(folder)


SETTINGS = {
    "custom code": {"auto_map": {"AutoTokenizer": ["evil.Tokenizer", None]}},
    "class that is a list": {"tokenizer_class": ["BertTokenizer"]},
    "class of a long name": {"tokenizer_class": "E" * 1_000_000},
    "unknown class": {"tokenizer_class": "EvilTokenizer\u202e"},
    "long token": {"bos_token": "x" * 10_000_000},
    "token that is a number": {"bos_token": 3},
    "token of a number": {"bos_token": {"content": 3}},
    "many tokens": {"additional_special_tokens": [f"<{at}>" for at in range(30_000)]},
    "tokens beyond the model": {"additional_special_tokens": [f"<{at}>" for at in range(100)]},
    "ids that are texts": {"added_tokens_decoder": {"one": {"content": "a"}}},
    "many ids": {"added_tokens_decoder": {str(at): {"content": f"<{at}>"} for at in range(30_000)}},
    "flag that is a text": {"tokenizer_class": "BertTokenizer", "do_lower_case": "no"},
}
add_cases("settings", SETTINGS, with_settings)


@case("tokenizer: template with an id beyond the model")
def _(folder):
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    template = {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 30]}
    return with_tokenizer(folder, lambda content: content.update(post_processor=template))


def linked(folder, name):
    """A file that is a link to a copy of it outside of the folder."""
    shutil.move(folder / name, folder.parent / "outside")
    (folder / name).symlink_to("../outside")
    return show(folder)


LINKED = ("config.json", "tokenizer.json", "model.safetensors")
add_cases("link that leaves the folder", {name: name for name in LINKED}, linked)


@case("link: a subfolder")
def _(folder):
    (folder / "1_Pooling").symlink_to("/etc")
    return show(folder)


@case("link: settings that only some folders have")
def _(folder):
    (folder / "generation_config.json").symlink_to("/etc/passwd")
    return show(folder)


@case("link: blobs of another model")
def _(folder):
    snapshot = folder.parent / "models--a--b" / "snapshots" / "1"
    snapshot.parent.mkdir(parents=True)
    shutil.move(folder, snapshot)
    (folder.parent / "models--c--d" / "blobs").mkdir(parents=True)
    shutil.move(snapshot / "config.json", folder.parent / "models--c--d" / "blobs" / "x")
    (snapshot / "config.json").symlink_to("../../../models--c--d/blobs/x")
    return show(snapshot)


@case("generation_config.json is a pipe")
def _(folder):
    os.mkfifo(folder / "generation_config.json")
    return show(folder)


add_cases(
    "tokenizer.json",
    {
        "empty": b"",
        "deep": TEXTS["deep"],
        "list": b"[]",
        "duplicate key": b'{"a": 1, "a": 2}',
        "not utf-8": b"\xff\xfe",
    },
    with_content("tokenizer.json"),
)


def with_old_vocabulary(folder, files):
    """The older vocabulary files in place of tokenizer.json."""
    (folder / "tokenizer.json").unlink()
    if "vocab.json" in files:
        files = {"tokenizer_config.json": b'{"tokenizer_class": "GPT2Tokenizer"}', **files}
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return show(folder)


LETTERS = json.dumps({character: number for number, character in enumerate(BYTES)}).encode()
OLD_VOCABULARIES = {
    "nothing": {},
    "empty list": {"vocab.txt": b""},
    "noise": {"vocab.txt": bytes(range(256)) * 10},
    "same tokens": {"vocab.txt": b"[UNK]\n[CLS]\n[SEP]\nx\nx\n"},
    "long line": {"vocab.txt": b"x" * 5_000_000},
    "many lines": {"vocab.txt": b"\n" * 2_000_001},
    "no unknown": {"vocab.txt": b"a\nb\n"},
    "merges without table": {"merges.txt": b"a b\n"},
    "merges of nothing": {"vocab.json": LETTERS, "merges.txt": b"foo bar\n"},
    "merges without space": {"vocab.json": LETTERS, "merges.txt": b"foobar\n"},
    "merges that are a pickle": {"vocab.json": LETTERS, "merges.txt": b"\x80\x04\x95"},
    "table of texts": {"vocab.json": b'{"a": "b"}', "merges.txt": b""},
    "table of huge numbers": {"vocab.json": b'{"a": 99999999999}', "merges.txt": b""},
    "table that is a list": {"vocab.json": b'["a"]', "merges.txt": b""},
    "table with a key twice": {"vocab.json": b'{"a": 0, "a": 1}', "merges.txt": b""},
    "deep settings": {"vocab.txt": b"[UNK]\n[CLS]\n[SEP]\n", "tokenizer_config.json": TEXTS["deep"]},
    "settings of another type": {
        "vocab.txt": b"[UNK]\n[CLS]\n[SEP]\n",
        "tokenizer_config.json": b'{"do_lower_case": {"__reduce__": "os.system"}}',
    },
    "added id with a gap": {
        "vocab.txt": b"[UNK]\n[CLS]\n[SEP]\n",
        "added_tokens.json": b'{"evil": 1999999}',
    },
}
add_cases("vocabulary", OLD_VOCABULARIES, with_old_vocabulary)


# GGUF


def text(value):
    data = value if isinstance(value, bytes) else value.encode()
    return struct.pack("<Q", len(data)) + data


def value(found):
    """A type and a value in the encoding of GGUF."""
    if isinstance(found, bytes):
        return found
    if isinstance(found, str):
        return struct.pack("<I", 8) + text(found)
    if isinstance(found, float):
        return struct.pack("<If", 6, found)
    if isinstance(found, list) and isinstance(found[0], str):
        return struct.pack("<IIQ", 9, 8, len(found)) + b"".join(map(text, found))
    if isinstance(found, list):
        return struct.pack("<IIQ", 9, 4, len(found)) + struct.pack(f"<{len(found)}I", *found)
    return struct.pack("<II", 4, found)


TOKENS = ["<|endoftext|>", *BYTES]
VALUES = {
    "general.architecture": "llama",
    "llama.embedding_length": 8,
    "llama.block_count": 1,
    "llama.attention.head_count": 2,
    "llama.attention.head_count_kv": 1,
    "llama.feed_forward_length": 8,
    "llama.context_length": 16,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "gpt-2",
    "tokenizer.ggml.tokens": TOKENS,
    "tokenizer.ggml.token_type": [3, *[1] * 256],
    "tokenizer.ggml.merges": ["a b"],
    "tokenizer.ggml.eos_token_id": 0,
}
VALUES["tokenizer.ggml.tokens"] = [*TOKENS, "ab"]
VALUES["tokenizer.ggml.token_type"] = [3, *[1] * 257]
SHAPES = {"token_embd.weight": (258, 8), "output_norm.weight": (8,)}
SHAPES |= {f"blk.0.{name}.weight": (8,) for name in ("attn_norm", "ffn_norm")}
SHAPES |= {f"blk.0.{name}.weight": (8, 8) for name in ("attn_q", "attn_output", "ffn_gate", "ffn_up", "ffn_down")}
SHAPES |= {f"blk.0.{name}.weight": (4, 8) for name in ("attn_k", "attn_v")}


def gguf(values=(), tensors=(), *, counts=None, magic=b"GGUF", version=3):
    """A complete file with changes: values by key (None: removed), and tensor entries (shape, type, offset)."""
    chosen = {name: found for name, found in {**VALUES, **dict(values)}.items() if found is not None}
    described, place = {}, 0
    for name, shape in SHAPES.items():
        described[name] = (shape, 0, place)
        place += -(-4 * int(torch.Size(shape).numel()) // 32) * 32
    described |= dict(tensors)
    content = struct.pack("<4sIQQ", magic, version, *(counts or (len(described), len(chosen))))
    content += b"".join(text(name) + value(found) for name, found in chosen.items())
    for name, (shape, kind, start) in described.items():
        content += text(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *shape[::-1])
        content += struct.pack("<IQ", kind, start)
    return content + bytes(-len(content) % 32) + bytes(place)


GGUFS = {
    "empty": lambda: b"",
    "magic": lambda: gguf(magic=b"EVIL"),
    "old version": lambda: gguf(version=1),
    "new version": lambda: gguf(version=99),
    "other byte order": lambda: gguf(version=3 << 24),
    "many tensors": lambda: gguf(counts=(1 << 63, 3)),
    "many keys": lambda: gguf(counts=(3, (1 << 64) - 1)),
    "more keys than there are": lambda: gguf(counts=(11, 9000)),
    "more tensors than there are": lambda: gguf(counts=(90_000, len(VALUES))),
    "long string": lambda: gguf({"a": struct.pack("<IQ", 8, 1 << 62)}),
    "long array": lambda: gguf({"a": struct.pack("<IIQ", 9, 0, 1 << 62)}),
    "array longer than the file": lambda: gguf({"a": struct.pack("<IIQ", 9, 12, 1_999_999)}),
    "array of strings longer than the file": lambda: gguf({"a": struct.pack("<IIQ", 9, 8, 1_999_999)}),
    "nested arrays": lambda: gguf({"a": struct.pack("<IIQ", 9, 9, 1) * 1000}),
    "value type": lambda: gguf({"a": struct.pack("<I", 99)}),
    "not utf-8": lambda: gguf({"a": struct.pack("<I", 8) + text(b"\xff\xff")}),
    "alignment 0": lambda: gguf({"general.alignment": 0}),
    "alignment 3": lambda: gguf({"general.alignment": 3}),
    "alignment huge": lambda: gguf({"general.alignment": 1 << 31}),
    "alignment as string": lambda: gguf({"general.alignment": "32"}),
    "many dimensions": lambda: gguf(tensors={"output_norm.weight": ((1,) * 1000, 0, 0)}),
    "no size": lambda: gguf(tensors={"output_norm.weight": ((0,), 0, 0)}),
    "overflow": lambda: gguf(tensors={"output_norm.weight": ((1 << 39, 1 << 39, 1 << 39), 0, 0)}),
    "overflowing size": lambda: gguf(tensors={"output_norm.weight": ((1 << 63,), 0, 0)}),
    "tensor type": lambda: gguf(tensors={"output_norm.weight": ((8,), 999, 0)}),
    "type that is never weights": lambda: gguf(tensors={"output_norm.weight": ((8,), 26, 0)}),
    "past the end": lambda: gguf(tensors={"output_norm.weight": ((8,), 0, 1 << 40)}),
    "overflowing offset": lambda: gguf(tensors={"output_norm.weight": ((8,), 0, (1 << 64) - 32)}),
    "overlap": lambda: gguf(tensors={"output_norm.weight": ((8,), 0, 64)}),
    "half a block": lambda: gguf(tensors={"output_norm.weight": ((8,), 2, 8256)}),
    "another architecture": lambda: gguf({"general.architecture": "evil\n\x07\x1b[2J"}),
    "architecture as number": lambda: gguf({"general.architecture": 7}),
    "absurd depth": lambda: gguf({"llama.block_count": 4_000_000_000}),
    "more layers than tensors": lambda: gguf({"llama.block_count": 500}),
    "absurd width": lambda: gguf({"llama.embedding_length": 4_000_000_000}),
    "no heads": lambda: gguf({"llama.attention.head_count": 0}),
    "heads per layer": lambda: gguf({"llama.attention.head_count": [2, 2]}),
    "epsilon not a number": lambda: gguf({"llama.attention.layer_norm_rms_epsilon": float("nan")}),
    "no tokens": lambda: gguf({"tokenizer.ggml.tokens": None}),
    "tokens as numbers": lambda: gguf({"tokenizer.ggml.tokens": [1, 2]}),
    "same tokens": lambda: gguf({"tokenizer.ggml.tokens": ["a"] * 258}),
    "fewer tokens": lambda: gguf({"tokenizer.ggml.tokens": ["a"], "tokenizer.ggml.token_type": [1]}),
    "merges of nothing": lambda: gguf({"tokenizer.ggml.merges": ["evil twin"]}),
    "pre-tokenizer": lambda: gguf({"tokenizer.ggml.pre": "(a+)+$"}),
    "eos outside": lambda: gguf({"tokenizer.ggml.eos_token_id": 258}),
    "template as number": lambda: gguf({"tokenizer.chat_template": 3}),
    "truncated header": lambda: gguf()[:500],
    "truncated data": lambda: gguf()[:-100],
}


def write_gguf(folder, make):
    (folder / "a.gguf").write_bytes(make())
    return show(folder / "a.gguf")


add_cases("gguf", GGUFS, write_gguf)


@case("gguf: pipe")
def _(folder):
    os.mkfifo(folder / "a.gguf")
    return show(folder / "a.gguf")


assert len(CASES) >= 60

# What some of them must be refused for: value and rule, so that no other check hides the intended one.
REASONS = {
    "pickle alone: model.pt": "'model.pt' is a pickle, which can run code",
    "convert: compressed": "must not expand when it is unpacked, but its 2",
    "convert: expanded": "'a' must not be larger than the file",
    "convert: list": "must hold tensors by name, but does not",
    "convert: numbers": "'a' must be the name of a dense tensor, but is not",
    "convert: code": "must hold tensors and nothing else, but does not (UnpicklingError)",
    "config: auto_map": "auto_map refers to custom code, which is never run",
    "config: a type that is a list": "efficientnet_lite, pix2tex, but is \"['bert']\"",
    "config: negative width": "hidden_size must be from 0 to 65,536, but is -8",
    "config: width as string": "hidden_size must be int, but is '8'",
    "config: vocabulary size missing": "vocab_size is missing",
    "config: more layers than tensors": "each of 500 layers must have tensors, but there are 21",
    "config: largest of all": "'bert.embedding.weight' must have the shape (2000000, 65536), but has (30, 8)",
    "config: not a number": "numbers must be finite, but one is NaN",
    "config.json: duplicate key": "keys must be unique, but one of 3 occurs twice",
    "config.json: list": "must hold a JSON object, but holds a list",
    "config.json: too large": "must have at most 16,777,216 bytes, but has 17,825,792",
    "config.json is a: pipe": "must be a regular file, but is not",
    "index: parent": "must be a plain name ending in .safetensors, but is '../outside.safetensors'",
    "index: many": "must list at most 1,000 files, but lists 2,000",
    "index: missing": "lists model-00001-of-00002.safetensors, which is missing",
    "index: one tensor in two files": "'x' must be in one file, but a.safetensors has it too",
    "safetensors: all enlarged": "must be a complete safetensors file, but is not",
    "safetensors tensor: missing": "the tensor 'embeddings.word_embeddings.weight' is missing",
    "safetensors tensor: float8": "must be of type F32, F16, BF16, F64, but is 'F8_E4M3'",
    "safetensors tensor: integers": "must be of type F32, F16, BF16, F64, but is 'I64'",
    "safetensors tensor: swapped rows": "must have 8 rows, but has 4",
    "safetensors tensor: query width mismatch": "must have another shape for this network",
    "tokenizer: bomb": "a pattern must be that of a known tokenizer or a short literal, but is '(a+)+$'",
    "tokenizer: id beyond the model": "must have at most 30 tokens (vocab_size in config.json), but has 2,000,000",
    "tokenizer: precompiled": "a precompiled_charsmap must be a complete table of characters",
    "tokenizer: prefix of 28 MB": "a text of a normalizer must have at most 256 characters, but has 28,000,000",
    "tokenizer: template of a million entries": "must have at most 100,000 JSON objects, but has 2,000,",
    "tokenizer: a million ids of one token": "a post_processor must have at most 4,096 values, but has more",
    "tokenizer: a hundred normalizers": "a normalizer must have at most 64 steps, but has 100",
    "tokenizer: long token": "a token must have at most 1,024 characters, but one has 2,000,000",
    "tokenizer: strip beyond a token": "the stop of a Strip decoder must be 0, but is 9",
    "tokenizer: charsmap that points outside": "its trie points outside of itself",
    "tokenizer: charsmap with a long replacement": "a replacement has 100,000 bytes, more than 64",
    "tokenizer: charsmap that replaces by half a character": "a replacement starts inside a character",
    "tokenizer: template with an id beyond the model": "must have at most 30 tokens (vocab_size in config.json), but",
    "settings: custom code": "auto_map refers to custom code, which is never run",
    "settings: unknown class": "but is 'EvilTokenizer\\u202e'",
    "link that leaves the folder: config.json": "config.json must not lead out of its folder, but is a link to",
    "link: blobs of another model": "config.json must not lead out of its folder",
    "generation_config.json is a pipe": "must be a regular file, but is not",
    "gguf: many tensors": "the number of tensors must be at most 100,000, but is 9,223,372,036,854,775,808",
    "gguf: nested arrays": "an array must hold numbers or strings, but holds values of type 9",
    "gguf: alignment 3": "general.alignment must be a power of 2 up to 65,536, but is 3",
    "gguf: half a block": "a row of 'output_norm.weight' must be a multiple of 32, but is 8",
    "gguf: overlap": "tensors must not overlap, but 'token_embd.weight' and 'output_norm.weight' do",
    "gguf: past the end": "must be within its 14,720 bytes, but 'output_norm.weight' is not",
    "gguf: tensor type": "but is of type 999",
    "gguf: eos outside": "must be a token id from 0 to 257, but is 258",
}
assert REASONS.keys() <= CASES.keys()


# the reader, in a process of its own with a time limit

READER = f"""
import json, resource, sys, time
from click.testing import CliRunner
from saccade.cli import main
import saccade.api, gguf
resource.setrlimit(resource.RLIMIT_AS, ({MEMORY_LIMIT}, {MEMORY_LIMIT}))
for line in sys.stdin:
    start = time.perf_counter()
    result = CliRunner().invoke(main, ["models", *json.loads(line)])
    failed = None if isinstance(result.exception, (SystemExit, type(None))) else repr(result.exception)
    seconds = time.perf_counter() - start
    row = dict(code=result.exit_code, message=result.stderr, out=result.stdout, failed=failed, seconds=seconds)
    print(json.dumps(row), flush=True)
"""


class Reader:
    """Opens files with the real command, one after the other; restarted when a file crashes it."""

    def __init__(self, errors) -> None:
        self.process: subprocess.Popen[str] | None = None
        self.errors = errors  # what libraries print to stderr directly, such as the backtrace of a panic

    def run(self, arguments, timeout):
        if self.process is None:
            self.process = subprocess.Popen(
                [sys.executable, "-c", READER],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self.errors,
                text=True,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )
        self.process.stdin.write(json.dumps(arguments) + "\n")
        self.process.stdin.flush()
        ready, _, _ = select.select([self.process.stdout], [], [], timeout)
        line = self.process.stdout.readline() if ready else ""
        if not line:
            self.close()
            return None
        return json.loads(line)

    def close(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process.stdin.close()
            self.process.stdout.close()
            self.process = None


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    errors = (tmp_path_factory.mktemp("reader") / "errors").open("w+")
    reader = Reader(errors)
    folder = valid_folder(tmp_path_factory.mktemp("warm-up") / "model")
    (folder / "a.gguf").write_bytes(gguf())
    for path in (folder, folder / "a.gguf"):  # libraries import parts of themselves on first use
        assert reader.run(show(path), 120)["code"] == 0
    yield reader
    reader.close()
    errors.close()


@pytest.fixture
def canary(tmp_path, monkeypatch):
    """A file that is created if any code is run."""
    path = tmp_path / "canary"
    monkeypatch.setenv("CANARY", str(path))
    return path


@pytest.mark.parametrize("name", CASES)
def test_a_hostile_file_is_refused_in_one_line_and_no_code_is_run(name, reader, canary, tmp_path):
    arguments = CASES[name](valid_folder(tmp_path / "model"))
    reader.errors.truncate(0)
    result = reader.run(arguments, 4 * TIME_LIMIT)
    assert result is not None, "the reader hung or crashed"
    assert result["failed"] is None and result["code"] == 4, result
    assert result["seconds"] < TIME_LIMIT
    message = result["message"].removesuffix("\n")
    assert message.startswith("saccade: ") and "Traceback" not in message and result["out"] == ""
    assert message.isprintable() and len(message) < 1000, message[:2000]
    assert REASONS.get(name, "; ") in message, message
    reader.errors.seek(0)
    assert reader.errors.read() == ""
    assert not canary.exists()
    assert not (tmp_path / "model" / "model.safetensors.tmp").exists()


def test_the_files_open_without_their_faults(reader, canary, tmp_path):
    folder = valid_folder(tmp_path / "model")
    (folder / "a.gguf").write_bytes(gguf())
    (folder / "b.gguf").write_bytes(gguf({"tokenizer.ggml.merges": ["a b"], "tokenizer.chat_template": "x"}))
    for path in (folder, folder / "a.gguf", folder / "b.gguf"):
        result = reader.run(show(path), 60)
        assert result["code"] == 0, result
    shards = valid_folder(tmp_path / "shards")
    (shards / "model.safetensors").rename(shards / "a.safetensors")
    (shards / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"x": "a.safetensors"}}))
    assert reader.run(show(shards), 60)["code"] == 0
    with_old_vocabulary(folder, {"vocab.txt": b"[UNK]\n[CLS]\n[SEP]\nx\n"})
    assert reader.run(show(folder), 60)["code"] == 0
    (folder / "vocab.txt").unlink()
    old = json.dumps({character: number for number, character in enumerate(list(BYTES)[:20])}).encode()
    (folder / "vocab.json").write_bytes(old)
    (folder / "merges.txt").write_bytes(b"#version: 0.2\n")
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "GPT2Tokenizer"}')
    assert reader.run(show(folder), 60)["code"] == 0


def test_the_cache_of_the_hub_has_links_to_blobs(reader, tmp_path):
    root = tmp_path / "models--owner--name"
    snapshot = valid_folder(root / "snapshots" / "0123abcd")
    (root / "blobs").mkdir()
    for at, path in enumerate(sorted(snapshot.iterdir())):
        path.rename(root / "blobs" / str(at))
        path.symlink_to(f"../../blobs/{at}")
    assert reader.run(show(snapshot), 60)["code"] == 0
    (tmp_path / "named").symlink_to(snapshot)
    assert reader.run(show(tmp_path / "named"), 60)["code"] == 0
    inside = valid_folder(tmp_path / "inside")
    (inside / "model.safetensors").rename(inside / "weights")
    (inside / "model.safetensors").symlink_to("weights")
    assert reader.run(show(inside), 60)["code"] == 0


def test_the_pickles_run_code_when_they_are_unpickled(canary):
    assert not canary.exists()
    pickle.loads(evil())
    assert canary.exists()
