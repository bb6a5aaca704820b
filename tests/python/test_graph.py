"""Tests of graphs: operators, keyword arguments, methods that follow from the table of ops, errors."""

import pickle
import unittest

import fusor
import numpy
from support import runs


class Operators(unittest.TestCase):
    def evaluate(self, body, *arrays):
        g = fusor.GraphBuilder()
        xs = [g.input(f"x{i}", a.shape, a.dtype) for i, a in enumerate(arrays)]
        return runs(g.finish(body(*xs)), *arrays)

    def setUp(self):
        self.a = numpy.array([[1, -2, 3]], numpy.float32)
        self.b = numpy.array([[4], [5]], numpy.float32)

    def test_arithmetic_broadcasts_as_in_numpy(self):
        for body in (
            lambda a, b: a + b,
            lambda a, b: a - b,
            lambda a, b: a * b,
            lambda a, b: a / b,
            lambda a, b: abs(a) ** b,
            lambda a, b: -a + b,
        ):
            numpy.testing.assert_allclose(self.evaluate(body, self.a, self.b), body(self.a, self.b), rtol=1e-6)

    def test_numbers_stand_on_either_side(self):
        for body in (lambda a: 2 * a, lambda a: a * 2.5, lambda a: 1 - a, lambda a: a / 4, lambda a: 1 / a):
            numpy.testing.assert_allclose(self.evaluate(body, self.a), body(self.a), rtol=1e-6)

    def test_integers_that_a_tensors_type_has_not_are_refused(self):
        for type, body in (
            ("uint8", lambda a: a + -1),
            ("uint8", lambda a: a < 300),
            ("int8", lambda a: 200 - a),
            ("int32", lambda a: a < 2**31),
        ):
            g = fusor.GraphBuilder()
            with self.assertRaisesRegex(fusor.Error, f"is not a number of type {type}"):
                body(g.input("x", (2,), type))

    def test_integers_that_a_double_has_not_are_refused(self):
        g = fusor.GraphBuilder()
        x = g.input("x", (2,), "int64")
        for body in (lambda: g.cmp_eq(x, 2**53 + 1), lambda: g.constant(2**53 + 1, "int64")):
            with self.assertRaisesRegex(fusor.Error, "constant 9007199254740993: constants are kept as fp64"):
                body()
        g.constant(2**53 + 2, "int64")

    def test_selected_numbers_do_not_take_the_selectors_type(self):
        selector = numpy.array([1, 0], numpy.uint8)
        g = fusor.GraphBuilder()
        t = g.input("t", (2,), "uint8")
        numpy.testing.assert_array_equal(runs(g.finish(g.binary_select(1.5, -300, t)), selector), [1.5, -300])

    def test_scalars_of_numpy_are_numbers(self):
        two = numpy.float32(2)
        for body in (lambda a: a * two, lambda a: two * a, lambda a: two - a):
            numpy.testing.assert_allclose(self.evaluate(body, self.a), body(self.a), rtol=1e-6)

    def test_whole_numbers_beside_integers_stay_integers(self):
        a = numpy.array([5, -7], numpy.int32)
        result = self.evaluate(lambda a: a * 3 + 1, a)
        self.assertEqual(result.dtype, numpy.int32)
        numpy.testing.assert_array_equal(result, a * 3 + 1)

    def test_comparisons_give_booleans(self):
        for body in (lambda a, b: a < b, lambda a, b: a <= b, lambda a, b: a > b, lambda a, b: a >= b):
            result = self.evaluate(body, self.a, self.b)
            self.assertEqual(result.dtype, numpy.bool_)
            numpy.testing.assert_array_equal(result, body(self.a, self.b))

    def test_matmul(self):
        numpy.testing.assert_allclose(
            self.evaluate(lambda a, b: b @ a, self.a, self.b), self.b @ self.a, rtol=1e-6
        )

    def test_equality_is_of_tensors_so_that_they_are_keys(self):
        g = fusor.GraphBuilder()
        x, y = g.input("x", (2,)), g.input("y", (2,))
        self.assertTrue(x == x)
        self.assertFalse(x == y)
        self.assertFalse(x == "x")
        self.assertEqual({x: 1, y: 2}[y], 2)

    def test_a_tensor_has_no_truth_value(self):
        x = fusor.GraphBuilder().input("x", (2,))
        with self.assertRaisesRegex(TypeError, "has no truth value"):
            0.0 < x < 1.0  # Python would drop the first comparison
        with self.assertRaisesRegex(TypeError, "tensor 'x' has no truth value"):
            assert x

    def test_what_is_no_operand_is_a_type_error(self):
        x = fusor.GraphBuilder().input("x", (2,))
        with self.assertRaises(TypeError):
            x + "y"


class Methods(unittest.TestCase):
    def test_every_kind_of_op_has_a_method_with_a_docstring(self):
        from fusor import _ops

        for name in _ops.kinds():
            if name != "pointwise" and name != "reduction":
                self.assertTrue(getattr(fusor.GraphBuilder, name).__doc__, name)

    def test_docstrings_have_the_formula_and_the_shapes(self):
        document = fusor.GraphBuilder.elu.__doc__
        self.assertIn("Formula: y = x > 0 ? x : elu_alpha * expm1(x)", document)
        self.assertIn("Shapes: x, y: equal dims", document)
        self.assertIn("Types: ", fusor.GraphBuilder.softmax.__doc__)

    def test_attributes_are_keyword_arguments(self):
        g = fusor.GraphBuilder()
        x = g.input("x", (4,))
        graph = g.finish(g.relu(x, upper_clip=6, lower_clip_slope=0.5, name="leaky"))
        self.assertEqual(graph.ops[0].name, "leaky")
        result = runs(graph, numpy.array([-2, 1, 7, 6], numpy.float32))
        numpy.testing.assert_array_equal(result, [-1, 1, 6, 6])

    def test_operands_may_be_named_and_numbers(self):
        g = fusor.GraphBuilder()
        x = g.input("x", (3,))
        result = runs(g.finish(g.max(b=0.5, a=x)), numpy.array([0, 1, 2], numpy.float32))
        numpy.testing.assert_array_equal(result, [0.5, 1, 2])

    def test_an_unknown_argument_is_named_with_the_known_ones(self):
        g = fusor.GraphBuilder()
        with self.assertRaisesRegex(TypeError, "gelu.. has no argument 'approximate'; it has x, name, type, compute"):
            g.gelu(g.input("x", (3,)), approximate=True)

    def test_reductions_and_views(self):
        a = numpy.arange(24, dtype=numpy.float32).reshape(2, 3, 4)
        g = fusor.GraphBuilder()
        x = g.input("x", a.shape)
        outputs = [
            g.output(g.reduce(x, "max", [-1]), "max"),
            g.output(g.transpose(x, (2, 0, 1)), "transposed", layout="row_major"),
            g.output(g.slice(x, (0, 1, 0), (2, 3, 4), (1, 1, 2)), "part"),
            g.output(g.reshape(x, (6, 4)), "flat"),
            g.output(g.concatenate([x, x], -1), "twice"),
        ]
        results = dict(zip([t.name for t in outputs], runs(g.finish(), a)))
        numpy.testing.assert_array_equal(results["max"], a.max(-1, keepdims=True))
        numpy.testing.assert_array_equal(results["transposed"], a.transpose(2, 0, 1))
        numpy.testing.assert_array_equal(results["part"], a[:, 1:3, ::2])
        numpy.testing.assert_array_equal(results["flat"], a.reshape(6, 4))
        numpy.testing.assert_array_equal(results["twice"], numpy.concatenate([a, a], -1))

    def test_types_are_known_by_every_usual_name(self):
        g = fusor.GraphBuilder()
        names = ["fp16", "f16", "float16", numpy.float16, numpy.dtype("float16"), fusor.DataType.f16]
        for i, name in enumerate(names):
            self.assertEqual(g.input(f"x{i}", (1,), name).type, fusor.DataType.f16)


    def test_numbers_stand_for_lists(self):
        a = numpy.arange(16, dtype=numpy.float32).reshape(1, 1, 4, 4)
        g = fusor.GraphBuilder()
        x, w = g.input("x", a.shape), g.input("w", (1, 1, 3, 3))
        self.assertEqual(g.conv_fprop(x, w, padding=1).dims, (1, 1, 4, 4))
        self.assertEqual(g.conv_fprop(x, w, pre_padding=1, post_padding=0, stride=2, dilation=1).dims, (1, 1, 2, 2))
        self.assertEqual(g.reduce(x, "avg", -1).dims, (1, 1, 4, 1))
        self.assertEqual(g.reshape(x, 16).dims, (16,))
        self.assertEqual(g.input("v", 5).dims, (5,))
        self.assertEqual(g.resample_fwd(x, window=2).y.dims, (1, 1, 2, 2))
        with self.assertRaisesRegex(fusor.Error, "padding .1. has 1 entries"):
            g.conv_fprop(x, w, padding=[1])


class Families(unittest.TestCase):
    """Families that have no binding of their own."""

    def test_softmax_is_over_the_last_axis(self):
        a = numpy.array([[1, 2, 3], [4, 4, 4]], numpy.float32)
        g = fusor.GraphBuilder()
        y = g.softmax(g.input("x", a.shape)).y
        e = numpy.exp(a - a.max(-1, keepdims=True))
        numpy.testing.assert_allclose(runs(g.finish(y), a), e / e.sum(-1, keepdims=True), rtol=1e-6)

    def test_interpolation_as_in_cpp(self):
        a = numpy.array([[[0, 10, 40]]], numpy.float32)
        for options, want in (
            (dict(mode="bilinear", output_size=6), [0, 2.5, 7.5, 17.5, 32.5, 40]),
            (dict(mode="bilinear", output_size=(5,), align_corners=True), [0, 5, 10, 25, 40]),
            (dict(mode="nearest", output_size=(4,)), [0, 0, 10, 40]),
            (dict(mode="bilinear", output_size=(3,), step=(1,), shift=(0,), denominator=(2,)), [0, 5, 10]),
        ):
            g = fusor.GraphBuilder()
            y = g.resample_fwd(g.input("x", a.shape), **options)
            numpy.testing.assert_allclose(runs(g.finish(y), a)[0, 0], want, rtol=1e-6)
            back = fusor.GraphBuilder()
            dx = back.resample_bwd(back.input("dy", (1, 1, len(want))), (1, 1, 3), **options)
            total = runs(back.finish(dx), numpy.ones((1, 1, len(want)), numpy.float32)).sum()
            self.assertAlmostEqual(float(total), len(want), places=4)

    def test_pooling_with_padding_and_its_gradient(self):
        a = numpy.arange(16, dtype=numpy.float32).reshape(1, 1, 4, 4)
        g = fusor.GraphBuilder()
        x = g.input("x", a.shape)
        pool = g.resample_fwd(x, mode="maxpool", window=(3, 3), stride=2, padding=1)
        numpy.testing.assert_array_equal(runs(g.finish(pool.y), a)[0, 0], [[5, 7], [13, 15]])
        g = fusor.GraphBuilder()
        x, dy = g.input("x", a.shape), g.input("dy", (1, 1, 2, 2))
        dx = g.resample_bwd(dy, a.shape, x=x, mode="maxpool", window=(3, 3), stride=2, padding=1)
        got = runs(g.finish(dx), a, numpy.ones((1, 1, 2, 2), numpy.float32))
        self.assertEqual([int(i) for i in got.ravel().nonzero()[0]], [5, 7, 13, 15])
        with self.assertRaisesRegex(TypeError, "is given 'pre_padding' twice"):
            g.resample_fwd(x, window=2, padding=1, pre_padding=1)

    def test_random_numbers_as_in_cpp(self):
        g = fusor.GraphBuilder()
        seed, offset = g.constant(1, "int64"), g.constant(0, "int64")
        x = g.input("x", (1000,))
        outputs = [
            g.output(g.rng((1000,), seed, offset, low=2, high=3), "u"),
            g.output(g.rng(1000, seed, offset, distribution="normal", mean=5.0), "n"),
            g.output(g.rng_uniform(seed, offset, dims=(1000,), low=2, high=3), "same"),
            g.output(g.dropout(x, seed, offset, 0.25).y, "kept"),
        ]
        u, n, same, kept = runs(g.finish(), numpy.ones(1000, numpy.float32))
        self.assertTrue((u >= 2).all() and (u < 3).all() and abs(u.mean() - 2.5) < 0.05)
        self.assertTrue(abs(n.mean() - 5) < 0.2)
        numpy.testing.assert_array_equal(u, same)
        self.assertTrue(abs((kept == 0).mean() - 0.25) < 0.06)
        self.assertEqual(len(outputs), 4)
        with self.assertRaisesRegex(TypeError, "unknown distribution 'gauss'; known: bernoulli, uniform, normal"):
            g.rng((4,), seed, offset, distribution="gauss")

    def test_operands_follow_from_attributes(self):
        a = numpy.arange(12, dtype=numpy.float32).reshape(2, 6)
        inverse = numpy.full((2, 1), 0.5, numpy.float32)
        g = fusor.GraphBuilder()
        x, inv_std = g.input("x", a.shape), g.input("inv_std", inverse.shape)
        y = g.norm_fwd(x, norm="rms_norm", phase="inference", axes=-1, inv_std=inv_std).y
        numpy.testing.assert_allclose(runs(g.finish(y), a, inverse), a * 0.5, rtol=1e-6)
        with self.assertRaisesRegex(TypeError, "has no operand 'mean' with these attributes; its operands are x, scale"):
            g.norm_fwd(x, norm="rms_norm", mean=inv_std)

    def test_operands_by_position_have_the_places_of_the_signature(self):
        a = numpy.arange(12, dtype=numpy.float32).reshape(2, 6)
        inverse = numpy.full((2, 1), 0.5, numpy.float32)
        g = fusor.GraphBuilder()
        x, inv_std = g.input("x", a.shape), g.input("inv_std", inverse.shape)
        y = g.norm_fwd(x, None, None, None, inv_std, norm="rms_norm", phase="inference", mean=None).y
        numpy.testing.assert_allclose(runs(g.finish(y), a, inverse), a * 0.5, rtol=1e-6)
        with self.assertRaisesRegex(fusor.Error, "computes mean and inv_std in training"):
            g.norm_fwd(x, None, None, None, inv_std, norm="rms_norm")
        with self.assertRaisesRegex(TypeError, "is given 'x' by position and by name"):
            g.norm_fwd(x, x=x)

    def test_attributes_that_are_no_numbers_are_named(self):
        g = fusor.GraphBuilder()
        x = g.input("x", (2, 3))
        with self.assertRaisesRegex(fusor.Error, "elu: elu_alpha is not a number"):
            g.elu(x, elu_alpha=float("nan"))

    def test_attributes_without_layers_and_operands_that_are_none(self):
        g = fusor.GraphBuilder()
        x = g.input("x", (2, 1, 3))
        weights = [g.input("w", (9, 3)), g.input("u", (9, 3))]
        with self.assertRaisesRegex(fusor.Error, "layers 0"):
            g.rnn_fwd(x, weights, cell="gru", hidden_size=3, layers=0, bias=False)
        self.assertEqual(g.rnn_fwd(x, weights, cell="gru", hidden_size=3, bias=False, c0=None).y.dims, (2, 1, 3))

    def test_composites_compute_in_the_type_of_their_operands(self):
        g = fusor.GraphBuilder()
        x = g.input("x", (2, 6))
        self.assertEqual(g.softmax(x, compute="fp32").y.dims, (2, 6))
        with self.assertRaisesRegex(fusor.Error, "softmax 's': computes in fp32, as its operands say, not in fp64"):
            g.softmax(x, compute="fp64", name="s")

    def test_recurrent_layers_as_in_cpp(self):
        g = fusor.GraphBuilder()
        x = g.input("x", (3, 2, 6))
        weights = [g.input(n, d) for n, d in (("wi", (12, 6)), ("wh", (12, 4)), ("bi", (12,)), ("bh", (12,)))]
        h0 = g.input("h0", (1, 2, 4))
        layer = g.rnn_fwd(x, weights, cell="gru", h0=h0)
        self.assertEqual((layer.y.dims, layer.hn.dims), ((3, 2, 4), (1, 2, 4)))
        with self.assertRaisesRegex(TypeError, "misses the operand 'bias_hh_l0'"):
            g.rnn_fwd(x, weights[:3], cell="gru")

    def test_scalars_and_axes_of_norms_as_in_cpp(self):
        a = numpy.arange(24, dtype=numpy.float32).reshape(2, 3, 4)
        g = fusor.GraphBuilder()
        x, epsilon = g.input("x", a.shape), g.scalar("epsilon")
        y = g.norm_fwd(x, axes=(-2, -1), epsilon_scalar=epsilon).y
        want = (a - a.mean((1, 2), keepdims=True)) / numpy.sqrt(a.var((1, 2), keepdims=True) + 2)
        numpy.testing.assert_allclose(runs(g.finish(y), a, 2.0), want, rtol=1e-5, atol=1e-6)

    def test_an_unknown_argument_is_answered_with_a_near_one(self):
        g = fusor.GraphBuilder()
        x = g.input("x", (2, 3))
        with self.assertRaisesRegex(TypeError, "no argument 'axis'; did you mean 'axes'. it has x, scale") as caught:
            g.norm_fwd(x, axis=1)
        self.assertEqual(str(caught.exception).count("epsilon,"), 1)

    def test_numbers_of_numpy_are_numbers(self):
        a = numpy.arange(24, dtype=numpy.float32).reshape(2, 3, 4)
        g = fusor.GraphBuilder()
        x = g.input("x", a.shape)
        softmax = g.softmax(x, axis=numpy.int64(1)).y
        norm = g.norm_fwd(x, axes=[numpy.int32(-1)], epsilon=numpy.float32(2)).y
        self.assertEqual((softmax.dims, norm.dims), (a.shape, a.shape))
        pooled = g.resample_fwd(x=g.input("image", (1, 1, 8, 8)), mode="maxpool", window=numpy.int64(2)).y
        self.assertEqual(pooled.dims, (1, 1, 4, 4))
        pooled = g.resample_fwd(g.input("other", (1, 1, 8, 8)), mode="maxpool", window=numpy.array([2, 4])).y
        self.assertEqual(pooled.dims, (1, 1, 4, 2))

    def test_an_operand_given_twice_is_named(self):
        g = fusor.GraphBuilder()
        x = g.input("x", (2, 3))
        with self.assertRaisesRegex(TypeError, r"softmax\(\) is given 'x' by position and by name"):
            g.softmax(x, x=x)
        with self.assertRaisesRegex(TypeError, r"rnn_fwd\(\) wants a list of tensors as weights"):
            g.rnn_fwd(g.input("s", (3, 2, 6)), [1.0, 2.0])

    def test_one_result_of_several(self):
        a = numpy.array([[1, 2, 3], [4, 4, 4]], numpy.float32)
        g = fusor.GraphBuilder()
        softmax = g.softmax(g.input("x", a.shape), axis=-1)
        e = numpy.exp(a - a.max(-1, keepdims=True))
        numpy.testing.assert_allclose(runs(g.finish(softmax.y), a), e / e.sum(-1, keepdims=True), rtol=1e-6)

    def test_optional_operands_and_words(self):
        a = numpy.arange(12, dtype=numpy.float32).reshape(2, 6) ** 2
        s = numpy.arange(6, dtype=numpy.float32).reshape(1, 6)
        g = fusor.GraphBuilder()
        x, scale = g.input("x", a.shape), g.input("scale", s.shape)
        y = g.norm_fwd(x, scale, norm="rms_norm", phase="inference", epsilon=0.5).y
        want = a / numpy.sqrt((a * a).mean(-1, keepdims=True) + 0.5) * s
        numpy.testing.assert_allclose(runs(g.finish(y), a, s), want, rtol=1e-5)


class Errors(unittest.TestCase):
    def test_a_mistake_names_the_op_and_the_numbers_and_has_a_kind(self):
        g = fusor.GraphBuilder()
        a, b = g.input("a", (2, 3)), g.input("b", (4, 5))
        with self.assertRaisesRegex(fusor.Error, r"3.*4") as caught:
            a @ b
        self.assertEqual(caught.exception.kind, fusor.ErrorKind.bad_input)

    def test_unknown_words_list_the_known_ones(self):
        g = fusor.GraphBuilder()
        with self.assertRaisesRegex(fusor.Error, "unknown type 'fp17'; known: fp64, fp32"):
            g.input("x", (1,), "fp17")
        with self.assertRaisesRegex(fusor.Error, "unknown reduction mode 'sum'; known: add"):
            g.reduce(g.input("x", (1,)), "sum")
        with self.assertRaisesRegex(fusor.Error, "unknown device 'H9000'"):
            fusor.DeviceInfo.named("H9000")

    def test_an_integer_is_no_word(self):
        for type in (3, numpy.int64(3)):
            with self.assertRaisesRegex(fusor.Error, "unknown type"):
                fusor.GraphBuilder("g").input("x", (2,), type)

    def test_more_than_eight_dims_are_counted(self):
        g = fusor.GraphBuilder("g")
        for call in (lambda: g.input("x", (1,) * 9), lambda: g.reshape(g.input("y", (1,)), (1,) * 9)):
            with self.assertRaisesRegex(fusor.Error, "a tensor has up to 8 dims; got 9"):
                call()
        with self.assertRaises(TypeError):  # a list that may be left out
            g.input("x", (1,), strides=(1,) * 9)

    def test_a_tensor_of_another_builder_is_refused(self):
        x = fusor.GraphBuilder().input("x", (2,))
        with self.assertRaisesRegex(fusor.Error, "'x' .2. belongs to graph 'graph' of another builder, not to graph 'other'"):
            fusor.GraphBuilder("other").relu(x)

    def test_a_tensor_of_another_builder_is_refused_however_alike_it_is(self):
        g, other = fusor.GraphBuilder("g"), fusor.GraphBuilder("twin")
        x, y = g.input("x", (2,), "fp32"), other.input("x", (2,), "fp16")
        for body in (lambda: g.relu(y), lambda: x + y, lambda: g.softmax(y), lambda: g.output(y), lambda: g.finish(y)):
            with self.assertRaisesRegex(fusor.Error, "belongs to graph 'twin' of another builder, not to graph 'g'"):
                body()
        graph = g.finish(g.relu(x))
        with self.assertRaisesRegex(fusor.Error, "belongs to no builder"):
            g.neg(graph.tensors[0])

    def test_axes_are_named_as_they_were_said(self):
        g = fusor.GraphBuilder()
        x = g.input("x", (2, 3, 4, 5))
        for body in (
            lambda: g.softmax(x, axis=-9),
            lambda: g.norm_fwd(x, axes=(-9,)),
            lambda: g.reduce(x, "add", -9),
            lambda: g.gen_index(x, -9),
        ):
            with self.assertRaisesRegex(fusor.Error, "axis -9 is out of range"):
                body()

    def test_a_graph_is_no_plan(self):
        g = fusor.GraphBuilder("g")
        g.output(g.relu(g.input("x", (2,))))
        with self.assertRaisesRegex(fusor.Error, "load: expected a Plan, got a Graph"):
            fusor.load(g.finish())

    def test_a_graph_is_expected_where_one_is_planned(self):
        g = fusor.GraphBuilder()
        plan = fusor.build(g.finish(g.relu(g.input("x", (2,)))), "cpu")
        with self.assertRaisesRegex(fusor.Error, "build: expected a Graph, got .*GraphBuilder; call its finish.. first"):
            fusor.build(g)
        with self.assertRaisesRegex(fusor.Error, "build: expected a Graph, got 'g.json'; read_graph.. reads one"):
            fusor.build("g.json")
        with self.assertRaisesRegex(fusor.Error, "candidates: expected a Graph, got .*Plan; its graph is plan.graph"):
            fusor.candidates(plan)
        with self.assertRaisesRegex(fusor.Error, "explain: expected a Graph, got int; "):
            fusor.explain(3)

    def test_operators_need_a_builder(self):
        g = fusor.GraphBuilder()
        graph = g.finish(g.relu(g.input("x", (2,))))
        with self.assertRaisesRegex(fusor.Error, "finished graph"):
            graph.tensors[0] + 1


class Files(unittest.TestCase):
    def setUp(self):
        g = fusor.GraphBuilder("kept", precision="allow_tf32")
        self.graph = g.finish(g.relu(g.input("x", (2, 3), "fp16")))

    def test_graphs_travel_as_json_and_pickles(self):
        self.assertEqual(fusor.graph_from_json(self.graph.to_json()), self.graph)
        self.assertEqual(pickle.loads(pickle.dumps(self.graph)), self.graph)

    def test_graphs_say_what_they_have(self):
        self.assertEqual([t.name for t in self.graph.inputs], ["x"])
        self.assertEqual([op.kind for op in self.graph.ops], ["relu"])
        self.assertEqual(self.graph.precision, fusor.Precision.allow_tf32)
        self.assertEqual(self.graph.outputs[0].shape, (2, 3))

    def test_reprs_count(self):
        self.assertEqual(repr(self.graph), "<fusor.Graph 'kept': 1 op, 2 tensors>")
        plan = fusor.build(self.graph, "cpu")
        self.assertEqual(repr(plan), f"<fusor.Plan of 'kept' for {plan.device.name}: 1 fusion>")

    def test_files_may_count_axes_from_the_back(self):
        g = fusor.GraphBuilder()
        text = g.finish(g.softmax(g.input("x", (2, 3)), axis=1).y).to_json()
        for said in ('"axis": -1', '"log": false'):
            self.assertEqual(fusor.graph_from_json(text.replace('"axis": 1', said)).to_json(), text)

    def test_a_damaged_document_is_an_error_with_its_place(self):
        with self.assertRaisesRegex(fusor.Error, "expected a graph"):
            fusor.graph_from_json('{"format": 1, "kind": "plan"}')


if __name__ == "__main__":
    unittest.main()
