// Owns what each case of attention means in terms of GraphBuilder, and what it costs.
#include "tools/bench/attention_cases.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "core/ops/attention.h"
#include "frontend/graph_builder.h"

namespace fusor::command {

namespace {

constexpr const char* kPageTable = "page_table";

double live_scores(const SdpaAttributes& attributes, int64_t queries, int64_t keys) {
  if (attributes.right_bound != 0) return static_cast<double>(queries * keys);
  const bool ends_together = attributes.diagonal_alignment == DiagonalAlignment::bottom_right;
  const int64_t shift = ends_together ? keys - queries : 0;
  double live = 0;
  for (int64_t row = 0; row < queries; ++row)
    live += static_cast<double>(std::clamp<int64_t>(row + shift + 1, 0, keys));
  return live;
}

}  // namespace

Graph attention_graph_of(const BenchCase& bench_case) {
  GraphBuilder g(bench_case.id, bench_case.short_sums ? Precision::allow_short_sums : Precision::exact);
  const Dims &q_dims = bench_case.q, &k_dims = bench_case.keys;
  const DataType result = bench_case.result.value_or(bench_case.type);
  SdpaAttributes attributes{.attn_scale = 1 / std::sqrt(static_cast<double>(q_dims[3]))};
  attributes.diagonal_alignment = DiagonalAlignment::bottom_right;
  if (bench_case.causal) attributes.right_bound = 0;
  const Tensor q = g.input("q", q_dims, bench_case.type);
  const int64_t pages = bench_case.page == 0 ? 1 : k_dims[2] / bench_case.page;
  const Dims of_page{k_dims[0] * pages, k_dims[1], k_dims[2] / pages, 0};
  const auto cache = [&](const char* name, int64_t elements) {
    return g.input(name, {of_page[0], of_page[1], of_page[2], elements}, bench_case.type);
  };
  const Tensor k = cache("k", k_dims[3]), v = cache("v", bench_case.value);
  const Dims o_dims{q_dims[0], q_dims[1], q_dims[2], bench_case.value};
  if (bench_case.page > 0) {
    const Tensor table = g.input(kPageTable, {k_dims[0], 1, pages, 1}, DataType::i32);
    attributes.max_seq_len_kv = k_dims[2];
    const SdpaOptions options{.attributes = attributes, .page_table_k = table, .page_table_v = table};
    g.output(g.sdpa_fwd(q, k, v, options).o, {.name = "o", .type = result});
    return g.finish();
  }
  if (bench_case.op == BenchCase::Op::attention) {
    g.output(g.sdpa_fwd(q, k, v, {.attributes = attributes}).o, {.name = "o", .type = result});
    return g.finish();
  }
  const Tensor o = g.input("o", o_dims, bench_case.type), dy = g.input("do", o_dims, bench_case.type);
  const Tensor stats = g.input("stats", {q_dims[0], q_dims[1], q_dims[2], 1}, DataType::f32);
  const SdpaGradients gradients = g.sdpa_bwd(q, k, v, o, dy, stats, {.attributes = attributes});
  g.output(gradients.dq, {.name = "dq", .type = result});
  g.output(gradients.dk, {.name = "dk", .type = result});
  g.output(gradients.dv, {.name = "dv", .type = result});
  return g.finish();
}

bool shuffle_pages(const Graph& graph, size_t tensor, void* table) {
  const Tensor& pages = graph.tensors[tensor];
  if (pages.name != kPageTable || pages.type != DataType::i32) return false;
  const int64_t count = element_count(pages.dims);
  auto* const numbers = static_cast<int32_t*>(table);
  std::iota(numbers, numbers + count, 0);
  std::mt19937_64 random(static_cast<uint64_t>(count));
  std::shuffle(numbers, numbers + count, random);
  return true;
}

double attention_flops(const Graph& graph, const Op& op) {
  const auto* const forward = std::get_if<SdpaForward>(&op.attributes);
  const auto* const backward = std::get_if<SdpaBackward>(&op.attributes);
  if (forward == nullptr && backward == nullptr) return 0;
  const auto dims = [&](size_t input) { return graph.tensors[static_cast<size_t>(op.inputs[input])].dims; };
  const Dims q = dims(0), v = dims(2);
  Dims k = dims(1);
  const SdpaAttributes& attributes =
      forward != nullptr ? static_cast<const SdpaAttributes&>(*forward) : *backward;
  if (attributes.max_seq_len_kv > 0) k[2] = attributes.max_seq_len_kv;
  const int64_t elements = forward != nullptr ? q[3] + v[3] : 3 * q[3] + 2 * v[3];
  return 2 * static_cast<double>(q[0] * q[1]) * live_scores(attributes, q[2], k[2]) *
         static_cast<double>(elements);
}

}  // namespace fusor::command
