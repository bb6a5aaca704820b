// Owns Repacker: what rewrites are made of - scratches in orders of their own, copies into and out of them,
// and sites that read and write them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "backend/engines/contraction/product.h"
#include "backend/engines/repack/repack.h"
#include "core/fusion.h"

namespace fusor {

// Orders of axes, fastest first.
Dims channels_last(int rank);
Dims output_channels_last(int rank);
Dims positions_last(int rank);

/// The product can wait in scratch without being rounded anew.
bool can_finish_later(const Expr& y);
/// Whether a node of a site over images or results depends on the position.
bool names_position(const Node& node);
/// The paths of a fusion whose results keep their shape; the first is direct.
std::vector<ResultPath> result_paths(const Fusion& fusion, const Contraction& view);

/// A site that is a load of scratch.
Expr loaded(const Dims& domain, DataType type, const Access& scratch);

/// Packed operands of a convolution are channels-last, those of a matmul keep the direction that is closer
/// together, but elements of other than 16 bits lie along k; bytes that are summed in fp32 become fp16 or
/// bf16, which hold their numbers; lines begin on multiples of 16 bytes. Those of a wgrad that lie along k
/// are planes in zeros, as flat_rows() says.
class Repacker {
 public:
  Repacker(const Fusion& fusion, const Contraction& view);

  const Contraction& view() const { return view_; }
  Fusion& core() { return out_.core; }
  Expr& operand(size_t index) { return operand_site(out_.core, 0, index); }
  Expr& result() { return result_site(out_.core); }
  Conv& convolution();
  /// After changes to the anchor and the domains of its sites.
  void view_anew();

  DataType packed_type(size_t index) const;
  Dims operand_order(const Expr& site, size_t index, DataType type) const;

  /// A scratch of its own, named after what the site reads.
  Access add_scratch(const Expr& site, const Dims& domain, const Dims& order, DataType type);
  Access add_zeros(const Expr& site, const Dims& domain, const Dims& order, DataType type);
  /// [image][channel][positions]; positions of wgrad along which all taps of a window lie equally far apart.
  Access add_planes(const Expr& site, const Dims& domain, DataType type);
  /// Like a result of the contraction as it is rewritten.
  Access add_result(DataType type, const std::string& name);
  /// The scratch that was added last must be zero before the loads.
  void zero_last();

  /// What the site yields is copied into scratch.
  void load(Expr site, DataType type, const Access& scratch);
  void store(Expr copy) { add_site(out_.stores, std::move(copy)); }

  /// The operand's site becomes a load of scratch; what it was is carried out by the copy.
  void pack_operand(size_t index);

  /// The bare product, in a scratch of its own, and which node of the epilogue it was.
  struct Product {
    size_t node = 0;
    Access scratch;
  };
  Product leave_product(const Expr& epilogue);
  /// A part of the epilogue as a copy that begins with the product at `from`.
  void finish(Expr part, const Product& product, const Access& from);
  /// Results that keep their shape.
  void leave(ResultPath way);

  Repacked take();

 private:
  std::string name_for(const Expr& site) const;
  Access add_strided(const Dims& domain, const Strides& strides, DataType type, const std::string& name);
  void copy_results();

  Contraction view_;
  Repacked out_;
};

}  // namespace fusor
