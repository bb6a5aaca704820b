// Owns the comparison of a run with the oracle: what is compared, the tolerance, and how it is told.
#include "backend/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "backend/reference/contraction.h"
#include "backend/reference/errors/error_bound.h"
#include "backend/reference/errors/magnitude.h"
#include "backend/reference/reference.h"
#include "backend/sampled_elements.h"
#include "core/convert.h"
#include "core/fail.h"
#include "core/ops/expansion.h"

namespace fusor {

namespace {

using reference::LinesOf;
using reference::Magnitude;
using reference::SizeOf;
using reference::SlicesOf;

// Outputs whose contractions cost more, or that have more elements, are checked on a sample: the oracle takes
// some seconds for each of these.
constexpr double kDenseFlops = 10e9;
constexpr int64_t kDenseElements = int64_t{1} << 24;
// A sample costs seconds, too, where each element is a sum over a whole batch of images: then it is smaller.
constexpr double kSampleFlops = 1e9;
constexpr int64_t kSampleSize = 4096, kSmallestSample = 256;

// The ops that a tensor waits for.
std::vector<bool> cone_of(const Graph& graph, int tensor) {
  std::vector<bool> cone(graph.ops.size(), false);
  std::vector<bool> wanted(graph.tensors.size(), false);
  wanted[static_cast<size_t>(tensor)] = true;
  for (size_t i = graph.ops.size(); i-- > 0;) {
    for (const int y : graph.ops[i].outputs) cone[i] = cone[i] || wanted[static_cast<size_t>(y)];
    if (!cone[i]) continue;
    for (const int x : graph.ops[i].inputs) wanted[static_cast<size_t>(x)] = true;
  }
  return cone;
}

double contraction_flops(const Graph& graph, const std::vector<bool>& cone) {
  double flops = 0;
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    const Op& op = graph.ops[i];
    if (!cone[i] || !is_contraction(op.attributes)) continue;
    const auto dims = [&](int tensor) { return graph.tensors[static_cast<size_t>(tensor)].dims; };
    flops += 2 * reference::multiply_adds(
                     {op.attributes, dims(op.inputs[0]), dims(op.inputs[1]), dims(op.outputs[0])});
  }
  return flops;
}

int64_t place_of(const Tensor& tensor, const Dims& at) {
  int64_t place = 0;
  for (int i = 0; i < at.rank(); ++i) place += at[i] * tensor.strides[i];
  return place;
}

Dims coordinates(int64_t element, const Dims& dims) {
  Dims at = Dims::filled(dims.rank(), 0);
  reference::unravel(element, dims, at.begin());
  return at;
}

// Calls visit(row-major index, place in memory) for every element.
template <class Visit>
void for_each_element(const Tensor& tensor, Visit&& visit) {
  const int last = tensor.dims.rank() - 1;
  Dims rows = tensor.dims;
  rows[last] = 1;
  for (int64_t row = 0; row < element_count(rows); ++row) {
    const int64_t place = place_of(tensor, coordinates(row, rows));
    for (int64_t i = 0; i < tensor.dims[last]; ++i)
      visit(row * tensor.dims[last] + i, place + i * tensor.strides[last]);
  }
}

// Numbers of a packed type between two of its numbers, one of them counted.
int64_t steps_between(DataType type, double a, double b) {
  if (!is_real(type)) return std::llabs(static_cast<int64_t>(a) - static_cast<int64_t>(b));
  const auto place = [&](double value) {
    uint8_t bits = 0;
    store_real(type, &bits, 0, value);
    const int sign = 1 << (info(type).bits - 1);
    return (bits & sign) != 0 ? sign - bits : int{bits};
  };
  return std::abs(place(a) - place(b));
}

// Compares one output with the oracle's, element by element.
class Comparison {
 public:
  Comparison(OutputCheck& check, const Tensor& tensor, const void* got)
      : check_(check), tensor_(tensor), got_(got) {}

  void compare(int64_t element, int64_t place, double want) {
    const double got = load_real(tensor_.type, got_, place);
    ++check_.checked;
    check_.nans += std::isnan(got) ? 1 : 0;
    check_.infs += std::isinf(got) ? 1 : 0;
    if (!std::isfinite(got) || !std::isfinite(want)) {
      const bool agree = got == want || (std::isnan(got) && std::isnan(want));
      if (!agree) count_wrong(element, got, want);
      return;
    }
    const double error = std::abs(got - want);
    if (check_.max_abs_at.empty() || error > check_.max_abs) {
      check_.max_abs = error;
      check_.max_abs_at = coordinates(element, tensor_.dims);
      if (check_.wrong == 0) std::tie(check_.got, check_.want) = std::pair(got, want);
    }
    squares_ += error * error;
    ++finite_;
    const double ulp = error / unit_in_last_place(tensor_.type, want);
    if (check_.max_ulp_at.empty() || ulp > check_.max_ulp) {
      check_.max_ulp = ulp;
      check_.max_ulp_at = coordinates(element, tensor_.dims);
    }
    const double relative = want == 0 ? 0 : error / std::abs(want);
    if (check_.max_rel_at.empty() || relative > check_.max_rel) {
      check_.max_rel = relative;
      check_.max_rel_at = coordinates(element, tensor_.dims);
    }
    const bool is_far = is_packed(tensor_.type) && steps_between(tensor_.type, got, want) > 1;
    const double allowed = check_.tolerance_abs + check_.tolerance_rel * std::abs(want);
    if (error > 0) check_.of_tolerance = std::max(check_.of_tolerance, error / allowed);
    if (is_far || error > allowed) count_wrong(element, got, want);
  }

  /// Once all were compared.
  void finish() {
    if (finite_ > 0) check_.rms = std::sqrt(squares_ / static_cast<double>(finite_));
  }

 private:
  void count_wrong(int64_t element, double got, double want) {
    if (check_.wrong++ > 0) return;
    check_.wrong_at = coordinates(element, tensor_.dims);
    check_.got = got;
    check_.want = want;
  }
  OutputCheck& check_;
  const Tensor& tensor_;
  const void* got_;
  double squares_ = 0;
  int64_t finite_ = 0;
};

// Evaluates the outputs that are cheap enough whole, and all that lies behind them. Virtual tensors are
// row-major here, so that the oracle can walk every reshape of them.
class DenseOracle {
 public:
  DenseOracle(const Graph& graph, std::span<void* const> tensors, const std::vector<bool>& ops)
      : graph_(graph),
        held_(tensors.begin(), tensors.end()),
        data_(tensors.begin(), tensors.end()),
        used_(tensors.size(), false) {
    for (Tensor& tensor : graph_.tensors)
      if (tensor.is_virtual()) tensor.strides = packed_strides(tensor.dims);
    Graph part = graph_;
    part.ops.clear();
    for (size_t i = 0; i < graph.ops.size(); ++i) {
      if (!ops[i]) continue;
      part.ops.push_back(graph.ops[i]);
      for (const int x : graph.ops[i].inputs) used_[static_cast<size_t>(x)] = true;
      for (const int y : graph.ops[i].outputs) own(y);
      if (leaves_gaps(graph.ops[i].attributes)) take_over(graph.ops[i].outputs[0]);
    }
    evaluate_graph(part, data_);
    for (const Op& op : part.ops)
      if (leaves_gaps(op.attributes)) evaluate_over_others(part, op);
  }

  double value(int tensor, int64_t place) const {
    return load_real(graph_.tensors[static_cast<size_t>(tensor)].stored_type(),
                     data_[static_cast<size_t>(tensor)], place);
  }

  /// Whether an op writes the element.
  bool is_written(int tensor, int64_t place) const {
    const auto found = over_others_.find(tensor);
    if (found == over_others_.end()) return true;
    const auto* const before = static_cast<const std::byte*>(held_[static_cast<size_t>(tensor)]);
    const auto* const after = static_cast<const std::byte*>(data_[static_cast<size_t>(tensor)]);
    const int bits = info(graph_.tensors[static_cast<size_t>(tensor)].type).bits;
    for (int64_t bit = place * bits; bit < (place + 1) * bits; ++bit) {
      const auto at = static_cast<size_t>(bit / 8);
      const std::byte mask{static_cast<unsigned char>(1u << bit % 8)};
      if ((before[at] & mask) != (after[at] & mask) || (found->second[at] & mask) == (before[at] & mask))
        return true;
    }
    return false;
  }

  /// The magnitude of a tensor that the evaluation read or wrote; zeros for others.
  Magnitude magnitude(int tensor) const {
    const Tensor& described = graph_.tensors[static_cast<size_t>(tensor)];
    SizeOf size;
    if (described.memory == Memory::constant)
      size.take_in(std::visit([](auto number) { return static_cast<double>(number); }, described.value));
    if (described.memory == Memory::constant || !used_[static_cast<size_t>(tensor)]) return size.magnitude();
    LinesOf lines(described.dims);
    SlicesOf slices(described.dims);
    for_each_element(described, [&](int64_t element, int64_t place) {
      if (!is_written(tensor, place)) return;
      const double taken = value(tensor, place);
      size.take_in(taken);
      lines.take_in(element, taken);
      slices.take_in(element, taken);
    });
    Magnitude magnitude = size.magnitude();
    lines.finish(magnitude);
    slices.finish(magnitude);
    return magnitude;
  }

 private:
  void own(int tensor) {
    const size_t bytes = static_cast<size_t>(graph_.tensors[static_cast<size_t>(tensor)].bytes());
    owned_.push_back(std::make_unique<std::byte[]>(bytes));
    data_[static_cast<size_t>(tensor)] = owned_.back().get();
    used_[static_cast<size_t>(tensor)] = true;
  }
  // Elements that no op writes are those that the memory holds.
  void take_over(int tensor) {
    const size_t bytes = static_cast<size_t>(graph_.tensors[static_cast<size_t>(tensor)].bytes());
    std::memcpy(data_[static_cast<size_t>(tensor)], held_[static_cast<size_t>(tensor)], bytes);
  }
  // Evaluates an op that leaves gaps once more, over the inverse of what the memory holds: a bit that follows
  // is one that the op does not write.
  void evaluate_over_others(const Graph& part, const Op& op) {
    const int y = op.outputs[0];
    const auto* const held = static_cast<const std::byte*>(held_[static_cast<size_t>(y)]);
    std::vector<std::byte>& others = over_others_[y];
    others.assign(held, held + part.tensors[static_cast<size_t>(y)].bytes());
    for (std::byte& byte : others) byte = ~byte;
    Graph alone = part;
    alone.ops = {op};
    std::vector<void*> data = data_;
    data[static_cast<size_t>(y)] = others.data();
    evaluate_graph(alone, data);
  }
  Graph graph_;
  std::vector<void*> held_;  // as they were given
  std::vector<void*> data_;
  std::vector<bool> used_;
  std::vector<std::unique_ptr<std::byte[]>> owned_;
  std::unordered_map<int, std::vector<std::byte>> over_others_;  // of outputs with gaps
};

OutputCheck new_check(const Tensor& tensor) {
  OutputCheck check;
  check.tensor = tensor.name;
  check.elements = element_count(tensor.dims);
  return check;
}

void set_tolerance(OutputCheck& check, const Tensor& tensor, const reference::Bound& error) {
  check.tolerance_rel = is_packed(tensor.type) ? 0 : epsilon(tensor.type) + error.relative;
  check.tolerance_abs = error.absolute;
}

// The axis whose elements are made of the same operands.
int line_axis(const Graph& graph, const Tensor& tensor, const std::vector<bool>& cone) {
  bool convolves = false;
  for (size_t i = 0; i < cone.size(); ++i)
    convolves = convolves || (cone[i] && std::holds_alternative<Conv>(graph.ops[i].attributes));
  const int last = tensor.dims.rank() - 1;
  return convolves ? std::min(1, last) : last;
}

OutputCheck check_sample(const Graph& graph, std::span<void* const> tensors, int output,
                         const std::vector<bool>& cone, uint64_t seed, const Notes& notes) {
  const Tensor& tensor = graph.tensors[static_cast<size_t>(output)];
  OutputCheck check = new_check(tensor);
  check.seed = seed;
  const double flops_per_element = contraction_flops(graph, cone) / static_cast<double>(check.elements);
  const auto affordable = static_cast<int64_t>(kSampleFlops / std::max(flops_per_element, 1.0));
  const int64_t size_of_sample = std::clamp(affordable, kSmallestSample, kSampleSize);
  const std::vector<int64_t> elements =
      sampled_elements(tensor.dims, line_axis(graph, tensor, cone), size_of_sample, seed);
  std::vector<bool> written;
  const std::vector<double> wanted = evaluate_sample(graph, tensors, output, elements, &written);
  SizeOf size;
  for (size_t i = 0; i < wanted.size(); ++i)
    if (written[i]) size.take_in(wanted[i]);
  set_tolerance(check, tensor, reference::error_bound(graph, output, cone, size.magnitude(), notes));
  Comparison comparison(check, tensor, tensors[static_cast<size_t>(output)]);
  for (size_t i = 0; i < elements.size(); ++i) {
    if (written[i])
      comparison.compare(elements[i], place_of(tensor, coordinates(elements[i], tensor.dims)), wanted[i]);
    else
      ++check.unwritten;
  }
  comparison.finish();
  return check;
}

// A part of a graph may be asked about, in which tensors have no writer; but it has those that its ops name.
void expect_indices(const Graph& graph) {
  for (const Op& op : graph.ops)
    for (const std::vector<int>* const list : {&op.inputs, &op.outputs})
      for (const int tensor : *list)
        if (tensor < -1 || tensor >= static_cast<int>(graph.tensors.size()))
          fail("op '{}' names tensor number {}; the graph has {}", op.name, tensor, graph.tensors.size());
}

}  // namespace

bool VerifyReport::passed() const {
  return std::ranges::all_of(outputs, [](const OutputCheck& check) { return check.wrong == 0; });
}

VerifyReport verify(const Graph& asked, std::span<void* const> buffers, uint64_t seed, const Notes& notes) {
  expect_indices(asked);
  const Graph graph = expand_composites(asked);
  std::vector<void*> tensors(buffers.begin(), buffers.end());
  tensors.resize(graph.tensors.size(), nullptr);
  std::vector<int> outputs;
  std::vector<std::vector<bool>> cones;
  std::vector<bool> dense;
  std::vector<bool> dense_ops(graph.ops.size(), false);
  for (size_t i = 0; i < graph.tensors.size(); ++i) {
    const int tensor = static_cast<int>(i);
    if (graph.tensors[i].is_virtual() || graph.producer(tensor) < 0) continue;
    outputs.push_back(tensor);
    cones.push_back(cone_of(graph, tensor));
    dense.push_back(contraction_flops(graph, cones.back()) <= kDenseFlops &&
                    element_count(graph.tensors[i].dims) <= kDenseElements);
    if (!dense.back()) continue;
    for (size_t op = 0; op < dense_ops.size(); ++op) dense_ops[op] = dense_ops[op] || cones.back()[op];
  }
  const DenseOracle oracle(graph, tensors, dense_ops);
  std::vector<Magnitude> magnitudes;
  for (size_t i = 0; i < graph.tensors.size(); ++i)
    magnitudes.push_back(oracle.magnitude(static_cast<int>(i)));

  VerifyReport report;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!dense[i]) {
      report.outputs.push_back(check_sample(graph, tensors, outputs[i], cones[i], seed, notes));
      continue;
    }
    const Tensor& tensor = graph.tensors[static_cast<size_t>(outputs[i])];
    OutputCheck check = new_check(tensor);
    set_tolerance(check, tensor, reference::error_bound(graph, outputs[i], cones[i], magnitudes, notes));
    Comparison comparison(check, tensor, tensors[static_cast<size_t>(outputs[i])]);
    for_each_element(tensor, [&](int64_t element, int64_t place) {
      if (oracle.is_written(outputs[i], place))
        comparison.compare(element, place, oracle.value(outputs[i], place));
      else
        ++check.unwritten;
    });
    comparison.finish();
    report.outputs.push_back(std::move(check));
  }
  return report;
}

std::string to_string(const VerifyReport& report) {
  std::string text;
  for (const OutputCheck& check : report.outputs) {
    text += fmt::format("{}: {} of {} elements checked", check.tensor, check.checked, check.elements);
    if (check.unwritten > 0) text += fmt::format(", {} that no op writes", check.unwritten);
    if (is_sampled(check)) text += fmt::format(" (seed {})", check.seed);
    if (!check.max_abs_at.empty())
      text += fmt::format(", max abs {:.3g} at {}, max rel {:.3g} at {}, max {:.3g} ulp at {}, rms {:.3g}",
                          check.max_abs, to_string(check.max_abs_at), check.max_rel,
                          to_string(check.max_rel_at), check.max_ulp, to_string(check.max_ulp_at), check.rms);
    if (check.nans + check.infs > 0) text += fmt::format(", {} NaN, {} Inf", check.nans, check.infs);
    text +=
        std::isfinite(check.tolerance_abs)
            ? fmt::format(", tolerance {:.3g} + {:.3g} * |want|: ", check.tolerance_abs, check.tolerance_rel)
            : std::string(", no tolerance: bounds grew beyond all numbers on the way: ");
    if (check.wrong == 0)
      text += std::isfinite(check.tolerance_abs) ? "right\n" : "not judged\n";
    else
      text += fmt::format("{} WRONG, first at {}: got {:.9g}, want {:.9g}\n", check.wrong,
                          to_string(check.wrong_at), check.got, check.want);
  }
  return text;
}

void fill_random(const Tensor& tensor, void* buffer, uint64_t seed) {
  const int64_t count = tensor.is_scalar() ? 1 : span_elements(tensor.dims, tensor.strides);
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t bits = random_number(seed, static_cast<uint64_t>(i));
    switch (info(tensor.type).kind) {
      case NumberKind::real: {
        const double unit = static_cast<double>(bits >> 11) * 0x1p-53;
        store_real(tensor.type, buffer, i, 2 * unit - 1);
        break;
      }
      case NumberKind::integer: {
        const int64_t lowest = tensor.type == DataType::u8 ? 0 : -4;
        store_int(tensor.type, buffer, i, lowest + static_cast<int64_t>(bits % 9));
        break;
      }
      case NumberKind::boolean:
        store_int(tensor.type, buffer, i, static_cast<int64_t>(bits >> 63));
        break;
    }
  }
}

}  // namespace fusor
