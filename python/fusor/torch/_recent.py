"""Owns values that are kept by key as long as they are among those used last."""

import collections
import threading


class Recent:
    """Values by key, `most` of them: the one that was not used for longest goes first. Threads may share one: a value is
    made once, and while it is made others can be had."""

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
