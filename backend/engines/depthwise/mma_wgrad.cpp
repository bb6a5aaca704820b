// Owns the schedule of depthwise weight gradients on tensor cores.
#include "backend/engines/depthwise/mma_wgrad.h"

#include <algorithm>
#include <string>
#include <utility>

#include "backend/engines/contraction/epilogue.h"

namespace fusor::depthwise {

namespace {

// Chunks of one row that a warp reads from dy.
constexpr int64_t kChunksOfResults = 2 * kOctet;

}  // namespace

MmaWgrad::MmaWgrad(const Problem& problem_, const Knobs& knobs)
    : problem(problem_),
      a(in_groups(problem_.fusion, problem_.a)),
      b(in_groups(problem_.fusion, problem_.b)),
      y(problem_.y),
      split(knobs.split.value_or(0)),
      deal(problem_) {
  if (split == 0) split = split_for_device();
}

// Rows of dy without one of x, of a block: at the begin of its rows and of each image.
double MmaWgrad::rows_in_front() const {
  const auto most = static_cast<double>(vertical().window - 1);
  const double images = static_cast<double>(rows_per_block()) / static_cast<double>(vertical().positions);
  return most + std::clamp(static_cast<double>(-vertical().start), 0.0, most) * images;
}

int64_t MmaWgrad::blocks_per_sm() const {
  constexpr int64_t kOthers = 40;
  const int64_t registers = 4 * pairs() * vertical().window + 2 * vertical().window + kOthers;
  return registers <= 96 ? 5 : registers <= 128 ? 4 : 3;
}

// All blocks run at once; few rows are not worth those in front.
int64_t MmaWgrad::split_for_device() const {
  const int64_t places = int64_t{problem.device.sm_count} * blocks_per_sm();
  const int64_t most = std::max<int64_t>(1, places / deal.tiles());
  const int64_t rows_of_block =
      std::max(ceil_div(rows(), most), std::min(vertical().window, vertical().positions));
  return ceil_div(rows(), rows_of_block);
}

Launch MmaWgrad::parts_of_gradient() const {
  const DataType element = yielded_node(a).type;
  KernelSource source = {.root = "depthwise/mma_wgrad.cuh",
                         .sites = {addressed_site("A", a, 1), addressed_site("B", b, 1)},
                         .config = {{"index_bits", 32},
                                    {"ElementA", element},
                                    {"ElementB", element},
                                    {"taps", last().window},
                                    {"lines", vertical().window},
                                    {"groups", deal.width},
                                    {"blocks", blocks_per_sm()}},
                         .target = problem.target};
  Parameters p(32);
  p.divisor("octets", deal.octets_of_row);
  p.divisor("height", vertical().positions);
  p.divisor("tiles", deal.tiles());
  p.wide("rows", rows());
  p.wide("rows_per_block", rows_per_block());
  p.wide("columns", deal.columns);
  p.wide("groups", deal.groups);
  p.wide("results", last().results);
  p.wide("result_rows", vertical().results);
  p.wide("positions", last().positions);
  p.wide("start", last().start);
  p.wide("start_row", vertical().start);
  p.scratch("partials", "float", 0);
  return launch_of(problem.fusion, "depthwise_mma_wgrad", std::move(source), std::move(p), blocks(),
                   kThreads);
}

Lowered MmaWgrad::lowered() const {
  Lowered lowered;
  lowered.steps.emplace_back(parts_of_gradient());
  lowered.steps.emplace_back(sum_of_parts(problem, y, parts(), 32));
  lowered.scratch.push_back(partial_bytes());
  lowered.guards = guards_of(problem.fusion, {{a, kGroupChannels}, {b, kGroupChannels}, {y, 1}});
  return lowered;
}

// A kernel takes so many times the limits below: 1.1 times for 7 x 7, 1.24 to 1.33 for 5 x 5, 1.24 and 1.45
// for 3 x 3 (8 layers on an H200, 2026-12).
double MmaWgrad::slower() const { return taps() > 36 ? 1.1 : taps() > 24 ? 1.28 : 1.4; }

// The 16 x 8 sums of an mma hold 16 gradients: those of 8 channels by themselves at two taps.
Work MmaWgrad::work() const {
  constexpr double kSharedShare = 0.8, kIssueShare = 0.6;
  constexpr double kStart = 3e-6, kDramShare = 0.85;
  // Instructions of a warp for a row of dy and for one of x beside it, without the products.
  constexpr double kRowInstructions = 45, kMultipliedInstructions = 25;
  const auto rows_of_x = static_cast<double>(blocks() * rows_per_block());
  const double rows_of_dy = rows_of_x + static_cast<double>(blocks()) * rows_in_front();
  const auto products_of_row = static_cast<double>(pairs() * vertical().window);
  const double copied =
      static_cast<double>(kWarps * kChunkBytes) * (rows_of_x * static_cast<double>(chunks_of_pixels(last())) +
                                                   rows_of_dy * static_cast<double>(kChunksOfResults));
  const double read =
      static_cast<double>(kWarps * kChunkBytes) *
      (rows_of_x * static_cast<double>(32 * pairs()) + rows_of_dy * static_cast<double>(kChunksOfResults));
  const double issued =
      rows_of_dy * kRowInstructions + rows_of_x * (kMultipliedInstructions + products_of_row);
  Work work;
  work.tensor_flops = slower() * rows_of_x * products_of_row *
                      static_cast<double>(kWarps * 2 * kMultiplyAddsOfMma) / share_of_mma(problem.device);
  work.fp32_flops = slower() * 2 * issued * static_cast<double>(kThreads) / kIssueShare;
  work.shared_bytes = slower() * (copied + read) / kSharedShare;
  work.l2_bytes = slower() * (copied + 2 * static_cast<double>(partial_bytes()));
  work.dram_bytes = problem.dram_bytes / kDramShare;
  work.start_s = slower() * kStart;
  work.tiles = blocks();
  work.tiles_per_sm = static_cast<int>(blocks_per_sm());
  work.launches = 2;
  work.scratch_bytes = partial_bytes();
  return work;
}

}  // namespace fusor::depthwise
