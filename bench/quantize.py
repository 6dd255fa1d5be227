"""Rounded weights: what int8 and int4 cost language models on a text, in loss and in tokens.

    python bench/quantize.py [text.txt] [--models smollm2 runs/book-1]

Without a text it is the first 60,000 characters of lm/tinyshakespeare.txt in SACCADE_DATA.

Printed as JSON for each model and dtype: the loss with float32 and with rounded weights, the relative cost (for SmolLM2
below 0.01 in 8 and 0.05 in 4 bits), and the share of positions whose most probable token stays the same. The file of
`smollm2` has weights of 4 bits already, in the same groups, so that int4 costs it nothing: add a run, whose weights
were trained in float32.
"""

import argparse
import json
import os
import re
import sys
import tempfile
from pathlib import Path

from interleaved import processor

DTYPES = ("int8", "int4")
EXCERPT = 60_000  # characters
AGREEMENT = re.compile(r"([\d.]+)% of the most probable tokens are the same")


def excerpt(folder):
    """Return a file with the beginning of tinyshakespeare."""
    root = Path(os.environ.get("SACCADE_DATA", Path(__file__).parent.parent.parent / "shared" / "data"))
    data = root / "lm" / "tinyshakespeare.txt"
    if not data.exists():
        raise SystemExit(f"no {data}; name a text, or set SACCADE_DATA to a folder that holds lm/tinyshakespeare.txt")
    text = folder / "text.txt"
    text.write_text(data.read_text()[:EXCERPT])
    return text


def compare(ref, text):
    """Print the cost of each dtype for one model."""
    import saccade

    model = saccade.load(ref, device="cpu")
    exact = model.evaluate(text)["loss"]
    for dtype in DTYPES:
        evaluation = model.evaluate(text, dtype=dtype)
        agreement = next(match for note in evaluation.notes if (match := AGREEMENT.search(note)))
        loss = evaluation["loss"]
        result = {
            **{"name": f"quantize_{model.name}_{dtype}", "dtype": dtype, "tokens": evaluation["tokens"]},
            **{"loss": round(loss, 6), "float32_loss": round(exact, 6), "cost": round(loss / exact - 1, 6)},
            **{"agreement": round(float(agreement[1]) / 100, 4), "cpu": processor()},
        }
        print(json.dumps(result))
        sys.stdout.flush()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path, nargs="?")
    parser.add_argument("--models", nargs="+", default=["smollm2"])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        text = options.text or excerpt(Path(folder))
        for ref in options.models:
            compare(ref, text)


if __name__ == "__main__":
    main()
