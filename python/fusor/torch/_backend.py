"""Owns fusor as a backend of torch.compile: from graphs of ATen ops to plans, with eager ops where there are none."""

import dataclasses
import functools
import logging
import operator
import time

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.partitioners import min_cut_rematerialization_partition

from .. import _fusor
from .._fusor import DeviceInfo, Error
from ._aten import without_indices
from ._attention import keep_attention
from ._constants import fold, made_again, without_numbers
from ._convert import Conversion, NotConverted, may_be_stored, refusal
from ._decompositions import table, whole
from ._part import PartModule
from ._partition import Partition
from ._program import Program, boxed
from ._random import with_one_seed
from ._recent import Recent, Sized
from ._report import GraphReport, Outside, PartReport, counted, outside
from ._saved import made_again_of_saved
from ._sizes import Sizes

log = logging.getLogger("fusor.torch")
_plans = Recent(1024)  # by graph, device and options: equal layers of one process are planned once


@dataclasses.dataclass(frozen=True)
class Options:
    """What torch.compile(options=...) may say: `precision` of graphs ("exact", "allow_tf32" ...; None follows
    torch.get_float32_matmul_precision()); `rounding` of results of 16 bits inside of a graph: "always", as PyTorch does
    from op to op, or "stored", where they may be stored; `random`: whose random numbers a graph has, "fusor", which
    makes them of a seed that each call draws, or "pytorch", which draws them itself, outside of graphs; `shapes`, for
    how many sets of sizes a graph whose dims change keeps what was made; `forbid` and `kernels` as fusor.build takes
    them."""

    precision: str | None = None
    rounding: str = "always"
    random: str = "fusor"
    forbid: tuple = ()
    kernels: str = "best"
    shapes: int = 64

    @classmethod
    def of(cls, given):
        known = [field.name for field in dataclasses.fields(cls)]
        for key in given or {}:
            if key not in known:
                raise Error(f"backend 'fusor': there is no option '{key}'; the options are {', '.join(known)}")
        found = cls(**(given or {}))
        if found.rounding not in ("always", "stored"):
            raise Error(f"backend 'fusor': rounding is 'always' or 'stored', not {found.rounding!r}")
        if found.random not in ("fusor", "pytorch"):
            raise Error(f"backend 'fusor': random is 'fusor' or 'pytorch', not {found.random!r}")
        if type(found.shapes) is not int or found.shapes < 1:
            raise Error(f"backend 'fusor': shapes is a number of at least 1, not {found.shapes!r}")
        return dataclasses.replace(found, forbid=tuple(found.forbid))

    @property
    def draws_seeds(self):
        return self.random == "fusor"

    def precision_on(self, device):
        if self.precision is not None:
            return self.precision
        rounds = device == "cuda" and torch.get_float32_matmul_precision() != "highest"
        return "allow_tf32" if rounds else "exact"


class Compiler:
    """Compiles graphs of ATen ops. Without `builds` graphs are made, but no plans."""

    def __init__(self, options=None, report=None, builds=True):
        self.options = Options.of(options)
        self._report = report
        self._builds = builds

    def compile(self, kind, module, examples):
        """A function of a list of tensors, as AOT Autograd wants it."""
        why = _unfit(module)
        if why is not None:
            log.warning("a graph runs eagerly: %s", why)
            self._note(GraphReport(kind, [], [_whole(module, why)]))
            return boxed(module, module.graph)
        _give_constants_values(module)
        if kind == "inference":
            with_one_seed(module.graph)
        sizes = Sizes.of(module)
        if sizes is None:
            return self._compiled(kind, module)
        if self._builds:
            _info(_device(module))  # of this thread: gradients run in others, which may have no device yet
        make = lambda numbers: self._compiled(kind, *sizes.specialised(numbers))  # noqa: E731
        return Sized(sizes, make, lambda: boxed(module, module.graph), self.options.shapes).call

    def _compiled(self, kind, module, sizes=None):
        """The function of a module whose dims are known, which are so for the sizes."""
        fold(module)
        partition, made, report = self._parts(kind, module.graph, _device(module))
        report.sizes = sizes or {}
        self._note(report)
        for each in report.outside:
            log.info("%s: PyTorch runs %d x %s: %s", kind, each.count, each.op, each.reason)
        if not self._builds:
            without_numbers(module)
            return boxed(module, module.graph)
        return Program(module, partition, made).call

    def _parts(self, kind, graph, device):
        """The partition, a module and its inputs for each part, and the report. What no plan was found for is not
        converted: a partition without it is tried next."""
        failed = {}
        while True:
            partition = Partition(graph, lambda node: failed.get(node) or refusal(node, device.type))
            report = GraphReport(kind, [], outside(partition.reasons))
            made = {}
            for level, part in sorted(partition.parts.items()):
                try:
                    made[level] = self._made(partition, part, device, report)
                except NotConverted as error:
                    failed[_op_of(error.node)] = str(error)
                    break
                except Error as error:
                    log.warning("%s: a part of %d ops runs eagerly: %s", kind, len(part.nodes), error)
                    failed.update(dict.fromkeys(part.nodes, str(error)))
                    break
            else:
                return partition, made, report

    def _note(self, report):
        if self._report is not None:
            self._report.append(report)

    def _made(self, partition, part, device, report):
        """The module of a part, and its inputs."""
        start = time.perf_counter()
        converted = self._converted(partition, part, device)
        plan = None if not self._builds else self._plan(converted.graph, device)
        module = None if plan is None else PartModule(converted, plan, device)
        seconds = time.perf_counter() - start
        report.parts.append(PartReport(converted.graph, counted(part.nodes), plan, seconds))
        return module, converted.inputs

    def _converted(self, partition, part, device):
        name = f"part {part.level}"
        rounds = may_be_stored if self.options.rounding == "stored" else lambda node: True
        precision = self.options.precision_on(device.type)
        conversion = Conversion(name, precision, device.type, lambda node: partition.is_outside(node, part), rounds)
        return conversion.finish(part.outputs, part.nodes)

    def _plan(self, graph, device):
        where = _info(device)
        forbid, kernels = self.options.forbid, self.options.kernels
        key = (graph.to_json(), where.name, forbid, kernels)
        return _plans.get(key, lambda: _fusor.build(graph, where, forbid=list(forbid), kernels=kernels))

    def stages(self):
        """How AOT Autograd is to compile forward and backward graphs: its arguments."""
        return {
            "fw_compiler": functools.partial(self.compile, "forward"),
            "bw_compiler": functools.partial(self.compile, "backward"),
            "inference_compiler": functools.partial(self.compile, "inference"),
            "partition_fn": partitioned,
            "decompositions": table(self.options.draws_seeds),
        }


def partitioned(joint, examples, **named):
    """The joint graph as a forward and a backward graph, which save what costs least memory, and less where kernels
    make it again. Constants are folded before, and those of sizes in each, so that neither saves them for the other."""
    fold(joint)
    made_again(joint)
    with_one_seed(joint.graph)
    without_indices(joint.graph)
    forward, backward = min_cut_rematerialization_partition(joint, examples, **named)
    made_again_of_saved(forward, backward, named["num_fwd_outputs"])
    return forward, backward


@functools.cache
def _info(device):
    """The device that plans are made for."""
    if device.type == "cpu":
        return DeviceInfo.cpu()
    with torch.cuda.device(device):
        return DeviceInfo.current()


def _op_of(node):
    """The op of a node that is one of its results."""
    return node.args[0] if node.target is operator.getitem else node


def _unfit(module):
    """Why a graph cannot be compiled at all, or None."""
    for node in module.graph.nodes:
        schema = getattr(node.target, "_schema", None)
        if node.op == "call_function" and schema is not None and schema.is_mutable:
            return f"{node.target} writes to its operands"
    gpus = {each.device for each in _fakes(module) if each.device.type == "cuda"}
    return f"its tensors are on {len(gpus)} GPUs, a plan is for one" if len(gpus) > 1 else None


def _fakes(module):
    values = [node.meta.get("val") for node in module.graph.nodes]
    return [value for value in values if isinstance(value, torch.Tensor)]


def _whole(module, why):
    return Outside("graph", why, len(module.graph.nodes))


def _device(module):
    """The device that most results are on, a GPU where there is any."""
    devices = [fake.device for fake in _fakes(module)]
    on_gpu = [device for device in devices if device.type == "cuda"]
    return (on_gpu or devices or [torch.device("cpu")])[0]


def _give_constants_values(module):
    """Constants of a module are tensors that graphs read, too."""
    for node in module.graph.nodes:
        if node.op == "get_attr" and "val" not in node.meta:
            node.meta["val"] = functools.reduce(getattr, node.target.split("."), module)


def backend(module, examples, *, options=None, mode=None, report=None):
    """Fusor as torch.compile(backend="fusor") calls it."""
    compiler = Compiler(options, report)
    keep_attention(module, compiler.options.draws_seeds)
    with whole():
        return aot_autograd(**compiler.stages())(module, examples)
