"""A team of threads that run one compiled function together; they wait in Python between calls."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numba import int64


def team(threads: int) -> Team:
    """Return the team of this process with so many threads; after a fork a new one."""
    return _team(threads, os.getpid())


@cache
def _team(threads: int, process: int) -> Team:
    return Team(threads)


class Team:
    """`threads` threads, the caller among them; the others end with the program."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.state = np.zeros(16, np.int64)
        """of the barrier at which the threads of a function wait for each other, also at its end"""
        self._lock = threading.Lock()  # one call at a time
        self._starts = [threading.Semaphore(0) for _ in range(threads - 1)]
        self._number = 0
        self._compiled: set[tuple[Any, ...]] = set()
        self._work: tuple[int, Callable[..., None], tuple[Any, ...]] | None = None
        for number in range(threads - 1):
            threading.Thread(target=self._serve, args=(number,), daemon=True).start()

    def run(self, function: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        """Call function(*arguments, thread, threads) on every thread and wait for all."""
        with self._lock:
            if self.threads == 1:
                function(*arguments, 0, 1)
                return
            self._compile(function, arguments)
            turn = int(self.state[8])
            self._number += 1
            self._work = self._number, function, arguments
            try:
                self._start(function, arguments)
            except BaseException:  # Ctrl-C before the call: the threads that wait for this one must not wait for ever
                if int(self.state[8]) == turn:
                    self._start(function, arguments)
                raise

    def _compile(self, function: Any, arguments: tuple[Any, ...]) -> None:
        """Compile a function before other threads are woken: what fails then fails in the caller alone."""
        if hasattr(function, "compile") and hasattr(function, "nopython_signatures"):
            types = (*(function.typeof_pyval(argument) for argument in arguments), int64, int64)
            if types not in self._compiled:
                function.compile(types)
                self._compiled.add(types)

    def _start(self, function: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        for start in self._starts:
            start.release()
        function(*arguments, 0, self.threads)

    def _serve(self, number: int) -> None:
        last = 0
        while True:
            self._starts[number].acquire()
            assert self._work is not None
            current, function, arguments = self._work
            if current != last:  # else it was started twice
                last = current
                function(*arguments, number + 1, self.threads)  # compiled by `run`: it raises nothing
