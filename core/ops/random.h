// Owns random numbers and dropout.
#pragma once

#include "core/ops/family.h"

namespace fusor {

class Expansion;

enum class Distribution : uint8_t { bernoulli, uniform, normal };

/// y of the dims that are asked for, its elements independent: 1 with `probability` and else 0; even from
/// `low` up to `high`; or normal. The number of the element with row-major index i comes from word i of
/// the stream of Philox 4x32-10 under the key `seed` (a normal one from words 2 i and 2 i + 1), whatever the
/// device and the tiling; word i is number i mod 4 of the block of counter (offset, i / 4).
struct Rng {
  Distribution distribution = Distribution::uniform;
  double probability = 0.5;        // bernoulli
  double low = 0, high = 1;        // uniform
  double mean = 0, deviation = 1;  // normal

  template <class Self, class Visitor>
  static void visit(Self& self, Visitor&& field) {
    field("probability", self.probability);
    field("low", self.low);
    field("high", self.high);
    field("mean", self.mean);
    field("deviation", self.deviation);
  }

  static constexpr Nature nature = Nature::composite;
  static std::vector<Rng> kinds();
  std::string_view kind() const;
  bool has(std::string_view field) const;
  Roles roles() const { return {{{"seed"}, {"offset"}}, {{.name = "y", .own_type = true}}}; }
  std::vector<Inferred> infer(const Call& call) const;
  void expand(Expansion& e) const;
  friend bool operator==(const Rng&, const Rng&) = default;
};

/// y = x / (1 - probability) where an element is kept, else 0; each is dropped with `probability`. The mask
/// is the bernoulli rng of x's dims: 1 where kept.
struct Dropout {
  double probability = 0.5;

  template <class Self, class Visitor>
  static void visit(Self& self, Visitor&& field) {
    field("probability", self.probability);
  }

  static constexpr Nature nature = Nature::composite;
  static constexpr size_t typed_by = 1;
  std::string_view kind() const { return "dropout"; }
  Roles roles() const {
    return {{{"x"}, {"seed"}, {"offset"}}, {{"y"}, {.name = "mask", .optional = true, .own_type = true}}};
  }
  std::vector<Inferred> infer(const Call& call) const;
  void expand(Expansion& e) const;
  friend bool operator==(const Dropout&, const Dropout&) = default;
};

/// Whether each element of a tensor of these dims is kept (bool8), with that probability.
int kept_elements(Expansion& e, const Dims& dims, int seed, int offset, double probability);

/// The operands seed and offset: integers of one element, by value or in memory.
void expect_seed(const Call& call);

}  // namespace fusor
