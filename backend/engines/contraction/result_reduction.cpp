// Owns the axes of reductions and the launch behind PartialResults.
#include "backend/engines/contraction/result_reduction.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "backend/engines/contraction/epilogue.h"
#include "codegen/text/expr_emitter.h"
#include "codegen/text/parameters.h"
#include "core/ceil_div.h"

namespace fusor {

namespace {

// Whether some axes of the domain are all reduced or all left; extents of 1 are either.
enum class Fate : uint8_t { reduced, left, either, mixed };

Fate fate_of(const Dims& domain, uint32_t reduced, const Dims& axes) {
  Fate fate = Fate::either;
  for (const int64_t axis : axes) {
    if (domain[static_cast<int>(axis)] == 1) continue;
    const Fate one = (reduced >> axis & 1) != 0 ? Fate::reduced : Fate::left;
    fate = fate == Fate::either || fate == one ? one : Fate::mixed;
  }
  return fate;
}

Dims numbers(int first, int last) {
  Dims axes;
  for (int i = first; i < last; ++i) axes.push_back(i);
  return axes;
}

Dims joined(Dims axes, const Dims& more) {
  for (const int64_t axis : more) axes.push_back(axis);
  return axes;
}

// The domain's axes under the batch, the rows and the columns of the product. A convolution's groups are part
// of its channels.
struct ResultAxes {
  Dims batch, m, n;

  ResultAxes(const Contraction& view, int rank) {
    const int leading = view.batch.rank();
    if (!view.is_convolution()) {
      batch = numbers(0, leading), m = {leading}, n = {leading + 1};
    } else if (view.op == ContractionOp::wgrad) {
      m = {0}, n = numbers(1, rank);
    } else {
      m = joined({0}, numbers(2, rank)), n = {1};
    }
  }
};

const Store* first_total(const Expr& y) {
  const auto found =
      std::ranges::find_if(y.stores, [&](const Store& store) { return reduction_of(y, store) != nullptr; });
  return found == y.stores.end() ? nullptr : &*found;
}

std::optional<ResultReduction> reduction_over(const Contraction& view, const Dims& domain, uint32_t reduced) {
  const ResultAxes axes(view, domain.rank());
  const Fate batch = fate_of(domain, reduced, axes.batch), m = fate_of(domain, reduced, axes.m),
             n = fate_of(domain, reduced, axes.n);
  if (batch == Fate::mixed || m == Fate::mixed || n == Fate::mixed) return std::nullopt;
  ResultReduction reduction;
  reduction.leaves_m = m == Fate::left;
  reduction.leaves_n = n == Fate::left;
  reduction.leaves_entries = batch == Fate::left;
  const bool one = !reduction.leaves_m && !reduction.leaves_n;
  if ((reduction.leaves_m && reduction.leaves_n) || (one && reduction.leaves_entries)) return std::nullopt;
  // A column of a wgrad is a channel and a tap, which the tensor orders otherwise.
  if (view.op == ContractionOp::wgrad && reduction.leaves_n) return std::nullopt;
  if (reduction.leaves_entries) reduction.axes = axes.batch;
  if (!one) reduction.axes = joined(reduction.axes, reduction.leaves_m ? axes.m : axes.n);
  // Groups lie side by side in the channels.
  if (view.is_convolution())
    reduction.leaves_entries = view.op == ContractionOp::wgrad ? reduction.leaves_m : reduction.leaves_n;
  for (const int64_t axis : reduction.axes) reduction.results *= domain[static_cast<int>(axis)];
  return reduction;
}

Refusal refusal(const Fusion& fusion, const Store& result, const char* rule, std::string expected) {
  std::string axes;
  for (int i = 0; i < result_site(fusion).domain.rank(); ++i)
    if (reduction_of(result_site(fusion), result)->over >> i & 1)
      axes += fmt::format("{}{}", axes.empty() ? "" : ", ", i);
  return {rule,
          fusion.op_name(result.op),
          fusion.name_of(result.access.operand),
          std::move(expected),
          fmt::format("axes {} of {}", axes.empty() ? "none" : axes, to_string(result_site(fusion).domain)),
          "give the reduction a fusion of its own",
          result.op};
}

// The reductions alone: their accumulators, and the stores of their totals.
KernelSite totals_of(const Fusion& fusion, const ResultReduction& reduction) {
  const Expr& y = result_site(fusion);
  Expr totals;
  totals.domain = y.domain;
  for (const Store& result : y.stores) {
    const Node* const total = reduction_of(y, result);
    if (total == nullptr) continue;
    const int input = static_cast<int>(totals.nodes.size());
    totals.nodes.push_back({.kind = Node::Kind::input, .type = y.node(total->args[0]).type});
    totals.nodes.push_back(*total);
    totals.nodes.back().args[0] = input;
    totals.stores.push_back(result);
    totals.stores.back().node = input + 1;
  }
  Dims order = reduction.axes;
  for (int axis = 0; axis < y.domain.rank(); ++axis)
    if (std::ranges::find(reduction.axes, axis) == reduction.axes.end()) order.push_back(axis);
  return {
      .name = "Y", .expr = select_axes(totals, order), .vector_axis = std::max(reduction.axes.rank() - 1, 0)};
}

// Threads that share a result of 32 neighbours: each has few loads, one behind the other.
int64_t rows_of_threads(int64_t parts, int64_t accumulator) {
  constexpr int64_t kMost = 32, kSharedBytes = 32 << 10;
  auto rows = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(ceil_div(parts, 4))));
  rows = std::min(rows, kMost);
  while (rows > 1 && rows * 32 * accumulator > kSharedBytes) rows /= 2;
  return rows;
}

}  // namespace

std::optional<ResultReduction> result_reduction(const Fusion& fusion, const Contraction& view) {
  const Expr& y = result_site(fusion);
  const Store* const first = first_total(y);
  if (first == nullptr) return std::nullopt;
  return reduction_over(view, y.domain, reduction_of(y, *first)->over);
}

std::optional<Refusal> refuse_reductions(const Fusion& fusion, const Contraction& view) {
  const Expr& y = result_site(fusion);
  const Store* const first = first_total(y);
  if (first == nullptr) return std::nullopt;
  const uint32_t over = reduction_of(y, *first)->over;
  if (!reduction_over(view, y.domain, over))
    return refusal(fusion, *first, "reduction-axes", "a reduction over all rows, all columns or everything");
  for (const Store& result : y.stores)
    if (const Node* const total = reduction_of(y, result); total && total->over != over)
      return refusal(fusion, result, "one-reduction-mask", "reductions over the same axes");
  return std::nullopt;
}

int64_t PartialResults::parts() const {
  return parts_of_entry * (is_one() || reduction.leaves_entries ? 1 : view.entries);
}

// By one launch, 25,000 parts of 16 results took 58 us on an H200 (2026-12).
int64_t PartialResults::groups() const {
  constexpr int64_t kMostParts = 2048, kOfGroup = 256;
  return is_one() || parts() <= kMostParts ? 0 : ceil_div(parts(), kOfGroup);
}

int64_t PartialResults::bytes(const Fusion& fusion) const {
  return (parts() + groups()) * reduction.results * accumulator_bytes(totals_of(fusion, reduction));
}

void PartialResults::append_to(Parameters& p) const {
  p.group("reduced", "Partials", [&] {
    p.scratch("first", "Total", 0);
    p.wide("results", reduction.results);
    p.wide("entry_parts", reduction.leaves_entries ? 0 : parts_of_entry);
    p.wide("entry_results", reduction.leaves_entries ? reduction.results / view.entries : 0);
  });
}

std::vector<Launch> PartialResults::combinations(const Fusion& fusion, int index_bits,
                                                 const std::string& target) const {
  std::vector<Launch> launches;
  if (groups() > 0) launches.push_back(combination(fusion, index_bits, target, true));
  launches.push_back(combination(fusion, index_bits, target, false));
  return launches;
}

Launch PartialResults::combination(const Fusion& fusion, int index_bits, std::string target,
                                   bool of_groups) const {
  KernelSource source{"elementwise/reduce_parts.cuh", {totals_of(fusion, reduction)}, {}, std::move(target)};
  const int64_t accumulator = accumulator_bytes(source.sites[0]);
  const int64_t given = of_groups || groups() == 0 ? parts() : groups();
  const int64_t in_group = of_groups ? ceil_div(given, groups()) : given;
  const int64_t first = given == parts() ? 0 : parts() * reduction.results * accumulator;
  const int64_t width = is_one() ? 1 : 32;
  const int64_t rows = is_one() ? 256 : rows_of_threads(in_group, accumulator);
  source.config = {{"index_bits", index_bits},
                   {"width", width},
                   {"rows", rows},
                   {"kept", reduction.axes.rank()},
                   {"of_groups", of_groups}};
  Launch launch;
  launch.entry = "reduce_parts";
  launch.grid[0] = static_cast<uint32_t>(ceil_div(reduction.results, width));
  if (of_groups) launch.grid[1] = static_cast<uint32_t>(groups());
  launch.block[0] = static_cast<uint32_t>(width * rows);
  const KernelSite& y = source.sites[0];
  Parameters p(index_bits);
  p.scratch("partials", "const Y::Accumulator", 0, first);
  p.scratch("totals", "Y::Accumulator", 0, parts() * reduction.results * accumulator);
  p.wide("results", reduction.results);
  p.wide("parts", given);
  p.wide("group_parts", in_group);
  p.divisors("extents", y.expr.domain);
  p.site("y", y, fusion);
  p.move_to(std::move(source), launch);
  return launch;
}

}  // namespace fusor
