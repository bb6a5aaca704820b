// Owns Composite: an op of a family that no row of op.def names. A struct with the members that a row's
// struct has (core/ops/family.h), of Nature::composite, becomes an op by Composite(struct), and known to
// graph files by register_family(struct).
#pragma once

#include <functional>
#include <memory>
#include <type_traits>
#include <variant>

#include "core/api.h"
#include "core/ops/family.h"

namespace fusor {

class Expansion;

/// Places of the types that an attribute of a composite may have.
using FieldPlace = std::variant<bool*, int64_t*, double*, Dims*, DataType*>;
using FieldVisitor = std::function<void(std::string_view name, FieldPlace place)>;

/// A family's struct behind one interface.
class FUSOR_API CompositeOp {
 public:
  virtual ~CompositeOp() = default;
  virtual std::unique_ptr<CompositeOp> clone() const = 0;
  virtual std::string_view kind() const = 0;
  virtual Roles roles() const = 0;
  virtual std::vector<Inferred> infer(const Call& call) const = 0;
  virtual void expand(Expansion& expansion) const = 0;
  virtual void visit(const FieldVisitor& field) = 0;
  virtual void fill_omitted(int rank) = 0;
  virtual bool equals(const CompositeOp& other) const = 0;
};

template <OpFamily Family>
class CompositeOf final : public CompositeOp {
 public:
  static_assert(Family::nature == Nature::composite);
  explicit CompositeOf(Family op) : op_(std::move(op)) {}
  std::unique_ptr<CompositeOp> clone() const override { return std::make_unique<CompositeOf>(op_); }
  std::string_view kind() const override { return op_.kind(); }
  Roles roles() const override { return op_.roles(); }
  std::vector<Inferred> infer(const Call& call) const override { return op_.infer(call); }
  void expand(Expansion& expansion) const override { op_.expand(expansion); }
  void visit(const FieldVisitor& field) override {
    Family::visit(op_, [&](std::string_view name, auto& value) { field(name, FieldPlace(&value)); });
  }
  void fill_omitted(int rank) override {
    if constexpr (requires { op_.fill_omitted(rank); }) op_.fill_omitted(rank);
  }
  bool equals(const CompositeOp& other) const override {
    const auto* same = dynamic_cast<const CompositeOf*>(&other);
    return same != nullptr && same->op_ == op_;
  }

 private:
  Family op_;
};

/// A value, as every other attribute struct is.
class FUSOR_API Composite {
 public:
  static constexpr Nature nature = Nature::composite;
  Composite() = default;
  template <OpFamily Family>
  requires(!std::is_same_v<Family, Composite>) explicit Composite(Family op)
      : op_(std::make_unique<CompositeOf<Family>>(std::move(op))) {}
  Composite(const Composite& other) : op_(other.op_ ? other.op_->clone() : nullptr) {}
  Composite(Composite&&) noexcept = default;
  Composite& operator=(Composite other) noexcept {
    op_ = std::move(other.op_);
    return *this;
  }

  std::string_view kind() const { return op_ ? op_->kind() : "composite"; }
  Roles roles() const { return op_ ? op_->roles() : Roles{}; }
  std::vector<Inferred> infer(const Call& call) const;
  void expand(Expansion& expansion) const;
  void fill_omitted(int rank) {
    if (op_) op_->fill_omitted(rank);
  }
  /// Every family that was registered.
  static std::vector<Composite> kinds();

  template <class Self, class Visitor>
  static void visit(Self& self, Visitor&& field) {
    if (!self.op_) return;
    self.op_->visit([&](std::string_view name, FieldPlace place) {
      std::visit(
          [&]<class Value>(Value* value) {
            using Place = std::conditional_t<std::is_const_v<Self>, const Value, Value>;
            field(name, static_cast<Place&>(*value));
          },
          place);
    });
  }
  friend bool operator==(const Composite& a, const Composite& b) {
    return a.op_ && b.op_ ? a.op_->equals(*b.op_) : a.op_ == b.op_;
  }

 private:
  std::unique_ptr<CompositeOp> op_;
};

/// Lets graph files name a family; `prototype` holds the defaults of its attributes. Throws where another
/// family has the name. From any thread.
FUSOR_API void register_family(Composite prototype);
template <OpFamily Family>
requires(!std::is_same_v<Family, Composite>) void register_family(Family prototype) {
  register_family(Composite(std::move(prototype)));
}

}  // namespace fusor
