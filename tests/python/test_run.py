"""Tests of runs on the CPU device: arrays in and out, their checks, bound runs, threads, verify."""

import array
import threading
import unittest

import fusor
import numpy
from support import linear, linear_arrays, runs


class DLPackOnly:
    """An array that speaks DLPack and nothing else, as JAX's do."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **_):
        return self.array.__dlpack__()

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class OnGpu:
    """Says of itself that it is on a GPU."""

    def __init__(self, shape):
        self.__cuda_array_interface__ = {
            "shape": shape, "typestr": "<f4", "data": (4096, False), "version": 3, "strides": None,
        }  # fmt: skip

    # On the class, as CuPy's and Numba's arrays have it.
    __cuda_array_interface__ = None


class Arrays(unittest.TestCase):
    def setUp(self):
        self.x, self.w, self.b, self.want = linear_arrays()
        self.y = numpy.zeros_like(self.want)

    def check(self, y=None):
        numpy.testing.assert_allclose(self.y if y is None else y, self.want, rtol=1e-5, atol=1e-6)

    def test_bytes_in_the_other_order_are_no_type(self):
        for x in (self.x, self.w, self.b):
            swapped = x.astype(x.dtype.newbyteorder(">"))
            arrays = [swapped if each is x else each for each in (self.x, self.w, self.b)]
            with self.assertRaisesRegex(fusor.Error, "is fp32"):
                linear()(*arrays)

    def test_by_position_by_name_and_as_a_dict(self):
        exe = linear()
        self.assertEqual([t.name for t in exe.slots], ["x", "w", "b", "y"])
        exe.run(self.x, self.w, self.b, self.y)
        self.check()
        self.y[...] = 0
        exe.run(y=self.y, b=self.b, x=self.x, w=self.w)
        self.check()
        self.y[...] = 0
        exe.run({"y": self.y, "b": self.b, "x": self.x, exe.slots[1]: self.w})
        self.check()

    def test_outputs_are_made_by_a_call(self):
        self.check(linear()(self.x, self.w, self.b))
        self.check(linear()(b=self.b, w=self.w, x=self.x))

    def test_several_outputs_are_a_named_tuple(self):
        g = fusor.GraphBuilder("two")
        x = g.input("x", (4,), "fp32")
        first, second = g.relu(x), g.neg(x)
        g.output(second, "second")
        g.output(first, "first")
        x = numpy.array([-1, 0, 1, 2], numpy.float32)
        results = fusor.load(fusor.build(g.finish(), "cpu"))(x)
        self.assertEqual(results._fields, ("first", "second"))  # the order of the ops
        numpy.testing.assert_array_equal(results.second, -x)
        self.assertIs(results[1], results.second)

    def test_dlpack(self):
        linear().run(DLPackOnly(self.x), DLPackOnly(self.w), self.b, DLPackOnly(self.y))
        self.check()

    def test_buffers_of_the_standard_library(self):
        exe = linear(1, 2, 2)
        y = array.array("f", [0, 0])
        x, w, b = (numpy.array(v, numpy.float32) for v in ([[1, 2]], [[1, 0], [0, 1]], [0, 1]))
        exe.run(x, w, b, memoryview(y).cast("B").cast("f", (1, 2)))
        self.assertEqual(list(y), [1, 3])

    def test_addresses(self):
        address = [int(a.ctypes.data) for a in (self.x, self.w, self.b, self.y)]
        linear().run(*address)
        self.check()

    def test_scalars_are_numbers(self):
        for type in ("fp64", "fp32", "fp16", "bf16"):
            g = fusor.GraphBuilder()
            graph = g.finish(g.input("x", (2,)) * g.scalar("s", type))
            numpy.testing.assert_array_equal(runs(graph, numpy.array([1, 2], numpy.float32), 1.5), [1.5, 3])

    def test_numbers_that_a_scalars_type_has_not_are_refused(self):
        for type, number in (("int32", 2**40 + 7), ("int8", 300), ("uint8", -1), ("int64", 2**63), ("int64", 2.5),
                             ("fp16", 7e4)):  # fmt: skip
            g = fusor.GraphBuilder()
            exe = fusor.load(fusor.build(g.finish(g.input("x", (2,)) * g.scalar("s", type)), "cpu"))
            with self.subTest(type), self.assertRaisesRegex(fusor.Error, f"'s' is {type}, which has no number"):
                exe(numpy.array([1, 2], numpy.float32), number)

    def test_packed_types_are_bytes(self):
        g = fusor.GraphBuilder("packed")
        x, w = g.input("x", (3, 5), "fp32"), g.input("w", (3, 5), "int4")
        y = g.output(x * w, type="int4")
        b = g.output(w > 0, name="b", type="bool1")
        exe = fusor.load(fusor.build(g.finish(), "cpu"))
        values = numpy.array([-8, 7, 3, -1, 0] * 3)
        nibbles = numpy.append(values & 15, 0)
        packed = (nibbles[0::2] | nibbles[1::2] << 4).astype(numpy.uint8)
        ys, bs = exe(numpy.full((3, 5), 2, numpy.float32), packed)
        self.assertEqual((ys.shape, ys.dtype, bs.shape), ((8,), numpy.uint8, (2,)))
        got = numpy.stack([ys & 15, ys >> 4], 1).ravel()[:15].astype(int)
        want = numpy.clip(2 * values, -8, 7)
        numpy.testing.assert_array_equal((got ^ 8) - 8, want)
        numpy.testing.assert_array_equal(numpy.unpackbits(bs, bitorder="little")[:15], values > 0)
        with self.assertRaisesRegex(fusor.Error, "elements share bytes"):
            exe(numpy.full((3, 5), 2, numpy.float32), values.astype(numpy.int8).reshape(3, 5))

    def test_scalars_of_packed_types_are_bytes_or_numbers(self):
        g = fusor.GraphBuilder("packed scalar")
        y = g.output(g.input("x", (2,)) * g.scalar("s", "int4"), type="fp32")
        exe = fusor.load(fusor.build(g.finish(), "cpu"))
        x = numpy.array([1, 2], numpy.float32)
        for s in (3, numpy.array([3], numpy.int8), numpy.array([3], numpy.uint8)):
            numpy.testing.assert_array_equal(exe(x, s), [3, 6])
        for type in (numpy.float32, numpy.float64, numpy.int16):
            with self.assertRaisesRegex(fusor.Error, "another type"):
                exe(x, numpy.array([3], type))

    def test_bf16_as_bits(self):
        g = fusor.GraphBuilder()
        exe = fusor.load(fusor.build(g.finish(g.input("x", (2,), "bf16") * 2), "cpu"))
        y = numpy.zeros(2, numpy.uint16)
        exe.run(numpy.array([0x3F80, 0x4000], numpy.uint16), y)  # 1, 2
        self.assertEqual(list(y), [0x4000, 0x4080])

    def test_workspaces_may_be_given(self):
        g = fusor.GraphBuilder()
        a = g.input("a", (64, 64))
        exe = fusor.load(fusor.build(g.finish((a @ a) @ a), "cpu"))
        self.assertGreater(exe.workspace_bytes, 0)
        x = numpy.eye(64, dtype=numpy.float32) * 2
        for workspace in (None, fusor.DeviceMemory("cpu", exe.workspace_bytes)):
            numpy.testing.assert_array_equal(exe(x, workspace=workspace), x * 4)
        with self.assertRaisesRegex(fusor.Error, "bytes of workspace"):
            exe(x, workspace=fusor.DeviceMemory("cpu", 256))


class Checks(unittest.TestCase):
    def setUp(self):
        self.x, self.w, self.b, self.want = linear_arrays()
        self.y = numpy.zeros_like(self.want)

    def refused(self, text, *arrays, **named):
        with self.assertRaisesRegex(fusor.Error, text):
            linear().run(*arrays, **named)

    def test_another_type(self):
        self.refused(
            r"tensor 'x' is fp32 \[4, 8\] with strides \[8, 1\]; got fp64 \[4, 8\] .*another type",
            self.x.astype(numpy.float64), self.w, self.b, self.y,
        )  # fmt: skip

    def test_other_dims(self):
        self.refused(r"tensor 'b' is fp32 \[16\] .* got fp32 \[8\] .*other dims", self.x, self.w, self.b[:8], self.y)

    def test_other_strides(self):
        self.refused(
            r"tensor 'w' .* with strides \[16, 1\]; got fp32 \[8, 16\] with strides \[1, 8\]",
            self.x, numpy.asfortranarray(self.w), self.b, self.y,
        )  # fmt: skip

    def test_another_device(self):
        self.refused(r"tensor 'x' must be on the host .* is on GPU 0", OnGpu((4, 8)), self.w, self.b, self.y)

    def test_outputs_that_cannot_be_written(self):
        self.y.flags.writeable = False
        self.refused("output 'y' is read-only", self.x, self.w, self.b, self.y)

    def test_what_is_missing_unknown_or_given_twice(self):
        self.refused("tensor 'y' has no array; the plan of 'linear' binds x, w, b, y", self.x, self.w, self.b)
        self.refused("binds no tensor 'z'; it binds x, w, b, y", z=self.x)
        self.refused("tensor 'x' is given twice", self.x, x=self.x)
        with self.assertRaisesRegex(fusor.Error, "tensor 'x' is given twice"):
            linear()(self.x, self.w, self.b, x=self.w)
        self.refused("got 5 arrays, the plan of 'linear' binds 4", self.x, self.x, self.x, self.x, self.x)

    def test_what_is_no_array(self):
        self.refused("tensor 'x': expected an array .* got list", [1, 2], self.w, self.b, self.y)

    def test_an_output_over_an_input(self):
        over = numpy.ndarray((4, 16), numpy.float32, self.w)
        self.refused("output 'y' .* overlaps input 'w'", self.x, self.w, self.b, over)


class Bound(unittest.TestCase):
    def test_a_bound_run_reads_what_the_arrays_hold_now(self):
        x, w, b, want = linear_arrays()
        y = numpy.zeros_like(want)
        run = linear().bind(x, w, b, y)
        run()
        numpy.testing.assert_allclose(y, want, rtol=1e-5, atol=1e-6)
        x[...] = 0
        run()
        numpy.testing.assert_allclose(y, numpy.maximum(numpy.broadcast_to(b, y.shape), 0), rtol=1e-5)

    def test_it_keeps_its_arrays(self):
        x, w, b, want = linear_arrays()
        y = numpy.zeros_like(want)
        run = linear().bind(x, w, b, y)
        del x, w, b
        run()
        numpy.testing.assert_allclose(y, want, rtol=1e-5, atol=1e-6)


class Threads(unittest.TestCase):
    def test_many_threads_run_one_executable(self):
        g = fusor.GraphBuilder()
        a = g.input("a", (32, 32))
        exe = fusor.load(fusor.build(g.finish((a @ a) @ a), "cpu"))
        wrong = []

        def work(number):
            x = numpy.eye(32, dtype=numpy.float32) * number
            for _ in range(20):
                if not numpy.array_equal(exe(x), numpy.eye(32) * number**3):
                    wrong.append(number)

        threads = [threading.Thread(target=work, args=(n,)) for n in range(1, 5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])


class Verify(unittest.TestCase):
    def test_right_and_wrong_results(self):
        exe = linear()
        x, w, b, _ = linear_arrays()
        for tensor, place in zip(exe.slots, (x, w, b)):
            fusor.fill_random(tensor, place, 7)
        arrays = {"x": x, "w": w, "b": b, "y": exe(x, w, b)}
        report = fusor.verify(exe.plan.graph, arrays)
        self.assertTrue(report.passed, str(report))
        self.assertEqual(repr(report), "<fusor.VerifyReport of 1 output: passed>")
        arrays["y"][1, 2] += 1
        report = fusor.verify(exe.plan.graph, arrays)
        self.assertFalse(report)
        self.assertEqual(repr(report), "<fusor.VerifyReport of 1 output: failed in 'y'>")
        self.assertEqual(report.outputs[0].wrong_at, (1, 2))


class Profiles(unittest.TestCase):
    def test_scalars_are_numbers_or_arrays_of_one(self):
        g = fusor.GraphBuilder("scaled")
        g.output(g.input("x", (2,), "fp32") * g.scalar("s", "fp32"), "y")
        graph = g.finish()
        x, y = numpy.ones(2, numpy.float32), numpy.full(2, 3, numpy.float32)
        for s in (3, 3.0, numpy.float32(3), numpy.full((1, 1), 3, numpy.float32)):
            self.assertTrue(fusor.verify(graph, {"x": x, "s": s, "y": y}).passed)
        for s in (numpy.ones(0, numpy.float32), numpy.ones(3, numpy.float32), numpy.ones((1,) * 20, numpy.float32)):
            with self.assertRaisesRegex(fusor.Error, "verify: tensor 's' .* \\(not one element\\)"):
                fusor.verify(graph, {"x": x, "s": s, "y": y})
            with self.assertRaisesRegex(fusor.Error, "run: tensor 's' .* \\(not one element\\)"):
                fusor.load(fusor.build(graph, "cpu"))(x, s)
        with self.assertRaisesRegex(fusor.Error, "verify: expected the name of a tensor, got 5"):
            fusor.verify(graph, {5: x})

    def test_a_profile_tells_fusions_and_limits(self):
        x, w, b, _ = linear_arrays()
        y = numpy.empty((4, 16), numpy.float32)
        calls = []
        profile = linear().profile(x, w, b, y, runs=3, warm_ups=0, before_run=lambda: calls.append(1))
        self.assertEqual(profile.runs, 3)
        self.assertEqual(len(calls), 6)
        (fusion,) = profile.fusions
        self.assertEqual(fusion.config.engine, "cpu")
        self.assertEqual(fusion.flops, 2 * 4 * 8 * 16)
        self.assertEqual([step.name for step in fusion.steps], ["evaluate"])
        self.assertGreater(fusion.fraction_of_limit, 0)
        self.assertIn("of the limit", str(profile))

    def test_what_before_run_raises_is_raised(self):
        x, w, b, _ = linear_arrays()
        y = numpy.empty((4, 16), numpy.float32)
        with self.assertRaises(ZeroDivisionError):
            linear().profile(x, w, b, y, before_run=lambda: 1 / 0)


if __name__ == "__main__":
    unittest.main()
