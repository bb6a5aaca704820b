// Tests that an op made with the options of C++ alone is the op that a graph file without attributes means.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "core/attributes.h"
#include "frontend/graph_builder.h"

namespace fusor {
namespace {

using G = GraphBuilder;

Tensor half(G& g, const char* name, const Dims& dims) { return g.input(name, dims, DataType::f16); }
Tensor ints(G& g, const char* name, const Dims& dims) { return g.input(name, dims, DataType::i32); }

const Tensor& first(const Tensor& only) { return only; }
template <class Results>
Tensor first(const Results& all) {
  if constexpr (requires { all.y; })
    return all.y;
  else if constexpr (requires { all.dx; })
    return all.dx;
  else if constexpr (requires { all.loss; })
    return all.loss;
  else if constexpr (requires { all.sum; })
    return all.sum;
  else if constexpr (requires { all.eq_scale; })
    return all.eq_scale;
  else if constexpr (requires { all.dscale; })
    return all.dscale;
  else if constexpr (requires { all.o; })
    return all.o;
  else
    return all.dq;
}

struct Call {
  const char* kind;
  Tensor (*append)(G& g);  // returns its first result
  // Attributes that have no default in C++, as the call says them.
  void (*say)(Attributes& attributes) = nullptr;
};

// x [2, 4, 6, 8] and the least that each method takes beside it.
const Call kCalls[] = {
    {"softmax",
     [](G& g) {
       return first(g.softmax(half(g, "x", {2, 4, 6, 8})));
     }},
    {"softmax_bwd",
     [](G& g) {
       return first(g.softmax_bwd(half(g, "dy", {2, 8}), half(g, "y", {2, 8})));
     }},
    {"cross_entropy",
     [](G& g) {
       return first(g.cross_entropy(half(g, "x", {2, 8}), ints(g, "l", {2, 1})));
     }},
    {"cross_entropy_bwd",
     [](G& g) {
       return first(
           g.cross_entropy_bwd(half(g, "x", {2, 8}), ints(g, "l", {2, 1}), half(g, "dloss", {2, 1})));
     }},
    {"norm_fwd",
     [](G& g) {
       return first(g.norm_fwd(half(g, "x", {2, 4, 6, 8})));
     }},
    {"norm_bwd",
     [](G& g) {
       return first(g.norm_bwd(half(g, "dy", {2, 8}), half(g, "x", {2, 8})));
     }},
    {"gen_stats",
     [](G& g) {
       return first(g.gen_stats(half(g, "x", {2, 4, 6, 8})));
     }},
    {"bn_finalize",
     [](G& g) {
       const Dims c{1, 4, 1, 1};
       return first(g.bn_finalize(half(g, "sum", c), half(g, "sq_sum", c), half(g, "scale", c),
                                  half(g, "bias", c), {.accumulation_count = 96}));
     },
     [](Attributes& op) { std::get<BnFinalize>(op).accumulation_count = 96; }},
    {"bn_bwd_weights",
     [](G& g) {
       const Dims c{1, 4, 1, 1}, x{2, 4, 6, 8};
       return first(g.bn_bwd_weights(half(g, "dy", x), half(g, "x", x), half(g, "mean", c),
                                     half(g, "inv_std", c), half(g, "scale", c)));
     }},
    {"causal_conv1d",
     [](G& g) {
       return first(g.causal_conv1d(half(g, "x", {2, 4, 6}), half(g, "w", {4, 3})));
     }},
    {"causal_conv1d_bwd",
     [](G& g) {
       return first(
           g.causal_conv1d_bwd(half(g, "dy", {2, 4, 6}), half(g, "x", {2, 4, 6}), half(g, "w", {4, 3})));
     }},
    {"resample_fwd",
     [](G& g) {
       return first(g.resample_fwd(half(g, "x", {2, 4, 6, 8}), {.window = {2, 2}}));
     },
     [](Attributes& op) {
       std::get<ResampleForward>(op).window = {2, 2};
     }},
    {"resample_bwd",
     [](G& g) {
       return first(g.resample_bwd(half(g, "dy", {2, 4, 3, 4}), {2, 4, 6, 8}, {.window = {2, 2}},
                                   half(g, "x", {2, 4, 6, 8})));
     },
     [](Attributes& op) {
       std::get<ResampleBackward>(op).window = {2, 2};
     }},
    {"rnn_fwd",
     [](G& g) {
       const std::vector<Tensor> weights{half(g, "wi", {16, 6}), half(g, "wh", {16, 4}), half(g, "bi", {16}),
                                         half(g, "bh", {16})};
       return first(g.rnn_fwd(half(g, "x", {3, 2, 6}), weights, {}));
     },
     [](Attributes& op) { std::get<RnnForward>(op).hidden_size = 4; }},
    {"rnn_bwd",
     [](G& g) {
       const std::vector<Tensor> weights{half(g, "wi", {16, 6}), half(g, "wh", {16, 4}), half(g, "bi", {16}),
                                         half(g, "bh", {16})};
       return first(g.rnn_bwd(half(g, "dy", {3, 2, 4}), half(g, "x", {3, 2, 6}), weights, {}));
     },
     [](Attributes& op) { std::get<RnnBackward>(op).hidden_size = 4; }},
    {"recurrence",
     [](G& g) {
       Recurrence op;
       op.hidden_size = 4;
       return g.op(Attributes(op), std::vector{half(g, "given", {3, 2, 16}), half(g, "wh", {16, 4})})[0];
     },
     [](Attributes& op) { std::get<Recurrence>(op).hidden_size = 4; }},
    {"lrn",
     [](G& g) {
       return first(g.lrn(half(g, "x", {2, 4, 6, 8})));
     }},
    {"lrn_bwd",
     [](G& g) {
       return first(g.lrn_bwd(half(g, "dy", {2, 4, 6, 8}), half(g, "x", {2, 4, 6, 8})));
     }},
    {"grid_sample",
     [](G& g) {
       return first(g.grid_sample(half(g, "x", {2, 4, 6, 8}), half(g, "grid", {2, 3, 3, 2})));
     }},
    {"grid_sample_bwd",
     [](G& g) {
       return first(g.grid_sample_bwd(half(g, "dy", {2, 4, 3, 3}), half(g, "x", {2, 4, 6, 8}),
                                      half(g, "grid", {2, 3, 3, 2})));
     }},
    {"ctc_loss",
     [](G& g) {
       return first(g.ctc_loss(g.input("x", {5, 2, 4}, DataType::f32), ints(g, "l", {2, 2})));
     }},
    {"rng_uniform",
     [](G& g) {
       return first(g.rng({4, 4}, ints(g, "seed", {1}), ints(g, "offset", {1})));
     }},
    {"rng_bernoulli",
     [](G& g) {
       return first(g.rng({4, 4}, ints(g, "seed", {1}), ints(g, "offset", {1}),
                          {.distribution = Distribution::bernoulli}));
     }},
    {"rng_normal",
     [](G& g) {
       return first(g.rng({4, 4}, ints(g, "seed", {1}), ints(g, "offset", {1}),
                          {.distribution = Distribution::normal}));
     }},
    {"dropout",
     [](G& g) {
       return first(g.dropout(half(g, "x", {4}), ints(g, "seed", {1}), ints(g, "offset", {1}), 0.25));
     },
     [](Attributes& op) { std::get<Dropout>(op).probability = 0.25; }},
    {"block_scale_quantize",
     [](G& g) {
       const BlockScaleResults all = g.block_scale_quantize(half(g, "x", {4, 64}));
       g.output(all.scale);
       return all.y;
     }},
    {"block_scale_dequantize",
     [](G& g) {
       return first(g.block_scale_dequantize(half(g, "x", {4, 64}), half(g, "scale", {4, 2})));
     }},
    {"paged_cache_load",
     [](G& g) {
       return first(g.paged_cache_load(half(g, "container", {6, 2, 4, 8}), ints(g, "table", {2, 1, 3, 1})));
     }},
    {"ragged_load",
     [](G& g) {
       return first(g.ragged_load(half(g, "x", {64}), ints(g, "offset", {3, 1, 1}), {2, 4, 8}, {8, 1}));
     },
     [](Attributes& op) {
       std::get<RaggedLoad>(op).strides = {8, 1};
     }},
    {"ragged_store",
     [](G& g) {
       return first(g.ragged_store(half(g, "x", {2, 4, 8}), ints(g, "offset", {3, 1, 1}), 64, {8, 1}));
     },
     [](Attributes& op) {
       std::get<RaggedStore>(op).strides = {8, 1};
     }},
    {"matmul_lengths",
     [](G& g) {
       return first(g.matmul_lengths(half(g, "a", {2, 3, 4}), half(g, "b", {2, 4, 5}),
                                     {.m_override = ints(g, "m", {2, 1, 1})}));
     }},
    {"moe_grouped_matmul",
     [](G& g) {
       return first(
           g.moe_grouped_matmul(half(g, "t", {6, 4}), half(g, "w", {3, 4, 5}), ints(g, "first", {3, 1, 1})));
     }},
    {"sdpa_fwd",
     [](G& g) {
       const Dims d{2, 3, 4, 8};
       return first(g.sdpa_fwd(half(g, "q", d), half(g, "k", d), half(g, "v", d)));
     }},
    {"sdpa_bwd",
     [](G& g) {
       const Dims d{2, 3, 4, 8};
       return first(g.sdpa_bwd(half(g, "q", d), half(g, "k", d), half(g, "v", d), half(g, "o", d),
                               half(g, "do", d), g.input("stats", {2, 3, 4, 1}, DataType::f32)));
     }},
};

Attributes kind_named(const std::string& name) {
  for (Attributes& kind : all_kinds())
    if (kind_name(kind) == name) return std::move(kind);
  ADD_FAILURE() << "there is no kind " << name;
  return {};
}

TEST(OptionDefaults, AreThoseOfTheFamilies) {
  for (const Call& call : kCalls) {
    SCOPED_TRACE(call.kind);
    G g;
    const Graph graph = g.finish({call.append(g)});
    const Op& op = graph.ops.back();
    Attributes family = kind_named(call.kind);
    if (call.say != nullptr) call.say(family);
    fill_omitted(family, graph.tensors[static_cast<size_t>(op.inputs[0])].dims.rank());
    EXPECT_EQ(kind_name(op.attributes), call.kind);
    EXPECT_TRUE(op.attributes == family);
  }
}

TEST(OptionDefaults, AreComparedForEveryComposite) {
  std::set<std::string> compared;
  for (const Call& call : kCalls) compared.insert(call.kind);
  for (const Attributes& kind : all_kinds()) {
    if (nature(kind) != Nature::composite) continue;
    EXPECT_TRUE(compared.contains(std::string(kind_name(kind)))) << kind_name(kind);
  }
}

}  // namespace
}  // namespace fusor
