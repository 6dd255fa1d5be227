"""The models that the guided tours run on."""

from __future__ import annotations

from saccade.studio.sessions import Sessions

NEEDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "encoder": (
        "minilm",
        ("text_classification", "masked_language_model", "sentence_vectors", "regression", "tagging"),
    ),
    "decoder": ("smollm2", ("language_model",)),
    "translation": ("", ("translation",)),
}
"""for each kind of model the name in the catalogue, and the tasks of runs that are of this kind"""


def tour_models(sessions: Sessions) -> dict[str, str | None]:
    """Return for each kind of model the one that tours run on: that of the catalogue, else the newest run."""
    names = sessions.names()
    models: dict[str, str | None] = {}
    for kind, (name, tasks) in NEEDS.items():
        runs = sessions.run_names(tasks.__contains__)
        models[kind] = name if name in names else next(iter(runs), None)
    return models
