"""Fine-tuning MiniLM to two classes: our step and a plain loop over transformers, interleaved, in rows per second.

Both train all weights with AdamW on the same labelled texts of 8 to 64 tokens; transformers reads batches of 32 in the
order of the file, padded to the longest text, ours has batches of similar length with as many positions.

    python bench/finetune.py [--rounds 5] [--rows 512]
"""

import argparse
import random
import tempfile
from pathlib import Path

from encode import vocabulary_words
from interleaved import measure, report, serve

BATCH = 32


def write(path, folder, count):
    """Write a table of texts; the label is the parity of the number of words."""
    generator = random.Random(1)
    words = vocabulary_words(folder)
    lines = [generator.choices(words, k=generator.randint(6, 62)) for _ in range(count)]
    path.write_text("text\tlabel\n" + "".join(f"{' '.join(line)}\t{len(line) % 2}\n" for line in lines))


def ours(folder, data):
    import torch

    from saccade import api
    from saccade.core import Split
    from saccade.pretrained.opening import open_pretrained
    from saccade.tasks import text_classification
    from saccade.training.optim import build_optimizers

    kind = text_classification.Task
    overrides = [f"base={folder}", "max_length=64", "batch_tokens=1200", f"data.valid={data}"]
    config, training = api.configure(kind, overrides)
    with tempfile.TemporaryDirectory() as assets:
        kind.prepare(config, data, Path(assets), base=open_pretrained(str(folder)))
        task = kind.open(config, Path(assets))
    task.load_data(data)
    source, optimizers = task.source(Split.TRAIN, 1), build_optimizers(training.optim, task.model)
    task.model.train()

    def work():
        for step in range(source.per_epoch):
            (batch,) = source.at(step)
            for _, loss in task.losses(batch, task.networks()):
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
            ids = torch.tensor([encoding.ids for encoding in encoded])
            keep = torch.tensor([encoding.attention_mask for encoding in encoded])
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
    with tempfile.TemporaryDirectory() as temporary:
        data = Path(temporary) / "rows.tsv"
        write(data, folder, options.rows)
        seconds = measure(__file__, [["--worker", name, str(folder), str(data)] for name in CANDIDATES], options.rounds)
    speed = {name: options.rows / time for name, time in zip(CANDIDATES, seconds, strict=True)}
    report("finetune_minilm", speed["ours"], speed["transformers"], unit="rows/s")


if __name__ == "__main__":
    main()
