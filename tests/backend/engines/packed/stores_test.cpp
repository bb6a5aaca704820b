// Owns the test of which bytes the threads of the packed engine store, and of which elements: its kernel's
// arithmetic of whole numbers (codegen/device/packed/packed.cuh) is walked on the host, thread by thread.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
#include <optional>
#include <random>

#include "backend/engines/list.h"
#include "frontend/graph_builder.h"
#include "tests/backend/devices.h"
#include "tests/backend/engines/ask.h"
#include "tests/backend/engines/elementwise/cases.h"
#include "tests/support/packed_graphs.h"

namespace fusor {
namespace {

/// The places of x's elements that the lanes of one byte of y take; -1: none.
using Lanes = std::vector<int64_t>;

/// A launch of `packed_store`, by its arguments.
class StoresOnHost {
 public:
  StoresOnHost(const Launch& launch, DataType type)
      : launch_(launch),
        rank_(field_of("extents").count),
        bits_(config("index_bits")),
        vector_(config("vector")),
        shared_(elements_per_byte(type)) {}

  bool whole_rows() const { return config("whole_rows") != 0; }
  bool adjacent() const { return config("adjacent") != 0; }
  int64_t outer() const { return config("outer"); }
  int64_t threads() const { return field("threads"); }
  int64_t launched() const { return int64_t{launch_.grid[0]} * launch_.block[0]; }

  /// Calls visit(byte, lanes) for every byte that a thread stores.
  template <class Visit>
  void for_each(Visit&& visit) const {
    for (int64_t number = 0; number < threads(); ++number)
      if (whole_rows())
        visit_row(number, visit);
      else
        visit_places(number, visit);
  }

 private:
  using Coordinates = std::vector<int64_t>;

  // ---- indexing.cuh ----

  // Leaves the quotient in `number` and returns the remainder, by the field's multiplier and shift.
  int64_t split(std::string_view name, int64_t at, int64_t& number) const {
    const int64_t divisor = field(name, 3 * at);
    const auto multiplier = static_cast<uint64_t>(field(name, 3 * at + 1));
    __extension__ using Wide = unsigned __int128;
    const auto upper = static_cast<uint64_t>((Wide{static_cast<uint64_t>(number)} * multiplier) >> bits_);
    const int64_t quotient = divisor == 1 ? number : static_cast<int64_t>(upper >> field(name, 3 * at + 2));
    const int64_t remainder = number - quotient * divisor;
    number = quotient;
    return remainder;
  }
  Coordinates coordinates(int64_t linear, int64_t end) const {
    Coordinates at(static_cast<size_t>(rank_), 0);
    for (int64_t axis = end - 1; axis > 0; --axis)
      at[static_cast<size_t>(axis)] = split("extents", axis, linear);
    if (end > 0) at[0] = linear;
    return at;
  }

  // ---- packed.cuh ----

  template <class Visit>
  void visit_row(int64_t number, Visit& visit) const {
    const size_t last = static_cast<size_t>(rank_) - 1;
    const int64_t bytes = vector_ / shared_;
    Coordinates at = coordinates(number, rank_);
    int64_t place = at[last] * bytes;
    for (size_t axis = 0; axis < last; ++axis)
      place += at[axis] * field("strides", 3 * static_cast<int64_t>(axis));
    at[last] *= vector_;
    const int64_t count = std::min(field("row_extent") - at[last], vector_);
    EXPECT_TRUE(config("whole_stores") == 0 || (pointer_bytes() + place) % bytes == 0);
    for (int64_t byte = 0; byte * shared_ < count; ++byte) {
      Lanes lanes(static_cast<size_t>(shared_), -1);
      for (int64_t lane = 0; lane < shared_ && byte * shared_ + lane < count; ++lane) {
        Coordinates element = at;
        element[last] += byte * shared_ + lane;
        lanes[static_cast<size_t>(lane)] = loaded(element);
      }
      visit(pointer_bytes() + place + byte, lanes);
    }
  }

  bool is_of_run(const Coordinates& at, const Coordinates& run) const {
    return std::equal(run.begin(), run.begin() + outer(), at.begin());
  }

  std::optional<Coordinates> find(int64_t place) const {
    if (place < field("first") || place >= field("end")) return std::nullopt;
    Coordinates at;
    int64_t left = place - field("first");
    for (int64_t axis = 0; axis < rank_; ++axis) {
      int64_t number = left;
      left = split("strides", axis, number);
      if (number >= field("extents", 3 * axis)) return std::nullopt;
      at.push_back(number);
    }
    return left == 0 ? std::optional(at) : std::nullopt;
  }

  template <class Visit>
  bool visit_within_row(int64_t byte, const Coordinates& run, Visit& visit) const {
    const std::optional<Coordinates> at = find(byte * shared_);
    if (!at || field("extents", 3 * (rank_ - 1)) - at->back() < vector_ || !is_of_run(*at, run)) return false;
    EXPECT_TRUE(config("whole_stores") == 0 || byte % (vector_ / shared_) == 0);
    for (int64_t i = 0; i < vector_ / shared_; ++i) {
      Lanes lanes;
      for (int64_t lane = 0; lane < shared_; ++lane) {
        Coordinates element = *at;
        element.back() += i * shared_ + lane;
        lanes.push_back(loaded(element));
      }
      visit(byte + i, lanes);
    }
    return true;
  }

  template <class Visit>
  void visit_byte(int64_t byte, const Coordinates& run, Visit& visit) const {
    Lanes lanes(static_cast<size_t>(shared_), -1);
    bool exists = false;
    for (int64_t lane = 0; lane < shared_; ++lane) {
      const std::optional<Coordinates> at = find(byte * shared_ + lane);
      if (!at) continue;
      if (!exists && !is_of_run(*at, run)) return;
      exists = true;
      lanes[static_cast<size_t>(lane)] = loaded(*at);
    }
    if (exists) visit(byte, lanes);
  }

  template <class Visit>
  void visit_places(int64_t number, Visit& visit) const {
    Coordinates run(static_cast<size_t>(rank_), 0);
    int64_t first = field("first");
    if (outer() > 0) {
      int64_t left = number;
      number = split("pieces", 0, left);
      run = coordinates(left, outer());
      for (int64_t axis = 0; axis < outer(); ++axis)
        first += run[static_cast<size_t>(axis)] * field("strides", 3 * axis);
    }
    const int64_t bytes = vector_ / shared_;
    const int64_t byte = first / shared_ + number * bytes;
    if (adjacent() && visit_within_row(byte, run, visit)) return;
    for (int64_t i = 0; i < bytes; ++i) visit_byte(byte + i, run, visit);
  }

  // ---- The launch ----

  // The place of x's element at a kernel's coordinates.
  int64_t loaded(const Coordinates& at) const {
    const Expr& expr = launch_.source->sites[0].expr;
    const auto load = std::ranges::find(expr.nodes, Node::Kind::load, &Node::kind);
    int64_t place = load->access.offset;
    for (int axis = 0; axis < expr.domain.rank(); ++axis)
      place += at[static_cast<size_t>(axis)] * load->access.strides[axis];
    return place;
  }
  int64_t pointer_bytes() const {
    const int at = field_of("bytes").at;
    const auto& patches = launch_.arguments.patches();
    return std::ranges::find(patches, at, &Patch::at)->byte_offset;
  }
  int64_t config(std::string_view name) const {
    const ConfigValue& found = *std::ranges::find(launch_.source->config, name, &ConfigValue::name);
    if (const bool* const flag = std::get_if<bool>(&found.value)) return *flag ? 1 : 0;
    return std::get<int64_t>(found.value);
  }
  const ParameterField& field_of(std::string_view name) const {
    return *std::ranges::find(launch_.source->parameters, name, &ParameterField::path);
  }
  int64_t field(std::string_view name, int64_t word = 0) const {
    int64_t value = 0;
    const auto at = static_cast<size_t>(field_of(name).at + 8 * word);
    std::memcpy(&value, launch_.arguments.bytes().data() + at, sizeof value);
    return value;
  }

  const Launch& launch_;
  int64_t rank_, bits_, vector_, shared_;
};

const Tensor& tensor(const Graph& graph, const char* name) {
  return graph.tensors[static_cast<size_t>(graph.find(name))];
}

struct Seen {
  bool whole_rows = false;
  bool adjacent = false;
  int64_t outer = 0, threads = 0;
};

/// Every byte that has elements is stored by one thread, with all of its elements, and no other is.
Seen expect_stores(const Graph& graph, const EngineConfig* config = nullptr) {
  const Fusion fusion = test::fusion_of(expand(graph));
  const DeviceInfo& device = test::h200();
  const EngineConfig best = test::candidates(packed_engine(), fusion, device).front().config;
  const Lowered lowered = test::lower(packed_engine(), fusion, config != nullptr ? *config : best, device);
  const Tensor& x = tensor(graph, "x");
  const Tensor& y = tensor(graph, "y");
  const StoresOnHost stores(std::get<Launch>(lowered.steps.at(0)), y.type);
  std::map<int64_t, Lanes> wanted, got;
  const int64_t shared = elements_per_byte(y.type);
  test::for_each_pair(x, y, [&](int64_t from, int64_t to) {
    Lanes& lanes = wanted.try_emplace(to / shared, static_cast<size_t>(shared), -1).first->second;
    lanes[static_cast<size_t>(to % shared)] = from;
  });
  int64_t twice = 0;
  stores.for_each(
      [&](int64_t byte, const Lanes& lanes) { twice += got.emplace(byte, lanes).second ? 0 : 1; });
  EXPECT_TRUE(twice == 0 && got == wanted)
      << got.size() << " bytes stored, " << wanted.size() << " wanted, " << twice
      << " once more: " << to_string(y.type) << " " << to_string(y.dims) << " strides "
      << to_string(y.strides) << " of x " << to_string(x.strides);
  EXPECT_GE(stores.launched(), stores.threads());
  return {stores.whole_rows(), stores.adjacent(), stores.outer(), stores.threads()};
}

/// y = x + its number along `axis`: an axis of one element stays an axis of the kernel where it is numbered.
Graph numbered(DataType type, const Dims& dims, const Strides& strides, int64_t axis) {
  GraphBuilder g;
  const Tensor x = g.input("x", dims, DataType::i8);
  const Tensor i = g.gen_index(x, axis, {.compute = DataType::i32});
  g.output(g.add(x, i, {.compute = DataType::i32}), {.name = "y", .type = type, .strides = strides});
  return g.finish();
}

/// Draws layouts whose axes nest: dense ones, and with gaps of a few elements up to thousands of millions.
class Layouts {
 public:
  explicit Layouts(unsigned seed) : random_(seed) {}

  int64_t below(int64_t end) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(end)); }

  Dims dims() {
    Dims drawn;
    for (int64_t rank = 1 + below(5); drawn.rank() < rank;)
      drawn.push_back(below(5) == 0 ? 1 : 1 + below(rank < 3 ? 90 : 7));
    return drawn;
  }

  Strides strides(const Dims& dims) {
    std::vector<int> order(static_cast<size_t>(dims.rank()));
    std::iota(order.begin(), order.end(), 0);
    if (below(2) == 0)
      std::ranges::shuffle(order, random_);
    else
      std::ranges::reverse(order);
    Strides strides = Strides::filled(dims.rank(), 1);
    const int64_t grain = int64_t{1} << below(5);  // of strides: whole bytes, or not
    int64_t reach = 0;
    for (const int axis : order) {
      int64_t stride = reach + 1 + (below(3) == 0 ? gap() : 0);
      if (reach > 0) stride = (stride + grain - 1) / grain * grain;
      strides[axis] = stride;
      reach += (dims[axis] - 1) * stride;
    }
    return strides;
  }

 private:
  int64_t gap() {
    constexpr int64_t kGaps[] = {1, 2, 3, 8, 100, 4097, int64_t{1} << 20, int64_t{3} << 30};
    return kGaps[below(std::ssize(kGaps))] + below(3);
  }

  std::mt19937_64 random_;
};

TEST(PackedStores, EveryAlignmentIsStoredOnce) {
  test::for_each_alignment([&](DataType type, const Dims& dims, const Strides& strides) {
    expect_stores(test::doubled(type, dims, strides));
  });
}

TEST(PackedStores, AxesOfOneElementHideNoOthers) {
  for (const DataType type : test::kPackedTypes)
    for (const int64_t n : {1, 3, 7, 13})
      for (const int64_t gap : {0, 1, 4})
        for (int64_t axis = 0; axis < 4; ++axis) {
          expect_stores(numbered(type, {5, 1, 1, n}, {n + gap, n, n, 1}, axis));
          expect_stores(numbered(type, {1, n, 1, 5}, {1, 1, 7, n + gap}, axis));
          expect_stores(numbered(type, {5, 1, 3, n}, {6 * n + gap, 1, 2 * n, 2}, axis));
        }
}

TEST(PackedStores, EveryElementOfRandomLayoutsIsStoredOnce) {
  Layouts draw(7);
  int64_t rows = 0, neighbours = 0, places = 0, runs = 0;
  for (int number = 0; number < 3000 && !HasFailure(); ++number) {
    const DataType type = test::kPackedTypes[draw.below(3)];
    const Dims dims = draw.dims();
    GraphBuilder g;
    const Tensor x = g.input("x", dims, DataType::f16, {.strides = draw.strides(dims)});
    g.output(g.neg(x), {.name = "y", .type = type, .strides = draw.strides(dims)});
    EngineConfig config{"packed", 1, {{"vector", elements_per_byte(type) << draw.below(3)}, {"threads", 64}}};
    const Seen seen = expect_stores(g.finish(), draw.below(2) == 0 ? &config : nullptr);
    ++(seen.whole_rows ? rows : seen.outer > 0 ? runs : seen.adjacent ? neighbours : places);
  }
  EXPECT_GT(rows, 300);
  EXPECT_GT(neighbours, 150);
  EXPECT_GT(places, 100);
  EXPECT_GT(runs, 300);
}

// 12 elements, gigabytes apart: threads are as many as elements, not as bytes between them.
TEST(PackedStores, MemoryBetweenElementsTakesNoThreads) {
  for (const DataType type : test::kPackedTypes) {
    const Seen apart = expect_stores(test::doubled(type, {4, 3}, {(int64_t{1} << 40) + 1, 1}));
    EXPECT_EQ(apart.outer, 1);
    EXPECT_LE(apart.threads, 12);
    const Seen alone = expect_stores(test::doubled(type, {4, 3}, {int64_t{3} << 33, int64_t{1} << 33}));
    EXPECT_LE(alone.threads, 12);
  }
  // The last element of a row and the first of the next one share a byte, which the first row's thread
  // stores.
  for (const DataType type : test::kPackedTypes)
    EXPECT_GT(expect_stores(test::doubled(type, {9, 4}, {200 * 3 + 1, 200})).outer, 0);
}

}  // namespace
}  // namespace fusor
