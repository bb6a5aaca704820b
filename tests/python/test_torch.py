"""Tests of plans inside PyTorch, on the CPU and where there is one on a GPU. Without PyTorch they skip themselves."""

import sys
import unittest

import fusor

try:
    import torch

    import fusor.torch
except ImportError:
    print("skipped: there is no PyTorch")
    sys.exit(77)

ON_GPU = torch.cuda.is_available() and not fusor.DeviceInfo.current().is_cpu
DEVICES = ["cpu", "cuda"] if ON_GPU else ["cpu"]
BACKEND = {"cpu": "aot_eager", "cuda": "inductor"}  # no C++ is compiled for the CPU
TYPES = {
    "fp64": torch.float64, "fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16,
    "fp8_e4m3": torch.float8_e4m3fn, "fp8_e5m2": torch.float8_e5m2, "int8": torch.int8, "uint8": torch.uint8,
    "int32": torch.int32, "int64": torch.int64, "bool8": torch.bool,
}


def device_info(device):
    return fusor.DeviceInfo.cpu() if device == "cpu" else fusor.DeviceInfo.current()


def forward_graph(type="fp32"):
    g = fusor.GraphBuilder("linear")
    x, w, b = g.input("x", (64, 128), type), g.input("w", (128, 32), type), g.input("b", (32,), type)
    return g.finish(g.output(g.relu(x @ w + b), "y", type=type))


def backward_graph(type="fp32"):
    g = fusor.GraphBuilder("linear backward")
    x, w, y = g.input("x", (64, 128), type), g.input("w", (128, 32), type), g.input("y", (64, 32), type)
    dz = g.relu_bwd(g.input("dy", (64, 32), type), y)
    g.output(dz @ g.transpose(w, (1, 0)), "dx", type=type)
    g.output(g.transpose(x, (1, 0)) @ dz, "dw", type=type)
    g.output(g.reshape(g.reduce(dz, "add", [0]), (32,)), "db", type=type)
    return g.finish()


def linear(device, backward=True, type="fp32"):
    info = device_info(device)
    plan = fusor.build(forward_graph(type), info)
    return fusor.torch.Op(plan, backward=fusor.build(backward_graph(type), info) if backward else None)


def tensors(device, type=torch.float32):
    torch.manual_seed(0)
    shapes = (64, 128), (128, 32), (32,)
    return [torch.randn(*shape).to(device, type).requires_grad_() for shape in shapes]


def reference(x, w, b):
    return torch.relu(x @ w + b)


class Torch(unittest.TestCase):
    def on_each(self):
        for device in DEVICES:
            with self.subTest(device=device):
                yield device

    def close(self, got, want, tolerance=1e-3):
        torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance)

    def test_tensors_and_parameters_of_every_type_are_read(self):
        for name in ("fp64", "fp32", "fp16", "bf16", "fp8_e4m3", "fp8_e5m2", "int8", "uint8", "int32", "int64", "bool8"):
            g = fusor.GraphBuilder("turned")
            g.output(g.transpose(g.input("x", (3, 4), name), (1, 0)), "y")
            turn = fusor.load(fusor.build(g.finish(), "cpu"))
            x = torch.randint(0, 2, (3, 4)).to(TYPES[name])
            y = torch.zeros(4, 3).to(TYPES[name])
            turn.run(torch.nn.Parameter(x, requires_grad=x.is_floating_point()), y)
            self.assertTrue(torch.equal(y.float(), x.float().T), name)
            with self.assertRaisesRegex(fusor.Error, r"\[4, 3\] with strides \[1, 4\]"):
                turn.run(x.T, y)
            with self.assertRaisesRegex(fusor.Error, "a type that fusor does not have"):
                turn.run(torch.zeros(3, 4, dtype=torch.complex64), y)
            with self.assertRaisesRegex(fusor.Error, "expected an array"):
                turn.run(torch.zeros(3, 4, device="meta"), y)

    def test_an_executable_takes_tensors(self):
        for device in self.on_each():
            exe = fusor.load(fusor.build(forward_graph(), device_info(device)))
            x, w, b = (t.detach() for t in tensors(device))
            y = torch.empty(64, 32, device=device)
            exe.run(x, w, b, y)
            self.close(y, reference(x, w, b))
            self.close(exe(x, w, b), reference(x, w, b))

    def test_checks_name_the_tensor(self):
        for device in self.on_each():
            exe = fusor.load(fusor.build(forward_graph(), device_info(device)))
            x, w, b = (t.detach() for t in tensors(device))
            y = torch.empty(64, 32, device=device)
            for wrong in (x.half(), x.t(), x.to("cpu" if device == "cuda" else "meta")):
                with self.assertRaisesRegex(Exception, "'x'|meta"):
                    exe.run(wrong, w, b, y)

    def test_bf16(self):
        for device in self.on_each():
            x, w, b = (t.detach() for t in tensors(device, torch.bfloat16))
            self.close(linear(device, backward=False, type="bf16")(x, w, b), reference(x, w, b), 3e-2)

    def test_by_name_and_without_gradients(self):
        for device in self.on_each():
            x, w, b = tensors(device)
            with torch.no_grad():
                y = linear(device)(b=b, w=w, x=x)
            self.assertFalse(y.requires_grad)
            self.close(y, reference(x, w, b).detach())

    def test_gradients(self):
        for device in self.on_each():
            op = linear(device)
            ours, theirs = tensors(device), tensors(device)
            (op(*ours) ** 2).sum().backward()
            (reference(*theirs) ** 2).sum().backward()
            for a, b in zip(ours, theirs):
                self.close(a.grad, b.grad)

    def test_an_expanded_gradient_is_arranged(self):
        for device in self.on_each():
            ours, theirs = tensors(device), tensors(device)
            linear(device)(*ours).sum().backward()
            reference(*theirs).sum().backward()
            self.close(ours[1].grad, theirs[1].grad)

    def test_only_wanted_gradients_are_there(self):
        for device in self.on_each():
            x, w, b = tensors(device)
            linear(device)(x.detach(), w, b.detach()).sum().backward()
            self.assertIsNotNone(w.grad)
            self.assertIsNone(x.grad)

    def test_a_backward_graph_of_other_names_is_refused(self):
        g = fusor.GraphBuilder()
        g.output(g.relu(g.input("dz", (64, 32))), "dx")
        with self.assertRaisesRegex(fusor.Error, "'dz'.*x, w, b, y.*dy"):
            fusor.torch.Op(fusor.build(forward_graph(), "cpu"), backward=fusor.build(g.finish(), "cpu"))

    @unittest.skipUnless(hasattr(torch.library, "custom_op"), "torch.library.custom_op is of PyTorch 2.4")
    def test_the_op_that_compile_sees_is_right(self):
        for device in self.on_each():
            op = linear(device)
            ours, theirs = tensors(device), tensors(device)
            (y,) = op._custom(ours)
            self.close(y, reference(*theirs))
            y.sum().backward()
            reference(*theirs).sum().backward()
            for a, b in zip(ours, theirs):
                self.close(a.grad, b.grad)

    @unittest.skipUnless(hasattr(torch.library, "custom_op"), "torch.library.custom_op is of PyTorch 2.4")
    def test_inside_compile(self):
        for device in self.on_each():
            op = linear(device, backward=False)
            compiled = torch.compile(lambda x, w, b: op(x * 2, w, b) + 1, fullgraph=True, backend=BACKEND[device])
            x, w, b = (t.detach() for t in tensors(device))
            self.close(compiled(x, w, b), reference(x * 2, w, b) + 1)

    @unittest.skipUnless(hasattr(torch.library, "custom_op"), "torch.library.custom_op is of PyTorch 2.4")
    def test_inside_compile_with_gradients(self):
        for device in self.on_each():
            op = linear(device)
            compiled = torch.compile(lambda x, w, b: op(x * 2, w, b).sum(), fullgraph=True, backend=BACKEND[device])
            ours, theirs = tensors(device), tensors(device)
            compiled(*ours).backward()
            reference(theirs[0] * 2, *theirs[1:]).sum().backward()
            for a, b in zip(ours, theirs):
                self.close(a.grad, b.grad)


@unittest.skipUnless(ON_GPU, "no GPU")
class OnGpu(unittest.TestCase):
    def test_a_run_is_on_the_current_stream(self):
        x, w, b = (t.detach() for t in tensors("cuda"))
        op = linear("cuda", backward=False)
        want = reference(x, w, b)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            torch.cuda._sleep(20_000_000)
            x.mul_(0)  # behind the sleep: an op of another stream would read what was there before
            y = op(x, w, b)
        torch.cuda.current_stream().wait_stream(stream)
        torch.testing.assert_close(y, torch.relu(b).expand(64, 32), rtol=1e-3, atol=1e-3)
        self.assertGreater((want - y).abs().max().item(), 1)

    def test_streams_are_handles_and_objects(self):
        exe = fusor.load(fusor.build(forward_graph()))
        x, w, b = (t.detach() for t in tensors("cuda"))
        stream = torch.cuda.Stream()
        torch.cuda.synchronize()
        for each in (stream, stream.cuda_stream):
            y = torch.zeros(64, 32, device="cuda")
            torch.cuda.synchronize()
            exe.run(x, w, b, y, stream=each)
            stream.synchronize()
            torch.testing.assert_close(y, reference(x, w, b), rtol=1e-3, atol=1e-3)

    def test_captured_into_a_graph(self):
        x, w, b = (t.detach() for t in tensors("cuda"))
        op = linear("cuda", backward=False)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            op(x, w, b)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = op(x, w, b)
        x.mul_(0.5)
        graph.replay()
        torch.testing.assert_close(y, reference(x, w, b), rtol=1e-3, atol=1e-3)

    def test_the_cuda_array_interface(self):
        class Interface:
            def __init__(self, tensor):
                self.tensor = tensor

            @property
            def __cuda_array_interface__(self):
                return self.tensor.__cuda_array_interface__

        exe = fusor.load(fusor.build(forward_graph()))
        x, w, b = (t.detach() for t in tensors("cuda"))
        y = torch.zeros(64, 32, device="cuda")
        exe.run(*(Interface(t) for t in (x, w, b, y)))
        torch.testing.assert_close(y, reference(x, w, b), rtol=1e-3, atol=1e-3)

    def test_dlpack(self):
        class DLPack:
            def __init__(self, tensor):
                self.tensor = tensor

            def __dlpack__(self, **named):
                return self.tensor.__dlpack__(**named)

        exe = fusor.load(fusor.build(forward_graph()))
        x, w, b = (t.detach() for t in tensors("cuda"))
        y = torch.zeros(64, 32, device="cuda")
        exe.run(*(DLPack(t) for t in (x, w, b, y)))
        torch.testing.assert_close(y, reference(x, w, b), rtol=1e-3, atol=1e-3)

    def test_host_arrays_travel_there_and_back(self):
        import numpy

        x, w, b = (t.detach().numpy() for t in tensors("cpu"))
        got = fusor.load(fusor.build(forward_graph()))(x, w, b)
        numpy.testing.assert_allclose(got, numpy.maximum(x @ w + b, 0), rtol=1e-3, atol=1e-3)


if __name__ == "__main__":
    unittest.main()
