"""Owns random numbers of compiled functions: ops of Philox 4x32-10, which graphs have too, and the one seed that all of
a graph's read, which every call draws from PyTorch's generator.

Such an op is a function of the seed and of its stream, a number of its own: it may be computed again, by a kernel or by
PyTorch, and gives the same numbers. So a backward graph is given the seed alone.
"""

import itertools

import torch
from torch._prims_common import suggest_memory_format
from torch.utils.checkpoint import CheckpointPolicy

_library = torch.library.Library("fusor", "FRAGMENT")
_streams = itertools.count()  # of this process; a graph counts its own anew
_WORDS = 1 << 32
_DIGITS = {torch.float32: 24, torch.float16: 11, torch.bfloat16: 8}  # of numbers below 1


def define(name, schema, run, fake, tags=()):
    """Makes a function an op of PyTorch for tensors of any device, as compiled graphs call it."""
    _library.define(name + schema, tags=(torch.Tag.pt2_compliant_tag, *tags))
    _library.impl(name, run, "CompositeExplicitAutograd")
    torch.library.register_fake(f"fusor::{name}", fake, lib=_library)
    return getattr(torch.ops.fusor, name).default


def _words(seed, stream, index):
    """Words number `index` of a stream, as core/philox.def has them, in int64."""
    low = lambda x: x & (_WORDS - 1)  # noqa: E731
    high = lambda x: (x >> 32) & (_WORDS - 1)  # noqa: E731
    number = index >> 2
    key0, key1 = low(seed), high(seed)
    c0, c1, c2, c3 = torch.full_like(number, stream), torch.zeros_like(number), low(number), high(number)
    for _ in range(10):
        product0, product1 = c0 * 0xD2511F53, c2 * 0xCD9E8D57
        c0, c1 = high(product1) ^ c1 ^ key0, low(product1)
        c2, c3 = high(product0) ^ c3 ^ key1, low(product0)
        key0, key1 = low(key0 + 0x9E3779B9), low(key1 + 0xBB67AE85)
    return torch.stack([c0, c1, c2, c3], -1)


def _numbers(seed, stream, size, each=1):
    """`each` words for every element of the size, in another axis behind it."""
    count = torch.Size(size).numel() * each
    blocks = torch.arange(0, count, 4, dtype=torch.int64, device=seed.device)
    return _words(seed, stream, blocks).flatten()[:count].view(*size, each)


def _unit(words):
    """Numbers from 0 up to 1, which is not reached."""
    return (words.float() * (1 / _WORDS)).clamp_max(1 - 2.0**-24)


def _draw(device):
    return torch.randint(-(1 << 63), (1 << 63) - 1, (1,), dtype=torch.int64, device=device)


def _bernoulli(seed, stream, size, probability):
    return _numbers(seed, stream, size)[..., 0] < round(probability * _WORDS)


def _uniform(seed, stream, size, dtype):
    return _unit(_numbers(seed, stream, size)[..., 0]).clamp_max(1 - 2.0 ** -_DIGITS[dtype]).to(dtype)


def _normal(seed, stream, size, dtype):
    first, second = _unit(_numbers(seed, stream, size, 2)).unbind(-1)  # Box and Muller 1958
    return (torch.sqrt(-2 * torch.log(1 - first)) * torch.cos(second * (2 * torch.pi))).to(dtype)


def _empty(seed, stream, size, dtype):
    return torch.empty(size, dtype=dtype, device=seed.device)


SEED = define(
    "random_seed", "(Device device) -> Tensor", _draw, lambda device: torch.empty(1, dtype=torch.int64, device=device),
    tags=(torch.Tag.nondeterministic_seeded,),
)  # fmt: skip
BERNOULLI = define(
    "random_bernoulli", "(Tensor seed, int stream, SymInt[] size, float probability) -> Tensor", _bernoulli,
    lambda seed, stream, size, probability: _empty(seed, stream, size, torch.bool),
)  # fmt: skip
_TYPED = "(Tensor seed, int stream, SymInt[] size, ScalarType dtype) -> Tensor"
UNIFORM = define("random_uniform", _TYPED, _uniform, _empty)
NORMAL = define("random_normal", _TYPED, _normal, _empty)
_OF_STREAMS = {BERNOULLI, UNIFORM, NORMAL}  # ops whose first operands are a seed, or None, and a stream


def of_stream(op):
    """Registers an op whose first operands are a seed and a stream, too."""
    _OF_STREAMS.add(op)
    return op


def seed_and_stream(device):
    """First operands of a random op, while a function is traced."""
    return SEED(torch.device(device)), next(_streams)


def with_one_seed(graph):
    """Has all random ops of a graph read one seed of their device, with streams that are numbered in their order. The
    seed is what a forward graph saves for its gradients."""
    seeds, streams = {}, {}
    for node in list(graph.nodes):
        if node.target is SEED:
            seeds.setdefault(node.meta["val"].device, node).meta["recompute"] = CheckpointPolicy.MUST_SAVE
        if node.target not in _OF_STREAMS or node.args[0] is None:
            continue
        seed, stream, *rest = node.args
        node.args = (seeds[seed.meta["val"].device], streams.setdefault(stream, len(streams)), *rest)
        if node.target in (BERNOULLI, UNIFORM):
            node.meta["recompute"] = CheckpointPolicy.MUST_RECOMPUTE
    for node in reversed(list(graph.nodes)):
        if node.target is SEED and not node.users:
            graph.erase_node(node)


def is_random(node):
    """Whether a node's op draws from a generator of PyTorch."""
    return torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())


def is_seed(node):
    """Whether a node draws the seed of a call: PyTorch does so for every graph with random numbers."""
    return node.target is SEED


# --- what PyTorch's random ops are made of -----------------------------------------------------------------


def _in_place_of(x, make):
    """A tensor of x's dims, which has x's order in memory: make(size) gives it in rows."""
    if suggest_memory_format(x) not in (torch.channels_last, torch.channels_last_3d):
        return make(x.shape)
    return torch.movedim(make([x.shape[0], *x.shape[2:], x.shape[1]]), -1, 1)


def _kept(x, probability):
    """True with a probability, in x's dims."""
    return _in_place_of(x, lambda size: BERNOULLI(*seed_and_stream(x.device), size, probability))


def _filled(op, x, dtype=None, device=None):
    dtype, device = dtype or x.dtype, device or x.device
    if dtype not in _DIGITS:
        return NotImplemented
    return _in_place_of(x, lambda size: op(*seed_and_stream(device), size, dtype))


def native_dropout(x, p, train):
    if train is False or p == 0:
        return x.clone(), torch.ones_like(x, dtype=torch.bool)
    if p == 1:
        return torch.zeros_like(x), torch.zeros_like(x, dtype=torch.bool)
    kept = _kept(x, 1 - p)
    return torch.where(kept, x, 0.0) * (1.0 / (1.0 - p)), kept


def native_dropout_backward(dy, mask, scale):
    """As the forward op rounds, where PyTorch's function rounds the scale, too."""
    return torch.where(mask, dy, 0.0) * scale


def bernoulli(x, probability=None, *, generator=None):
    """1 with a probability, else 0; the probabilities are a number, a tensor, or x."""
    if generator is not None:
        return NotImplemented
    if isinstance(probability, float):
        return _kept(x, probability).to(x.dtype)
    probability = x if probability is None else probability
    return (_filled(UNIFORM, x, torch.float32) < probability).to(x.dtype)


def _sized(op):
    def made(size, *, dtype=None, layout=None, device=None, pin_memory=None):
        dtype, device = dtype or torch.get_default_dtype(), device or torch.get_default_device()
        return op(*seed_and_stream(device), size, dtype) if dtype in _DIGITS else NotImplemented

    return made


def _like(op):
    def made(x, *, dtype=None, layout=None, device=None, pin_memory=None, memory_format=None):
        if memory_format not in (None, torch.preserve_format):
            return NotImplemented
        return _filled(op, x, dtype, device)

    return made


def uniform(x, low=0.0, high=1.0, generator=None):
    if generator is not None or x.dtype not in _DIGITS:
        return NotImplemented
    return (_filled(UNIFORM, x, torch.float32) * (high - low) + low).to(x.dtype)


def normal_like(x, mean=0.0, std=1.0, generator=None):
    if generator is not None or x.dtype not in _DIGITS:
        return NotImplemented
    return (_filled(NORMAL, x, torch.float32) * std + mean).to(x.dtype)


def normal(mean, std=1.0, *, generator=None):
    """With a mean or a deviation for each element."""
    x = mean + std * 0 if isinstance(mean, torch.Tensor) else std
    return normal_like(x, mean, std, generator)


def exponential(x, lambd=1.0, generator=None):
    """Never 0, whose logarithm people take."""
    if generator is not None or x.dtype not in _DIGITS:
        return NotImplemented
    even = _filled(UNIFORM, x, torch.float32)
    return ((-torch.log(1 - even)).clamp_min(2.0**-24) / lambd).to(x.dtype)


DECOMPOSITIONS = {
    "native_dropout": native_dropout, "native_dropout_backward": native_dropout_backward, "bernoulli": bernoulli,
    "bernoulli.p": bernoulli, "bernoulli.Tensor": bernoulli, "rand": _sized(UNIFORM), "rand_like": _like(UNIFORM),
    "randn": _sized(NORMAL), "randn_like": _like(NORMAL), "uniform": uniform, "normal_functional": normal_like,
    "normal.Tensor_float": normal, "normal.float_Tensor": normal, "normal.Tensor_Tensor": normal,
    "exponential": exponential,
}  # fmt: skip
