"""The command that plans training: plan."""

from __future__ import annotations

from typing import Any

import click

from saccade.cli.group import echo, json_option, main, print_json, progress_bar, runs_option
from saccade.errors import UsageError


@main.command()
@click.argument("ref", default="")
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--table", is_flag=True, help="Print the table of published models, counted from their shapes.")
@click.option("--device", default="", help="Device to plan for: p100, v100, a100, h100, h200, rtx4090, tpu-v3, tpu-v4.")
@click.option("--devices", type=click.IntRange(1), default=None, help="Number of devices.")
@click.option("--price", type=click.FloatRange(0), default=0.0, help="Dollars per device and hour.")
@click.option(
    "--utilisation",
    type=click.FloatRange(0, 1, min_open=True),
    default=None,
    help="Fraction of the peak FLOP/s that training reaches (default 0.3).",
)
@click.option("--tokens", type=click.FloatRange(0), default=0.0, help="Published model: tokens of the whole training.")
@click.option("--batch", type=click.IntRange(1), default=1, help="Published model: rows of a micro-batch of a device.")
@click.option("--split", is_flag=True, help="Published model: data, FSDP, tensor and pipeline splits.")
@click.option("--measure", is_flag=True, help="Run: run a step of it here and measure the memory that torch allocates.")
@click.option("--task", default="", help="Task of the data, as for train; or the custom task of a run.")
@click.option("--preset", default="", help="Named set of settings of the task.")
@click.option("--from", "base", help="Pretrained model to fine-tune.")
@click.option("--steps", type=click.IntRange(1), help="Length of the run in steps.")
@click.option("--minutes", type=click.FloatRange(0, min_open=True), help="Length in minutes (default 5).")
@click.option("--epochs", type=click.FloatRange(0, min_open=True), help="Length in passes over the data.")
@click.option("--valid", type=click.Path(), help="Validation data file.")
@click.option("--target", help="Column of the target text; for a file of lines the second file, or its suffix.")
@click.option("--text-column", help="Column of a table that holds the text.")
@click.option("--label-column", help="Column of a table that holds the label or the number.")
@click.option("--quiet", is_flag=True, help="Print the plan only, no progress.")
@runs_option
@json_option
def plan(ref: str, table: bool, quiet: bool, root: str, as_json: bool, **settings: Any) -> None:
    """Plan training: parameters, FLOPs, memory, time and cost.

    REF is data as for `saccade train`, a run, or a published model: transformer-base, transformer-large, bert-base,
    bert-large, xlnet-large, roberta, gpt2, megatron-lm, turing-nlg, gpt3, gopher. Data and runs are planned for this
    machine, whose operators are timed for a few seconds, or for another --device, from FLOPs and utilisation. For a
    run, what was predicted stands beside what was measured. Nothing is trained.

    \b
    Examples:
      saccade plan pairs.tsv model.transformer.dim=512 --epochs 10
      saccade plan book.txt --preset medium --device h100 --devices 8 --price 2.5 --utilisation 0.4
      saccade plan pairs-1
      saccade plan gpt3 --device a100 --devices 1024 --split
      saccade plan gpt2 context=4096 depth=24
      saccade plan --table
    """
    from saccade import planning

    if table == bool(ref):
        raise UsageError("plan needs data, a run or a published model, or --table; `saccade plan --help` has examples")
    given = {name: value for name, value in settings.items() if value not in (None, "", (), False)}
    with progress_bar(quiet=quiet) as bar:
        result = planning.plan(ref, root=root, callbacks=[bar], progress=False, **given)
    if as_json:
        print_json(result.values)
    else:
        for line in str(result).splitlines():
            echo(line)
