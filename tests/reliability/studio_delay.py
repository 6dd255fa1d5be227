"""How long others wait while a client of the studio does not read, or sends a huge text.

python tests/reliability/studio_delay.py

Printed: for each kind of trouble the longest time that a page, a prediction of the same model and one of another model
took while it went on, beside what they take alone.
"""

import argparse
import json
import os
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.reliability.figures import Figure, print_figure
from tests.reliability.live_studio import Studio, start_studio, train_runs

LONGEST = 1.0  # seconds that anybody waits for others
ROUNDS = 5
HUGE = "the blue cat sat on the mat. " * 31_000  # 900 KB
GENERATION = {"model": "language_model", "inputs": {"prompt": "the cat"}, "options": {"max_new_tokens": 4096}}
NORMAL = {
    "a page": ("/runs.json", None),
    "the same model": ("/api/look", {**GENERATION, "options": {"max_new_tokens": 4}}),
    "another model": ("/api/look", {"model": "text_classification", "inputs": {"text": "the blue cat"}}),
    "a translator": ("/api/look", {"model": "translation", "inputs": {"source": "the blue cat"}}),
}


def measure(studio: Studio) -> dict[str, float]:
    """Return the longest time of each normal request over a few rounds."""
    seconds = dict.fromkeys(NORMAL, 0.0)
    for _ in range(ROUNDS):
        for name, (path, body) in NORMAL.items():
            answer = studio.request(path, body)
            assert answer.status == 200, (answer.status, answer.body)
            seconds[name] = max(seconds[name], answer.seconds)
    return seconds


@contextmanager
def stalled(studio: Studio, readers: int) -> Iterator[None]:
    """Clients that ask for a long generation and read nothing of it."""
    content = json.dumps(GENERATION).encode()
    lines = ["POST /api/generate HTTP/1.1", *(f"{name}: {value}" for name, value in studio.headers(content).items())]
    clients: list[socket.socket] = []
    for _ in range(readers):
        clients.append(studio.connect(buffer=2048))
        clients[-1].sendall("\r\n".join([*lines, "", ""]).encode() + content)
    yield
    for client in clients:
        client.close()


@contextmanager
def huge(studio: Studio, path: str, inputs: dict[str, str], model: str, options: dict[str, int]) -> Iterator[None]:
    """A client that sends one text after the other."""
    done = threading.Event()

    def send() -> None:
        while not done.is_set():
            studio.request(path, {"model": model, "inputs": inputs, "options": options})

    thread = threading.Thread(target=send)
    thread.start()
    time.sleep(0.2)
    yield
    done.set()
    thread.join()


def troubles() -> dict[str, Callable[[Studio], AbstractContextManager[None]]]:
    """What goes on while others are measured, by name."""
    longest = "the blue cat " * 80
    return {
        "nothing": lambda studio: stalled(studio, 0),
        "a reader that does not read": lambda studio: stalled(studio, 1),
        "six readers that do not read": lambda studio: stalled(studio, 6),
        "900 KB for a translator": lambda studio: huge(studio, "/api/look", {"source": HUGE}, "translation", {}),
        "900 KB for a language model": lambda studio: huge(
            studio, "/api/generate", {"prompt": HUGE}, "language_model", {}
        ),
        "the longest text for a translator": lambda studio: huge(
            studio, "/api/look", {"source": longest}, "translation", {"beam": 8}
        ),
    }


def delays(studio: Studio) -> dict[str, dict[str, float]]:
    """Return the seconds of normal requests during each trouble."""
    measure(studio)  # opens the models
    results = {}
    for name, trouble in troubles().items():
        with trouble(studio):
            results[name] = measure(studio)
    return results


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slack", type=float, default=1.0, help="for a machine that does other work: longer delays")
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="saccade-delay-", ignore_cleanup_errors=True) as folder:
        os.environ["SACCADE_CACHE"] = str(Path(folder) / "cache")
        # Rows of 512 weights: 4,096 of them are more than the buffers of a connection take.
        runs = train_runs(Path(folder), ("language_model", "translation", "text_classification"), context=512)
        results = delays(start_studio(runs))
    for name, seconds in results.items():
        print(
            f"{name}: " + ", ".join(f"{request} {value:.3f} s" for request, value in seconds.items()), file=sys.stderr
        )
    alone = results.pop("nothing")
    longest = [max(value - alone[key] for key, value in seconds.items()) for seconds in results.values()]
    limit, worst = chosen.slack * LONGEST, max(longest)
    good, total = sum(seconds <= limit for seconds in longest), len(longest)
    text = f"troubles of one client delay no other by {limit:g} s; longest delay of others: {worst:.3f} s"
    return print_figure(Figure("studio delay", good, total, text, {"seconds": results}), chosen.json)


if __name__ == "__main__":
    sys.exit(main())
