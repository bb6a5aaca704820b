// Owns the check of the order in which the wgmma engine takes tiles: the device's arithmetic, run on the host
// with the argument bytes that the engine writes.
#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <tuple>

#include "tests/backend/engines/ask.h"
#include "tests/backend/engines/host_divisor.h"
#include "tests/backend/engines/launch_facts.h"
#include "tests/backend/engines/sm90/wgmma/cases.h"

#define __device__  // NOLINT(bugprone-reserved-identifier): CUDA's word
namespace device {
#include "codegen/device/contraction/product.cuh"
#include "codegen/device/sm90/pipeline/tile_order.cuh"
}  // namespace device
#undef __device__

namespace fusor {
namespace {

using namespace wgmma_cases;
using Order = device::TileOrder<int64_t, int64_t, test::HostDivisor>;

template <int kBatch>
struct Arguments {
  device::Contraction<device::kMatmul, 0, kBatch, true, true, int64_t, int64_t, test::HostDivisor> problem;
  Order order;
};

template <int kBatch>
Order order_of(const Launch& launch) {
  Arguments<kBatch> arguments;
  const size_t maps = launch.arguments.maps().size() * kTensorMapBytes;
  std::memcpy(&arguments, test::own_arguments(launch).data() + maps, sizeof arguments);
  return arguments.order;
}

// Every tile once, and down the rows of a band before the next column.
void check(const Order& order) {
  const int64_t parts = order.items / (order.entries * order.rows * order.columns);
  std::set<std::tuple<int, int, int, int>> taken;
  device::TilePlace last{};
  for (int item = 0; item < order.items; ++item) {
    const device::TilePlace at = order.place(item);
    EXPECT_TRUE(taken.emplace(at.part, at.entry, at.row, at.column).second) << "item " << item;
    EXPECT_TRUE(at.part < parts && at.entry < order.entries && at.row < order.rows &&
                at.column < order.columns)
        << "item " << item;
    const int64_t band = at.row / order.band;
    const bool same_band =
        item > 0 && at.part == last.part && at.entry == last.entry && band == last.row / order.band;
    if (same_band && at.column == last.column) {
      EXPECT_EQ(at.row, last.row + 1) << "item " << item;
    } else if (same_band) {
      EXPECT_EQ(at.column, last.column + 1) << "item " << item;
      EXPECT_EQ(at.row, band * order.band) << "item " << item;
    }
    last = at;
  }
  EXPECT_EQ(static_cast<int64_t>(taken.size()), order.items);
}

template <int kBatch>
void check_candidates(const Graph& graph) {
  const DeviceInfo device = DeviceInfo::named("H200");
  const Fusion fusion = fusion_of(graph);
  for (const EngineCandidate& candidate : test::candidates(wgmma_engine(), fusion, device)) {
    SCOPED_TRACE(to_string(candidate.config));
    const Lowered lowered = test::lower(wgmma_engine(), fusion, candidate.config, device);
    check(order_of<kBatch>(std::get<Launch>(lowered.steps.at(0))));
  }
}

TEST(TileOrder, TakesEveryTileOfAMatmulOnceInBands) {
  for (const auto& [m, n, k] :
       {std::tuple{4096, 4096, 64}, {4500, 3000, 128}, {64, 8192, 64}, {3000, 8, 4096}})
    check_candidates<0>(matmul(m, n, k, DataType::bf16));
}

TEST(TileOrder, TakesTheEntriesOfABatchOneByOne) {
  GraphBuilder g("batched");
  const Tensor a = g.input("a", {5, 1600, 64}, DataType::bf16);
  check_candidates<1>(g.finish({g.matmul(a, g.input("b", {5, 64, 900}, DataType::bf16))}));
}

}  // namespace
}  // namespace fusor
