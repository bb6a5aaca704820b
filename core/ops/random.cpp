// Owns the rules and expansions of random numbers and dropout.
#include "core/ops/random.h"

#include <cmath>
#include <limits>
#include <numbers>

#include "core/ops/expansion.h"
#include "core/ops/rules.h"

namespace fusor {

namespace {

constexpr double kWords = 4294967296.0;  // 2^32

void expect_probability(const Call& call, double probability) {
  if (!(probability >= 0 && probability <= 1))
    fail("{}: probability {} is outside 0 to 1", call.label, probability);
}

// The row-major index of each element times `step`, an integer.
int element_index(Expansion& e, const Dims& dims, int64_t step = 1) {
  const bool is_long = element_count(dims) * step > std::numeric_limits<int32_t>::max();
  int index = -1;
  for (int axis = dims.rank() - 1; axis >= 0; --axis) {
    if (dims[axis] == 1) continue;
    int along = e.index(dims, axis);
    if (is_long) along = e.cast(along, DataType::i64);
    if (step != 1) along = e.mul(along, e.integer(step));
    index = index < 0 ? along : e.add(index, along);
    step *= dims[axis];
  }
  return index < 0 ? e.index(dims, 0) : index;
}

// The words have the index's dims, whatever the rank of the others.
int words(Expansion& e, int seed, int offset, int index) {
  return e.reshape(e.pointwise(PointwiseMode::philox, {seed, offset, index}), e.dims(index));
}

// Even from 0 up to 1, which is not reached: 24 bits.
int unit(Expansion& e, int word) {
  const int scaled = e.mul(e.cast(word, DataType::f32), e.constant(1 / kWords));
  return e.cast(e.min(scaled, e.constant(1 - 0x1p-24)), DataType::f32);
}

// Box and Muller 1958, from two words.
int normal(Expansion& e, int seed, int offset, const Dims& dims) {
  const int index = element_index(e, dims, 2);
  const int first = unit(e, words(e, seed, offset, index));
  const int second = unit(e, words(e, seed, offset, e.add(index, e.integer(1))));
  // Rounded, because the logarithm beside 1 would show the difference; never 0.
  const int rest = e.cast(e.sub(e.constant(1), first), DataType::f32);
  const int radius = e.sqrt(e.mul(e.log(rest), e.constant(-2)));
  return e.mul(radius, e.cos(e.mul(second, e.constant(2 * std::numbers::pi))));
}

}  // namespace

void expect_seed(const Call& call) {
  for (const char* role : {"seed", "offset"}) {
    const Tensor* const given = call.operand(role);
    if (given == nullptr) continue;
    if (is_real(given->type) || element_count(given->dims) != 1)
      fail("{}: {} '{}' is {} {}; it must be one integer", call.label, role, given->name,
           to_string(given->type), to_string(given->dims));
  }
}

int kept_elements(Expansion& e, const Dims& dims, int seed, int offset, double probability) {
  const int word = words(e, seed, offset, element_index(e, dims));
  return e.cmp_lt(word, e.integer(std::llrint(probability * kWords)));
}

// --- rng ---------------------------------------------------------------------------------------------------

std::vector<Rng> Rng::kinds() {
  return {{.distribution = Distribution::bernoulli},
          {.distribution = Distribution::uniform},
          {.distribution = Distribution::normal}};
}

std::string_view Rng::kind() const {
  switch (distribution) {
    case Distribution::bernoulli:
      return "rng_bernoulli";
    case Distribution::uniform:
      return "rng_uniform";
    case Distribution::normal:
      break;
  }
  return "rng_normal";
}

bool Rng::has(std::string_view field) const {
  if (field == "probability") return distribution == Distribution::bernoulli;
  if (field == "low" || field == "high") return distribution == Distribution::uniform;
  return distribution == Distribution::normal;
}

std::vector<Inferred> Rng::infer(const Call& call) const {
  expect_seed(call);
  expect_probability(call, probability);
  if (!std::isfinite(low) || !std::isfinite(high) || low > high)
    fail("{}: low {} and high {} are no range", call.label, low, high);
  if (high - low > std::numeric_limits<float>::max())
    fail("{}: low {} and high {} are further apart than the largest number of fp32", call.label, low, high);
  if (!std::isfinite(mean) || !(deviation >= 0) || !std::isfinite(deviation))
    fail("{}: mean {} and deviation {} are no normal distribution", call.label, mean, deviation);
  if (call.given().empty()) fail("{}: the dims of the result are missing", call.label);
  expect_extents(call, {"dims", call.given()});
  const DataType type = distribution == Distribution::bernoulli ? DataType::b8 : DataType::f32;
  return {in_row_major(call, call.given(), type)};
}

void Rng::expand(Expansion& e) const {
  const Dims dims = e.result_dims("y");
  const int seed = e.input("seed"), offset = e.input("offset");
  if (distribution == Distribution::bernoulli)
    return e.result("y", kept_elements(e, dims, seed, offset, probability));
  if (distribution == Distribution::normal) {
    const int standard = normal(e, seed, offset, dims);
    return e.result("y", e.add(e.mul(standard, e.constant(deviation)), e.constant(mean)));
  }
  const int even = unit(e, words(e, seed, offset, element_index(e, dims)));
  e.result("y", low == 0 && high == 1 ? even : e.add(e.mul(even, e.constant(high - low)), e.constant(low)));
}

// --- dropout -----------------------------------------------------------------------------------------------

std::vector<Inferred> Dropout::infer(const Call& call) const {
  refuse_scalars_but(call, {"seed", "offset"});
  expect_seed(call);
  if (!(probability >= 0 && probability < 1))
    fail("{}: probability {} is not in 0 to below 1", call.label, probability);
  const Tensor& x = call.input(0);
  return {in_order_of(call, x.dims, real_type(call), x), in_order_of(call, x.dims, DataType::b8, x)};
}

void Dropout::expand(Expansion& e) const {
  const int x = e.input("x");
  const int kept = kept_elements(e, e.dims(x), e.input("seed"), e.input("offset"), 1 - probability);
  const int scaled = e.mul(x, e.constant(1 / (1 - probability)));
  e.result("y", e.binary_select(scaled, e.constant(0), kept));
  e.result("mask", kept);
}

}  // namespace fusor
