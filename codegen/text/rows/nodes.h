// Owns the questions that all parts of a rows site's text ask about its nodes: names, places and readers.
#pragma once

#include <string>
#include <vector>

#include "codegen/text/expr_emitter.h"
#include "codegen/text/rows/facts.h"
#include "codegen/text/site_fields.h"

namespace fusor {

/// The nodes of a rows site, as its text sees them.
class RowNodes {
 public:
  RowNodes(const KernelSite& site, const SourceNames* names);

  const KernelSite& site() const { return site_; }
  const RowFacts& facts() const { return facts_; }

  int count() const { return static_cast<int>(expr_.nodes.size()); }
  const std::string& name(int node) const { return names_of_[static_cast<size_t>(node)]; }
  RowPlace place(int node) const { return facts_.places[static_cast<size_t>(node)]; }
  int level(int node) const { return facts_.levels[static_cast<size_t>(node)]; }
  bool is_column(int node) const { return facts_.is_column[static_cast<size_t>(node)]; }
  LaneStep step(const Access& access) const { return lane_step(site_, access); }

  RowJoin join(int total) const { return facts_.joins[static_cast<size_t>(total)]; }
  int summed(int total) const { return facts_.summed[static_cast<size_t>(total)]; }
  int giver(int total) const { return facts_.giver[static_cast<size_t>(total)]; }

  std::string comment_of(int op) const;
  std::string operand_comment(const Access& access) const;

  // ---- Loads ----

  bool is_element_load(int at, bool fixed) const;
  std::vector<int> indexed_loads() const;
  bool takes_through_indices() const { return !indexed_loads().empty(); }
  bool is_shared_lane(int at) const { return step(expr_.node(at).access) == LaneStep::broadcast; }
  bool is_taken(int at) const { return expr_.node(at).access.is_indexed() && is_element_load(at, false); }
  /// Where neighbouring lanes are neighbouring windows, each is loaded alone, or a thread loads runs of
  /// elements that several of its windows take.
  bool takes_runs() const;
  /// The choice between the elements that a load takes and one number for all places outside, if that is all
  /// that they are read for; else -1. A load gives that number itself.
  int filler(int load) const;
  /// Whether a value is a load's elements, filled.
  bool is_filled(int at) const;
  /// The load whose elements a value is, filled or not; -1.
  int load_of(int at) const;

  // ---- Totals and stores ----

  /// The largest or smallest of elements of 16 bits is found as they are stored.
  bool is_of_pairs(int total) const;
  /// The choice between a value and zero that a total adds, or null: sums begin at +0, so that a zero of
  /// either sign leaves them as they are.
  const Node* selects_or_adds_nothing(int total) const;
  /// A value that only leaves through stores of its own type is rounded by them.
  bool is_rounded_by_stores(int at) const;

 private:
  const KernelSite& site_;
  const Expr& expr_;
  const SourceNames* names_;
  const RowFacts facts_;
  std::vector<std::string> names_of_;
};

}  // namespace fusor
