// Owns the search for matmuls of few steps, and their rewriting.
#include "backend/planner/rewrites/products/short_products.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "backend/planner/kinds.h"
#include "core/attributes.h"
#include "core/dims.h"
#include "core/graph_index.h"

namespace fusor {

namespace {

// Elements of a product that is worth it: a smaller one takes little more than its launch either way.
constexpr int64_t kFewestElements = 4096;
// Terms that all products of a graph are written in, at most: planning looks at each.
constexpr int64_t kMostTerms = 512;
// Ops that are looked at around a product in search of another.
constexpr size_t kMostAround = 64;

// Steps for which a product is written so whatever stands beside it.
constexpr int64_t kAlways = 3;

// Rows, columns and steps of a matmul.
struct Extents {
  int64_t m, n, k;
};

// By the time model of an H200, beside the fastest kernel of tiles: steps alone decide up to 3; narrow
// results have up to 5, small matrices up to 16, and columns of one element, whose steps lie side by side, up
// to 8.
bool are_few(const Extents& e) {
  constexpr int64_t kNarrow = 5, kSmall = 16, kOfColumns = 8;
  constexpr int64_t kNarrowSide = 16, kSmallMatrix = 1024;
  if (e.k <= kAlways) return true;
  if (e.k <= kNarrow && std::min(e.m, e.n) <= kNarrowSide) return true;
  return e.k <= (e.n == 1 ? kOfColumns : kSmall) && e.m * e.n <= kSmallMatrix;
}

class ShortProducts {
 public:
  ShortProducts(Graph& graph, Additions& additions)
      : graph_(graph), additions_(additions), index_(graph), given_(std::move(graph.ops)) {}

  // Whether any product was written so.
  bool run() {
    bool changes = false;
    for (const Op& op : given_) {
      const bool is_short = may_be_written(op);
      if (is_short)
        append_terms(op);
      else
        ops_.push_back(op);
      changes = changes || is_short;
    }
    graph_.ops = std::move(ops_);
    return changes;
  }

 private:
  const Tensor& tensor(int at) const { return graph_.tensors[static_cast<size_t>(at)]; }
  const Dims& dims(int at) const { return tensor(at).dims; }

  Extents extents(const Op& matmul) const {
    const Dims &a = dims(matmul.inputs[0]), &b = dims(matmul.inputs[1]);
    return {a[a.rank() - 2], b[b.rank() - 1], a[a.rank() - 1]};
  }

  bool may_be_written(const Op& op) {
    const auto* const matmul = std::get_if<Matmul>(&op.attributes);
    if (matmul == nullptr || op.inputs.size() != 2 || !is_real(matmul->compute)) return false;
    const auto is_readable = [&](int input) {
      return !tensor(input).is_scalar() && !is_packed(tensor(input).type) && dims(input).rank() >= 2;
    };
    if (!std::ranges::all_of(op.inputs, is_readable) || is_packed(tensor(op.outputs[0]).type)) return false;
    const Extents e = extents(op);
    if (e.k < 1 || !are_few(e) || element_count(dims(op.outputs[0])) < kFewestElements ||
        terms_ + e.k > kMostTerms)
      return false;
    if (e.k > kAlways && stands_beside_contraction(op)) return false;
    terms_ += e.k;
    return true;
  }

  // Whether the product leads to another or is made of one, as those of attention are, which one kernel
  // makes.
  bool stands_beside_contraction(const Op& matmul) const {
    const auto readers = [&](const Op& op) { return index_.consumers(op.outputs[0]); };
    const auto makers = [&](const Op& op) {
      std::vector<int> found;
      for (const int input : op.inputs)
        if (input >= 0 && index_.producer(input) >= 0) found.push_back(index_.producer(input));
      return found;
    };
    return reaches_contraction(matmul, readers) || reaches_contraction(matmul, makers);
  }

  template <class Next>
  bool reaches_contraction(const Op& from, const Next& next_to) const {
    std::set<int> seen;
    std::vector<const Op*> open = {&from};
    while (!open.empty() && seen.size() < kMostAround) {
      const Op& op = *open.back();
      open.pop_back();
      for (const int next : next_to(op)) {
        const Op& found = given_[static_cast<size_t>(next)];
        if (is_contraction(found.attributes)) return true;
        if (seen.insert(next).second) open.push_back(&found);
      }
    }
    return false;
  }

  // ---- Rewriting ----

  void append_terms(const Op& matmul) {
    const int64_t steps = extents(matmul).k;
    int sum = -1;
    for (int64_t step = 0; step < steps; ++step) {
      const bool is_last = step + 1 == steps;
      const int a = step_of(matmul, 0, step), b = step_of(matmul, 1, step);
      const int term = append(PointwiseMode::mul, a, b, matmul, is_last && steps == 1);
      sum = sum < 0 ? term : append(PointwiseMode::add, sum, term, matmul, is_last);
    }
  }

  // A column of the first operand or a row of the second.
  int step_of(const Op& matmul, int place, int64_t step) {
    const int operand = matmul.inputs[place], axis = dims(operand).rank() - 1 - place;
    if (dims(operand)[axis] == 1) return operand;
    ops_.push_back(additions_.slice(operand, axis, step, step + 1, matmul.name + ".in"));
    return ops_.back().outputs[0];
  }

  // The last op gives the product under its name.
  int append(PointwiseMode mode, int a, int b, const Op& matmul, bool is_last) {
    const DataType compute = std::get<Matmul>(matmul.attributes).compute;
    Op made{is_last ? matmul.name : additions_.op_name(fmt::format("{}.{}", matmul.name, to_string(mode))),
            Pointwise{.mode = mode, .compute = compute},
            {a, b},
            matmul.outputs};
    if (!is_last) {
      Tensor model = tensor(matmul.outputs[0]);
      model.type = compute;
      made.outputs = {additions_.tensor(model, dims(matmul.outputs[0]), made.name)};
    }
    ops_.push_back(std::move(made));
    return ops_.back().outputs[0];
  }

  Graph& graph_;
  Additions& additions_;
  GraphIndex index_;  // of the ops as they were given
  std::vector<Op> given_, ops_;
  int64_t terms_ = 0;
};

}  // namespace

bool write_short_products(Graph& graph, Additions& additions) {
  return std::ranges::any_of(graph.ops, is_matmul) && ShortProducts(graph, additions).run();
}

}  // namespace fusor
