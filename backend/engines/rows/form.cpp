// Owns how the form of a rows site is found.
#include "backend/engines/rows/form.h"

#include <algorithm>
#include <vector>

#include "backend/engines/elementwise/vectors.h"
#include "codegen/text/rows/sizes.h"
#include "core/ceil_div.h"

namespace fusor {

namespace {

KernelSite site_of(const RowsProblem& problem, int64_t vector, bool joins) {
  KernelSite site = problem.site;
  site.joins = joins;
  elementwise::mark_whole(problem.fusion, site, vector);
  return site;
}

int64_t row_values_of(const Expr& expr, const RowFacts& facts) {
  std::vector<bool> needed(expr.nodes.size(), false);
  for (size_t i = 0; i < expr.nodes.size(); ++i) {
    if (facts.places[i] != RowPlace::element) continue;
    for (const int arg : expr.nodes[i].args)
      if (arg >= 0 && facts.places[static_cast<size_t>(arg)] == RowPlace::row)
        needed[static_cast<size_t>(arg)] = true;
  }
  return std::ranges::count(needed, true);
}

int64_t row_bytes_of(const Expr& expr, const RowFacts& facts) {
  int64_t bytes = 0;
  for (size_t i = 0; i < expr.nodes.size(); ++i) {
    const int64_t size = byte_size(carrier(expr.nodes[i].type));
    if (facts.places[i] == RowPlace::row) bytes = round_up(bytes, size) + size;
  }
  return round_up(bytes, 8);
}

// Bulk copies move pieces of 16 bytes.
bool are_pieces(const Expr& expr, const RowFacts& facts, int64_t vector) {
  for (int i = 0; i < std::ssize(expr.nodes); ++i) {
    const Node& node = expr.node(i);
    if (node.kind == Node::Kind::load && facts.places[static_cast<size_t>(i)] == RowPlace::element &&
        !facts.is_fixed(expr, i) && (is_packed(node.type) || byte_size(node.type) * vector < 16))
      return false;
  }
  return true;
}

}  // namespace

RowsForm::RowsForm(const RowsProblem& problem, int64_t vector, bool joins)
    : y(site_of(problem, vector, joins)),
      facts(y),
      held(std::max<int64_t>(1, held_bytes(y, vector))),
      fixed(fixed_bytes(y, vector)),
      streamed(streamed_bytes(y)),
      copied(copied_bytes(y, vector)),
      columns(column_bytes(y)),
      totals(totals_bytes(y)),
      row_values(row_values_of(y.expr, facts)),
      row_bytes(row_bytes_of(y.expr, facts)),
      in_pieces(are_pieces(y.expr, facts, vector)) {}

std::shared_ptr<const RowsForm> RowsForms::at(int64_t vector, bool joins) {
  std::shared_ptr<const RowsForm>& form = made_[{vector, joins}];
  if (!form) form = std::make_shared<const RowsForm>(problem_, vector, joins);
  return form;
}

}  // namespace fusor
