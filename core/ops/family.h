// Owns what an op family says of itself: its nature, the roles of what it reads and writes, what its results
// look like.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/tensor.h"

namespace fusor {

/// What a family does with elements: computes them, contracts two operands, looks at them in another order
/// (views), puts tensors side by side, or is written in simpler ops, which expand_composites() puts in its
/// place.
enum class Nature : uint8_t { computes, contracts, views, joins, composite };

/// One operand or result: its name in messages, in results' names ("conv1:dx") and in the docs.
struct Role {
  std::string_view name;
  bool optional = false;  ///< may be left out: a tensor of index -1, or the end of the list
  bool repeats = false;   ///< the last role only: one operand or more
  bool own_type =
      false;  ///< of a result: where none is said, its type is what infer() gives, whatever is read
};

struct Roles {
  std::vector<Role> inputs, outputs;
};

/// One result, were the op appended: dims, packed strides, and the type of a virtual tensor.
struct Inferred {
  Dims dims;
  Strides strides;
  DataType type;
};

/// One op as the rules of its family see it. An operand that was left out is null.
struct Call {
  std::string label;  ///< how messages name the op
  std::span<const Tensor* const> inputs;
  std::span<const Dims> results;  ///< the dims that were asked for, where they were
  Roles roles = {};

  const Tensor& input(size_t i) const { return *inputs[i]; }
  bool has(size_t i) const { return i < inputs.size() && inputs[i] != nullptr; }
  /// The operand of that role, or null.
  const Tensor* operand(std::string_view role) const {
    for (size_t i = 0; i < roles.inputs.size() && i < inputs.size(); ++i)
      if (roles.inputs[i].name == role) return inputs[i];
    return nullptr;
  }
  const Dims& given(size_t result = 0) const {
    static const Dims none;
    return result < results.size() ? results[result] : none;
  }
};

/// Two operands that a composite multiplies with each other, by position; or one, mentioned twice, that it
/// multiplies with values which it computes.
struct Product {
  size_t first, second;
};

/// What every row of core/ops/op.def is: a struct of attributes that are named once in visit(), with
///   static constexpr Nature nature;
///   std::string_view kind() const;                     its name in files
///   Roles roles() const;
///   std::vector<Inferred> infer(const Call&) const;    one for each role of roles().outputs; throws
///   friend bool operator==(...) = default;
/// and, where it needs them, static std::vector<Family> kinds() (one value for each name in files), bool
/// has(field) const (whether an attribute belongs to this kind), bool needs_reals() const, and
/// void fill_omitted(int rank) (lists that builders and files may leave out; fill_omitted() of
/// core/attributes.h counts negative axes from the back for all families). One of Nature::composite has void
/// expand(Expansion&) const (core/ops/expansion.h) and, where not all of its operands say the type of results
/// that are left open, static constexpr size_t typed_by: how many of the first ones do. One that multiplies
/// operands lists these as static constexpr std::array<Product, n> products.
template <class Family>
concept OpFamily = requires(const Family& op, const Family& other, const Call& call) {
  { Family::nature } -> std::convertible_to<Nature>;
  { op.kind() } -> std::convertible_to<std::string_view>;
  { op.roles() } -> std::convertible_to<Roles>;
  { op.infer(call) } -> std::convertible_to<std::vector<Inferred>>;
  { op == other } -> std::convertible_to<bool>;
};

/// A family that is written in simpler ops.
template <class Family>
concept CompositeFamily = (Family::nature == Nature::composite);

}  // namespace fusor
