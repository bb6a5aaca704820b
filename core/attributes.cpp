// Owns what is asked of an op of any family.
#include "core/attributes.h"

#include "core/ops/expansion.h"

namespace fusor {

namespace {

template <class Family>
void append_kinds(std::vector<Attributes>& kinds) {
  if constexpr (requires { Family::kinds(); })
    for (Family& kind : Family::kinds()) kinds.emplace_back(std::move(kind));
  else
    kinds.emplace_back(Family{});
}

}  // namespace

std::string_view kind_name(const Attributes& attributes) {
  return std::visit([](const auto& op) { return op.kind(); }, attributes);
}

std::vector<Attributes> all_kinds() {
  std::vector<Attributes> kinds;
#define FUSOR_OP(name, family) append_kinds<family>(kinds);
#include "core/ops/op.def"
#undef FUSOR_OP
  return kinds;
}

bool is_kind_name(std::string_view name) {
#define FUSOR_OP(row, family)                         \
  if constexpr (!std::is_same_v<family, Composite>) { \
    std::vector<Attributes> kinds;                    \
    append_kinds<family>(kinds);                      \
    for (const Attributes& kind : kinds)              \
      if (kind_name(kind) == name) return true;       \
  }
#include "core/ops/op.def"
#undef FUSOR_OP
  return false;
}

std::string_view short_name(const Attributes& attributes) {
  return std::visit(
      [](const auto& op) {
        // The modes of others say how they do it, not what the op is.
        using Family = std::decay_t<decltype(op)>;
        if constexpr (std::is_same_v<Family, Pointwise> || std::is_same_v<Family, Reduction>)
          return to_string(op.mode);
        else
          return op.kind();
      },
      attributes);
}

Roles roles(const Attributes& attributes) {
  return std::visit([](const auto& op) { return op.roles(); }, attributes);
}

Nature nature(const Attributes& attributes) {
  return std::visit([](const auto& op) { return op.nature; }, attributes);
}

const DataType* compute_type(const Attributes& attributes) {
  return std::visit(
      [](const auto& op) -> const DataType* {
        if constexpr (requires { op.compute; })
          return &op.compute;
        else
          return nullptr;
      },
      attributes);
}

bool is_view(const Attributes& attributes) { return nature(attributes) == Nature::views; }

bool is_contraction(const Attributes& attributes) { return nature(attributes) == Nature::contracts; }

namespace {

int64_t from_front(int64_t axis, int rank) { return axis < 0 && axis + rank >= 0 ? axis + rank : axis; }

}  // namespace

void fill_omitted(Attributes& attributes, int rank) {
  std::visit(
      [rank]<class Family>(Family& op) {
        if constexpr (requires { op.fill_omitted(rank); }) op.fill_omitted(rank);
        Family::visit(op, [rank]<class Field>(std::string_view name, Field& field) {
          if constexpr (std::is_same_v<Field, int64_t>)
            if (name == "axis") field = from_front(field, rank);
          if constexpr (std::is_same_v<Field, Dims>)
            if (name == "normalized_axes")
              for (int64_t& axis : field) axis = from_front(axis, rank);
        });
      },
      attributes);
}

bool leaves_gaps(const Attributes& attributes) {
  return std::visit(
      [](const auto& op) {
        if constexpr (requires { op.leaves_gaps(); })
          return op.leaves_gaps();
        else
          return false;
      },
      attributes);
}

}  // namespace fusor
