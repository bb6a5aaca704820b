// Owns the rules and expansions of grid_sample.
#include "core/ops/grid_sample.h"

#include <array>

#include "core/ops/expansion.h"
#include "core/ops/rules.h"

namespace fusor {

namespace {

Dims sampled_dims(const Call& call) {
  refuse_scalars(call);
  const Dims &x = call.operand("x")->dims, &grid = call.operand("grid")->dims;
  if (x.rank() != 4)
    fail("{}: x {} has rank {}; it takes N, C, height and width", call.label, to_string(x), x.rank());
  if (grid.rank() != 4 || grid[0] != x[0] || grid[3] != 2)
    fail("{}: grid {} is not [{}, rows, columns, 2]", call.label, to_string(grid), x[0]);
  return {x[0], x[1], grid[1], grid[2]};
}

// One coordinate of all samples, [N, 1, samples], in pixels.
struct Coordinate {
  int64_t size = 0;
  int pixels = -1, inside = -1;  // inside: of the range where border padding has a slope
  int below = -1, share = -1;    // bilinear: the pixel below it, and the share of the next one
};

// One pixel that samples read.
struct Corner {
  int index, weight;  // index: [N, 1, samples], -1 beside the image
};

class Sampler {
 public:
  Sampler(Expansion& e, const GridSampleAttributes& op) : e_(e), op_(op) {
    const Dims x = e.dims(e.input("x")), grid = e.dims(e.input("grid"));
    flat_ = e.reshape(e.input("x"), {x[0], x[1], x[2] * x[3]});
    for (int i = 0; i < 2; ++i) {
      const int part = e.slice(e.input("grid"), 3, i, i + 1);
      at_[static_cast<size_t>(i)] = coordinate(e.reshape(part, {x[0], 1, grid[1] * grid[2]}), x[3 - i]);
    }
  }

  const Coordinate& across() const { return at_[0]; }
  const Coordinate& down() const { return at_[1]; }

  // The neighbours that are read: nearest has one; bilinear above left, above right, below left, below right.
  std::vector<Corner> corners() {
    if (op_.mode == GridMode::nearest)
      return {{pixel(whole(down().pixels, down()), whole(across().pixels, across())), -1}};
    std::vector<Corner> all;
    const int one = e_.constant(1);
    for (int i = 0; i < 2; ++i)
      for (int j = 0; j < 2; ++j) {
        const int row = i == 0 ? down().below : e_.add(down().below, one);
        const int column = j == 0 ? across().below : e_.add(across().below, one);
        const int of_row = i == 0 ? e_.sub(one, down().share) : down().share;
        const int of_column = j == 0 ? e_.sub(one, across().share) : across().share;
        all.push_back({pixel(whole(row, down()), whole(column, across())), e_.mul(of_row, of_column)});
      }
    return all;
  }

  int read(const Corner& corner) { return e_.gather(flat_, corner.index, 2); }
  // Pixels for each unit of the grid.
  double scale(const Coordinate& at) const {
    return static_cast<double>(op_.align_corners ? at.size - 1 : at.size) / 2;
  }

 private:
  Coordinate coordinate(int grid, int64_t size) {
    Coordinate at{.size = size};
    const int from_edge = e_.add(e_.real(grid), e_.constant(1));
    at.pixels = e_.mul(from_edge, e_.constant(scale(at)));
    if (!op_.align_corners) at.pixels = e_.sub(at.pixels, e_.constant(0.5));
    // A coordinate that is no number counts as -1, as in PyTorch.
    const int edge = e_.constant(op_.align_corners ? 0 : -0.5);
    at.pixels = e_.binary_select(at.pixels, edge, e_.cmp_eq(at.pixels, at.pixels));
    const int zero = e_.constant(0), last = e_.constant(static_cast<double>(size - 1));
    at.inside = e_.logical_and(e_.cmp_gt(at.pixels, zero), e_.cmp_lt(at.pixels, last));
    // Pixels beyond the first one beside the image are all alike.
    const bool border = op_.padding == GridPadding::border;
    at.pixels = e_.min(e_.max(at.pixels, border ? zero : e_.constant(-2)),
                       border ? last : e_.constant(static_cast<double>(size + 1)));
    at.below = e_.floor(at.pixels);
    at.share = e_.sub(at.pixels, at.below);
    return at;
  }

  // To the nearest integer, even ones where two are as near.
  int whole(int pixels, const Coordinate& at) {
    const int integer = e_.cast(pixels, at.size > (int64_t{1} << 30) ? DataType::i64 : DataType::i32);
    if (op_.padding == GridPadding::zeros) return integer;
    return e_.min(e_.max(integer, e_.integer(0)), e_.integer(at.size - 1));
  }

  int pixel(int row, int column) {
    const int number = e_.add(e_.mul(row, e_.integer(across().size)), column);
    if (op_.padding == GridPadding::border) return number;
    const auto within = [&](int value, int64_t size) {
      return e_.logical_and(e_.cmp_ge(value, e_.integer(0)), e_.cmp_lt(value, e_.integer(size)));
    };
    return e_.binary_select(number, e_.integer(-1),
                            e_.logical_and(within(row, down().size), within(column, across().size)));
  }

  Expansion& e_;
  const GridSampleAttributes& op_;
  int flat_ = -1;
  std::array<Coordinate, 2> at_;
};

}  // namespace

std::string_view to_string(GridMode mode) { return mode == GridMode::nearest ? "nearest" : "bilinear"; }
std::string_view to_string(GridPadding padding) {
  return padding == GridPadding::border ? "border" : "zeros";
}

std::vector<Inferred> GridSample::infer(const Call& call) const {
  return {in_order_of(call, sampled_dims(call), real_type(call), call.input(0))};
}

void GridSample::expand(Expansion& e) const {
  Sampler sampler(e, *this);
  int y = -1;
  for (const Corner& corner : sampler.corners()) {
    const int value = e.real(sampler.read(corner));
    const int share = corner.weight < 0 ? value : e.mul(value, corner.weight);
    y = y < 0 ? share : e.add(y, share);
  }
  e.reshaped_result("y", y);
}

std::vector<Inferred> GridSampleBackward::infer(const Call& call) const {
  const Tensor &x = *call.operand("x"), &grid = *call.operand("grid");
  expect_dims(call, "dy", sampled_dims(call));
  const DataType type = real_type(call);
  return {in_order_of(call, x.dims, type, x), in_order_of(call, grid.dims, type, grid)};
}

void GridSampleBackward::expand(Expansion& e) const {
  Sampler sampler(e, *this);
  const Dims x = e.dims(e.input("x")), grid = e.dims(e.input("grid"));
  const int64_t pixels = x[2] * x[3], samples = grid[1] * grid[2];
  const int dy = e.reshape(e.input("dy"), {x[0], x[1], samples});
  const std::vector<Corner> corners = sampler.corners();
  // Shares of every sample in every pixel: [N, samples, pixels].
  const int pixel = e.index({1, 1, pixels}, 2), zero = e.constant(0), one = e.constant(1);
  const Dims column{x[0], samples, 1};
  int shares = -1;
  for (const Corner& corner : corners) {
    const int weight = corner.weight < 0 ? one : e.reshape(corner.weight, column);
    const int share = e.binary_select(weight, zero, e.cmp_eq(e.reshape(corner.index, column), pixel));
    shares = shares < 0 ? share : e.add(shares, share);
  }
  e.result("dx", e.reshape(e.matmul(e.real(dy), shares), x));
  if (!e.wants("dgrid")) return;
  if (mode == GridMode::nearest) {
    e.result("dgrid", e.op(Pointwise{}, {zero}, grid));
    return;
  }
  std::vector<int> values;
  values.reserve(corners.size());
  for (const Corner& corner : corners) values.push_back(e.real(sampler.read(corner)));
  // A coordinate's slope: differences along it, mixed by the share across it.
  const auto slope = [&](const Coordinate& along, const Coordinate& beside, int first, int second) {
    const int mixed = e.add(first, e.mul(e.sub(second, first), beside.share));
    const int total = e.reduce(ReductionMode::add, e.mul(e.real(dy), mixed), 1);
    int scaled = e.mul(total, e.constant(sampler.scale(along)));
    if (padding == GridPadding::border) scaled = e.binary_select(scaled, zero, along.inside);
    return e.reshape(scaled, {x[0], grid[1], grid[2], 1});
  };
  const int across =
      slope(sampler.across(), sampler.down(), e.sub(values[1], values[0]), e.sub(values[3], values[2]));
  const int down =
      slope(sampler.down(), sampler.across(), e.sub(values[2], values[0]), e.sub(values[3], values[1]));
  e.result("dgrid", e.concatenate({across, down}, 3));
}

}  // namespace fusor
