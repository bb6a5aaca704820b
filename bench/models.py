#!/usr/bin/env python3
# Owns the comparison of whole models with PyTorch's own compiler, and what their graphs would cost on a device.
"""Runs models by PyTorch eagerly, by torch.compile (Inductor) and by torch.compile(backend="fusor"), each captured in a
CUDA graph, in turns; or, with --dump, writes the graphs that fusor would plan, without a GPU.

usage: models.py [--only REGEX] [--batches 1,32] [--training] [--mode MODE] [--out FILE] [--seconds N] [--lock FILE]
       models.py --dump FOLDER [--device H200] [--only REGEX] ...

Needs the package fusor on the path, PyTorch, and for their models torchvision and transformers. A model that fails is
said and passed over. Results are compared with a run in fp32: an error above twice the larger of PyTorch's is marked."""
import argparse
import contextlib
import copy
import dataclasses
import fcntl
import json
import pathlib
import re
import statistics
import sys
import time
import traceback

import torch

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import fusor.torch  # noqa: E402
import models_zoo as zoo  # noqa: E402

BYTES_A_SECOND, FLOPS_A_SECOND, LAUNCH = 4.25e12, 700e12, 2.5e-6  # what one H200 reaches


def first_line(error):
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]


# --- running ---------------------------------------------------------------------------------------------


def step(module, trains):
    """A function of inputs: the results, or gradients of all parameters."""
    if not trains:
        def infer(*inputs):
            with torch.no_grad():
                return module(*inputs)

        return infer
    parameters = [p for p in module.parameters() if p.requires_grad]

    def train(*inputs):
        result = module(*inputs)
        return torch.autograd.grad(result.float().square().mean(), parameters, allow_unused=True)

    return train


def captured(function, inputs):
    """A CUDA graph of one call, and its results."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            function(*inputs)
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = function(*inputs)
    graph.replay()
    torch.cuda.synchronize()
    return graph, results


def tensors(results):
    return [x for x in torch.utils._pytree.tree_leaves(results) if isinstance(x, torch.Tensor)]


def error(got, want):
    """The root mean square error of all tensors together, relative to theirs."""
    pairs = list(zip(tensors(got), tensors(want)))
    wrong = sum((a.double() - b.double()).square().sum().item() for a, b in pairs)
    size = sum(b.double().square().sum().item() for _, b in pairs)
    return (wrong / max(size, 1e-300)) ** 0.5


def turns(graphs, seconds):
    """Medians of the graphs' times in microseconds, taken in rounds; the first rounds say how many runs a round has."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)

    def measure(graph, runs):
        start.record()
        for _ in range(runs):
            graph.replay()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) * 1e3 / runs

    runs = {name: max(1, min(200, int(3000 / max(measure(graph, 3), 1)))) for name, graph in graphs.items()}
    times = {name: [] for name in graphs}
    finish = time.monotonic() + seconds
    while time.monotonic() < finish or len(next(iter(times.values()))) < 5:
        for name, graph in graphs.items():
            times[name].append(measure(graph, runs[name]))
    return {name: statistics.median(each) for name, each in times.items()}


def runners(module, trains, mode, report):
    """The functions to compare, by name: made when asked, as compiling takes long."""
    kept = {"dynamic": False}
    backend = lambda *args, **named: fusor.torch.backend(*args, **named, report=report)  # noqa: E731
    return {
        "eager": lambda: step(module, trains),
        "inductor": lambda: step(torch.compile(copy.deepcopy(module), mode=mode, **kept), trains),
        "fusor": lambda: step(torch.compile(copy.deepcopy(module), backend=backend, **kept), trains),
    }


@dataclasses.dataclass
class Prepared:
    """A model whose runners are compiled and captured: what they need stays alive until they were timed."""

    row: dict
    graphs: dict = dataclasses.field(default_factory=dict)
    kept: list = dataclasses.field(default_factory=list)


def prepared(name, case, batch, trains, options):
    """Compiles and captures every runner of a model, and says errors, how long it took and what is outside."""
    module = zoo.made(case, "cuda", torch.bfloat16, trains)
    inputs = zoo.inputs(case, batch, "cuda", torch.bfloat16)
    exact = [x.float() if x.is_floating_point() else x for x in inputs]
    want = step(copy.deepcopy(module).float(), trains)(*exact)
    row = {"model": name, "batch": batch, "training": trains, "errors": {}, "compile_seconds": {}, "failed": {}}
    report, model = fusor.torch.Report(), Prepared(row, kept=[inputs])
    torch._dynamo.reset()
    for runner, make in runners(module, trains, options.mode, report).items():
        begin = time.monotonic()
        try:
            function = make()
            model.graphs[runner], got = captured(function, inputs)
            model.kept += [function, got]  # what was captured reads parameters and constants, and writes results
            row["compile_seconds"][runner] = round(time.monotonic() - begin, 1)
            row["errors"][runner] = error(got, want)
        except Exception as failed:
            row["failed"][runner] = first_line(failed)
            traceback.print_exc(limit=8)
    row["parts"] = [len(graph.parts) for graph in report]
    row["outside"] = [f"{each.count} x {each.op}: {each.reason}" for graph in report for each in graph.outside]
    return model


def timed(model, seconds):
    """One row: times beside what `prepared` said."""
    row = model.row
    row["us"] = turns(model.graphs, seconds)
    if "inductor" in row["us"] and "fusor" in row["us"]:
        row["x_inductor"] = row["us"]["inductor"] / row["us"]["fusor"]
    return row


def told(row):
    """A row as one line."""
    words = [f"{row['model']:20} b{row['batch']:<3} {'train' if row['training'] else 'infer'}"]
    words += [f"{name} {us:9.1f}" for name, us in row["us"].items()]
    if "x_inductor" in row:
        words.append(f"x {row['x_inductor']:.2f}")
    errors = row["errors"]
    words.append("errors " + " ".join(f"{name} {each:.1e}" for name, each in errors.items()))
    if not errors.get("fusor", 0) <= 2 * max(errors.get("eager", 1), errors.get("inductor", 0)) + 1e-3:
        words.append("WRONG")
    words.append(f"parts {row['parts']}, outside {len(row['outside'])}")
    words.append("compiled in " + " ".join(f"{name} {s}" for name, s in row["compile_seconds"].items()))
    return "  ".join(words + [f"{name} FAILED: {why}" for name, why in row["failed"].items()])


# --- graphs without a GPU --------------------------------------------------------------------------------


def floor_of(fusion):
    """The least time that a fusion can take on one H200."""
    return max(fusion.bytes / BYTES_A_SECOND, fusion.flops / FLOPS_A_SECOND) + LAUNCH


def dumped(name, case, batch, trains, options):
    """Writes the graphs of a model, and one row for each: its estimate and the fusions that lose most."""
    module = zoo.made(case, "cpu", torch.bfloat16, trains)
    inputs = zoo.inputs(case, batch, "cpu", torch.bfloat16)
    rows = []
    for graph in fusor.torch.trace(module, *inputs, backward=trains):
        for number, part in enumerate(graph.parts):
            path = options.dump / f"{name}_b{batch}_{graph.kind}{number}.json"
            part.graph.save(str(path))
            rows.append({"path": str(path), "ops": len(part.graph.ops), **estimated(part.graph, options.device)})
            rows[-1]["outside"] = [f"{each.count} x {each.op}: {each.reason}" for each in graph.outside]
            print(estimate_line(rows[-1]), flush=True)
    return rows


def estimated(graph, device):
    begin = time.monotonic()
    explanation = fusor.explain_data(graph, device)
    fusions = explanation.fusions
    worst = sorted(fusions, key=lambda fusion: floor_of(fusion) - fusion.seconds)[:8]
    return {
        "fusions": len(fusions), "us": sum(f.seconds for f in fusions) * 1e6,
        "floor_us": sum(map(floor_of, fusions)) * 1e6, "planned_in": round(time.monotonic() - begin, 1),
        "worst": [{"us": f.seconds * 1e6, "floor_us": floor_of(f) * 1e6, "engine": str(f.config), "ops": f.ops,
                   "bound": f.bound} for f in worst],
    }  # fmt: skip


def estimate_line(row):
    lines = [f"{row['path']}: {row['ops']} ops, {row['fusions']} fusions, {row['us']:.0f} us estimated, floor "
             f"{row['floor_us']:.0f}, planned in {row['planned_in']} s, outside {row['outside']}"]  # fmt: skip
    for each in row["worst"]:
        ops = " + ".join(each["ops"])
        lines.append(f"    {each['us']:8.1f} us, floor {each['floor_us']:7.1f}  {each['engine'][:60]:60}  {ops[:160]}")
    return "\n".join(lines)


# --- the command -----------------------------------------------------------------------------------------


def asked():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="models whose names match this regular expression")
    parser.add_argument("--batches", default="", help="batches in place of each model's own, such as 1,8")
    parser.add_argument("--training", action="store_true", help="training steps instead of inference")
    parser.add_argument("--mode", default=None, help="torch.compile's, such as max-autotune-no-cudagraphs")
    parser.add_argument("--seconds", type=float, default=1.0, help="of measuring for each model")
    parser.add_argument("--out", type=pathlib.Path, help="a JSON file, written after every model")
    parser.add_argument("--lock", help="a file that several of these processes share: all compile, then time in turn")
    parser.add_argument("--dump", type=pathlib.Path, help="write graphs into this folder, without a GPU")
    parser.add_argument("--device", default="H200", help="whose estimates --dump prints")
    return parser.parse_args()


def runs(options):
    """(name, case, batch, trains) of everything that was asked for."""
    for name, case in zoo.CASES.items():
        if not re.search(options.only, name):
            continue
        batches = [int(b) for b in options.batches.split(",") if b] or list(case.batches)
        if options.training:
            batches = ([int(options.batches)] if options.batches else [case.trains]) if case.trains else []
        for batch in batches:
            yield name, case, batch, options.training


@contextlib.contextmanager
def held(path, how):
    """Holds a lock of a file, if one was named: shared while models are compiled, alone while they are timed."""
    if path is None:
        yield
        return
    with open(path, "w") as file:
        fcntl.flock(file, how)
        yield


def attempted(made, name, batch, *args):
    """What a step of the comparison returns, or None where it failed, which is said."""
    try:
        return made(*args)
    except Exception as failed:
        print(f"{name} b{batch} failed: {first_line(failed)}", flush=True)
        traceback.print_exc(limit=8)
    finally:
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def compare(options):
    """Compiles each model and times it; all first and then in turn where other processes do the same."""
    rows = []
    batches = [list(runs(options))] if options.lock else [[run] for run in runs(options)]
    for batch in batches:
        with held(options.lock, fcntl.LOCK_SH):
            models = [attempted(prepared, run[0], run[2], *run, options) for run in batch]
        with held(options.lock, fcntl.LOCK_EX):
            for model in filter(None, models):
                rows.append(timed(model, options.seconds))
                print(told(rows[-1]), flush=True)
                write(options.out, rows)


def write(path, rows):
    if path:
        path.write_text(json.dumps(rows, indent=1))


def main():
    options = asked()
    torch.backends.cudnn.allow_tf32 = False  # of the run in fp32, with which all are compared
    if not options.dump:
        compare(options)
        return
    options.dump.mkdir(parents=True, exist_ok=True)
    rows = []
    for run in runs(options):
        rows += attempted(dumped, run[0], run[2], *run, options) or []
        write(options.out, rows)


if __name__ == "__main__":
    main()
