// Owns the rules and expansions of quantisation by blocks.
#include "core/ops/block_scale.h"

#include "core/ceil_div.h"
#include "core/convert.h"
#include "core/ops/expansion.h"
#include "core/ops/rules.h"

namespace fusor {

namespace {

Dims scale_dims(const Call& call, const Dims& x, const BlockScaleAttributes& op) {
  if (op.block_size < 1) fail("{}: block_size {} is below 1", call.label, op.block_size);
  Dims dims = x;
  dims[static_cast<int>(op.axis)] = ceil_div(dims[static_cast<int>(op.axis)], op.block_size);
  return dims;
}

// One axis as blocks and what lies in them; where it has no such form, tensors keep their dims.
class Blocks {
 public:
  Blocks(Expansion& e, const Dims& x, const BlockScaleAttributes& op)
      : e_(e), size_(op.block_size), axis_(static_cast<int>(op.axis)), dims_(x) {
    splits_ = x.rank() < kMaxRank && x[axis_] % size_ == 0;
  }

  int split(int x) const {
    if (!splits_) return x;
    Dims dims = dims_;
    dims[axis_] /= size_;
    dims.insert(axis_ + 1, size_);
    return e_.reshape(x, dims);
  }
  // Scales [.., blocks, ..] beside what split() gives.
  int beside(int scale) const {
    if (splits_) {
      Dims dims = e_.dims(scale);
      dims.insert(axis_ + 1, 1);
      return e_.reshape(scale, dims);
    }
    Dims along = Dims::filled(dims_.rank(), 1);
    along[axis_] = dims_[axis_];
    return e_.op(Gather{axis_}, {scale, e_.div(e_.index(along, axis_), e_.integer(size_))});
  }
  // One value for each block, in the form of scales that are split.
  int largest(int x) const {
    if (splits_) return e_.reduce(ReductionMode::amax, split(x), axis_ + 1);
    const int64_t whole = dims_[axis_] / size_ * size_;
    std::vector<int> parts;
    if (whole > 0) {
      Dims dims = dims_;
      dims[axis_] = whole / size_;
      parts.push_back(e_.reduce_to(ReductionMode::amax, e_.slice(x, axis_, 0, whole), dims));
    }
    if (whole < dims_[axis_])
      parts.push_back(e_.reduce(ReductionMode::amax, e_.slice(x, axis_, whole, dims_[axis_]), axis_));
    return e_.concatenate(parts, axis_);
  }
  // Scales in that form beside what split() gives.
  int as_read(int scale) const { return splits_ ? scale : beside(scale); }

 private:
  Expansion& e_;
  int64_t size_;
  int axis_;
  Dims dims_;
  bool splits_;
};

}  // namespace

std::vector<Inferred> BlockScaleQuantize::infer(const Call& call) const {
  refuse_scalars(call);
  const Tensor& x = call.input(0);
  expect_axis(call, axis, x);
  for (const DataType type : {y_type, scale_type})
    if (!is_real(type)) fail("{}: {} is not a type of real numbers", call.label, to_string(type));
  return {in_order_of(call, x.dims, y_type, x),
          in_order_of(call, scale_dims(call, x.dims, *this), scale_type, x)};
}

void BlockScaleQuantize::expand(Expansion& e) const {
  const int x = e.input("x");
  const Blocks blocks(e, e.dims(x), *this);
  const int largest = e.real(blocks.largest(x));
  const int scale = e.cast(e.div(largest, e.constant(largest_number(y_type))), scale_type);
  const int divisor = blocks.as_read(e.binary_select(scale, e.constant(1), e.cmp_neq(scale, e.constant(0))));
  const int y = e.div(blocks.split(x), divisor);
  e.reshaped_result("scale", scale);
  e.reshaped_result("y", y);
}

std::vector<Inferred> BlockScaleDequantize::infer(const Call& call) const {
  refuse_scalars(call);
  const Tensor& x = call.input(0);
  expect_axis(call, axis, x);
  expect_dims(call, "scale", scale_dims(call, x.dims, *this));
  return {in_order_of(call, x.dims, real_type(call), x)};
}

void BlockScaleDequantize::expand(Expansion& e) const {
  const int x = e.input("x");
  const Blocks blocks(e, e.dims(x), *this);
  e.reshaped_result("y", e.mul(blocks.split(x), blocks.beside(e.input("scale"))));
}

}  // namespace fusor
