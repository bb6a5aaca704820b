// Owns contractions by the enumeration of their terms (the oracle), and what both readings say of shapes and
// layouts.
#include "backend/reference/contraction.h"

#include <array>

#include "backend/reference/host_math.h"
#include "backend/reference/sweep.h"
#include "backend/reference/values.h"
#include "core/environment.h"
#include "core/parallel.h"

namespace fusor::reference {

namespace {

Dims spatial_of(const Dims& dims) {
  Dims spatial = dims;
  spatial.erase(0);
  spatial.erase(0);
  return spatial;
}

const Conv& conv_of(const Contraction& shape) { return std::get<Conv>(shape.attributes); }
bool is_conv(const Contraction& shape) { return std::holds_alternative<Conv>(shape.attributes); }

// Packed strides with `axis` the fastest and the others in row-major order.
Strides packed_with_fastest(const Dims& dims, int axis) {
  Strides strides = Dims::filled(dims.rank(), 1);
  int64_t step = dims[axis];
  for (int i = dims.rank() - 1; i >= 0; --i) {
    if (i == axis) continue;
    strides[i] = step;
    step *= dims[i];
  }
  return strides;
}

template <class S>
void sum_terms(const Contraction& shape, const S* a, const S* b, S* c) {
  using T = Arithmetic<S>;
  const Terms terms(shape, oracle_strides(shape, 0), oracle_strides(shape, 1));
  const int64_t count = element_count(shape.c);
  const double per_element = multiply_adds(shape) / static_cast<double>(count);
  const int64_t per_task = std::max<int64_t>(1, static_cast<int64_t>(kTaskElements / (per_element + 1)));
  parallel_for(ceil_div(count, per_task), environment::threads(), [&](int64_t task) {
    Dims at = Dims::filled(shape.c.rank(), 0);
    const int64_t end = std::min(count, (task + 1) * per_task);
    for (int64_t element = task * per_task; element < end; ++element) {
      unravel(element, shape.c, at.begin());
      T sum(0);
      terms.of(at, [&](const Run& run) {
        const S* from_a = a + run.a;
        const S* from_b = b + run.b;
        for (int64_t i = 0; i < run.count; ++i)
          sum = sum + T(from_a[i * run.step_a]) * T(from_b[i * run.step_b]);
      });
      c[element] = stored(sum);
    }
  });
}

}  // namespace

ConvGeometry::ConvGeometry(const Contraction& shape)
    : conv(conv_of(shape)),
      spatial(shape.a.rank() - 2),
      source(spatial_of(conv.pass == ConvPass::wgrad ? shape.b : shape.a)),
      rows(spatial_of(conv.pass == ConvPass::wgrad ? shape.a : shape.c)),
      batch(shape.a[0]) {
  const Dims& filter = conv.pass == ConvPass::wgrad ? shape.c : shape.b;
  const Dims& x = conv.pass == ConvPass::fprop ? shape.a : conv.pass == ConvPass::dgrad ? shape.c : shape.b;
  window = spatial_of(filter);
  filters = filter[0];
  channels = filter[1];
  groups = x[1] / channels;
  taps = element_count(window);
  row_pixels = element_count(rows);
  source_pixels = element_count(source);
}

double multiply_adds(const Contraction& shape) {
  const double count = static_cast<double>(element_count(shape.c));
  if (!is_conv(shape)) return count * static_cast<double>(shape.a.back());
  const ConvGeometry g(shape);
  const double taps = static_cast<double>(g.taps);
  switch (g.conv.pass) {
    case ConvPass::fprop:
      return count * taps * static_cast<double>(g.channels);
    // Every product of the forward pass, once: counted over dy.
    case ConvPass::dgrad:
      return static_cast<double>(element_count(shape.a)) * taps * static_cast<double>(g.channels);
    case ConvPass::wgrad:
      return count * static_cast<double>(g.batch * g.row_pixels);
  }
  return 0;
}

// The axis along which runs go lies fastest.
Strides oracle_strides(const Contraction& shape, int operand) {
  const Dims& dims = operand == 0 ? shape.a : shape.b;
  if (!is_conv(shape)) return packed_with_fastest(dims, dims.rank() - (operand == 0 ? 1 : 2));
  switch (conv_of(shape).pass) {
    case ConvPass::fprop:
      return packed_with_fastest(dims, 1);
    case ConvPass::dgrad:
      return packed_with_fastest(dims, operand == 0 ? 1 : 0);
    case ConvPass::wgrad:
      return packed_strides(dims);
  }
  return packed_strides(dims);
}

// Pixels are rows of channels; filters stay as they are and are packed by the convolution itself.
Strides device_strides(const Contraction& shape, int operand) {
  const Dims& dims = operand == 0 ? shape.a : shape.b;
  const bool pixels = is_conv(shape) && (operand == 0 || conv_of(shape).pass == ConvPass::wgrad);
  return packed_strides(dims, pixels ? Layout::nhwc : Layout::row_major);
}

Strides device_result_strides(const Contraction& shape) {
  const bool pixels = is_conv(shape) && conv_of(shape).pass != ConvPass::wgrad;
  return packed_strides(shape.c, pixels ? Layout::nhwc : Layout::row_major);
}

void oracle_contraction(const Contraction& shape, DataType held, const void* a, const void* b, void* c) {
  with_held(held, [&]<class S>(S) {
    sum_terms(shape, static_cast<const S*>(a), static_cast<const S*>(b), static_cast<S*>(c));
    if constexpr (std::is_same_v<S, int64_t>)
      if (shape.compute() == DataType::i32)
        for (int64_t i = 0; i < element_count(shape.c); ++i)
          static_cast<S*>(c)[i] = static_cast<int32_t>(static_cast<S*>(c)[i]);
  });
}

}  // namespace fusor::reference
