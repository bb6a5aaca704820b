"""Owns how a part runs: one plan, tensors of PyTorch in and out, on the current stream, from PyTorch's allocator."""

import torch
from torch._subclasses.fake_tensor import FakeTensor

from .. import _fusor
from ._aten import Filled
from ._convert import is_number_of_run

ALIGNMENT = 16  # bytes: what a graph may expect of addresses


class Place:
    """Where a tensor of PyTorch lies: its dims and strides as PyTorch has them."""

    def __init__(self, fake):
        # Extents of fake tensors may be symbols that stand for numbers.
        self.size, self.stride = tuple(map(int, fake.shape)), tuple(map(int, fake.stride()))
        self.dtype = fake.dtype

    def empty(self, device):
        return torch.empty_strided(self.size, self.stride, dtype=self.dtype, device=device)

    def arranged(self, tensor):
        """The tensor, or a copy of it where it lies elsewhere than planned."""
        if tensor.stride() == self.stride and tensor.data_ptr() % ALIGNMENT == 0:
            return tensor
        same = all(n == 1 or s == t for n, s, t in zip(self.size, tensor.stride(), self.stride))
        if same and tensor.data_ptr() % ALIGNMENT == 0:
            return tensor
        return self.empty(tensor.device).copy_(tensor)


class Number:
    """In the place of a Place: a number of each run, which the host knows."""

    def arranged(self, given):
        return given.item() if isinstance(given, torch.Tensor) else given


class PartModule(torch.nn.Module):
    """A graph that was converted, planned and loaded: called with its inputs, it returns the list of its results."""

    def __init__(self, converted, plan, device):
        super().__init__()
        self.plan = plan
        self.executable = _fusor.load(plan)
        self.device = device
        values = [node.meta["val"] for node in converted.inputs]
        self.places = [Number() if is_number_of_run(each, device.type) else Place(each) for each in values]
        self.takes_numbers = any(isinstance(place, Number) for place in self.places)
        self._results(converted)
        self.order = self._order(converted)
        self.workspace_bytes = self.executable.workspace_bytes

    def _results(self, converted):
        """Which results are written by a run (by position), and those that never change."""
        self.written, self.fixed, self.names = [], {}, []
        for position, (result, fake) in enumerate(zip(converted.results, converted.fakes)):
            if isinstance(result, Filled):
                self.fixed[position] = fake
                continue
            self.written.append((position, Place(fake)))
            self.names.append(result)
        self.count = len(converted.results)

    def _constants(self):
        """Results that never change, made at the first run: there are no real tensors while a model is traced."""
        for position, fixed in self.fixed.items():
            if isinstance(fixed, FakeTensor):
                size = tuple(map(int, fixed.shape))
                self.fixed[position] = torch.zeros(size, dtype=fixed.dtype, device=fixed.device)
        return self.fixed

    def _order(self, converted):
        """For each slot of the executable the position of its tensor among inputs, then outputs."""
        position = {name: i for i, name in enumerate([*(node.name for node in converted.inputs), *self.names])}
        return [position[slot.name] for slot in self.executable.slots]

    def forward(self, *inputs):
        device = self.device
        tensors = [place.arranged(tensor) for place, tensor in zip(self.places, inputs)]
        results = [None] * self.count
        for position, fixed in self._constants().items():
            results[position] = fixed.clone() if fixed.numel() > 0 else fixed
        for position, place in self.written:
            results[position] = place.empty(device)
            tensors.append(results[position])
        if self.takes_numbers:
            pointers = [each.data_ptr() if isinstance(each, torch.Tensor) else each for each in tensors]
        else:
            pointers = [tensor.data_ptr() for tensor in tensors]
        self._run([pointers[i] for i in self.order])
        return results

    def _run(self, pointers):
        workspace = room = None
        if self.workspace_bytes:
            room = torch.empty(self.workspace_bytes + 256, dtype=torch.uint8, device=self.device)
            workspace = room.data_ptr() + (-room.data_ptr()) % 256
        if self.device.type == "cpu":
            self.executable.run(*pointers, workspace=workspace)
            return
        with torch.cuda.device(self.device):
            stream = torch.cuda.current_stream(self.device).cuda_stream
            self.executable.run(*pointers, workspace=workspace, stream=stream)
