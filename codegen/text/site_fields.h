// Owns the one list of a site's argument fields, from which the text of Args and its bytes are both made.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/lowered.h"

namespace fusor {

/// How an access walks the vector axis.
enum class LaneStep : uint8_t { broadcast, adjacent, strided };
LaneStep lane_step(const KernelSite& site, const Access& access);

/// Whether the access walks `axis` by a stride that is an argument (not 0, and not 1 along the vector axis).
bool has_stride_field(const KernelSite& site, const Access& access, int axis);

/// One 8-byte field of a site's Args.
struct SiteField {
  enum class Kind : uint8_t {
    pointer,        ///< of a load or a store, its offset included
    first,          ///< of packed elements: the offset's element within the byte that the pointer is of
    stride,         ///< elements along `axis`
    index_stride,   ///< elements that a step of the access's index number `axis` passes
    index_extent,   ///< and the values that it may have
    scalar,         ///< a by-value operand, in the carrier of the node's type
    index_scale,    ///< an index node's factor
    index_offset,   ///< and summand
    parameter,      ///< a pointwise parameter that is not its default, in the op's compute type
    reduced_count,  ///< elements that a reduction combines, in its compute type
  };
  Kind kind = Kind::pointer;
  bool of_store = false;  ///< `at` counts stores, else nodes
  int at = 0;
  int axis = 0;
  double value = 0;  ///< of a parameter
  std::string name;  ///< "in0", "in0_stride1", "v3_elu_alpha": also how the text calls it
  std::string type;  ///< device type
};

/// In the order in which they lie in Args.
std::vector<SiteField> site_fields(const KernelSite& site);

/// The parameters that the mode's formula reads, as Pointwise::visit names them and the device's Parameters
/// do.
struct ModeParameter {
  std::string_view name;
  double value;
};
std::vector<ModeParameter> parameters_of(const Pointwise& pointwise);

/// What the text calls things: loads in0, in1 ..., values v0, v1 ... and stores out0, out1 ... by their
/// order. Totals are the kernel's, so a reduce node takes no number.
int value_number(const Expr& expr, int node);
/// The number by which sites in phases call a reduce node.
int total_number(const Expr& expr, int node);
std::string load_name(const Expr& expr, int node);
std::string store_name(int store);
/// The device function that stores whole vectors.
std::string_view whole_store(const Store& store);
/// The text of a coordinate that an index node scales: numbers of 64 bits are computed in 64, whatever the
/// kernel's own places take.
std::string index_text(const Node& node, const std::string& coordinate);
/// The expression of a load's pointer in the text; packed elements have one that counts elements.
std::string pointer_text(const std::string& load, DataType type);

}  // namespace fusor
