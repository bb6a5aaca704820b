// Owns Fusion: a part of the graph that one engine carries out.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/expr.h"
#include "core/graph.h"

namespace fusor {

/// A buffer that a fusion reads or writes; every Access names one. Its address is a slot (user memory), a
/// place in the workspace, or, for scalars, a host value.
struct Operand {
  int tensor = -1;  ///< index into Graph::tensors: names it in messages and finds its address
  DataType type = DataType::f32;
  Memory memory = Memory::device;
  int64_t alignment = 16;  ///< bytes promised for the start of the buffer
  int64_t elements = 0;    ///< span of the buffer, for choosing the index width
  Scalar value = 0.0;      ///< Memory::constant
  bool zero_gaps = false;  ///< scratch: what no access reaches is zero
};

/// An operand of an anchor: what a site yields. Axis i of the operand is the site's domain axis axes[i]; an
/// empty list leaves them in order.
struct Port {
  int site = -1;
  int yield = 0;  ///< place in Expr::yields
  Dims axes = {};
  /// The operand's shape where blocks split an axis in the site's domain (scales that neighbours share);
  /// empty: the domain is its shape.
  Dims whole = {};
};

/// An op that no Expr can say: a contraction. The domains of the sites behind its ports are its operands'
/// shapes.
struct Anchor {
  int op = -1;  ///< index into Graph::ops
  Attributes attributes;
  std::vector<Port> operands = {};
};

/// What a site is handed: an anchor's result, or what another site of the same domain yields.
struct Input {
  enum class From : uint8_t { anchor, site };
  From from = From::anchor;
  int at = 0;     ///< index into anchors or sites
  int yield = 0;  ///< of a site
  /// The result's shape where grouped reductions split its axes in the domain; empty: the domain is its
  /// shape.
  Dims whole = {};
};

/// A place of pointwise ops and reductions: before an operand, between two anchors, after a result, or, where
/// there is no anchor, everything.
struct Site {
  Expr expr;
  std::vector<Input> inputs = {};  ///< by Node::input
};

/// Sites and anchors, joined by ports and inputs, in topological order: an anchor's operands and a site's
/// inputs come from earlier places, and the last site stores the last results. Self-contained: engines need
/// no Graph.
struct Fusion {
  std::vector<int> ops;  ///< indices into Graph::ops, ascending
  Precision precision = Precision::exact;
  std::vector<Anchor> anchors = {};
  std::vector<Operand> operands = {};
  std::vector<Site> sites = {};
  std::vector<std::string> operand_names =
      {};  ///< the user's names, for messages and comments; not part of the structure
  std::vector<std::string> op_names = {};  ///< by position in `ops`

  const std::string& name_of(int operand) const { return operand_names[static_cast<size_t>(operand)]; }
  /// The user's name of graph op `op`.
  const std::string& op_name(int op) const;
};

/// What a fusion is made of, which says what kind of kernel carries it out.
enum class Form : uint8_t {
  pointwise,    ///< no anchor, nothing reduced
  rows,         ///< no anchor, reductions
  contraction,  ///< one anchor
  siblings,     ///< two anchors, alike but for the second operand, that share the first and meet in one site
  chain,        ///< an anchor whose operand waits for another anchor, or any other set of them
};
Form form_of(const Fusion& fusion);
std::string_view to_string(Form form);

/// The shape of what a port hands over, and that of anchor `at`'s result.
Dims operand_dims(const Fusion& fusion, const Port& port);
Dims anchor_dims(const Fusion& fusion, size_t at);
/// Operand `i` of an anchor as the site that yields it.
const Expr& operand_site(const Fusion& fusion, size_t anchor, size_t i);
Expr& operand_site(Fusion& fusion, size_t anchor, size_t i);
/// The sites whose yields are operands; without an anchor there are none.
std::span<const Site> operand_sites(const Fusion& fusion);
/// The site after all anchors; where several anchors stand behind others, after the last.
inline const Expr& result_site(const Fusion& fusion) { return fusion.sites.back().expr; }
inline Expr& result_site(Fusion& fusion) { return fusion.sites.back().expr; }

/// Appends a site of its own.
void add_site(Fusion& fusion, Expr expr);

/// Throws an internal Error where the fusion is not what it promises: every Expr valid, operands named by
/// accesses there, ports and inputs from earlier places.
void validate(const Fusion& fusion);

}  // namespace fusor
