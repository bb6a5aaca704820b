// Owns the hashing of fusions and the ranking of measurements.
#include "heuristics/tuning.h"

#include <algorithm>

#include "core/hash.h"

namespace fusor {

namespace {

// One overload of add() for each part of a Fusion.
class FusionHasher {
 public:
  void add(const Fusion& fusion) {
    add_list(fusion.anchors);
    add_list(fusion.operands);
    add_list(fusion.sites);
    // Only where it is not the default: keys of tables from before there was a choice stay what they were.
    if (fusion.precision != Precision::exact) add(fusion.precision);
  }
  std::string hex() const { return hasher_.hex(); }

 private:
  void add(bool value) { hasher_.add(value); }
  void add(int value) { hasher_.add(value); }
  void add(uint32_t value) { hasher_.add(value); }
  void add(int64_t value) { hasher_.add(value); }
  void add(double value) { hasher_.add(value); }
  template <class Enum>
  requires std::is_enum_v<Enum>
  void add(Enum value) { hasher_.add(value); }

  void add(const Dims& dims) {
    hasher_.add(dims.rank());
    for (const int64_t extent : dims) hasher_.add(extent);
  }

  template <class T>
  void add_list(const std::vector<T>& list) {
    hasher_.add(list.size());
    for (const T& element : list) add(element);
  }

  void add(const Attributes& attributes) {
    hasher_.add(attributes.index());
    std::visit(
        [this](const auto& value) {
          add_kind(value);
          add_fields(value);
        },
        attributes);
  }
  // Kinds of one family are no fields of it: the passes of a convolution. Keys of the first kind stay what
  // they were.
  template <class T>
  void add_kind(const T& value) {
    if constexpr (requires { T::kinds(); })
      if (value.kind() != T{}.kind()) hasher_.add(value.kind());
  }
  template <class T>
  void add_fields(const T& value) {
    // Groups of a convolution follow from its channels, which the key holds already.
    T::visit(value, [this](std::string_view name, const auto& field) {
      if (name != "groups") add(field);
    });
  }

  void add(const Anchor& anchor) {
    add(anchor.attributes);
    add_list(anchor.operands);
  }
  void add(const Port& port) {
    add(port.site);
    add(port.yield);
    add(port.axes);
    if (!port.whole.empty()) add(port.whole);  // keys of all others are as they were
  }

  void add(const Site& site) {
    add(site.expr);
    add_list(site.inputs);
  }
  void add(const Input& input) {
    add(input.from);
    add(input.at);
    add(input.yield);
    add(input.whole);
  }

  void add(const Operand& operand) {
    add(operand.type);
    add(operand.memory == Memory::workspace ? Memory::device : operand.memory);
    add(operand.alignment);
    add(operand.elements);
    std::visit([this](auto value) { add(value); }, operand.value);
  }

  void add(const Access& access) {
    add(access.operand);
    add(access.offset);
    add(access.strides);
    for (const IndexedAxis& axis : access.indexed) {
      if (axis.extent == 0) break;  // keys of fusions without indices stay what they were
      add(axis.stride);
      add(axis.extent);
    }
  }

  void add(const Node& node) {
    add(node.kind);
    add(node.type);
    add(node.access);
    add(node.input);
    add(node.axis);
    add_fields(node.pointwise);
    add_fields(node.reduction);
    add(node.over);
    for (const int arg : node.args) add(arg);
  }

  void add(const Store& store) {
    add(store.node);
    add(store.type);
    add(store.access);
  }

  void add(const Expr& expr) {
    add(expr.domain);
    add_list(expr.nodes);
    add_list(expr.stores);
    add_list(expr.yields);
  }

  Hasher hasher_;
};

}  // namespace

std::string fusion_key(const Fusion& fusion) {
  FusionHasher hasher;
  hasher.add(fusion);
  return hasher.hex();
}

std::vector<MeasuredConfig> ranked(std::vector<MeasuredConfig> measured) {
  std::vector<MeasuredConfig> order;
  while (!measured.empty()) {
    const double high = std::ranges::min_element(measured, {}, &MeasuredConfig::seconds)->high;
    const auto next =
        std::ranges::find_if(measured, [high](const MeasuredConfig& each) { return each.low <= high; });
    order.push_back(std::move(*next));
    measured.erase(next);
  }
  return order;
}

}  // namespace fusor
