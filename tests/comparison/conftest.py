"""An invented result of a comparison: the report is tested without training anything."""

import pytest

EVIL = "</style><script>window.hacked=1</script>"
LENGTHS = (10, 100, 1000)


def trained(name, score, last):
    classes = [{"from": 0, "to": 8, "count": 40, "value": score}, {"from": 8, "to": 31, "count": 9, "value": last}]
    alignment = {
        "name": "decoder.0.cross",
        "rows": ["le", EVIL],
        "columns": ["the", "cat"],
        "weights": [[0.9, 0.1], [0, 1]],
    }
    steps = [{"name": "source steps", "labels": ["the", "cat"], "values": [2.0, 3.0]}]
    curve = [
        {
            "step": step,
            "minutes": step / 10,
            "tokens": 100 * step,
            "bleu": score * step / 20,
            "chrf": 1.0,
            "loss": 4 - step / 10,
        }
        for step in (10, 20)
    ]
    return {
        "name": name,
        "score": "bleu",
        "scores": {"bleu": score, "chrf": score + 10, "exact": 1.0, "loss": 2.5, "pairs": 49},
        "signatures": {"bleu": "nrefs:1|case:mixed"},
        "parameters": 1234567,
        "steps": 20,
        "minutes": 2.0,
        "target_tokens_per_second": 100 * score,
        "tokens_per_second": 210 * score,
        "translating_seconds": 1.5,
        "pairs": 49,
        "by_length": {"bleu": classes, "chrf": classes},
        "curve": curve,
        "losses": [[10, 1.0, 1000, 3.0]],
        "sequential": {"steps": "n" if name.startswith("rnn") else "3", "at": 101, "grows": name.startswith("rnn")},
        "chain": {"101": 1000},
        "reach": {"of": 101, "seen": 101, "half": 3, "most": 11, "fractions": [0.0, 0.5, 0.5]},
        "sentence": {
            "input": EVIL,
            "reference": "",
            "output": f"le chat {EVIL}",
            "alignment": None if name == "rnn" else alignment,
            "steps": steps if name == "universal" else [],
        },
        "assets": {"tokenizer.json": "ab" * 32},
        "fingerprint": "f00d",
        "peak_bytes": 500_000_000,
    }


def probe(*values):
    accuracy = {str(length): value for length, value in zip(LENGTHS, values, strict=True)}
    return {"accuracy": accuracy, "steps": 300, "tokens": 300000, "minutes": 0.5}


@pytest.fixture
def result():
    """Three trained models and one that failed."""
    rows = [{"tokens": n, "plain": n * n * 8, "fused": n * 1024} for n in (256, 512, 1024)]
    return {
        "run": {
            "data": f"/data/{EVIL}.tsv",
            "models": ["rnn", "rnn+attention", "convolution", "universal"],
            "overrides": ["train.minutes=5", f"x={EVIL}"],
            "probe_minutes": 1.0,
            "sentence": f"the cat {EVIL}",
            "reference": "le chat",
            "created": "2031-01-02T03:04:05+00:00",
            "command": f"saccade compare {EVIL}",
            "notes": ["pairs: 49"],
            "settings": {"steps": 0, "epochs": 0.0, "minutes": 5.0},
            "seed": 1,
            "assets": {"tokenizer.json": "ab" * 32},
            "fingerprint": "f00d",
            "machine": {
                "saccade": "0",
                "torch": "2",
                "python": "3",
                "system": "Linux",
                "processor": EVIL,
                "device": "cpu (2 threads)",
            },
        },
        "models": [
            {**trained("rnn", 10.0, 2.0), "copy": probe(99.0, 20.0, 1.0), "reverse": probe(50.0, 1.0, 0.5)},
            {**trained("rnn+attention", 20.0, 18.0), "copy": probe(99.0, 99.0, 97.0)},
            {"name": "convolution", "failed": {"train": f"its process was killed {EVIL}"}},
            {**trained("universal", 25.0, 24.0), "copy": probe(99.0, 98.0, 96.0)},
        ],
        "attention_memory": {"heads": 2, "width": 32, "rows": rows},
        "summary": [f"Written by hand {EVIL}."],
    }


@pytest.fixture
def evil():
    return EVIL
