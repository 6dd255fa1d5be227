"""Run folders: atomic files, locks, journals, checkpoints."""
