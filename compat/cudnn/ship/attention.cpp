// Owns the attention whose kernels are shipped, in primitives as cudnn-frontend writes them, forward and
// backward. Dims are arguments of a kernel, but for the width of a head: how many rows and heads there are
// only decides which kernels the planner chooses.
#include <limits>

#include "compat/cudnn/ship/graphs.h"
#include "frontend/graph_builder.h"

namespace fusor::cudnn {
namespace {

struct Attention {
  DataType type;
  int64_t batch, heads, rows, width;
  bool is_causal;
  /// Whether the graph is the one for any scale and any number that hides a score: libcudnn plans both.
  bool is_general;
};

// The parts that both passes have.
class Primitives {
 public:
  Primitives(const char* name, const Attention& attention) : g(name), c_(attention) {
    scale = g.scalar("scale", DataType::f32);
    if (!c_.is_causal) return;
    hidden = c_.is_general ? g.scalar("hidden", DataType::f32)
                           : g.constant(-std::numeric_limits<double>::infinity(), DataType::f32);
  }

  // [batch, heads, rows, width]; the heads of a row lie beside each other.
  Tensor rows(const char* name) {
    return g.input(name, {c_.batch, c_.heads, c_.rows, c_.width}, c_.type, {.strides = strides()});
  }
  Tensor columns(const char* name) {
    const int64_t line = c_.heads * c_.width;
    return g.input(name, {c_.batch, c_.heads, c_.width, c_.rows}, c_.type,
                   {.strides = Strides{c_.rows * line, c_.width, 1, line}});
  }
  Tensor statistics() { return g.input("statistics", {c_.batch, c_.heads, c_.rows, 1}, DataType::f32); }
  Tensor masked(const Tensor& score) {
    if (!c_.is_causal) return score;
    return g.binary_select(score, hidden, g.cmp_ge(g.gen_index(score, 2), g.gen_index(score, 3)));
  }
  Tensor transposed(const Tensor& x) { return g.transpose(x, {0, 1, 3, 2}); }
  // [batch, heads, rows, 1], without gaps.
  Tensor row_result(const char* name, const Tensor& x) {
    return g.output(x, {.name = name, .type = DataType::f32, .strides = packed_strides(x.dims)});
  }
  void result(const char* name, const Tensor& x) {
    g.output(x, {.name = name, .type = c_.type, .strides = strides()});
  }

  GraphBuilder g;
  Tensor scale, hidden;

 private:
  Strides strides() const {
    const int64_t line = c_.heads * c_.width;
    return Strides{c_.rows * line, c_.width, line, 1};
  }

  Attention c_;
};

Graph forward(const Attention& c, bool has_statistics) {
  Primitives p("attention", c);
  GraphBuilder& g = p.g;
  const Tensor product = g.matmul(p.rows("q"), p.columns("k"));
  const Tensor scale =
      c.is_general ? p.scale : g.max(p.scale, g.constant(double{std::numeric_limits<float>::min()}));
  const Tensor score = p.masked(g.mul(product, scale));
  const Tensor largest = g.reduce(score, ReductionMode::max, {3});
  // A row that sees no key gives 0.
  const Tensor finite = g.max(largest, g.constant(double{std::numeric_limits<float>::lowest()}));
  const Tensor exponential = g.exp(g.sub(score, finite));
  const Tensor sum = g.reduce(exponential, ReductionMode::add, {3});
  if (has_statistics) p.row_result("statistics", g.add(largest, g.log(sum)));
  const Tensor divisor = g.binary_select(sum, g.constant(1), g.cmp_neq(sum, g.constant(0)));
  const Tensor probability = g.div(exponential, divisor, {.type = c.type});
  p.result("o", g.matmul(probability, p.rows("v")));
  return g.finish();
}

Graph backward(const Attention& c) {
  Primitives p("gradients of attention", c);
  GraphBuilder& g = p.g;
  const Tensor dy = p.rows("dy"), q = p.rows("q"), k = p.columns("k");
  const Tensor total = g.reduce(g.mul(dy, p.rows("o")), ReductionMode::add, {3});
  const Tensor sums = p.row_result("sums", g.mul(total, g.scalar("one", DataType::f32)));
  const Tensor score = p.masked(g.sub(g.mul(g.matmul(q, k), p.scale), p.statistics()));
  const Tensor probability = g.exp(score);
  p.result("dv", g.matmul(p.transposed(g.identity(probability, {.type = c.type})), dy));
  const Tensor difference = g.sub(g.matmul(dy, p.columns("v")), sums);
  const Tensor gradient = g.mul(g.mul(difference, probability), p.scale, {.type = c.type});
  p.result("dk", g.matmul(p.transposed(g.identity(gradient, {.type = c.type})), q));
  p.result("dq", g.identity(g.matmul(gradient, p.transposed(k))));
  return g.finish();
}

}  // namespace

std::vector<GraphMaker> shipped_attention() {
  constexpr int64_t kRowsOfAll = 16384, kWidthOfAll = 2048;
  std::vector<GraphMaker> makers;
  for (const DataType type : {DataType::bf16, DataType::f16})
    for (const int64_t width : {64, 128})
      for (const int64_t rows : {512, 1024, 2048, 4096, 8192})
        for (const bool is_causal : {true, false})
          for (const bool is_general : {false, true}) {
            const Attention c{type,  kRowsOfAll / rows, kWidthOfAll / width, rows,
                              width, is_causal,         is_general};
            for (const bool has_statistics : {false, true})
              makers.emplace_back([=] { return forward(c, has_statistics); });
            // Without a mask, the gradients presume nothing.
            if (is_causal || !is_general) makers.emplace_back([=] { return backward(c); });
          }
  return makers;
}

}  // namespace fusor::cudnn
