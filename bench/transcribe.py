"""Transcription of 40 utterances with Whisper tiny.en: ours and Hugging Face's generate, in utterances per second.

Both have the same weights (whisper-tiny.en of the catalogue, float32), the same recordings (AN4 in `SACCADE_DATA`,
resampled to 16 kHz), greedy search and the same tokens that may not be written; spectrograms are measured too. `same`
is the fraction of utterances with the same text, `wer` the words that are wrong, lower-case and without punctuation.

    SACCADE_DATA=... python bench/transcribe.py [--rounds 5]
"""

import os
import tempfile
from pathlib import Path

from interleaved import measure, parse, report

UTTERANCES, BATCH, RATE = 40, 8, 16_000


def utterances():
    """Return samples at 16 kHz and texts of the first test utterances."""
    import numpy as np
    import scipy.signal

    data = np.load(Path(os.environ["SACCADE_DATA"]) / "speech" / "an4_8k.npz")
    rows = [row for row, split in enumerate(data["split"]) if str(split) == "test"][:UTTERANCES]
    pieces = [data["audio"][data["offsets"][row] : data["offsets"][row + 1]] / 32768 for row in rows]
    samples = [scipy.signal.resample_poly(piece, RATE, int(data["rate"])).astype(np.float32) for piece in pieces]
    return samples, [str(data["text"][row]) for row in rows]


def ours(folder):
    import torch

    import saccade

    model = saccade.load(str(folder / "whisper"), device="cpu")
    inputs = [(torch.from_numpy(samples), RATE) for samples in utterances()[0]]
    return lambda: [prediction.text for prediction in model(inputs)]


def generate(folder):
    import torch
    from transformers import WhisperForConditionalGeneration, WhisperProcessor
    from transformers.utils.logging import set_verbosity_error

    set_verbosity_error()
    model = WhisperForConditionalGeneration.from_pretrained(folder / "whisper").eval()
    processor, samples = WhisperProcessor.from_pretrained(folder / "whisper"), utterances()[0]

    @torch.no_grad()
    def work():
        texts = []
        for first in range(0, len(samples), BATCH):
            batch = processor(samples[first : first + BATCH], sampling_rate=RATE, return_tensors="pt")
            ids = model.generate(batch.input_features)
            texts += processor.batch_decode(ids, skip_special_tokens=True)
        return [text.strip() for text in texts]

    return work


CANDIDATES = {"ours": ours, "generate": generate}


def main():
    rounds = parse(__doc__, 5, CANDIDATES)
    if rounds is None:
        return
    import saccade
    from saccade.metrics.speech import error_rates
    from saccade.tasks._speech.whisper import plain_text

    with tempfile.TemporaryDirectory() as folder:
        saccade.load("whisper-tiny.en", device="cpu").export(Path(folder) / "whisper")
        outputs = {candidate: make(Path(folder))() for candidate, make in CANDIDATES.items()}
        seconds = measure(__file__, [["--worker", candidate, folder] for candidate in CANDIDATES], rounds)
    speed = {c: UTTERANCES / s for c, s in zip(CANDIDATES, seconds, strict=True)}
    same = sum(a == b for a, b in zip(outputs["ours"], outputs["generate"], strict=True)) / UTTERANCES
    plain = [[plain_text(text) for text in texts] for texts in (outputs["ours"], utterances()[1])]
    wer = round(error_rates(*plain)["wer"].value, 2)
    report("transcribe_generate", speed["ours"], speed["generate"], unit="utterances/s", same=round(same, 3), wer=wer)


if __name__ == "__main__":
    main()
