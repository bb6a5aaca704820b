// Owns Parameters: the one list of a kernel's parameters, from which come the text of struct Params and the
// bytes and patches of the argument block.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/fusion.h"
#include "core/lowered.h"
#include "core/tensor_map.h"

namespace fusor {

/// Every call appends one field: its name and device type to the text, its value to the block. What is not
/// appended does not exist in struct Params, but for `turn` (move_to()).
class Parameters {
 public:
  /// Bits of Index: 32 or 64.
  explicit Parameters(int64_t index_bits) : index_bits_(static_cast<int>(index_bits)) {}

  void index(std::string_view name, int64_t value);
  void wide(std::string_view name, int64_t value);  ///< i64
  void wide(std::string_view name, std::span<const int64_t> values);
  void real(std::string_view name, double value);  ///< float
  /// float: a by-value scalar of each run, no less than `least`, times `factor`.
  void given_real(std::string_view name, int operand, double least, double factor);
  /// FastDivisor, or an array of them.
  void divisor(std::string_view name, int64_t value);
  void divisors(std::string_view name, std::span<const int64_t> values);
  /// To an operand of the fusion, or to scratch; `element`: "const float", "Y::Accumulator".
  void pointer(std::string_view name, std::string_view element, int operand, int64_t byte_offset = 0);
  void scratch(std::string_view name, std::string_view element, int index, int64_t byte_offset = 0);
  /// Begins on a multiple of 64 bytes: maps are a block's first fields.
  void tensor_map(std::string_view name, const TensorMap& map, int operand, int64_t byte_offset);
  /// The Args of a site, which may be empty.
  void site(std::string_view name, const KernelSite& site, const Fusion& fusion);

  /// A struct that a device file declares. `write` appends its members, all of them and in order: their
  /// places are checked when the kernel is compiled.
  template <class Write>
  void group(std::string_view name, std::string_view type, Write&& write) {
    declare(name, type);
    const std::string outer = std::exchange(scope_, path(name));
    write();
    scope_ = outer;
  }
  /// An array of such structs, or of fields (which have no name then); `write` takes a number.
  template <class Write>
  void array(std::string_view name, std::string_view type, int64_t count, Write&& write) {
    declare(name, type, static_cast<int>(count));
    const std::string outer = scope_;
    for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
      scope_ = element_path(outer, name, i);
      write(i);
    }
    scope_ = outer;
  }

  int index_bits() const { return index_bits_; }
  const std::vector<ParameterField>& fields() const { return fields_; }
  const ArgumentBlock& block() const { return block_; }
  /// Gives the text to the kernel, and both to its launch, behind `turn`: the LaunchTurn of a run. Kernels
  /// ask for that before all else: where it stands, its line of constants is there when they begin.
  void move_to(KernelSource source, Launch& launch);

 private:
  std::string path(std::string_view name) const;
  static std::string element_path(const std::string& scope, std::string_view name, size_t i);
  void declare(std::string_view name, std::string_view type, int count = 0);

  int index_bits_;
  std::string scope_;  // the struct whose members are appended; empty: Params
  std::vector<ParameterField> fields_;
  ArgumentBlock block_;
};

}  // namespace fusor
