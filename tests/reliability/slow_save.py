"""The command `saccade`, but slow at the moments when a kill could do harm: preparing, saving, clearing up."""

import random
import shutil
import time
from collections.abc import Callable
from typing import Any

from saccade import atomic_io
from saccade.cli import main
from saccade.runs import checkpoint, journal
from saccade.tasks import language_model

PAUSE = 0.04  # seconds at most before and after each small act


def slowly(act: Callable[..., Any]) -> Callable[..., Any]:
    def acted(*arguments: Any, **named: Any) -> Any:
        time.sleep(random.uniform(0, PAUSE))
        result = act(*arguments, **named)
        time.sleep(random.uniform(0, PAUSE))
        return result

    return acted


for name in ("save_file", "_fingerprint", "sync_folder"):
    setattr(checkpoint, name, slowly(getattr(checkpoint, name)))
atomic_io.write = slowly(atomic_io.write)
shutil.rmtree = slowly(shutil.rmtree)  # type: ignore[assignment]
journal.read_journal = slowly(journal.read_journal)
language_model.train_tokenizer = slowly(slowly(slowly(language_model.train_tokenizer)))

main()
