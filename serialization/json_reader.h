// Owns JsonReader: checked reading of one JSON value that knows its place in the document, for messages.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/dims.h"
#include "core/fail.h"
#include "serialization/json_text.h"

namespace fusor {

/// A value and its path ("tensors[2].dims"). Every read throws Error{bad_input} with the path where the value
/// is not what is asked for. The document must outlive its readers.
class JsonReader {
 public:
  explicit JsonReader(const Json& document) : value_(&document) {}

  const std::string& path() const { return path_; }
  template <class... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> text, Args&&... args) const {
    fail("{}{}{}", path_, path_.empty() ? "" : ": ", fmt::format(text, std::forward<Args>(args)...));
  }

  /// Refuses anything but an object whose keys are all among `known`.
  void expect_keys(std::span<const std::string_view> known) const;
  void expect_keys(std::initializer_list<std::string_view> known) const {
    expect_keys(std::span<const std::string_view>(known.begin(), known.size()));
  }
  /// The keys of an object, in order.
  std::vector<std::string> keys() const;
  bool has(std::string_view key) const;
  JsonReader at(std::string_view key) const;

  /// Refuses anything but a list.
  size_t size() const;
  JsonReader at(size_t index) const;

  bool is_text() const { return value_->is_string(); }
  bool boolean() const;
  int64_t integer() const;
  /// An integer that fits int and is `least` or more.
  int small_integer(int least) const;
  /// A number, or "inf", "-inf", "nan".
  double real() const;
  const std::string& text() const;
  /// Text of 1 to kLongestName bytes without control characters: it will stand in messages and comments.
  std::string name() const;
  /// Up to kMaxRank integers.
  Dims dims() const;
  /// The position in `names` of this text.
  size_t one_of(std::span<const std::string_view> names) const;

 private:
  JsonReader(const Json& value, std::string path) : value_(&value), path_(std::move(path)) {}
  [[noreturn]] void expected(std::string_view what) const;

  const Json* value_;
  std::string path_;
};

}  // namespace fusor
