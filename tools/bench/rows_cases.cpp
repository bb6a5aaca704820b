// Owns what each op of the suite's rows means in terms of GraphBuilder.
#include "tools/bench/rows_cases.h"

#include "core/fail.h"
#include "frontend/graph_builder.h"

namespace fusor::command {

namespace {

constexpr double kEpsilon = 1e-5;
constexpr double kLargestE4m3 = 448;

class RowsGraph {
 public:
  explicit RowsGraph(const BenchCase& bench_case)
      : case_(bench_case), g_(bench_case.id), result_(bench_case.result.value_or(bench_case.type)) {
    shape();
  }

  Graph build() {
    switch (case_.op) {
      case BenchCase::Op::softmax:
        softmax();
        break;
      case BenchCase::Op::softmax_bwd:
        softmax_bwd();
        break;
      case BenchCase::Op::layer_norm:
      case BenchCase::Op::group_norm:
        layer_norm();
        break;
      case BenchCase::Op::layer_norm_bwd:
        layer_norm_bwd();
        break;
      case BenchCase::Op::rms_norm:
        rms_norm();
        break;
      case BenchCase::Op::rms_norm_bwd:
        rms_norm_bwd();
        break;
      case BenchCase::Op::residual_norm_quantize:
        residual_norm_quantize();
        break;
      case BenchCase::Op::cross_entropy:
        cross_entropy();
        break;
      case BenchCase::Op::batch_norm:
        batch_norm();
        break;
      case BenchCase::Op::batch_norm_bwd:
        batch_norm_bwd();
        break;
      case BenchCase::Op::max_pool:
        max_pool();
        break;
      case BenchCase::Op::max_pool_bwd:
        max_pool_bwd();
        break;
      default:
        fail("case '{}': it has no rows", case_.id);
    }
    return g_.finish();
  }

 private:
  // Group norm works on images x groups x channels of a group x height x width.
  void shape() {
    dims_ = case_.x;
    axes_ = case_.axes;
    strides_ = packed_strides(dims_);
    if (is_batch_norm()) {
      axes_ = {0, 2, 3};
      strides_ = image_strides(dims_);
    }
    if (case_.op != BenchCase::Op::group_norm) return;
    const int64_t channels = case_.x[1], inner = channels / case_.groups;
    const int64_t h = case_.x[2], w = case_.x[3];
    dims_ = {case_.x[0], case_.groups, inner, h, w};
    axes_ = {2, 3, 4};
    strides_ = case_.layout == Layout::nhwc ? Strides{h * w * channels, inner, 1, w * channels, channels}
                                            : packed_strides(dims_);
  }

  Tensor image(const char* name) {
    return g_.input(name, dims_, case_.type, TensorOptions{.strides = strides_});
  }
  bool is_batch_norm() const {
    return case_.op == BenchCase::Op::batch_norm || case_.op == BenchCase::Op::batch_norm_bwd;
  }
  // One value a row; one an element of a row, of group norms one a channel.
  Tensor of_rows(const char* name) {
    Dims dims = dims_;
    for (const int64_t axis : axes_) dims[static_cast<int>(axis)] = 1;
    return g_.input(name, dims, DataType::f32);
  }
  Tensor of_columns(const char* name) {
    Dims dims = Dims::filled(dims_.rank(), 1);
    for (const int64_t axis : axes_) dims[static_cast<int>(axis)] = dims_[static_cast<int>(axis)];
    if (case_.op == BenchCase::Op::group_norm) dims = {1, dims_[1], dims_[2], 1, 1};
    return g_.input(name, dims, case_.type);
  }
  Dims other_axes() const {
    Dims others;
    for (int axis = 0; axis < dims_.rank(); ++axis) {
      bool in_row = false;
      for (const int64_t own : axes_) in_row = in_row || own == axis;
      if (!in_row) others.push_back(axis);
    }
    return others;
  }

  Tensor total(const Tensor& x, ReductionMode mode) { return g_.reduce(x, mode, axes_); }
  Tensor inverse_root(const Tensor& square) {
    return g_.rsqrt(g_.add(square, g_.constant(kEpsilon, DataType::f32)));
  }
  void output(const Tensor& y, const char* name) {
    g_.output(y, {.name = name, .type = result_, .strides = strides_});
  }
  void output_fp32(const Tensor& y, const char* name) { g_.output(y, {.name = name, .type = DataType::f32}); }

  void softmax() {
    const Tensor x = image("x");
    const Tensor e = g_.exp(g_.sub(x, total(x, ReductionMode::max)));
    output(g_.div(e, total(e, ReductionMode::add)), "y");
  }
  void softmax_bwd() {
    const Tensor y = image("y"), dy = image("dy");
    output(g_.mul(y, g_.sub(dy, total(g_.mul(y, dy), ReductionMode::add))), "dx");
  }
  void layer_norm() {
    const Tensor x = image("x"), gamma = of_columns("gamma"), beta = of_columns("beta");
    const Tensor mean = total(x, ReductionMode::avg);
    const Tensor centered = g_.sub(x, mean);
    const Tensor scale = inverse_root(total(g_.mul(centered, centered), ReductionMode::avg));
    const Tensor y = g_.add(g_.mul(g_.mul(centered, scale), gamma), beta);
    if (case_.op == BenchCase::Op::group_norm) return output(g_.swish(y), "y");
    output(y, "y");
    output_fp32(mean, "mean");
    output_fp32(scale, "inv_std");
  }
  void layer_norm_bwd() {
    const Tensor x = image("x"), dy = image("dy"), gamma = of_columns("gamma");
    const Tensor mean = of_rows("mean"), scale = of_rows("inv_std");
    const Tensor normal = g_.mul(g_.sub(x, mean), scale), wide = g_.mul(dy, gamma);
    const Tensor along = total(g_.mul(wide, normal), ReductionMode::avg);
    const Tensor centered = g_.sub(wide, total(wide, ReductionMode::avg));
    output(g_.mul(g_.sub(centered, g_.mul(normal, along)), scale), "dx");
    output_fp32(g_.reduce(g_.mul(dy, normal), ReductionMode::add, other_axes()), "dgamma");
    output_fp32(g_.reduce(dy, ReductionMode::add, other_axes()), "dbeta");
  }
  void rms_norm() {
    const Tensor x = image("x"), gamma = of_columns("gamma");
    const Tensor scale = inverse_root(total(g_.mul(x, x), ReductionMode::avg));
    output(g_.mul(g_.mul(x, scale), gamma), "y");
  }
  void rms_norm_bwd() {
    const Tensor x = image("x"), dy = image("dy"), gamma = of_columns("gamma"), scale = of_rows("inv_rms");
    const Tensor normal = g_.mul(x, scale), wide = g_.mul(dy, gamma);
    const Tensor along = total(g_.mul(wide, normal), ReductionMode::avg);
    output(g_.mul(g_.sub(wide, g_.mul(normal, along)), scale), "dx");
    output_fp32(g_.reduce(g_.mul(dy, normal), ReductionMode::add, other_axes()), "dgamma");
  }
  void residual_norm_quantize() {
    const Tensor h = g_.add(image("x"), image("residual"));
    const Tensor scale = inverse_root(total(g_.mul(h, h), ReductionMode::avg));
    const Tensor y = g_.mul(g_.mul(h, scale), of_columns("gamma"));
    const Tensor largest = total(y, ReductionMode::amax);
    const Tensor step = g_.div(largest, g_.constant(kLargestE4m3, DataType::f32));
    output(h, "h");
    g_.output(g_.div(y, step), {.name = "q", .type = DataType::f8_e4m3});
    output_fp32(step, "scale");
  }
  void cross_entropy() {
    const Tensor x = image("x");
    const Tensor label = g_.input("label", {dims_[0], 1}, DataType::i64);
    const Tensor largest = total(x, ReductionMode::max);
    const Tensor sum = total(g_.exp(g_.sub(x, largest)), ReductionMode::add);
    const Tensor is_label = g_.cmp_eq(g_.gen_index(x, 1), label);
    const Tensor picked =
        total(g_.binary_select(x, g_.constant(0, DataType::f32), is_label), ReductionMode::add);
    output_fp32(g_.sub(g_.add(g_.log(sum), largest), picked), "loss");
  }

  // In training: all that a framework's call computes.
  void batch_norm() {
    NormOptions options{.norm = NormMode::batch_norm, .epsilon = kEpsilon};
    options.scale = of_rows("gamma");
    options.bias = of_rows("beta");
    options.prev_running_mean = of_rows("running_mean");
    options.prev_running_var = of_rows("running_var");
    const NormResults norm = g_.norm_fwd(image("x"), options);
    output(norm.y, "y");
    output_fp32(norm.mean, "mean");
    output_fp32(norm.inv_std, "inv_std");
    output_fp32(norm.next_running_mean, "next_running_mean");
    output_fp32(norm.next_running_var, "next_running_var");
  }
  // Through the ReLU behind the norm, whose sign is computed again.
  void batch_norm_bwd() {
    const Tensor x = image("x"), gamma = of_rows("gamma"), beta = of_rows("beta");
    const Tensor mean = of_rows("mean"), scale = of_rows("inv_std");
    const Tensor normal = g_.mul(g_.sub(x, mean), scale);
    const Tensor dy = g_.relu_bwd(image("dy"), g_.add(g_.mul(normal, gamma), beta));
    const Tensor along = total(g_.mul(dy, normal), ReductionMode::avg);
    const Tensor centered = g_.sub(dy, total(dy, ReductionMode::avg));
    output(g_.mul(g_.sub(centered, g_.mul(normal, along)), g_.mul(scale, gamma)), "dx");
    output_fp32(total(g_.mul(dy, normal), ReductionMode::add), "dgamma");
    output_fp32(total(dy, ReductionMode::add), "dbeta");
  }

  // ---- Images ----

  Strides image_strides(const Dims& dims) const {
    if (case_.layout == Layout::nchw) return packed_strides(dims);
    return {dims[1] * dims[2] * dims[3], 1, dims[3] * dims[1], dims[1]};
  }
  Tensor image(const char* name, const Dims& dims, DataType type) {
    return g_.input(name, dims, type, TensorOptions{.strides = image_strides(dims)});
  }
  void image_output(const Tensor& y, const char* name, const Dims& dims, DataType type) {
    g_.output(y, {.name = name, .type = type, .strides = image_strides(dims)});
  }
  ResampleOptions windows() const {
    return {.mode = ResampleMode::maxpool,
            .window = case_.w,
            .stride = case_.stride,
            .pre_padding = case_.pre_padding,
            .post_padding = case_.post_padding};
  }
  Dims pooled() const {
    Dims dims = case_.x;
    for (int i = 0; i < case_.w.rank(); ++i)
      dims[i + 2] = (dims[i + 2] + 2 * case_.pre_padding[i] - case_.w[i]) / case_.stride[i] + 1;
    return dims;
  }
  void max_pool() {
    const ResampleResults all = g_.resample_fwd(image("x", case_.x, case_.type), windows());
    image_output(all.y, "y", pooled(), result_);
    if (case_.index) image_output(all.index, "index", pooled(), DataType::i8);
  }
  void max_pool_bwd() {
    const Tensor dy = image("dy", pooled(), case_.type);
    const Tensor x = case_.index ? Tensor{} : image("x", case_.x, case_.type);
    const Tensor index = case_.index ? image("index", pooled(), DataType::i8) : Tensor{};
    image_output(g_.resample_bwd(dy, case_.x, windows(), x, index), "dx", case_.x, result_);
  }

  const BenchCase& case_;
  GraphBuilder g_;
  DataType result_;
  Dims dims_, axes_;
  Strides strides_;
};

}  // namespace

Graph rows_graph_of(const BenchCase& bench_case) { return RowsGraph(bench_case).build(); }

}  // namespace fusor::command
