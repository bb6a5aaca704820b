// Owns the vocabulary of the suite's rows: what each op and each step means in terms of GraphBuilder.
#include "tools/bench/case_graph.h"

#include <algorithm>
#include <array>

#include "backend/reference/contraction.h"
#include "core/fail.h"
#include "frontend/graph_builder.h"
#include "tools/bench/attention_cases.h"
#include "tools/bench/rows_cases.h"

namespace fusor::command {

namespace {

std::optional<PointwiseMode> unary_mode(const std::string& name) {
  for (int i = 0; i < pointwise_mode_count(); ++i) {
    const auto mode = static_cast<PointwiseMode>(i);
    if (to_string(mode) == name && info(mode).inputs == 1) return mode;
  }
  return std::nullopt;
}

Precision precision_of(const BenchCase& bench_case) {
  if (bench_case.short_sums) return Precision::allow_short_sums;
  return bench_case.tf32 ? Precision::allow_tf32 : Precision::exact;
}

/// Appends one case to a graph: its contraction, then the epilogue's steps to the value so far.
class CaseGraph {
 public:
  explicit CaseGraph(const BenchCase& bench_case)
      : case_(bench_case),
        g_(bench_case.id, precision_of(bench_case)),
        result_(bench_case.result.value_or(bench_case.type)) {}

  Graph build() {
    y_ = case_.is_conv() ? convolution() : matmuls();
    for (const std::string& step : case_.epilogue) apply(step);
    make_output();
    return g_.finish();
  }

 private:
  // ---- contractions ----

  Dims matrix(int64_t rows, int64_t columns) const {
    return case_.batch == 1 ? Dims{rows, columns} : Dims{case_.batch, rows, columns};
  }

  Tensor matmuls() {
    const Tensor a = g_.input("a", matrix(case_.m, case_.k), case_.type);
    if (case_.op == BenchCase::Op::matmul) return g_.matmul(a, weights("b"));
    const Tensor gate = g_.matmul(a, weights("gate"));
    return g_.mul(g_.swish(gate), g_.matmul(a, weights("up")));
  }

  Tensor weights(const std::string& name) {
    if (case_.prologue.size() > 1)
      fail("case '{}': expected one prologue at most, got {}", case_.id, fmt::join(case_.prologue, ", "));
    if (case_.prologue.empty()) return stored(name, matrix(case_.k, case_.n), case_.type);
    const std::string& step = case_.prologue.front();
    if (step == "convert")
      return g_.identity(stored(name, matrix(case_.k, case_.n), case_.weights),
                         {.type = case_.type, .compute = DataType::f32});
    if (step != "dequantize")
      fail("case '{}': prologues are 'convert' and 'dequantize', got '{}'", case_.id, step);
    return case_.block > 0 ? dequantized_in_blocks(name) : dequantized(name);
  }

  /// A matrix in memory, the last two axes in the order that the case says.
  Tensor stored(const std::string& name, const Dims& dims, DataType type) {
    TensorOptions options;
    if (case_.transposed_b) options.strides = transposed_strides(dims);
    return g_.input(name, dims, type, options);
  }
  static Strides transposed_strides(const Dims& dims) {
    Dims turned = dims;
    std::swap(turned[dims.rank() - 2], turned[dims.rank() - 1]);
    Strides strides = packed_strides(turned);
    std::swap(strides[dims.rank() - 2], strides[dims.rank() - 1]);
    return strides;
  }

  Tensor dequantized(const std::string& name) {
    return scaled(name, stored(name, matrix(case_.k, case_.n), case_.weights), {1, case_.n});
  }

  /// Blocks of neighbours along k share a scale.
  Tensor dequantized_in_blocks(const std::string& name) {
    if (case_.batch != 1) fail("case '{}': blocks of scales come without a batch", case_.id);
    const Dims blocks{case_.k / case_.block, case_.block, case_.n};
    TensorOptions options;
    if (case_.transposed_b) options.strides = {case_.block, 1, case_.k};
    return g_.reshape(
        scaled(name, g_.input(name, blocks, case_.weights, options), {case_.k / case_.block, 1, case_.n}),
        {case_.k, case_.n});
  }

  Tensor scaled(const std::string& name, const Tensor& weights, const Dims& scales) {
    Tensor value = weights;
    if (case_.zero_points)
      value = g_.sub(value, g_.input(name + "_zero", scales, DataType::u8),
                     {.type = DataType::f32, .compute = DataType::f32});
    return g_.mul(value, g_.input(name + "_scale", scales, case_.scales.value_or(case_.type)),
                  {.type = case_.type, .compute = DataType::f32});
  }

  ConvOptions conv_options() const {
    ConvOptions options;
    options.pre_padding = case_.pre_padding;
    options.post_padding = case_.post_padding;
    options.stride = case_.stride;
    options.dilation = case_.dilation;
    return options;
  }

  Tensor convolution() {
    const ConvOptions options = conv_options();
    if (case_.op == BenchCase::Op::conv_fprop) return g_.conv_fprop(image("x", case_.x), filter(), options);
    const Tensor dy = image("dy", result_dims());
    if (case_.op == BenchCase::Op::conv_dgrad) return g_.conv_dgrad(dy, filter(), case_.x, options);
    return g_.conv_wgrad(dy, image("x", case_.x), case_.w, options);
  }

  Tensor image(const std::string& name, const Dims& dims) {
    return g_.input(name, dims, case_.type, case_.layout);
  }
  Tensor filter() { return g_.input("w", case_.w, case_.type, case_.layout); }

  /// The forward convolution's result, which both backward passes read.
  Dims result_dims() const {
    GraphBuilder g(case_.id);
    return g.conv_fprop(g.input("x", case_.x, case_.type), g.input("w", case_.w, case_.type), conv_options())
        .dims;
  }

  // ---- steps ----

  void apply(const std::string& step) {
    if (is_output_ && step != "column_sum" && step != "amax")
      fail("case '{}': step '{}' stands behind a reduction of the result", case_.id, step);
    if (step == "bias")
      y_ = g_.add(y_, per_channel(step));
    else if (step == "scale")
      y_ = g_.mul(y_, per_channel(step));
    else if (step == "alpha")
      y_ = g_.mul(y_, g_.scalar(step, DataType::f32));
    else if (step == "residual")
      y_ = g_.add(y_, like_result(step));
    else if (step == "gelu_bwd")
      y_ = g_.gelu_bwd(y_, like_result("z"));
    else if (step == "save")
      y_ = g_.output(y_, {.name = "saved", .type = result_, .layout = result_layout()});
    else if (step == "column_sum")
      reduce_result(step, ReductionMode::add, all_but_channels());
    else if (step == "amax")
      reduce_result(step, ReductionMode::amax, {});
    else if (const auto mode = unary_mode(step))
      y_ = g_.pointwise(*mode, {y_});
    else
      fail("case '{}': there is no step '{}'", case_.id, step);
  }

  int channel_axis() const { return case_.is_conv() ? 1 : y_.dims.rank() - 1; }

  Tensor per_channel(const std::string& name) {
    Dims dims = Dims::filled(y_.dims.rank(), 1);
    dims[channel_axis()] = y_.dims[channel_axis()];
    return g_.input(name, dims, case_.type);
  }

  Tensor like_result(const std::string& name) { return g_.input(name, y_.dims, result_, result_layout()); }
  Layout result_layout() const { return case_.is_conv() ? case_.layout : Layout::row_major; }

  Dims all_but_channels() const {
    Dims axes;
    for (int i = 0; i < y_.dims.rank(); ++i)
      if (i != channel_axis()) axes.push_back(i);
    return axes;
  }

  void make_output() {
    if (!is_output_) y_ = g_.output(y_, {.name = "y", .type = result_, .layout = result_layout()});
    is_output_ = true;
  }

  /// The reduction reads the result as it is stored, so that it can be checked against it.
  void reduce_result(const std::string& name, ReductionMode mode, const Dims& axes) {
    make_output();
    g_.output(g_.reduce(y_, mode, axes), {.name = name, .type = DataType::f32});
  }

  const BenchCase& case_;
  GraphBuilder g_;
  DataType result_;
  Tensor y_;
  bool is_output_ = false;
};

}  // namespace

Graph graph_of(const BenchCase& bench_case) {
  if (bench_case.graph) return *bench_case.graph;
  if (bench_case.is_attention()) return attention_graph_of(bench_case);
  return bench_case.is_rows() ? rows_graph_of(bench_case) : CaseGraph(bench_case).build();
}

BenchCase variant_of(const BenchCase& bench_case, int variant) {
  constexpr std::array<int64_t, 5> kQuarters = {4, 2, 3, 5, 8};
  constexpr std::array<int64_t, 4> kOffsets = {0, 1, 7, 13};
  const int64_t quarters = kQuarters[static_cast<size_t>(variant) % kQuarters.size()];
  const int64_t offset = kOffsets[static_cast<size_t>(variant) / kQuarters.size() % kOffsets.size()];
  const auto scaled = [quarters](int64_t extent) { return std::max<int64_t>(1, extent * quarters / 4); };
  BenchCase varied = bench_case;
  if (varied.graph) return varied;
  if (varied.is_attention()) {
    varied.q[0] = varied.keys[0] = scaled(varied.q[0]);
    varied.keys[2] += offset * std::max<int64_t>(1, varied.page);  // whole pages
    if (varied.op == BenchCase::Op::attention_bwd) varied.q[2] += offset;
    return varied;
  }
  if (varied.is_rows()) {
    varied.x[0] = scaled(varied.x[0]) + offset;
    return varied;
  }
  if (!varied.is_conv()) {
    varied.m = scaled(varied.m) + offset;
    return varied;
  }
  varied.x[0] = scaled(varied.x[0]);
  for (int i = 2; i < varied.x.rank(); ++i) varied.x[i] += offset;
  return varied;
}

CaseCost cost_of(const Graph& graph) {
  CaseCost cost;
  for (const Tensor& tensor : graph.tensors)
    if (!tensor.is_virtual() && !tensor.is_scalar())
      cost.bytes += static_cast<double>(bytes_of(tensor.type, element_count(tensor.dims)));
  for (const Op& op : graph.ops) {
    cost.flops += attention_flops(graph, op);
    if (!is_contraction(op.attributes)) continue;
    const auto dims = [&](int tensor) { return graph.tensors[static_cast<size_t>(tensor)].dims; };
    cost.flops += 2 * reference::multiply_adds(
                          {op.attributes, dims(op.inputs[0]), dims(op.inputs[1]), dims(op.outputs[0])});
  }
  return cost;
}

CaseCost cost_of(const BenchCase& bench_case, const Graph& graph) {
  CaseCost cost = cost_of(graph);
  if (bench_case.is_attention()) cost.flops = attention_flops(bench_case);
  return cost;
}

double floor_seconds(const BenchCase& bench_case, const CaseCost& cost, const DeviceInfo& device) {
  double rate = device.fp32_flops;
  const bool tensor_cores = device.tensor_flops_16 > 0;
  if (bench_case.type == DataType::f64)
    rate = device.fp64_flops;
  else if (tensor_cores && byte_size(bench_case.type) == 2)
    rate = device.tensor_flops_16;
  else if (tensor_cores && byte_size(bench_case.type) == 1)
    rate = 2 * device.tensor_flops_16;
  else if (tensor_cores && bench_case.tf32)
    rate = device.tensor_flops_16 / 2;
  const double compute = rate > 0 ? cost.flops / rate : 0;
  return std::max(compute, cost.bytes / device.dram_bytes_per_s);
}

}  // namespace fusor::command
