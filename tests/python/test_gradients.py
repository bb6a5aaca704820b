"""Tests of backward ops on the CPU device in fp64: each gradient beside central differences of the forward op.

FUSOR_GRADIENT_SEEDS=60 tries as many random sets of shapes and attributes instead of one."""

import os
import random
import unittest

import fusor
import numpy

SEEDS = range(int(os.environ.get("FUSOR_GRADIENT_SEEDS", "1")))


def loaded(arrays, write):
    """The function of arrays by name to results by name that write(g, tensors) -> {name: tensor} makes a graph of."""
    g = fusor.GraphBuilder("g")
    tensors = {name: g.input(name, array.shape, str(array.dtype)) for name, array in arrays.items()}
    for name, tensor in write(g, tensors).items():
        g.output(tensor, f"out_{name}", type="fp64" if tensor.type.name in ("f32", "f64") else None)
    exe = fusor.load(fusor.build(g.finish(), "cpu"))
    names = [slot.name[len("out_") :] for slot in exe.slots if slot.name.startswith("out_")]

    def run(arrays):
        results = exe(**arrays)
        return dict(zip(names, results if len(names) > 1 else [results]))

    return run


class Gradients(unittest.TestCase):
    def check(self, what, arrays, forward, backward, wrt, weighted=("y",), step=1e-5, weigh=None):
        """The gradients with respect to the arrays named in `wrt` of the sum of forward's results named in `weighted`,
        each multiplied by weights. backward(g, tensors) -> {"dx": ..., ...} is given the arrays, forward's results, and
        the weights as gradients ("dy")."""
        run = loaded(arrays, forward)
        results = run(arrays)
        weigh = weigh or numpy.random.default_rng(0).standard_normal
        weights = {"d" + name: weigh(results[name].shape) for name in weighted}

        def loss(arrays):
            y = run(arrays)
            return sum(float((weights["d" + name] * y[name]).sum()) for name in weighted)

        given = {**arrays, **results, **weights}
        gradients = loaded(given, backward)(given)
        for name in wrt:
            got = gradients["d" + name]
            want = numpy.empty_like(got)
            for at in numpy.ndindex(want.shape):
                ends = []
                for sign in (1, -1):
                    moved = arrays[name].copy()
                    moved[at] += sign * step
                    ends.append(loss({**arrays, name: moved}))
                want[at] = (ends[0] - ends[1]) / (2 * step)
            with self.subTest(f"{what}: d{name}"):
                self.assertLess(
                    numpy.abs(got - want).max(),
                    1e-5 * (1 + numpy.abs(want).max()),
                    f"got {got.ravel()[:24]}, differences give {want.ravel()[:24]}",
                )

    def each_seed(self, body):
        for seed in SEEDS:
            body(random.Random(seed), numpy.random.default_rng(seed))

    # --- pointwise ---------------------------------------------------------------------------------------------

    def test_activations(self):
        def body(choose, rng):
            clips = {"lower_clip": -0.7, "upper_clip": 0.9, "lower_clip_slope": 0.3}
            for mode, options in [
                ("relu", {}), ("relu", {"upper_clip": 0.8}), ("relu", {"lower_clip_slope": 0.2}), ("relu", clips),
                ("relu", {"lower_clip": 0.2}), ("relu", {"lower_clip": -0.5, "lower_clip_slope": -0.5}),
                ("tanh", {}), ("sigmoid", {}), ("gelu", {}), ("gelu_tanh", {}),
                ("elu", {}), ("elu", {"elu_alpha": 0.6}),
                ("softplus", {}), ("softplus", {"softplus_beta": 2.5}), ("softplus", {"softplus_beta": -1.5}),
                ("swish", {}), ("swish", {"swish_beta": 1.7}), ("swish", {"swish_beta": -0.5}),
            ]:  # fmt: skip
                x = numpy.concatenate([rng.standard_normal(12), 3 * rng.standard_normal(8), [-8.0, 9.0]])
                for edge in (0, -0.7, 0.9, 0.8, 0.2, -0.5):  # no derivative there
                    x[numpy.abs(x - edge) < 1e-3] += 0.01
                self.check(f"{mode} {options}", {"x": x},
                           lambda g, t: {"y": getattr(g, mode)(t["x"], **options)},
                           lambda g, t: {"dx": getattr(g, mode + "_bwd")(t["dy"], t["x"], **options)}, ["x"])

        self.each_seed(body)

    # --- contractions ------------------------------------------------------------------------------------------

    def test_convolutions(self):
        def body(choose, rng):
            for _ in range(8):
                spatial = choose.randint(1, 3)
                groups = choose.choice([1, 1, 2, 3])
                c, k, n = groups * choose.randint(1, 3), groups * choose.randint(1, 2), choose.randint(1, 2)
                several = lambda low, high: tuple(choose.randint(low, high) for _ in range(spatial))
                window, stride, dilation = several(1, 3), several(1, 3), several(1, 2)
                options = {"pre_padding": several(0, 3), "post_padding": several(0, 3), "stride": stride,
                           "dilation": dilation, "mode": choose.choice(["cross_correlation", "convolution"])}
                extents = tuple(max(1, d * (w - 1) + 1 - a - b) + choose.randint(0, 3) for d, w, a, b in zip(
                    dilation, window, options["pre_padding"], options["post_padding"]))
                x = rng.standard_normal((n, c, *extents))
                w = rng.standard_normal((k, c // groups, *window))
                self.check(f"conv {x.shape} {w.shape} {options}", {"x": x, "w": w},
                           lambda g, t: {"y": g.conv_fprop(t["x"], t["w"], **options)},
                           lambda g, t: {"dx": g.conv_dgrad(t["dy"], t["w"], x.shape, **options),
                                         "dw": g.conv_wgrad(t["dy"], t["x"], w.shape, **options)}, ["x", "w"])

        self.each_seed(body)

    def test_causal_conv1d(self):
        def body(choose, rng):
            for has_bias, has_states, activation in [(0, 0, "none"), (1, 1, "silu"), (1, 0, "silu"), (0, 1, "none")]:
                n, c, time, width = 2, 3, choose.randint(1, 6), choose.randint(1 + has_states, 4)
                arrays = {"x": rng.standard_normal((n, c, time)), "weight": rng.standard_normal((c, width))}
                if has_bias:
                    arrays["bias"] = rng.standard_normal(c)
                if has_states:
                    arrays["initial_states"] = rng.standard_normal((n, c, width - 1))
                named = lambda t: {name: t[name] for name in ("bias", "initial_states") if name in arrays}
                self.check(
                    f"causal_conv1d {time} {width} {activation} {sorted(arrays)}", arrays,
                    lambda g, t: {"y": g.causal_conv1d(t["x"], t["weight"], activation=activation, **named(t)).y},
                    lambda g, t: {name: r for name, r in g.causal_conv1d_bwd(
                        t["dy"], t["x"], t["weight"], activation=activation, **named(t))._asdict().items()
                        if name[1:] in arrays}, list(arrays))

        self.each_seed(body)

    # --- norms -------------------------------------------------------------------------------------------------

    def test_norms(self):
        def body(choose, rng):
            for norm in ("layer_norm", "rms_norm", "batch_norm", "instance_norm", "group_norm", "adaptive_layer_norm"):
                for saved in (False, True):
                    dims = (choose.randint(1, 3), 4, *(choose.randint(1, 4) for _ in range(choose.randint(1, 2))))
                    rank = len(dims)
                    options = {"norm": norm, "epsilon": 1e-3}
                    if norm in ("layer_norm", "rms_norm", "adaptive_layer_norm"):
                        axes = sorted(choose.sample(range(rank), choose.randint(1, rank)))
                        options["axes"] = axes
                        of = [d if i in axes else 1 for i, d in enumerate(dims)]
                        if norm == "adaptive_layer_norm":
                            of[0] = dims[0]
                        elif choose.random() < 0.3:
                            of_rows = [d if i not in axes else 1 for i, d in enumerate(dims)]
                            of = choose.choice([[1] * rank, list(dims), of_rows])
                    else:
                        of = [1, 4] + [1] * (rank - 2)
                        if norm == "group_norm":
                            options["groups"] = choose.choice([1, 2, 4])
                        if choose.random() < 0.2:
                            of = choose.choice([[1] * rank, list(dims)])
                    arrays = {"x": rng.standard_normal(dims) + 0.5, "scale": rng.standard_normal(of),
                              "bias": rng.standard_normal(of)}
                    self.norm(f"{norm} saved={saved} {dims} {of} {options}", arrays, options, saved)

        self.each_seed(body)

    def norm(self, what, arrays, options, saved):
        statistics = ["inv_std"] if options["norm"] == "rms_norm" else ["mean", "inv_std"]

        def forward(g, t):
            r = g.norm_fwd(t["x"], t["scale"], t["bias"], **options)
            return {"y": r.y, **({name: getattr(r, name) for name in statistics} if saved else {})}

        def backward(g, t):
            r = g.norm_bwd(t["dy"], t["x"], t["scale"], **options,
                           **({name: t[name] for name in statistics} if saved else {}))
            return {"dx": r.dx, "dscale": r.dscale, "dbias": r.dbias}

        self.check(what, arrays, forward, backward, ["x", "scale", "bias"])

    def test_norms_in_inference(self):
        def body(choose, rng):
            for norm in ("layer_norm", "rms_norm", "batch_norm", "group_norm"):
                x = rng.standard_normal((2, 4, 3))
                of = {"batch_norm": (1, 4, 1), "group_norm": (2, 2, 1)}.get(norm, (2, 4, 1))
                arrays = {"x": x, "scale": rng.standard_normal((1, 4, 1)), "bias": rng.standard_normal((1, 4, 1)),
                          "mean": rng.standard_normal(of), "inv_std": rng.random(of) + 0.5}
                options = {"norm": norm, "phase": "inference"}
                if norm == "group_norm":
                    options["groups"] = 2
                if norm == "rms_norm":
                    del arrays["mean"]
                given = lambda t: {name: t[name] for name in ("mean", "inv_std") if name in arrays}
                self.check(f"inference of {norm}", arrays,
                           lambda g, t: {"y": g.norm_fwd(t["x"], t["scale"], t["bias"], **given(t), **options).y},
                           lambda g, t: g.norm_bwd(t["dy"], t["x"], t["scale"], **given(t), **options)._asdict(),
                           ["x", "scale", "bias"])

        self.each_seed(body)

    def test_batch_norm_in_pieces(self):
        def body(choose, rng):
            dims = (choose.randint(2, 3), 3, *(choose.randint(1, 3) for _ in range(choose.randint(0, 2))))
            of = [1, 3] + [1] * (len(dims) - 2)
            arrays = {"x": rng.standard_normal(dims), "scale": rng.standard_normal(of), "bias": rng.standard_normal(of)}

            def forward(g, t):
                totals = g.gen_stats(t["x"])
                r = g.bn_finalize(totals.sum, totals.sq_sum, t["scale"], t["bias"], epsilon=1e-3,
                                  accumulation_count=int(numpy.prod(dims)) // 3)
                return {"y": t["x"] * r.eq_scale + r.eq_bias, "mean": r.mean, "inv_std": r.inv_std}

            def backward(g, t):
                r = g.bn_bwd_weights(t["dy"], t["x"], t["mean"], t["inv_std"], t["scale"])
                return {"dx": t["dy"] * r.eq_dy_scale + t["x"] * r.eq_x_scale + r.eq_bias, "dscale": r.dscale,
                        "dbias": r.dbias}

            self.check(f"bn pieces {dims}", arrays, forward, backward, ["x", "scale", "bias"])

        self.each_seed(body)

    # --- rows --------------------------------------------------------------------------------------------------

    def test_softmax(self):
        def body(choose, rng):
            for log in (False, True):
                for sink in (False, True):
                    dims = tuple(choose.randint(1, 5) for _ in range(choose.randint(1, 3)))
                    axis = choose.randrange(len(dims))
                    rows = [1 if i == axis else d for i, d in enumerate(dims)]
                    arrays = {"x": rng.standard_normal(dims)}
                    if sink:
                        arrays["sink"] = rng.standard_normal([d if choose.random() < 0.5 else 1 for d in rows])

                    def forward(g, t):
                        r = g.softmax(t["x"], t["sink"] if sink else None, axis=axis, log=log)
                        return {"y": r.y, "logsumexp": r.logsumexp}

                    def backward(g, t):
                        if not sink:
                            return {"dx": g.softmax_bwd(t["dy"], t["y"], axis=axis, log=log).dx}
                        return g.softmax_bwd(t["dy"], t["y"], t["sink"], t["logsumexp"], axis=axis, log=log)._asdict()

                    self.check(f"softmax {dims} {axis} log={log} sink={sink}", arrays, forward, backward, list(arrays))

        self.each_seed(body)

    def test_cross_entropy(self):
        def body(choose, rng):
            for smoothing in (0.0, 0.1, 1.0):
                for saved in (False, True):
                    dims = tuple(choose.randint(1, 5) for _ in range(choose.randint(1, 3)))
                    axis = choose.randrange(len(dims))
                    rows = [1 if i == axis else d for i, d in enumerate(dims)]
                    labels = rng.integers(0, dims[axis], rows, numpy.int32)
                    labels.flat[0] = choose.choice([labels.flat[0], -100])
                    options = {"axis": axis, "label_smoothing": smoothing}
                    arrays = {"x": rng.standard_normal(dims), "labels": labels}
                    self.check(
                        f"cross_entropy {dims} {options} saved={saved}", arrays,
                        lambda g, t: g.cross_entropy(t["x"], t["labels"], **options)._asdict(),
                        lambda g, t: {"dx": g.cross_entropy_bwd(t["x"], t["labels"], t["dloss"], **options, **(
                            {"logsumexp": t["logsumexp"]} if saved else {}))}, ["x"], ["loss"])

        self.each_seed(body)

    def test_lrn(self):
        def body(choose, rng):
            for window in (1, 2, 3, 4, 5, 9):
                dims = (2, choose.randint(1, 7), *(choose.randint(1, 3) for _ in range(choose.randint(0, 2))))
                options = {"window": window, "alpha": 0.7, "beta": choose.choice([0.75, 0.5, 1.3]), "k": 1.5}
                self.check(f"lrn {dims} {options}", {"x": rng.standard_normal(dims)},
                           lambda g, t: {"y": g.lrn(t["x"], **options)},
                           lambda g, t: {"dx": g.lrn_bwd(t["dy"], t["x"], **options)}, ["x"])

        self.each_seed(body)

    def test_ctc_loss(self):
        def body(choose, rng):
            for lengths in (False, True):
                for repeat in (False, True):
                    time, batch, classes, most = choose.randint(4, 6), 3, choose.randint(3, 5), choose.randint(1, 2)
                    blank = choose.randrange(classes)
                    others = [c for c in range(classes) if c != blank]
                    labels = numpy.array([[others[0] if repeat else choose.choice(others) for _ in range(most)]
                                       for _ in range(batch)], numpy.int32)
                    arrays = {"x": rng.standard_normal((time, batch, classes)), "labels": labels}
                    if lengths:
                        arrays["input_lengths"] = numpy.array([time, time - 1, time], numpy.int32)
                        arrays["label_lengths"] = numpy.array([most, most, choose.randint(0, most)], numpy.int32)
                    named = lambda t: {n: t[n] for n in ("input_lengths", "label_lengths") if n in arrays}

                    def forward(g, t):
                        r = g.ctc_loss(t["x"], t["labels"], blank=blank, **named(t))
                        return {"loss": r.loss, "all": r.dx}

                    # dx is the gradient of the sum of all losses: the weights are 1.
                    def backward(g, t):
                        return {"dx": t["all"] + 0.0 * g.reduce(t["dloss"], "add")}

                    self.check(f"ctc_loss {time} {classes} {most} blank={blank} {lengths} {repeat}", arrays, forward,
                               backward, ["x"], ["loss"], weigh=numpy.ones)

        self.each_seed(body)

    # --- windows and samples -----------------------------------------------------------------------------------

    def test_pooling(self):
        def body(choose, rng):
            for mode in ("maxpool", "avgpool_include_padding", "avgpool_exclude_padding"):
                for _ in range(4):
                    spatial = choose.randint(1, 3)
                    several = lambda low, high: tuple(choose.randint(low, high) for _ in range(spatial))
                    window, stride = several(1, 3), several(1, 3)
                    pad = lambda: tuple(choose.randint(0, w - 1) for w in window)
                    options = {"mode": mode, "window": window, "stride": stride, "pre_padding": pad(),
                               "post_padding": pad()}
                    dims = (choose.randint(1, 2), 2, *(w + choose.randint(0, 3) for w in window))
                    x = rng.permutation(int(numpy.prod(dims))).reshape(dims) * 0.1
                    by_index = mode == "maxpool" and choose.random() < 0.5

                    def forward(g, t):
                        r = g.resample_fwd(t["x"], **options)
                        return {"y": r.y, "index": r.index} if by_index else {"y": r.y if mode == "maxpool" else r}

                    def backward(g, t):
                        if by_index:
                            return {"dx": g.resample_bwd(t["dy"], x.shape, index=t["index"], **options)}
                        if mode == "maxpool":
                            return {"dx": g.resample_bwd(t["dy"], t["x"], **options)}
                        return {"dx": g.resample_bwd(t["dy"], x.shape, **options)}

                    self.check(f"pooling {dims} {options} by_index={by_index}", {"x": x}, forward, backward, ["x"])

        self.each_seed(body)

    def test_interpolation(self):
        def body(choose, rng):
            for mode in ("bilinear", "nearest"):
                for _ in range(5):
                    spatial = choose.randint(1, 3)
                    several = lambda low, high: tuple(choose.randint(low, high) for _ in range(spatial))
                    dims = (choose.randint(1, 2), 2, *several(1, 5))
                    options = {"mode": mode, "output_size": several(1, 7)}
                    way = choose.randrange(3)
                    if way == 1 and mode == "bilinear":
                        options["align_corners"] = True
                    if way == 2:
                        options.update(step=several(0, 5), shift=several(-4, 4), denominator=several(1, 4))
                    x = rng.standard_normal(dims)
                    self.check(f"interpolation {dims} {options}", {"x": x},
                               lambda g, t: {"y": g.resample_fwd(t["x"], **options)},
                               lambda g, t: {"dx": g.resample_bwd(t["dy"], x.shape, **options)}, ["x"])

        self.each_seed(body)

    def test_grid_sample(self):
        def body(choose, rng):
            for mode in ("bilinear", "nearest"):
                for padding in ("zeros", "border"):
                    for align in (False, True):
                        n, c, h, w = 2, 2, choose.randint(1, 4), choose.randint(1, 4)
                        x = rng.standard_normal((n, c, h, w))
                        grid = rng.uniform(-1.6, 1.6, (n, 3, 2, 2))
                        options = {"mode": mode, "padding": padding, "align_corners": align}
                        self.check(f"grid_sample {x.shape} {options}", {"x": x, "grid": grid},
                                   lambda g, t: {"y": g.grid_sample(t["x"], t["grid"], **options)},
                                   lambda g, t: g.grid_sample_bwd(t["dy"], t["x"], t["grid"], **options)._asdict(),
                                   ["x", "grid"], step=1e-6)

        self.each_seed(body)

    # --- recurrent layers --------------------------------------------------------------------------------------

    def test_recurrent_layers(self):
        def body(choose, rng):
            for cell in ("lstm", "gru", "rnn_tanh", "rnn_relu"):
                for _ in range(3):
                    time, batch = choose.randint(1, 3), choose.randint(1, 2)
                    inputs, hidden = choose.randint(1, 3), choose.randint(2, 3)
                    layers, directions = choose.randint(1, 2), choose.randint(1, 2)
                    bias = choose.random() < 0.7
                    projection = 1 if cell == "lstm" and choose.random() < 0.5 else 0
                    states, lengths = choose.random() < 0.7, choose.random() < 0.5
                    options = {"cell": cell, "hidden_size": hidden, "layers": layers, "bidirectional": directions == 2,
                               "bias": bias, "projection_size": projection}
                    gates = {"lstm": 4, "gru": 3}.get(cell, 1)
                    outputs = projection or hidden
                    arrays = {"x": rng.standard_normal((time, batch, inputs))}
                    weights = []
                    for layer in range(layers):
                        for direction in range(directions):
                            end = f"l{layer}" + ("_reverse" if direction else "")
                            reads = inputs if layer == 0 else directions * outputs
                            made = {"weight_ih": (gates * hidden, reads), "weight_hh": (gates * hidden, outputs)}
                            if bias:
                                made.update(bias_ih=(gates * hidden,), bias_hh=(gates * hidden,))
                            if projection:
                                made.update(weight_hr=(projection, hidden))
                            for name, dims in made.items():
                                arrays[f"{name}_{end}"] = rng.standard_normal(dims)
                                weights.append(f"{name}_{end}")
                    wrt = list(arrays)
                    if states:
                        arrays["h0"] = rng.standard_normal((layers * directions, batch, outputs))
                        wrt.append("h0")
                        if cell == "lstm":
                            arrays["c0"] = rng.standard_normal((layers * directions, batch, hidden))
                            wrt.append("c0")
                    if lengths:
                        arrays["lengths"] = numpy.array([choose.randint(0, time) for _ in range(batch)], numpy.int32)
                    named = lambda t: {n: t[n] for n in ("h0", "c0", "lengths") if n in arrays}
                    weighted = [["y", "hn", "cn"] if cell == "lstm" else ["y", "hn"], ["y"]][choose.randrange(2)]

                    def forward(g, t):
                        r = g.rnn_fwd(t["x"], [t[w] for w in weights], **named(t), **options)
                        return {name: getattr(r, name) for name in weighted}

                    def backward(g, t):
                        more = {f"d{name}": t[f"d{name}"] for name in weighted[1:]}
                        r = g.rnn_bwd(t["dy"], t["x"], [t[w] for w in weights], **named(t), **more, **options)._asdict()
                        got = {f"d{w}": r[f"d_{w}"] for w in weights}
                        return {**got, **{f"d{name}": r[f"d{name}"] for name in wrt if name not in weights}}

                    self.check(f"{options} time={time} batch={batch} inputs={inputs} states={states} lengths="
                               f"{arrays.get('lengths')} {weighted}", arrays, forward, backward, wrt, weighted)

        self.each_seed(body)

    # --- attention ---------------------------------------------------------------------------------------------

    def test_attention(self):
        def body(choose, rng):
            for which in range(14):
                batch, queries, keys = choose.randint(1, 2), choose.randint(1, 5), choose.randint(1, 5)
                key_heads = choose.choice([1, 2, 3])
                heads = key_heads * choose.choice([1, 2])
                value_heads = choose.choice([key_heads, key_heads, 1, heads])
                depth, value_depth = choose.randint(1, 3), choose.randint(1, 3)
                options = {"attn_scale": choose.choice([1.0, 0.6])}
                arrays = {"q": rng.standard_normal((batch, heads, queries, depth)),
                          "k": rng.standard_normal((batch, key_heads, keys, depth)),
                          "v": rng.standard_normal((batch, value_heads, keys, value_depth))}
                wrt = ["q", "k", "v"]
                if which % 7 == 1 or choose.random() < 0.4:
                    options["right_bound"] = choose.choice([0, 0, 1, 2])
                if which % 7 == 2 or choose.random() < 0.3:
                    options["left_bound"] = choose.choice([1, 2, 3])
                if choose.random() < 0.5:
                    options["diagonal_alignment"] = "bottom_right"
                if which % 7 == 3 or choose.random() < 0.3:
                    full = (batch, heads, queries, keys)
                    dims = tuple(d if choose.random() < 0.6 else 1 for d in full)[choose.choice([0, 0, 0, 1, 2]):]
                    arrays["bias"] = rng.standard_normal(dims)
                    wrt.append("bias")
                if which % 7 == 4 or choose.random() < 0.3:
                    options["alibi_mask"] = True
                if which % 7 == 5 or choose.random() < 0.4:
                    options["padding_mask"] = True
                    for name, most in (("seq_len_q", queries), ("seq_len_kv", keys)):
                        lengths = [[[[choose.randint(0, most)]]] for _ in range(batch)]
                        arrays[name] = numpy.array(lengths, numpy.int32)
                if which % 7 == 6 or choose.random() < 0.4:
                    arrays["sink"] = rng.standard_normal((1, heads, 1, 1))
                    wrt.append("sink")
                if choose.random() < 0.3:
                    options["dropout_probability"] = 0.4
                    arrays["seed"] = numpy.array([choose.randint(0, 1 << 40)])
                    arrays["offset"] = numpy.array([choose.randint(0, 100)])
                if choose.random() < 0.2:
                    arrays["block_mask"] = rng.integers(0, 2, (batch, heads, 1, 1)).astype(numpy.uint8)
                more = ("bias", "seq_len_q", "seq_len_kv", "seed", "offset", "sink", "block_mask")
                named = lambda t: {name: t[name] for name in more if name in arrays}

                def forward(g, t):
                    r = g.sdpa_fwd(t["q"], t["k"], t["v"], **named(t), **options)
                    return {"o": r.o, "stats": r.stats}

                def backward(g, t):
                    r = g.sdpa_bwd(t["q"], t["k"], t["v"], t["o"], t["do"], t["stats"], **named(t), **options)
                    return {f"d{name}": getattr(r, f"d{name}") for name in wrt}

                shown = {name: array.shape if array.dtype == float else array.ravel() for name, array in arrays.items()}
                self.check(f"attention {shown} {options}", arrays, forward, backward, wrt, ["o"])

        self.each_seed(body)

    def test_ragged_attention(self):
        def body(choose, rng):
            batch, heads, depth, rows = 3, 2, 2, 4
            lengths = [choose.randint(0, rows) for _ in range(batch - 1)] + [rows]
            row = heads * depth  # rows of one sequence after another, each with its heads side by side
            elements, strides = row * sum(lengths), (depth, row, 1)
            arrays = {name: rng.standard_normal(elements) for name in "qkv"}
            arrays["offset"] = numpy.cumsum([0, *(row * length for length in lengths)]).astype(numpy.int32)
            for name in ("seq_len_q", "seq_len_kv"):
                arrays[name] = numpy.array(lengths, numpy.int32).reshape(batch, 1, 1, 1)
            options = {"padding_mask": True, "right_bound": choose.choice([-1, 0]), "attn_scale": 0.7}

            def loaded_rows(g, t, name):
                return g.ragged_load(t[name], t["offset"], (batch, heads, rows, depth), strides)

            def attend(g, t):
                q, k, v = (loaded_rows(g, t, name) for name in "qkv")
                return (q, k, v), g.sdpa_fwd(q, k, v, seq_len_q=t["seq_len_q"], seq_len_kv=t["seq_len_kv"], **options)

            def forward(g, t):
                r = attend(g, t)[1]
                return {"o": g.ragged_store(r.o, t["offset"], elements, strides), "stats": r.stats}

            def backward(g, t):
                (q, k, v), r = attend(g, t)
                gradients = g.sdpa_bwd(q, k, v, r.o, loaded_rows(g, t, "do"), t["stats"], seq_len_q=t["seq_len_q"],
                                       seq_len_kv=t["seq_len_kv"], **options)
                return {f"d{name}": g.ragged_store(getattr(gradients, f"d{name}"), t["offset"], elements, strides)
                        for name in "qkv"}

            self.check(f"ragged {lengths} {options}", arrays, forward, backward, list("qkv"), ["o"])

        self.each_seed(body)


if __name__ == "__main__":
    unittest.main()
