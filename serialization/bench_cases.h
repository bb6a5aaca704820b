// Owns BenchCase: one row of the benchmark suite (bench/cases/), and its reading. Format: docs/benchmarks.md.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/data_type.h"
#include "core/dims.h"
#include "core/graph.h"

namespace fusor {

/// A contraction with what is fused around it, in the words of a table (tools/bench/case_graph.h makes a
/// Graph of it), or a graph from a file.
struct BenchCase {
  enum class Op : uint8_t {
    matmul,
    gated_matmul,
    conv_fprop,
    conv_dgrad,
    conv_wgrad,
    softmax,
    softmax_bwd,
    layer_norm,
    layer_norm_bwd,
    rms_norm,
    rms_norm_bwd,
    residual_norm_quantize,
    cross_entropy,
    group_norm,
    batch_norm,
    batch_norm_bwd,
    max_pool,
    max_pool_bwd,
    attention,
    attention_bwd,
  };

  std::string id;     ///< unique: "C2-dgrad"
  std::string group;  ///< cases with one bar: "conv-dgrad-wgrad"
  std::string about;  ///< where it comes from
  Op op = Op::matmul;
  DataType type = DataType::bf16;  ///< of the inputs
  std::optional<DataType> result;  ///< of the result; default: `type`
  bool transposed_b = false;       ///< b lies in memory as [n, k], like the weights of a linear layer
  bool causal = false;             ///< the last query sees all keys
  bool index = false;              ///< of pools: the places of the maxima are a result, or what dx is made by
  bool tf32 = false;  ///< fp32 whose operands may be rounded to TF32, by peers too: the floor is that rate's
  bool short_sums = false;       ///< of fp8 products, as the peers' are
  Layout layout = Layout::nhwc;  ///< of convolutions
  // Matmuls: c[batch, m, n] = sum over k of a[batch, m, k] * b[batch, k, n].
  int64_t batch = 1, m = 0, n = 0, k = 0;
  // Rows: dims of x, the axes of a row (default: the last), of group norms the groups.
  Dims axes;
  int64_t groups = 1;
  // Attention: dims of q and of k, [batch, heads, positions, elements of a head]; of v's head, if it is
  // another.
  Dims q, keys;
  int64_t value = 0;
  int64_t page = 0;                 ///< rows of a page of keys and values, in memory in no order; 0: no pages
  int64_t newest = 0;               ///< keys that a query sees, up to and including its own; 0: no such bound
  int64_t documents = 0;            ///< queries see keys of their own document alone; 0: none
  bool ragged = false;              ///< sequences of several lengths lie one behind the other
  std::vector<std::string> scores;  ///< what becomes of scores: "soft_cap", "alibi", "bias"
  // Convolutions: dims of x and w whatever the pass; one entry per spatial dim below. A pool's w is its
  // window.
  Dims x, w;
  Dims stride, pre_padding, post_padding, dilation;
  std::vector<std::string> prologue, epilogue;  ///< steps by name, in order
  // Quantised weights: their type, steps of k that share a scale (0: all of a column), the scales' type
  // (default: `type`), and whether a zero point of 8 bits is subtracted in front of the scale.
  DataType weights = DataType::i8;
  int64_t block = 0;
  std::optional<DataType> scales;
  bool zero_points = false;
  int64_t max_workspace = -1;  ///< bytes; -1: no limit

  std::shared_ptr<const Graph>
      graph;  ///< of a case that is a graph's file; then only id, group, about and type are filled in

  bool is_conv() const { return op >= Op::conv_fprop && op <= Op::conv_wgrad; }
  bool is_pool() const { return op == Op::max_pool || op == Op::max_pool_bwd; }
  bool is_rows() const { return op >= Op::softmax && op <= Op::max_pool_bwd; }
  bool is_attention() const { return op >= Op::attention; }
};

/// The rows of a file, in order; of a graph or a plan, the one case that it is. Throws Error{bad_input} that
/// names the place.
std::vector<BenchCase> bench_cases_from_json(std::string_view text);
std::vector<BenchCase> read_bench_cases(const std::string& path);

}  // namespace fusor
