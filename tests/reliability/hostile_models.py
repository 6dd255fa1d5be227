"""Hostile model files: changes tiny valid models of every kind by chance, opens and runs each, and counts the outcomes.

python tests/reliability/hostile_models.py                  160 models
python tests/reliability/hostile_models.py --count 10000    the long form
python tests/reliability/hostile_models.py --case 4711      one again, with its message

Each is opened, or refused with an error that names the file and the rule, in a process with 1 GB to spare. A crash, a
hang, output of a library, a message without the file or with the names of Python's errors is a failure. Some go through
the command, too.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import random
import re
import shutil
import struct
import sys
import tempfile
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import fuzzing
import processes
from figures import Figure, print_figure
from hostile_changes import CHANGES
from tiny import ROOT  # first: it makes the packages importable

PROMPT = "the cat sat on <s> <|endoftext|> the [MASK] mat 12345 é 日本"
NAME = "model-7f3e"  # of the folder: an error that contains it, or the name of a file, names the model
TOKENIZER_FOLDERS = ("llama", "bert")  # to which the written changes apply
WRITTEN = 8  # one case of so many is a written change: their huge files take long to write
COMMANDS = 400  # one case of so many goes through the command as well


@dataclass(frozen=True)
class Kind:
    """A valid model: a folder, or a file within it."""

    name: str
    folder: Path
    file: str = ""

    def ref(self, folder: Path) -> str:
        return str(folder / self.file) if self.file else str(folder)

    def files(self) -> list[str]:
        return sorted(str(path.relative_to(self.folder)) for path in self.folder.rglob("*") if path.is_file())


def write_models(root: Path) -> list[Kind]:
    """Write a tiny model of every kind that can be opened."""
    from saccade.data.text.tokenizer_training import train_tokenizer
    from saccade.data.text.tokenizers import END
    from saccade.pretrained.exports.hf import write_network
    from saccade.pretrained.families import FAMILIES

    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    plain = {
        "llama": train_tokenizer("bpe", ["the cat sat on the mat"], 280, (END, "<s>")),
        "bert": train_tokenizer("wordpiece", ["the cat sat on"], 60),
    }
    for name, tokenizer in plain.items():
        family, folder = FAMILIES[name], root / name
        fields = family.fields(vocab_size=320, max_position_embeddings=32, **sizes)
        config = family.read_config(fields, frozenset())
        write_network(family.build(config, fields, frozenset()), config, family, folder)
        tokenizer.save(folder / "tokenizer.json")
        (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}))
    export_models(root)
    kinds = [Kind(path.name, path) for path in sorted(root.iterdir()) if path.name != "gguf"]
    return [*kinds, Kind("gguf", root / "gguf", "model.gguf"), Kind("gguf q8_0", root / "gguf", "q8_0.gguf")]


def export_models(root: Path) -> None:
    """Write models with heads, of images, of sound and of translation, GGUF files and adapters."""
    from saccade.pretrained.exports import gguf, hf, peft
    from tests.pretrained import tiny_marian, tiny_whisper
    from tests.pretrained.test_export_peft import adapted, without_updates
    from tests.pretrained.tiny_models import encoder, image_classifier, language_model

    for task in ("text_classification", "tagging", "question_answering", "sentence_vectors"):
        hf.export(encoder(task), root / task)
    hf.export(image_classifier(), root / "vit")
    for name in ("gpt2", "gemma3"):
        hf.export(language_model(name), root / name)
    gguf.export(language_model("llama"), root / "gguf" / "model.gguf")
    gguf.export(language_model("llama"), root / "gguf" / "q8_0.gguf", "q8_0")
    pretrained = adapted(language_model("llama"), "decoder")
    for layer in (pretrained.network.head, pretrained.network.embedding):
        layer.requires_grad_(False)
    hf.export(without_updates(pretrained), root.parent / "base")
    peft.export(replace(pretrained), root / "adapter")
    path = root / "adapter" / "adapter_config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps({**config, "base_model_name_or_path": str(root.parent / "base")}))
    for name, module in (("whisper", tiny_whisper), ("marian", tiny_marian)):
        (root / name).mkdir()
        with contextlib.redirect_stderr(io.StringIO()):  # progress bars
            module.write(root / name)
    for leftover in (root / "marian").glob("*.txt"):
        leftover.unlink()


def run_model(case: dict[str, str]) -> None:
    """Open a model and run it on an input of each of its fields."""
    import numpy as np
    import torch

    import saccade
    from saccade.decode import runners
    from saccade.errors import SaccadeError

    warnings.simplefilter("ignore")
    runners.numba_installed = lambda: False  # compiling for each size would take longer than everything else
    model = saccade.load(case["ref"], device="cpu")
    names = [field.name for field in model.inputs]
    values: dict[str, Any] = {
        "image": np.zeros((20, 20, 3), np.uint8),
        "audio": (torch.zeros(4000), 16_000),
    }
    inputs = {name: values.get(name, PROMPT) for name in names}
    options = {"max_new_tokens": 5, "attention": False} if names == ["prompt"] else {}
    try:
        model(**inputs, **options)
    except SaccadeError as error:  # whoever runs a model has just named it
        raise SaccadeError(f"{case['ref']}: {error}") from error


def change_model(rng: random.Random, kind: Kind, folder: Path) -> str:
    """Change one file, of those with tensors most often their headers; return what was done."""
    names = [kind.file] if kind.file else kind.files()
    path = folder / rng.choice(names)
    if path.suffix == ".safetensors" and rng.random() < 0.7:
        content = path.read_bytes()
        size = struct.unpack("<Q", content[:8])[0]
        header, way = fuzzing.change(rng, content[8 : 8 + size], "header.json")
        path.write_bytes(struct.pack("<Q", len(header)) + header + content[8 + size :])
        return f"{way} header of {path.name}"
    if path.suffix == ".gguf" and rng.random() < 0.7:
        content = path.read_bytes()
        size = rng.choice((64, 1024, 16_000))
        header, way = fuzzing.change(rng, content[:size], path.name)
        path.write_bytes(header + content[size:])
        return f"{way} start of {path.name}"
    return fuzzing.damage_tree(rng, folder, names)


class Cases:
    """Cases by their numbers, in a temporary folder."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.seed = folder / NAME, seed
        self.kinds = write_models(folder / "valid")

    def make(self, number: int) -> tuple[Kind, dict[str, str], str]:
        """Return the kind of model that a case is made of, the case, and what was changed."""
        rng = random.Random(f"{self.seed}-{number}")
        shutil.rmtree(self.folder, ignore_errors=True)
        if number % WRITTEN == WRITTEN - 1:
            kind = rng.choice([kind for kind in self.kinds if kind.name in TOKENIZER_FOLDERS])
            shutil.copytree(kind.folder, self.folder)
            what = CHANGES[number // WRITTEN % len(CHANGES)](rng, self.folder)
        else:
            kind = self.kinds[number % len(self.kinds)]
            shutil.copytree(kind.folder, self.folder)
            what = change_model(rng, kind, self.folder)
        return kind, {"ref": kind.ref(self.folder)}, what


def run_command(ref: str, folder: Path) -> str:
    """Describe a model with the command; return what is wrong, if anything."""
    code, _, err = processes.run(["models", "show", ref], folder, 300)
    ours = len(re.findall("^saccade: ", err, re.MULTILINE))
    if code not in (0, 2, 4, 5) or "Traceback" in err or (code and ours != 1):
        return f"the command ends with {code}: {err[-1500:]}"
    return ""


def run(count: int, seed: int, first: int = 0) -> tuple[fuzzing.Tally, int]:
    """Open `count` models; return the tally, and how many went through the command."""
    tally, commands = fuzzing.Tally.new(), 0
    os.chdir(ROOT)
    fuzzing.preload()
    with tempfile.TemporaryDirectory(prefix="saccade-models-", ignore_cleanup_errors=True) as temporary:
        folder = Path(temporary)
        cases = Cases(folder, seed)
        worker = fuzzing.Worker(run_model, [{"ref": kind.ref(kind.folder)} for kind in cases.kinds])
        try:
            for number in range(first, first + count):
                kind, case, what = cases.make(number)
                outcome = worker.run(case, [NAME, *(Path(name).name for name in kind.files())])
                if number % COMMANDS == COMMANDS - 1 and not outcome.failed:
                    commands += 1
                    if wrong := run_command(case["ref"], folder):
                        outcome = fuzzing.Outcome("crash", wrong, outcome.seconds)
                label = f"case {number}: {kind.name}: {what}"
                tally.add(label, kind.name, outcome)
                if count == 1:
                    print(label, outcome, sep="\n", file=sys.stderr)
        finally:
            worker.close()
    return tally, commands


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=160)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--case", type=int, help="open this one alone")
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    single = chosen.case is not None
    tally, commands = run(1 if single else chosen.count, chosen.seed, chosen.case if single else 0)
    figures = {**tally.figures(), "also through the command": commands}
    names = ("read", "refused", "too large for the memory limit", *fuzzing.FAULTS.values())
    counts = ", ".join(f"{figures[name]:,} {'opened' if name == 'read' else name}" for name in names)
    text = f"{counts}; {figures['kinds']} kinds of model, {commands} also through the command"
    return print_figure(Figure("model files", figures.pop("good"), figures.pop("total"), text, figures), chosen.json)


if __name__ == "__main__":
    sys.exit(main())
