"""Few-shot prompts: a task is given to a language model by examples, and scored against their number."""
