"""Owns what tests of fusor as a backend of torch.compile share: inputs, comparisons with PyTorch. Ends a test where there is
no PyTorch."""

import sys
import unittest

import fusor

try:
    import torch
    import torch.nn.functional as F

    import fusor.torch
    from fusor.torch import Report
    from torch._dynamo.backends.common import aot_autograd  # noqa: F401
except ImportError:
    print("skipped: there is no PyTorch")
    sys.exit(77)

from torch import nn

ON_GPU = torch.cuda.is_available() and not fusor.DeviceInfo.current().is_cpu
DEVICE = "cuda" if ON_GPU else "cpu"
torch.backends.cudnn.allow_tf32 = False  # what is compared with is not rounded
TOLERANCE = {torch.float32: 2e-4, torch.bfloat16: 4e-2, torch.float16: 5e-3, torch.float64: 1e-6}


def randn(*dims, dtype=torch.float32, place=torch.contiguous_format):
    x = torch.randn(*dims, device=DEVICE)
    return x.to(dtype).contiguous(memory_format=place)


def integers(high, *dims):
    return torch.randint(0, high, dims, device=DEVICE)


def compiled(function, report=None, **options):
    """The function behind the backend; what is outside of graphs is in the report."""
    import functools

    from fusor.torch import backend

    return torch.compile(function, backend=functools.partial(backend, report=report, options=options), dynamic=False)


class Compile(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)
        torch._dynamo.reset()

    def close(self, got, want, what="", tolerance=None):
        self.assertEqual(got.dtype, want.dtype, what)
        self.assertEqual(got.shape, want.shape, what)
        if not want.dtype.is_floating_point:
            self.assertTrue(torch.equal(got, want), f"{what}: {got} is not {want}")
            return
        limit = tolerance or TOLERANCE[want.dtype]
        torch.testing.assert_close(got, want, rtol=limit, atol=limit, msg=lambda text: f"{what}: {text}",
                                   equal_nan=True)  # fmt: skip

    def each(self, cases, *inputs, outside=()):
        """Cases by name, functions of the inputs: compiled as one function, each compared with PyTorch. Only `outside`
        may be ops that PyTorch runs."""
        report = Report()

        def all_of(*inputs):
            return [case(*inputs) for case in cases.values()]

        with torch.no_grad():
            results = compiled(all_of, report)(*inputs)
            for name, result, case in zip(cases, results, cases.values()):
                want = case(*inputs)
                pairs = zip(result, want) if isinstance(want, (tuple, list)) else [(result, want)]
                for got, right in pairs:
                    self.close(got, right, name)
                    if DEVICE == "cpu":  # on CUDA PyTorch's own traces say other strides than its kernels give
                        self.assertEqual(got.stride(), right.stride(), name)
        found = {entry.op: entry.reason for graph in report for entry in graph.outside}
        self.assertEqual(sorted(found), sorted(outside), found)

    def model(self, model, *inputs, backward=True, tolerance=None, outside=(), **options):
        """A module behind the backend: results, gradients and buffers as PyTorch's."""
        import copy

        model = model.to(DEVICE)
        model.zero_grad()
        twin = copy.deepcopy(model)
        theirs = [x.detach().clone().requires_grad_(x.requires_grad) for x in inputs]
        report = Report()
        got, want = compiled(model, report, **options)(*inputs), twin(*theirs)
        self.close(got, want, "result", tolerance)
        if backward:
            weights = torch.randn_like(want)
            (got * weights).sum().backward()
            (want * weights).sum().backward()
            pairs = [*zip(inputs, theirs), *zip(model.parameters(), twin.parameters())]
            names = [f"input {i}" for i in range(len(inputs))] + [name for name, _ in model.named_parameters()]
            for name, (a, b) in zip(names, pairs):
                self.assertEqual(a.grad is None, b.grad is None, name)
                if a.grad is not None:
                    self.close_gradient(a.grad, b.grad, name, tolerance)
        for (name, a), b in zip(model.named_buffers(), twin.buffers()):
            self.close(a, b, name, tolerance)
        found = {entry.op: entry.reason for graph in report for entry in graph.outside}
        self.assertEqual(sorted(found), sorted(outside), found)
        return report

    def close_gradient(self, got, want, name, tolerance):
        """Gradients are sums, whose error is one of their largest element's size."""
        scale = max(1.0, want.abs().max().item())
        self.close(got / scale, want / scale, f"gradient of {name}", tolerance)
