"""Tests of planning: plans, candidates, explain, engines, files, devices."""

import os
import pickle
import tempfile
import unittest

import fusor
import numpy
from support import linear, linear_arrays


def convolution():
    g = fusor.GraphBuilder("conv")
    x = g.input("x", (8, 64, 28, 28), "fp16", "nhwc")
    w = g.input("w", (64, 64, 3, 3), "fp16", "nhwc")
    b = g.input("b", (1, 64, 1, 1), "fp16")
    return g.finish(g.relu(g.conv_fprop(x, w, padding=(1, 1), name="conv") + b))


class Planning(unittest.TestCase):
    def test_an_h200_is_planned_for_without_one(self):
        plan = fusor.build(convolution(), "H200", compile=False)
        self.assertEqual(plan.device.name, "H200")
        self.assertEqual(len(plan.fusions), 1)
        self.assertEqual(plan.fusions[0].config.engine, "wgmma")
        self.assertIn("tile_m", plan.fusions[0].config.knobs)
        self.assertTrue(plan.notes.tensor_cores)
        self.assertGreater(plan.seconds, 0)

    def test_candidates_are_best_first_and_can_be_built(self):
        graph = convolution()
        found = fusor.candidates(graph, "H200")
        self.assertEqual(found, sorted(found, key=lambda c: c.seconds))
        plan = fusor.build(graph, "H200", found[1], compile=False)
        self.assertEqual(str(plan.fusions[0].config), str(found[1].fusions[0].config))

    def test_kernels_are_chosen_by_a_word(self):
        for kernels in ("best", "best_effort", fusor.KernelChoice.best_effort):
            fusor.build(convolution(), "H200", kernels=kernels, compile=False)
        with self.assertRaisesRegex(fusor.Error, "choice of kernels"):
            fusor.build(convolution(), "H200", kernels="cheapest", compile=False)

    def test_forbidden_engines_are_not_used(self):
        plan = fusor.build(convolution(), "H200", forbid=["wgmma"], compile=False)
        self.assertNotIn("wgmma", [fusion.config.engine for fusion in plan.fusions])

    def test_refusals_are_data(self):
        answers = {o.answer.engine: o.answer for o in fusor.engines_for(convolution(), "H200")[0].engines}
        self.assertTrue(answers["wgmma"].chosen)
        self.assertIsNone(answers["wgmma"].refusal)
        self.assertTrue(answers["depthwise"].refusal.rule)
        self.assertTrue(answers["depthwise"].refusal.expected)

    def test_explain_is_text_and_data(self):
        self.assertIn("wgmma", fusor.explain(convolution(), "H200"))
        data = fusor.explain_data(convolution(), "H200")
        self.assertEqual(data.choice.fusions[0].config.engine, "wgmma")
        self.assertEqual(len(data.decisions), 1)

    def test_a_plan_stands_for_its_graph_on_its_device(self):
        plan = fusor.build(convolution(), "H200", compile=False)
        self.assertEqual(fusor.explain(plan), fusor.explain(convolution(), "H200"))
        self.assertIn("on H100", fusor.explain(plan, "H100"))
        self.assertEqual(len(fusor.explain_data(plan).fusions), len(plan.fusions))
        self.assertEqual(len(fusor.engines_for(plan)), len(plan.fusions))

    def test_explain_draws(self):
        self.assertTrue(fusor.explain_html(convolution(), "H200").startswith(b"<!doctype html>"))
        self.assertIn(b"subgraph cluster_0", fusor.explain_dot(convolution(), "H200"))
        self.assertIn(b"conv_fprop", fusor.explain_onnx(convolution(), "H200"))

    def test_source_is_cuda(self):
        self.assertIn("__global__", fusor.build(convolution(), "H200", compile=False).source())


class Files(unittest.TestCase):
    def test_a_saved_plan_runs(self):
        x, w, b, want = linear_arrays()
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "linear.plan.json")
            linear().plan.save(path)
            numpy.testing.assert_allclose(fusor.load(path)(x, w, b), want, rtol=1e-5, atol=1e-6)
            self.assertEqual(fusor.read_plan(path).to_json(), linear().plan.to_json())

    def test_plans_travel_as_json_and_pickles(self):
        plan = linear().plan
        self.assertEqual(fusor.plan_from_json(plan.to_json()).to_json(), plan.to_json())
        self.assertEqual(pickle.loads(pickle.dumps(plan)).to_json(), plan.to_json())

    def test_a_missing_file_is_named(self):
        with self.assertRaisesRegex(fusor.Error, "/no/such.plan.json"):
            fusor.load("/no/such.plan.json")

    def test_tuning_tables_are_read_and_written(self):
        table = fusor.TuningTable()
        self.assertEqual(len(fusor.tuning_from_json(table.to_json())), 0)
        fusor.build(convolution(), "H200", tuning=table, compile=False)


class Devices(unittest.TestCase):
    def test_profiles_are_values(self):
        h200 = fusor.DeviceInfo.named("hopper")
        self.assertEqual(h200.compute_capability, 90)
        self.assertEqual(fusor.device_from_json(h200.to_json()), h200)
        self.assertTrue(fusor.DeviceInfo.cpu().is_cpu)
        self.assertIn("H200", [device.name for device in fusor.DeviceInfo.profiles()])


if __name__ == "__main__":
    unittest.main()
