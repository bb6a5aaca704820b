// Owns the tests of scatters and ragged stores on the GPU: types, tails, computed indices, and that nothing
// else is written.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "backend/reference/reference.h"
#include "core/convert.h"
#include "frontend/graph_builder.h"
#include "tests/gpu/device_run.h"

namespace fusor {
namespace {

constexpr auto kPoison = std::byte{0xa7};

// Elements of a result that hold poison in every byte.
int64_t untouched(const DeviceRun& run, const Graph& graph, const std::string& name) {
  const Tensor& tensor = graph.tensors[static_cast<size_t>(graph.find(name))];
  const std::vector<std::byte>& bytes = run.host(name);
  const auto guard = static_cast<int64_t>(bytes.size()) - tensor.bytes();
  int64_t count = 0;
  for (int64_t i = 0; i < element_count(tensor.dims); ++i) {
    const auto first = bytes.begin() + guard / 2 + i * byte_size(tensor.type);
    count += std::all_of(first, first + byte_size(tensor.type), [](std::byte b) { return b == kPoison; });
  }
  return count;
}

void expect_scattered(const Graph& graph, int64_t left, const std::string& what) {
  DeviceRun run(graph);
  run.run();
  const VerifyReport report = run.check();
  EXPECT_TRUE(report.passed()) << what << ": " << to_string(report);
  EXPECT_TRUE(run.gaps_are_untouched()) << what;
  const int64_t kept = untouched(run, graph, "y");
  // A value of one byte may be that of the poison.
  EXPECT_GE(kept, left) << what;
  if (byte_size(graph.tensors[static_cast<size_t>(graph.find("y"))].type) > 1) {
    EXPECT_EQ(kept, left) << what;
  }
}

// Every second row, the last first; one in five lies outside of the extent.
Tensor rows_index(GraphBuilder& g, int64_t rows, DataType type) {
  const Tensor at = g.gen_index(g.input("like", {rows, 1}, DataType::f32), 0);
  const Tensor back = g.mul(g.sub(g.constant(static_cast<double>(rows - 1), DataType::i32), at),
                            g.constant(2, DataType::i32));
  const Tensor is_out = g.cmp_eq(g.mod(at, g.constant(5, DataType::i32)), g.constant(0, DataType::i32));
  return g.binary_select(g.constant(-3, DataType::i32), back, is_out, {.type = type});
}

TEST(ScatterGpu, RowsInEveryType) {
  FUSOR_NEEDS_GPU();
  for (const DataType type : {DataType::f64, DataType::f32, DataType::bf16, DataType::i8})
    for (const int64_t columns : {1, 7, 64, 256}) {
      GraphBuilder g("rows");
      const Tensor x = g.input("x", {37, columns}, type);
      g.output(g.scatter(x, rows_index(g, 37, DataType::i32), {74, columns}), {.name = "y"});
      expect_scattered(g.finish(), 74 * columns - 29 * columns,
                       fmt::format("{} x {}", to_string(type), columns));
    }
}

TEST(ScatterGpu, OfComputedValuesAlongTheFastestAxis) {
  FUSOR_NEEDS_GPU();
  GraphBuilder g("columns");
  const Tensor x = g.input("x", {33, 129}, DataType::f16);
  const Tensor place = g.sub(g.constant(140, DataType::i64), g.gen_index(x, 1));
  g.output(g.scatter(g.relu(x), place, {33, 150}, {.axis = 1}), {.name = "y", .type = DataType::f32});
  expect_scattered(g.finish(), 33 * 21, "columns");
}

// Offsets of `batch` entries whose rows grow by `step` each.
Tensor growing_offsets(GraphBuilder& g, int64_t batch, int64_t step, DataType type) {
  const Tensor at = g.gen_index(g.input("entries", {batch + 1}, DataType::f32), 0, {.type = DataType::i32});
  const Tensor next = g.sub(at, g.constant(1, DataType::i32));
  const Tensor rows = g.div(g.mul(at, next, {.type = DataType::i32}), g.constant(2, DataType::i32));
  return g.mul(rows, g.constant(static_cast<double>(step), DataType::i32), {.type = type});
}

TEST(RaggedStoreGpu, WritesRowsAndNothingBehindThem) {
  FUSOR_NEEDS_GPU();
  for (const DataType type : {DataType::bf16, DataType::f32, DataType::f8_e4m3})
    for (const DataType offsets : {DataType::i32, DataType::i64})
      for (const int64_t depth : {1, 8, 67, 128}) {
        constexpr int64_t kBatch = 5, kHeads = 3, kRows = 9;
        GraphBuilder g("ragged");
        const int64_t row = kHeads * depth;
        const Tensor offset = growing_offsets(g, kBatch, row, offsets);
        const Tensor x = g.input("x", {kBatch, kHeads, kRows, depth}, type);
        g.output(g.ragged_store(x, offset, kBatch * kRows * row, {depth, row, 1}, {}, true), {.name = "y"});
        // 0 + 1 + 2 + 3 + 4 rows.
        expect_scattered(g.finish(), (kBatch * kRows - 10) * row,
                         fmt::format("{} depth {}", to_string(type), depth));
      }
}

TEST(RaggedStoreGpu, LeavesTheRowsOfItsNeighbours) {
  FUSOR_NEEDS_GPU();
  constexpr int64_t kBatch = 4, kHeads = 2, kRows = 40, kDepth = 64, kRow = 3 * kHeads * kDepth;
  GraphBuilder g("ragged");
  const Tensor offset = growing_offsets(g, kBatch, kRow, DataType::i32);
  const Tensor flat = g.input("flat", {kBatch * kRows * kRow}, DataType::bf16);
  const Tensor x = g.ragged_load(flat, offset, {kBatch, kHeads, kRows, kDepth}, {kDepth, kRow, 1});
  g.output(g.ragged_store(g.relu(x), offset, kBatch * kRows * kRow, {kDepth, kRow, 1}, {}, true),
           {.name = "y"});
  expect_scattered(g.finish(), kBatch * kRows * kRow - 6 * kHeads * kDepth, "interleaved");
}

// Vectors of neighbours begin anywhere: whole accesses are taken where they are aligned alone.
TEST(RaggedStoreGpu, BeginsAnywhere) {
  FUSOR_NEEDS_GPU();
  constexpr int64_t kBatch = 4, kHeads = 2, kRows = 40, kDepth = 64, kRow = kHeads * kDepth;
  for (const int64_t shift : {0, 3, 4, 8}) {
    GraphBuilder g("anywhere");
    const Tensor offset =
        g.add(growing_offsets(g, kBatch, kRow, DataType::i32),
              g.constant(static_cast<double>(shift), DataType::i32), {.type = DataType::i32});
    const Tensor flat = g.input("flat", {kBatch * kRows * kRow}, DataType::bf16);
    const Tensor x = g.ragged_load(flat, offset, {kBatch, kHeads, kRows, kDepth}, {kDepth, kRow, 1});
    g.output(g.ragged_store(g.relu(x), offset, kBatch * kRows * kRow, {kDepth, kRow, 1}, {}, true),
             {.name = "y"});
    expect_scattered(g.finish(), kBatch * kRows * kRow - 6 * kRow, fmt::format("from {}", shift));
  }
}

// ---- Elements that share bytes ----

constexpr DataType kPackedTypes[] = {DataType::i4, DataType::f4_e2m1, DataType::b1};

// Runs a graph whose result is 'y': what the oracle says is written is right, and every other bit is poison.
void expect_scattered_bits(const Graph& graph, const std::string& what) {
  DeviceRun run(graph);
  run.run();
  const VerifyReport report = run.check();
  EXPECT_TRUE(report.passed()) << what << ": " << to_string(report);
  EXPECT_TRUE(run.gaps_are_untouched()) << what;
  // Composites are sampled by their expansion.
  const Graph expanded = build(graph, DeviceInfo::current(), {.compile = false}).graph;
  std::vector<void*> pointers(expanded.tensors.size());
  const auto bytes_of = [&](const Tensor& tensor) {
    const std::vector<std::byte>& bytes = run.host(tensor.name);
    return bytes.data() + (static_cast<int64_t>(bytes.size()) - tensor.bytes()) / 2;
  };
  for (size_t i = 0; i < expanded.tensors.size(); ++i)
    if (expanded.tensors[i].memory == Memory::device)
      pointers[i] = const_cast<std::byte*>(bytes_of(expanded.tensors[i]));
  const int at = expanded.find("y");
  const Tensor& y = expanded.tensors[static_cast<size_t>(at)];
  std::vector<int64_t> elements(static_cast<size_t>(element_count(y.dims)));
  std::iota(elements.begin(), elements.end(), 0);
  std::vector<bool> written;
  evaluate_sample(expanded, pointers, at, elements, &written);
  const std::vector<std::byte> poison(static_cast<size_t>(y.bytes()), kPoison);
  int64_t changed = 0;
  for (const int64_t element : elements) {
    int64_t rest = element, place = 0;
    for (int axis = y.dims.rank() - 1; axis >= 0; --axis) {
      place += rest % y.dims[axis] * y.strides[axis];
      rest /= y.dims[axis];
    }
    changed += !written[static_cast<size_t>(element)] &&
               load_real(y.type, bytes_of(y), place) != load_real(y.type, poison.data(), place);
  }
  EXPECT_EQ(changed, 0) << what;
}

TEST(ScatterGpu, RowsThatShareBytes) {
  FUSOR_NEEDS_GPU();
  for (const DataType type : kPackedTypes)
    for (const int64_t columns : {1, 2, 3, 5, 7, 8, 16, 24, 64, 129})
      for (const int64_t gap : {0, 1, 3, 8}) {
        GraphBuilder g("rows");
        const Tensor x = g.input("x", {301, columns}, type);
        g.output(g.scatter(x, rows_index(g, 301, DataType::i32), {602, columns}),
                 {.name = "y", .strides = Strides{columns + gap, 1}});
        expect_scattered_bits(g.finish(), fmt::format("{} x {} + {}", to_string(type), columns, gap));
      }
}

TEST(ScatterGpu, ComputedValuesThatShareBytes) {
  FUSOR_NEEDS_GPU();
  for (const DataType type : kPackedTypes)
    for (const int64_t shift : {0, 1, 2, 3, 5, 7, 8}) {
      const std::string what = fmt::format("{} from {}", to_string(type), shift);
      GraphBuilder g("forwards");
      const Tensor x = g.input("x", {33, 129}, DataType::f16);
      const Tensor on = g.add(g.gen_index(x, 1), g.constant(static_cast<double>(shift), DataType::i32));
      g.output(g.scatter(g.relu(x), on, {33, 150}, {.axis = 1}), {.name = "y", .type = type});
      expect_scattered_bits(g.finish(), what);
      GraphBuilder h("backwards");
      const Tensor z = h.input("x", {33, 129}, DataType::f32);
      const Tensor back =
          h.sub(h.constant(static_cast<double>(140 + shift), DataType::i64), h.gen_index(z, 1));
      h.output(h.scatter(h.neg(z), back, {33, 150}, {.axis = 1}), {.name = "y", .type = type});
      expect_scattered_bits(h.finish(), what + ", backwards");
    }
}

TEST(RaggedStoreGpu, WritesRowsThatShareBytes) {
  FUSOR_NEEDS_GPU();
  for (const DataType type : kPackedTypes)
    for (const int64_t depth : {1, 3, 8, 67, 128}) {
      constexpr int64_t kBatch = 5, kHeads = 3, kRows = 9;
      GraphBuilder g("ragged");
      const int64_t row = kHeads * depth;
      const Tensor offset = growing_offsets(g, kBatch, row, DataType::i32);
      const Tensor x = g.input("x", {kBatch, kHeads, kRows, depth}, type);
      g.output(g.ragged_store(x, offset, kBatch * kRows * row, {depth, row, 1}, {}, true), {.name = "y"});
      expect_scattered_bits(g.finish(), fmt::format("{} depth {}", to_string(type), depth));
    }
}

}  // namespace
}  // namespace fusor
