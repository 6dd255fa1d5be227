"""Shared by the tests of the server: runs of several tasks and running servers."""

import pytest

from tests.serve.live import KEY, serving, train_runs

TASKS = ("sentence_vectors", "image_classification", "translation")


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    """A folder of runs: a language model, a chat model, sentence vectors, an image classifier and a translator."""
    folder = tmp_path_factory.mktemp("serve")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SACCADE_CACHE", str(folder / "cache"))
        return train_runs(folder, TASKS)


@pytest.fixture(scope="session")
def live(runs):
    """A server with all runs, with a key."""
    with serving(runs, ("prose", "chat", *TASKS), keys=(KEY,), rows=4, queue=8) as server:
        yield server
