"""The names of metrics as people write them, with unit and direction: BLEU, F1, chrF, loss in nats."""

from __future__ import annotations

import re

from saccade.core.evaluation import Metric

PERCENT = "%"
# Name in files: name for people, whether higher is better (None: neither, a figure to compare with), unit.
_NAMES: dict[str, tuple[str, bool | None, str]] = {
    "loss": ("Loss", False, ""),  # its unit is that of the task
    "perplexity": ("Perplexity", False, ""),
    "bits_per_byte": ("Bits per byte", False, "bits"),
    "accuracy": ("Accuracy", True, PERCENT),
    "test_accuracy": ("Test accuracy", True, PERCENT),
    "top5": ("Top-5 accuracy", True, PERCENT),
    "f1": ("F1", True, PERCENT),
    "macro_f1": ("Macro F1", True, PERCENT),
    "best_f1": ("Best F1", True, PERCENT),
    "precision": ("Precision", True, PERCENT),
    "recall": ("Recall", True, PERCENT),
    "exact": ("Exact match", True, PERCENT),
    "calibration_error": ("Calibration error", False, PERCENT),
    "roc_auc": ("ROC AUC", True, ""),
    "bleu": ("BLEU", True, ""),
    "bleu_lowercase": ("BLEU, lower case", True, ""),
    "bleu4": ("BLEU-4", True, ""),
    "chrf": ("chrF", True, ""),
    "rouge1": ("ROUGE-1", True, ""),
    "rouge2": ("ROUGE-2", True, ""),
    "rougeL": ("ROUGE-L", True, ""),
    "cider": ("CIDEr-D", True, ""),
    "cider_blind": ("CIDEr-D without the image", None, ""),
    "token_error": ("Token error rate", False, PERCENT),
    "wer": ("WER", False, PERCENT),
    "cer": ("CER", False, PERCENT),
    "plain_wer": ("WER, plain text", False, PERCENT),
    "plain_cer": ("CER, plain text", False, PERCENT),
    "attention_wer": ("WER, attention decoder", False, PERCENT),
    "attention_cer": ("CER, attention decoder", False, PERCENT),
    "ctc_wer": ("WER, CTC", False, PERCENT),
    "ctc_cer": ("CER, CTC", False, PERCENT),
    "spearman": ("Spearman correlation", True, PERCENT),
    "pearson": ("Pearson correlation", True, PERCENT),
    "rmse": ("RMSE", False, ""),
    "mae": ("MAE", False, ""),
    "mean_recall": ("Mean recall", True, PERCENT),
    "chance": ("Chance", None, PERCENT),
    "next_sentence": ("Next-sentence accuracy", True, PERCENT),
    "most_frequent": ("Most frequent token", None, PERCENT),
    "prior": ("Most frequent answer", None, PERCENT),
    "frechet_distance": ("Fréchet distance", False, ""),
    "floor": ("Fréchet distance of real images", None, ""),
    "untrained": ("Fréchet distance before training", None, ""),
    "nearest_ratio": ("Nearest-neighbour ratio", None, ""),
    "near_copies": ("Near copies", False, ""),
    "return": ("Return", True, ""),
    "return_deviation": ("Return, standard deviation", None, ""),
    "return_low": ("Return, lower bound", None, ""),
    "return_high": ("Return, upper bound", None, ""),
    "return_greedy": ("Return, greedy", True, ""),
    "return_random": ("Return of random actions", None, ""),
    "return_expert": ("Return of the expert", None, ""),
    "success": ("Success rate", True, PERCENT),
    "expert_success": ("Success rate of the expert", None, PERCENT),
    "random_success": ("Success rate of random actions", None, PERCENT),
    "steps": ("Steps per episode", None, ""),
    "expert_steps": ("Steps of the expert", None, ""),
    "discriminator_accuracy": ("Discriminator accuracy", None, PERCENT),
}
_DIRECTIONS = {"text_to_image": "text to image", "image_to_text": "image to text"}


def describe_metric(name: str, loss_unit: str = "") -> Metric:
    """Return a metric by its name in files, with its name for people as `label`; `loss_unit` is that of its task."""
    if name in _NAMES:
        label, higher_is_better, unit = _NAMES[name]
        return Metric(name, higher_is_better, unit or (loss_unit if name == "loss" else ""), label)
    if name.startswith("loss_"):  # of one of several networks
        return Metric(name, False, loss_unit, f"Loss, {name[5:].replace('_', ' ')}")
    if match := re.fullmatch(r"(?:(text_to_image|image_to_text)_)?(?:recall_at_(\d+)|median_rank)", name):
        label = f"Recall@{match[2]}" if match[2] else "Median rank"
        direction = f", {_DIRECTIONS[match[1]]}" if match[1] else ""
        return Metric(name, bool(match[2]), PERCENT if match[2] else "", label + direction)
    return Metric(name, None, "", name.replace("_", " "))  # of a task that is not built in
