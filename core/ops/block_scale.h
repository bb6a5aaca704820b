// Owns quantisation by blocks with a scale each (MXFP8, NVFP4 and their like), and its way back.
#pragma once

#include "core/ops/family.h"

namespace fusor {

class Expansion;

/// The attributes of both directions: blocks of `block_size` neighbours along `axis`, the last of which may
/// be shorter.
struct BlockScaleAttributes {
  int64_t block_size = 32;
  int64_t axis = -1;  ///< the last one: fill_omitted() makes it 0 or more, which infer() wants

  template <class Self, class Visitor>
  static void visit(Self& self, Visitor&& field) {
    field("block_size", self.block_size);
    field("axis", self.axis);
  }
  friend bool operator==(const BlockScaleAttributes&, const BlockScaleAttributes&) = default;
};

/// scale = the block's largest magnitude / the largest number of y's type, in the scale's type (fp8_e8m0
/// rounds up to a power of two); y = x / scale, 0 where the scale is.
struct BlockScaleQuantize : BlockScaleAttributes {
  DataType y_type = DataType::f8_e4m3;
  DataType scale_type = DataType::f8_e8m0;

  template <class Self, class Visitor>
  static void visit(Self& self, Visitor&& field) {
    BlockScaleAttributes::visit(self, field);
    field("y_type", self.y_type);
    field("scale_type", self.scale_type);
  }

  static constexpr Nature nature = Nature::composite;
  std::string_view kind() const { return "block_scale_quantize"; }
  Roles roles() const {
    return {{{"x"}}, {{.name = "y", .own_type = true}, {.name = "scale", .own_type = true}}};
  }
  std::vector<Inferred> infer(const Call& call) const;
  void expand(Expansion& e) const;
  friend bool operator==(const BlockScaleQuantize&, const BlockScaleQuantize&) = default;
};

/// y = x * scale of its block.
struct BlockScaleDequantize : BlockScaleAttributes {
  static constexpr Nature nature = Nature::composite;
  std::string_view kind() const { return "block_scale_dequantize"; }
  Roles roles() const { return {{{"x"}, {"scale"}}, {{.name = "y", .own_type = true}}}; }
  std::vector<Inferred> infer(const Call& call) const;
  void expand(Expansion& e) const;
  friend bool operator==(const BlockScaleDequantize&, const BlockScaleDequantize&) = default;
};

}  // namespace fusor
