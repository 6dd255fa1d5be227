"""Fine-tuning MiniLM to two classes: our step and a plain loop over transformers, in turn, rows per second.

Both train all weights with AdamW on the same labelled texts of 8 to 64 tokens; transformers reads batches of 32 in the
order of the file, padded to their longest, ours has batches of like length and as many positions.

    python bench/finetune.py [--rounds 5] [--rows 512]
"""

import argparse
import random
import tempfile
from pathlib import Path

from encode import words
from interleaved import measure, report, serve

BATCH = 32


def write(path, folder, count):
    """A table of texts; the label is whether a text has an even number of words."""
    draw = random.Random(1)
    known = words(folder)
    lines = [draw.choices(known, k=draw.randint(6, 62)) for _ in range(count)]
    path.write_text("text\tlabel\n" + "".join(f"{' '.join(line)}\t{len(line) % 2}\n" for line in lines))


def ours(folder, data):
    import torch

    from saccade import api
    from saccade.core.task import Split
    from saccade.tasks import text_classification
    from saccade.training.optim import build

    kind = text_classification.Task
    said = [f"base={folder}", "max_length=64", "tokens=1200", f"data.valid={data}"]
    config, training = api.configure(kind, said)
    with tempfile.TemporaryDirectory() as place:
        kind.prepare(config, data, Path(place))
        task = kind.open(config, Path(place))
    task.load_data(data)
    batches, optimizers = task.batches(Split.TRAIN, 1), build(training.optim, task.model)
    task.model.train()

    def work():
        for step in range(batches.per_epoch):
            (batch,) = batches.at(step)
            for _, loss in task.losses(batch):
                loss.backward()
            torch.nn.utils.clip_grad_norm_(task.model.parameters(), 1.0)
            for optimizer in optimizers:
                optimizer.step()
            task.model.zero_grad()

    return work


def theirs(folder, data):
    import torch
    from tokenizers import Tokenizer
    from transformers import AutoModelForSequenceClassification

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(64)
    tokenizer.enable_padding()
    rows = [line.split("\t") for line in data.read_text().splitlines()[1:]]
    model = AutoModelForSequenceClassification.from_pretrained(folder, num_labels=2).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5)

    def work():
        for first in range(0, len(rows), BATCH):
            part = rows[first : first + BATCH]
            encoded = tokenizer.encode_batch([text for text, _ in part])
            ids = torch.tensor([one.ids for one in encoded])
            keep = torch.tensor([one.attention_mask for one in encoded])
            loss = model(ids, attention_mask=keep, labels=torch.tensor([int(label) for _, label in part])).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()

    return work


CANDIDATES = {"ours": ours, "transformers": theirs}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=512)
    parser.add_argument("--worker", nargs=3, metavar=("CANDIDATE", "FOLDER", "DATA"))
    options = parser.parse_args()
    if options.worker:
        candidate, folder, data = options.worker
        serve(CANDIDATES[candidate](Path(folder), Path(data)))
        return
    from saccade.pretrained.catalogue import get

    folder = get("minilm")
    with tempfile.TemporaryDirectory() as place:
        data = Path(place) / "rows.tsv"
        write(data, folder, options.rows)
        seconds = measure(__file__, [["--worker", c, str(folder), str(data)] for c in CANDIDATES], options.rounds)
    speed = {c: options.rows / s for c, s in zip(CANDIDATES, seconds, strict=True)}
    report("finetune_minilm", speed["ours"], speed["transformers"], unit="rows/s")


if __name__ == "__main__":
    main()
