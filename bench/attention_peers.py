# Owns the peers of attention: what PyTorch has for each case, its libraries' kernels and FlexAttention.
"""Functions that run a case once, by name. What this PyTorch lacks, or a compiler says, goes into `errors`."""
import inspect
import math

SOFT_CAP = 30


def first_line(error):
    return (str(error).splitlines() or [type(error).__name__])[0]


def ragged_lengths(row, operand="q"):
    """As ragged_length() of tools/bench/attention_cases.h."""
    sequences, positions = row[operand][0], row[operand][2]
    return [-(-positions * (i + 1) // sequences) for i in range(sequences)]


def document_starts(row):
    """As document_start() of tools/bench/attention_cases.h, and the end."""
    documents, keys = row["documents"], row["k"][2]
    return [keys * i * i // documents**2 for i in range(documents + 1)]


def is_plain(row):
    return not any(row.get(key) for key in ("page", "newest", "documents", "ragged", "scores"))


class AttentionPeers:
    """`random(*dims, type=None)` makes a tensor; `compiles`: whether FlexAttention is asked for where others exist."""

    def __init__(self, torch, random, type, compiles):
        self.torch, self.random, self.type, self.compiles = torch, random, type, compiles
        self.functional = torch.nn.functional

    def of(self, row, errors):
        if is_plain(row):
            return self.plain(row, errors)
        if row.get("page"):
            makers = {"flash paged": self.flash_paged, "flex": self.flex_paged, "gathered": self.gathered}
            if not self.compiles:
                del makers["flex"]
        else:
            makers = {"cudnn": self.cudnn, "efficient": self.efficient, "flash": self.flash, "flash varlen": self.varlen,
                      "flex": self.flex}
        peers = {}
        for name, make in makers.items():
            try:
                run = make(row)
                if run is None:
                    continue
                run()
                self.torch.cuda.synchronize()
                peers[name] = run
            except Exception as error:  # what this PyTorch lacks, or a compiler says
                errors[name] = first_line(error)
        return peers

    def plain(self, row, errors):
        """PyTorch's attention by cuDNN and by its FlashAttention; gradients as autograd asks for them by default. For fp8,
        which it does not take, in bf16."""
        torch = self.torch
        from torch.nn.attention import SDPBackend
        libraries = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}
        backward = row["op"] == "attention_bwd"
        inputs = tuple(x.requires_grad_(backward) for x in self.inputs(row))
        mask, causal = None, row.get("causal", False)
        if causal and row["q"][2] != row["k"][2]:
            mask, causal = torch.nn.attention.bias.causal_lower_right(row["q"][2], row["k"][2]), False
        peers = {}
        for name, library in libraries.items():
            try:
                o = self.by_library(library, inputs, mask, causal)
            except RuntimeError as error:
                errors[name] = first_line(error)
                continue
            if backward:
                peers[name] = lambda o=o, do=torch.ones_like(o): torch.autograd.grad(o, inputs, do, retain_graph=True)
            else:
                peers[name] = lambda library=library: self.by_library(library, inputs, mask, causal)
        return peers

    def inputs(self, row):
        type = self.torch.bfloat16 if row["type"].startswith("fp8") else self.type
        shapes = row["q"], row["k"], [*row["k"][:3], row.get("value", row["k"][3])]
        return tuple(self.random(*shape, type=type) for shape in shapes)

    def by_library(self, library, inputs, mask, causal):
        from torch.nn.attention import sdpa_kernel
        with sdpa_kernel(library):
            return self.functional.scaled_dot_product_attention(
                *inputs, attn_mask=mask, is_causal=causal, enable_gqa=inputs[0].shape[1] != inputs[1].shape[1])

    # ---- scores that are changed or hidden ----

    def cudnn(self, row):
        """A bias is a mask of numbers; sequences of several lengths are a nested tensor."""
        from torch.nn.attention import SDPBackend
        return self.with_bias_or_nested(row, SDPBackend.CUDNN_ATTENTION)

    def efficient(self, row):
        from torch.nn.attention import SDPBackend
        return None if row.get("ragged") else self.with_bias_or_nested(row, SDPBackend.EFFICIENT_ATTENTION)

    def with_bias_or_nested(self, row, library):
        causal = row.get("causal", False)
        if row.get("ragged"):
            if row["q"][2] != row["k"][2]:
                return None
            torch, lengths = self.torch, ragged_lengths(row)
            starts = torch.tensor([0, *lengths], device="cuda").cumsum(0)

            def nested(heads, head):
                packed = self.random(sum(lengths), heads, head)
                return torch.nested.nested_tensor_from_jagged(packed, starts, min_seqlen=min(lengths),
                                                              max_seqlen=max(lengths)).transpose(1, 2)
            inputs = nested(row["q"][1], row["q"][3]), *(nested(row["k"][1], row["k"][3]) for _ in range(2))
            return lambda: self.by_library(library, inputs, None, causal)
        if row.get("scores") != ["bias"] or row.get("newest") or row.get("documents") or row["op"] == "attention_bwd":
            return None
        inputs = self.inputs(row)
        bias = self.random(1, row["q"][1], row["q"][2], row["k"][2])
        if causal:
            bias = bias.masked_fill(self.torch.ones_like(bias[0, 0], dtype=bool).triu(1), -math.inf)
        return lambda: self.by_library(library, inputs, bias, False)

    def flash(self, row):
        """FlashAttention as PyTorch calls it, with its window and its slopes."""
        if row.get("ragged") or row.get("documents") or any(step != "alibi" for step in row.get("scores", [])):
            return None
        torch, options = self.torch, {}
        if row.get("newest"):
            options.update(window_size_left=row["newest"] - 1, window_size_right=0)
        if row.get("scores"):
            heads = torch.arange(1, row["q"][1] + 1, device="cuda", dtype=torch.float32)
            options["alibi_slopes"] = torch.exp2(-8 * heads / row["q"][1])
        q, k, v = (x.transpose(1, 2).contiguous() for x in self.inputs(row))
        return lambda: torch.ops.aten._flash_attention_forward(q, k, v, None, None, q.shape[1], k.shape[1], 0.0,
                                                               row.get("causal", False), False, **options)

    def varlen(self, row):
        """FlashAttention over sequences, or over documents, one behind the other."""
        if not row.get("ragged") and not row.get("documents"):
            return None
        torch = self.torch
        from torch.nn.attention.varlen import varlen_attn
        if row.get("ragged"):
            def starts_of(operand):
                lengths = ragged_lengths(row, operand)
                return [sum(lengths[:i]) for i in range(len(lengths) + 1)]
            starts, key_starts = starts_of("q"), starts_of("k")
        else:
            one = document_starts(row)
            starts = [batch * row["k"][2] + start for batch in range(row["q"][0]) for start in one[:-1]]
            starts.append(row["q"][0] * row["k"][2])
            key_starts = starts

        def places(starts):
            longest = max(end - begin for begin, end in zip(starts, starts[1:]))
            return torch.tensor(starts, device="cuda", dtype=torch.int32), longest
        (queries, most_queries), (keys, most_keys) = places(starts), places(key_starts)
        rows = {"q": starts[-1], "k": key_starts[-1]}
        inputs = tuple(self.random(rows[name], row[name][1], row[name][3]) for name in ("q", "k", "k"))
        known = inspect.signature(varlen_attn).parameters
        asked = {}
        if row.get("causal"):
            asked = {"is_causal": True} if "is_causal" in known else {"window_size": (-1, 0)}
        if row["q"][1] != row["k"][1]:
            asked["enable_gqa"] = True
        return self.timed(row, inputs, lambda *x: varlen_attn(*x, queries, keys, most_queries, most_keys, **asked))

    def timed(self, row, inputs, forward):
        """What a case times: the forward pass, or gradients as autograd asks for them."""
        if row["op"] != "attention_bwd":
            return lambda: forward(*inputs)
        torch = self.torch
        for x in inputs:
            x.requires_grad_()
        o = forward(*inputs)
        do = torch.ones_like(o)
        return lambda: torch.autograd.grad(o, inputs, do, retain_graph=True)

    def flex(self, row):
        """FlexAttention, compiled, with the mask's blocks made beforehand; sequences are documents of one batch entry."""
        torch = self.torch
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention
        (batch, heads, positions, head), shared = row["q"], row["k"][1]
        document = None
        if row["q"][2] != row["k"][2]:
            return None
        if row.get("ragged"):
            lengths = ragged_lengths(row)
            batch, positions = 1, sum(lengths)
            document = torch.repeat_interleave(torch.arange(len(lengths), device="cuda"),
                                               torch.tensor(lengths, device="cuda"))
        elif row.get("documents"):
            starts = torch.tensor(document_starts(row)[1:-1], device="cuda")
            document = torch.bucketize(torch.arange(positions, device="cuda"), starts, right=True)
        q = self.random(batch, heads, positions, head)
        k, v = (self.random(batch, shared, positions, head) for _ in range(2))
        mask = self.block_mask(row, document, positions, create_block_mask)
        score = self.score_of(row, heads, positions)
        torch._dynamo.reset()
        compiled = torch.compile(flex_attention, dynamic=False)
        return self.timed(row, (q, k, v), lambda *x: compiled(*x, score_mod=score, block_mask=mask,
                                                              enable_gqa=heads != shared))

    def block_mask(self, row, document, positions, create_block_mask):
        causal, newest = row.get("causal", False), row.get("newest")
        if not causal and document is None:
            return None

        def sees(b, h, query, key):
            seen = query >= key if causal else query >= 0
            if newest:
                seen = seen & (query - key < newest)
            return seen if document is None else seen & (document[query] == document[key])
        return create_block_mask(sees, None, None, positions, positions, device="cuda")

    def score_of(self, row, heads, positions):
        torch, steps = self.torch, row.get("scores", [])
        if not steps:
            return None
        bias = self.random(heads, positions, positions) if "bias" in steps else None
        slopes = torch.exp2(-8 * torch.arange(1, heads + 1, device="cuda") / heads)

        def changed(score, b, h, query, key):
            if "soft_cap" in steps:
                score = SOFT_CAP * torch.tanh(score / SOFT_CAP)
            if "alibi" in steps:
                score = score + slopes[h] * (key - query)
            return score if bias is None else score + bias[h, query, key]
        return changed

    # ---- keys in pages in no order; one query each ----

    def pages(self, row):
        """Dims, and the table of pages [batch, pages of an entry]."""
        torch = self.torch
        batch, heads, _, head = row["q"]
        listed = row["k"][2] // row["page"]
        table = torch.randperm(batch * listed, device="cuda", dtype=torch.int32).view(batch, listed)
        return batch, heads, head, row["k"][1], row["k"][2], row["page"], table

    def flash_paged(self, row):
        torch = self.torch
        from torch.nn.attention.varlen import varlen_attn
        batch, heads, head, shared, keys, page, table = self.pages(row)
        k, v = (self.random(table.numel(), page, shared, head) for _ in range(2))
        rows = self.random(batch, heads, head)
        starts = torch.arange(batch + 1, device="cuda", dtype=torch.int32)
        lengths = torch.full((batch,), keys, device="cuda", dtype=torch.int32)
        asked = {"enable_gqa": True} if "enable_gqa" in inspect.signature(varlen_attn).parameters else {}
        return lambda: varlen_attn(rows, k, v, starts, starts * keys, 1, keys, seqused_k=lengths, block_table=table, **asked)

    def flex_paged(self, row):
        torch = self.torch
        from torch.nn.attention.flex_attention import BlockMask, flex_attention
        batch, heads, head, shared, _, page, table = self.pages(row)
        pages, listed = table.numel(), table.shape[1]
        q = self.random(batch, heads, 1, head)
        k, v = (self.random(1, shared, pages * page, head) for _ in range(2))
        indices = self.functional.pad(table, (0, pages - listed)).view(batch, 1, 1, pages)
        count = torch.full((batch, 1, 1), listed, device="cuda", dtype=torch.int32)
        mask = BlockMask.from_kv_blocks(torch.zeros_like(count), indices, count, indices, BLOCK_SIZE=(128, page),
                                        seq_lengths=(1, pages * page))
        torch._dynamo.reset()
        compiled = torch.compile(flex_attention, dynamic=False)
        return lambda: compiled(q, k, v, block_mask=mask, enable_gqa=True)

    def gathered(self, row):
        batch, heads, head, shared, keys, page, table = self.pages(row)
        q, flat = self.random(batch, heads, 1, head), table.flatten()
        k, v = (self.random(table.numel(), shared, page, head) for _ in range(2))

        def load(cache):
            taken = cache.index_select(0, flat).view(batch, keys // page, shared, page, head)
            return taken.transpose(1, 2).reshape(batch, shared, keys, head)
        return lambda: self.functional.scaled_dot_product_attention(q, load(k), load(v), enable_gqa=True)
