// Owns what a contraction is on the host: its shapes, and THE enumeration of the terms of one element of its
// result.
#pragma once

#include <algorithm>
#include <optional>

#include "core/attributes.h"
#include "core/data_type.h"
#include "core/dims.h"

namespace fusor::reference {

/// The shapes of a matmul or convolution: c = sum of products of elements of a and b. `attributes` is one of
/// these two.
struct Contraction {
  Attributes attributes;
  Dims a, b, c;
  DataType compute() const { return *compute_type(attributes); }
};

/// Terms a[first_a + i * step_a] * b[first_b + i * step_b] for i < count.
struct Run {
  int64_t a = 0, step_a = 0;
  int64_t b = 0, step_b = 0;
  int64_t count = 0;
};

/// A convolution seen from one pass. "Rows" are the pixels at which windows are gathered - of y (fprop,
/// wgrad) or of dx (dgrad) - and "source" is the tensor they are gathered from: x, or dy for dgrad.
struct ConvGeometry {
  explicit ConvGeometry(const Contraction& contraction);

  Conv conv;
  int spatial;                ///< spatial dims
  Dims source, rows, window;  ///< spatial extents
  int64_t batch;
  int64_t groups;
  int64_t filters, channels;  ///< K and C / groups: the first two dims of the filter tensor
  int64_t taps, row_pixels,
      source_pixels;  ///< element counts of window, rows (one image), source (one image)

  /// Source coordinate that tap `tap` reads for row coordinate `at`, along one spatial dim, or -1: padding,
  /// or a gap that the stride leaves.
  int64_t source_at(int dim, int64_t at, int64_t tap) const {
    const int64_t offset = tap * conv.dilation[dim] - conv.pre_padding[dim];
    const int64_t step = conv.stride[dim];
    if (conv.pass != ConvPass::dgrad) {
      const int64_t found = at * step + offset;
      return found >= 0 && found < source[dim] ? found : -1;
    }
    const int64_t spread = at - offset;
    return spread >= 0 && spread % step == 0 && spread / step < source[dim] ? spread / step : -1;
  }
  /// Where the filter tensor keeps a tap. Its own inverse.
  int64_t stored_tap(int dim, int64_t tap) const {
    return conv.mode == ConvMode::convolution ? window[dim] - 1 - tap : tap;
  }
};

/// Digits of a row-major index.
inline void unravel(int64_t index, const Dims& dims, int64_t* at) {
  for (int i = dims.rank() - 1; i >= 0; --i) {
    at[i] = index % dims[i];
    index /= dims[i];
  }
}

namespace detail {

template <class Visit>
void matmul_runs(const Contraction& shape, const Strides& a, const Strides& b, const Dims& at,
                 Visit&& visit) {
  const int rank = shape.c.rank();
  const auto batch_offset = [&](const Dims& dims, const Strides& strides) {
    int64_t offset = 0;
    for (int i = 0; i < dims.rank() - 2; ++i)
      if (dims[i] != 1) offset += at[i + rank - dims.rank()] * strides[i];
    return offset;
  };
  const int m = shape.a.rank() - 2, k = shape.b.rank() - 2;
  visit(Run{batch_offset(shape.a, a) + at[rank - 2] * a[m], a[m + 1],
            batch_offset(shape.b, b) + at[rank - 1] * b[k + 1], b[k], shape.b[k]});
}

// One run of channels for every tap that falls on the source.
template <class Visit>
void gather_runs(const ConvGeometry& g, const Strides& a, const Strides& b, const Dims& at, Visit&& visit) {
  const bool fprop = g.conv.pass == ConvPass::fprop;
  const int64_t per_group = g.filters / g.groups;
  const int64_t group = fprop ? at[1] / per_group : at[1] / g.channels;
  Run run;
  run.count = fprop ? g.channels : per_group;
  run.step_a = a[1];
  run.step_b = fprop ? b[1] : b[0];
  const int64_t first_a = at[0] * a[0] + group * run.count * a[1];
  const int64_t first_b = fprop ? at[1] * b[0] : group * per_group * b[0] + at[1] % g.channels * b[1];
  int64_t tap[3];
  for (int64_t t = 0; t < g.taps; ++t) {
    unravel(t, g.window, tap);
    run.a = first_a;
    run.b = first_b;
    bool inside = true;
    for (int i = 0; i < g.spatial && inside; ++i) {
      const int64_t source = g.source_at(i, at[2 + i], tap[i]);
      inside = source >= 0;
      run.a += source * a[2 + i];
      run.b += g.stored_tap(i, tap[i]) * b[2 + i];
    }
    if (inside) visit(run);
  }
}

// One run along the last spatial dim for every other pixel of dy whose window's tap falls on x.
template <class Visit>
void wgrad_runs(const ConvGeometry& g, const Strides& a, const Strides& b, const Dims& at, Visit&& visit) {
  const int last = g.spatial - 1;
  const int64_t channel = at[0] / (g.filters / g.groups) * g.channels + at[1];
  const int64_t step = g.conv.stride[last];
  const int64_t offset = g.stored_tap(last, at[2 + last]) * g.conv.dilation[last] - g.conv.pre_padding[last];
  const int64_t begin = offset < 0 ? (-offset + step - 1) / step : 0;
  const int64_t reach = g.source[last] - 1 - offset;  // of the last row coordinate, times the stride
  const int64_t end = reach < 0 ? 0 : std::min(g.rows[last], reach / step + 1);
  if (begin >= end) return;
  const int64_t outer = g.row_pixels / g.rows[last];
  int64_t row[3];
  for (int64_t n = 0; n < g.batch; ++n)
    for (int64_t p = 0; p < outer; ++p) {
      unravel(p * g.rows[last], g.rows, row);
      Run run{n * a[0] + at[0] * a[1] + begin * a[2 + last], a[2 + last],
              n * b[0] + channel * b[1] + (begin * step + offset) * b[2 + last], step * b[2 + last],
              end - begin};
      bool inside = true;
      for (int i = 0; i < last && inside; ++i) {
        const int64_t source = g.source_at(i, row[i], g.stored_tap(i, at[2 + i]));
        inside = source >= 0;
        run.a += row[i] * a[2 + i];
        run.b += source * b[2 + i];
      }
      if (inside) visit(run);
    }
}

}  // namespace detail

/// Enumerates the terms of single elements of a contraction's result; a and b lie in memory by the given
/// strides.
class Terms {
 public:
  Terms(const Contraction& shape, const Strides& a, const Strides& b) : shape_(shape), a_(a), b_(b) {
    if (std::holds_alternative<Conv>(shape.attributes)) geometry_.emplace(shape);
  }
  /// Calls visit(Run) until all terms of the element at `at` were named.
  template <class Visit>
  void of(const Dims& at, Visit&& visit) const {
    if (!geometry_) return detail::matmul_runs(shape_, a_, b_, at, visit);
    if (geometry_->conv.pass == ConvPass::wgrad) return detail::wgrad_runs(*geometry_, a_, b_, at, visit);
    detail::gather_runs(*geometry_, a_, b_, at, visit);
  }

 private:
  const Contraction& shape_;
  Strides a_, b_;
  std::optional<ConvGeometry> geometry_;
};

/// Multiply-adds of the whole contraction, padding counted as if it were there.
double multiply_adds(const Contraction& shape);

/// Strides in which the dense forms below want operand 0 or 1.
Strides oracle_strides(const Contraction& shape, int operand);
Strides device_strides(const Contraction& shape, int operand);
/// Strides in which device_contraction leaves its result (oracle_contraction: row-major).
Strides device_result_strides(const Contraction& shape);

/// c = all terms of every element, summed one after the other; `held` (fp64 or int64) is the type of all
/// three.
void oracle_contraction(const Contraction& shape, DataType held, const void* a, const void* b, void* c);
/// The same by blocked matrix products in the compute type on all cores; integers wrap.
void device_contraction(const Contraction& shape, const void* a, const void* b, void* c);

}  // namespace fusor::reference
