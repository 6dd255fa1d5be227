"""Training: the only loop, optimizers and schedules, budgets, prefetching."""
