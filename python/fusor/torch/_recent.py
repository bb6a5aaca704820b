"""Owns values that are kept by key as long as they are among those used last, and the functions so kept of a graph
whose dims change from call to call."""

import collections
import functools
import logging
import threading

import torch
from torch.utils._python_dispatch import _disable_current_modes

log = logging.getLogger("fusor.torch")


class Recent:
    """Values by key, `most` of them: the one that was not used for longest goes first. Threads may share one: a value
    is made once, and while it is made others can be had."""

    def __init__(self, most):
        self._most = most
        self._kept = collections.OrderedDict()
        self._lock = threading.Lock()

    def get(self, key, make):
        """The value of a key, from make() where there is none."""
        with self._lock:
            entry = self._kept.get(key)
            if entry is None:
                entry = self._kept[key] = _Entry()
                while len(self._kept) > self._most:
                    self._kept.popitem(last=False)
            else:
                self._kept.move_to_end(key)
        return entry.value if entry.is_made else entry.made(make)

    def __contains__(self, key):
        return key in self._kept


class _Entry:
    def __init__(self):
        self.value, self.is_made = None, False
        self._lock = threading.Lock()

    def made(self, make):
        with self._lock:
            if not self.is_made:
                self.value, self.is_made = make(), True
            return self.value


class Sized:
    """For each set of sizes the function that make(sizes) gives, `most` of which are kept; `call` is one of a list of
    arguments. Behind the first few sets of sizes, one that comes for the first time is left to the function that
    otherwise() gives: where no call is like another (a cache that grows by a word), making would take longer than it
    ever saves."""

    AT_ONCE = 8

    def __init__(self, sizes, make, otherwise, most):
        self._make, self._otherwise = make, functools.cache(otherwise)
        self._kept, self._met, self._made = Recent(most), Recent(most), 0
        self._last = (None, None)

        def call(arguments):
            numbers, function = self._last
            key = sizes.key(arguments)
            return (function if key == numbers else self._function(key))(arguments)

        call._boxed_call = True
        self.call = call

    def _function(self, key):
        if key not in self._kept and self._is_passing(key):
            return self._otherwise()
        function = self._kept.get(key, lambda: _untraced(self._make, key))
        self._last = (key, function)
        return function

    def _is_passing(self, key):
        """Whether sizes came for the first time, behind the first few."""
        if self._made < self.AT_ONCE:
            self._made += 1
            return False
        came_before = key in self._met
        self._met.get(key, lambda: True)
        if not came_before:
            log.info("sizes %s: PyTorch runs them; they are compiled when they come again", key)
        return not came_before


def _untraced(make, key):
    """Makes what belongs to no call: modes of the call that asks for it are not those of the calls to come."""
    with _disable_current_modes(), torch.inference_mode(False), torch.no_grad():
        return make(key)
