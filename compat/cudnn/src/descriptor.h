// Owns Descriptor: the typed values that a client has set, under the rules of the table of descriptors.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "compat/cudnn/src/attribute_table.h"
#include "compat/cudnn/src/status.h"

namespace fusor::cudnn {

class Descriptor;
using DescriptorPointer = std::shared_ptr<const Descriptor>;

/// The value of one attribute: elements as bytes, or other descriptors.
struct Value {
  cudnnBackendAttributeType_t type = CUDNN_TYPE_INT64;
  int64_t count = 0;
  std::string bytes = {};
  std::vector<DescriptorPointer> children = {};

  template <class Element>
  std::vector<Element> elements() const {
    std::vector<Element> list(static_cast<size_t>(count));
    if (count > 0)
      std::char_traits<char>::copy(reinterpret_cast<char*>(list.data()), bytes.data(), bytes.size());
    return list;
  }
  template <class Element>
  static Value of(cudnnBackendAttributeType_t type, const std::vector<Element>& list) {
    return {type,
            static_cast<int64_t>(list.size()),
            std::string(reinterpret_cast<const char*>(list.data()), list.size() * sizeof(Element)),
            {}};
  }
  template <class Element>
  static Value one(cudnnBackendAttributeType_t type, Element element) {
    return {type, 1, std::string(reinterpret_cast<const char*>(&element), sizeof element), {}};
  }
};

/// What finalize made of a descriptor.
struct State {
  virtual ~State() = default;
};

/// Changed by one thread until it is finalized; from then on constant, and read by any number.
class Descriptor : public std::enable_shared_from_this<Descriptor> {
 public:
  static constexpr const char* kWhat = "descriptor";
  explicit Descriptor(const DescriptorRow& row) : row_(&row) {}

  const DescriptorRow& row() const { return *row_; }
  cudnnBackendDescriptorType_t type() const { return row_->type; }
  bool is_finalized() const { return finalized_.load(std::memory_order_acquire); }
  void mark_finalized() { finalized_.store(true, std::memory_order_release); }

  /// Null where the client has not set it.
  const Value* find(cudnnBackendAttributeName_t attribute) const;
  bool has(cudnnBackendAttributeName_t attribute) const { return find(attribute) != nullptr; }
  /// The first element; throws where the attribute is not set.
  template <class Element>
  Element get(cudnnBackendAttributeName_t attribute) const {
    return element<Element>(required(attribute));
  }
  template <class Element>
  Element get(cudnnBackendAttributeName_t attribute, Element otherwise) const {
    const Value* value = find(attribute);
    return value == nullptr || value->count == 0 ? otherwise : element<Element>(*value);
  }
  template <class Element>
  std::vector<Element> list(cudnnBackendAttributeName_t attribute) const {
    const Value* value = find(attribute);
    return value == nullptr ? std::vector<Element>{} : value->elements<Element>();
  }
  /// A factor: of single or double precision.
  double real(cudnnBackendAttributeName_t attribute, double otherwise) const;
  /// The descriptor that the attribute holds, or null.
  DescriptorPointer child(cudnnBackendAttributeName_t attribute) const;

  void put(cudnnBackendAttributeName_t attribute, Value value);
  /// Becomes a copy of a finalized descriptor of the same type.
  void become(const Descriptor& other);
  /// Whether it became one, and may become another.
  bool is_filled() const { return filled_; }

  std::shared_ptr<const State> state() const { return state_; }
  void set_state(std::shared_ptr<const State> state) { state_ = std::move(state); }
  template <class Kind>
  std::shared_ptr<const Kind> state_as() const {
    auto kind = std::dynamic_pointer_cast<const Kind>(state_);
    if (!kind) refuse(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "a {} descriptor is not finalized", row_->name);
    return kind;
  }

 private:
  const Value& required(cudnnBackendAttributeName_t attribute) const;
  template <class Element>
  static Element element(const Value& value) {
    static_assert(std::is_trivially_copyable_v<Element>);
    Element result;
    if (value.bytes.size() < sizeof result) refuse(CUDNN_STATUS_INTERNAL_ERROR, "an attribute is too short");
    std::char_traits<char>::copy(reinterpret_cast<char*>(&result), value.bytes.data(), sizeof result);
    return result;
  }

  const DescriptorRow* row_;
  std::vector<std::pair<cudnnBackendAttributeName_t, Value>> values_;
  std::shared_ptr<const State> state_;
  std::atomic<bool> finalized_{false};
  bool filled_ = false;
};

/// Throws where the pointer is no descriptor.
std::shared_ptr<Descriptor> descriptor_at(const void* pointer);

/// The value that a client hands over for an attribute, checked against its row.
Value read_value(const AttributeRow& row, cudnnBackendAttributeType_t type, int64_t count,
                 const void* elements);
/// Writes a value where the client wants it: the count, and as many elements as it asked for and there are.
void write_value(const Value& value, int64_t requested, int64_t* count, void* elements);

}  // namespace fusor::cudnn
