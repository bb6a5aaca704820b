// Owns the move of values to the groups that read them, where that moves fewer bytes, and the search for
// those that several groups had better compute each for itself.
#include "backend/planner/partition/late_values.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "backend/planner/partition/groups.h"

namespace fusor {

namespace {

class LateValues {
 public:
  LateValues(const Graph& graph, const FoldedGraph& folded, std::vector<std::vector<int>>& groups)
      : graph_(graph), folded_(folded), groups_(groups), group_of_(graph.ops.size(), -1) {
    for (size_t group = 0; group < groups.size(); ++group)
      for (const int op : groups[group]) group_of_[static_cast<size_t>(op)] = static_cast<int>(group);
  }

  void run() {
    // A value that moved may be one that others wait for.
    constexpr int kMostPasses = 8;
    for (int pass = 0; pass < kMostPasses; ++pass) {
      bool moves = false;
      for (int op = static_cast<int>(graph_.ops.size()) - 1; op >= 0; --op)
        if (const auto reader = cheaper_group(op)) {
          move_chain(op, *reader);
          moves = true;
        }
      if (!moves) break;
    }
    std::erase_if(groups_, [](const std::vector<int>& ops) { return ops.empty(); });
  }

  std::vector<RepeatedValue> to_repeat() const {
    std::vector<RepeatedValue> found;
    for (int op = 0; op < std::ssize(graph_.ops); ++op)
      if (is_movable(op)) add_repeats(op, found);
    return found;
  }

 private:
  int group_of(int op) const { return group_of_[static_cast<size_t>(op)]; }
  const Tensor& tensor(int at) const { return graph_.tensors[static_cast<size_t>(at)]; }
  int result(int op) const { return graph_.ops[static_cast<size_t>(op)].outputs[0]; }

  bool is_movable(int op) const {
    return op >= 0 && group_of(op) >= 0 && is_pointwise(graph_.ops[static_cast<size_t>(op)]) &&
           tensor(result(op)).is_virtual() && !is_packed(tensor(result(op)).type) &&
           !folded_.index.consumers(result(op)).empty();
  }

  // ---- Where to ----

  std::optional<int> cheaper_group(int op) const {
    if (is_movable(op)) {
      const auto reader = reading_group(op);
      return reader && is_cheaper_there(op, *reader) ? reader : std::nullopt;
    }
    return group_of(op) >= 0 && is_reduction(graph_.ops[static_cast<size_t>(op)]) ? group_beside(op)
                                                                                  : std::nullopt;
  }

  // The one other group whose ops alone read the op's result.
  std::optional<int> reading_group(int op) const {
    int found = -1;
    for (const int reader : folded_.index.consumers(result(op))) {
      const int group = group_of(reader);
      if (group < 0 || group == group_of(op) || (found >= 0 && group != found)) return std::nullopt;
      found = group;
    }
    return takes(found, op, tensor(result(op)).dims) ? std::optional(found) : std::nullopt;
  }

  // ---- Values that several groups read ----

  // Repeats of the op's value in all other groups that read it, where they together move fewer bytes than the
  // value, written once and read by each.
  void add_repeats(int op, std::vector<RepeatedValue>& found) const {
    const auto readers = folded_.index.consumers(result(op));
    std::vector<int> others;
    for (const int reader : readers) {
      if (group_of(reader) < 0) return;
      if (group_of(reader) != group_of(op)) others.push_back(group_of(reader));
    }
    const bool is_read_at_home = others.size() < readers.size();
    std::ranges::sort(others);
    others.erase(std::unique(others.begin(), others.end()), others.end());
    if (others.empty() || (others.size() == 1 && !is_read_at_home)) return;
    int64_t bytes = 0;
    std::vector<RepeatedValue> repeats;
    for (const int group : others) {
      Repeat repeat;
      if (!takes(group, op, tensor(result(op)).dims) || !add_repeat(op, group, repeat)) return;
      bytes += repeat.bytes;
      std::ranges::sort(repeat.ops);
      RepeatedValue value{std::move(repeat.ops), {}};
      std::ranges::copy_if(readers, std::back_inserter(value.readers),
                           [&](int reader) { return group_of(reader) == group; });
      repeats.push_back(std::move(value));
    }
    if (bytes < tensor(result(op)).bytes() * (1 + std::ssize(others)))
      std::ranges::move(repeats, std::back_inserter(found));
  }

  struct Repeat {
    std::vector<int> ops;
    int64_t bytes = 0;  // that the group reads for them alone, or others store
    int instructions = 0;
  };

  // Adds the op, and what leads to it where that is not read more cheaply. False where too much is computed.
  bool add_repeat(int op, int reader, Repeat& repeat) const {
    if (std::ranges::find(repeat.ops, op) != repeat.ops.end()) return true;
    repeat.ops.push_back(op);
    repeat.instructions += pointwise_cost(graph_.ops[static_cast<size_t>(op)]);
    if (repeat.instructions > kCheapInstructions) return false;
    for (const int input : graph_.ops[static_cast<size_t>(op)].inputs) {
      if (tensor(input).is_scalar() || reads(reader, input)) continue;
      const int64_t bytes = (is_stored(input, group_of(op)) ? 1 : 2) * tensor(input).bytes();
      const int maker = folded_.index.producer(input);
      Repeat longer = repeat;
      const bool repeats = is_movable(maker) && group_of(maker) == group_of(op) &&
                           add_repeat(maker, reader, longer) && longer.bytes < repeat.bytes + bytes;
      if (repeats)
        repeat = std::move(longer);
      else
        repeat.bytes += bytes;
    }
    return true;
  }

  // For a total behind a contraction: a group of rows that reads what the contraction's group gives, and all
  // that the total is made of.
  std::optional<int> group_beside(int op) const {
    const int x = graph_.ops[static_cast<size_t>(op)].inputs[0], own = group_of(op);
    if (!has_contraction(own) || is_grouped_reduction(graph_, graph_.ops[static_cast<size_t>(op)]) ||
        reads(own, result(op)))
      return std::nullopt;
    for (const int member : groups_[static_cast<size_t>(own)])
      for (const int reader : folded_.index.consumers(result(member))) {
        const int group = group_of(reader);
        if (group < 0 || group == own || !takes(group, op, tensor(x).dims) || !has_reduction(group) ||
            waits_for_readers(group, op))
          continue;
        if (reads(group, x)) return group;
        const int maker = folded_.index.producer(x);
        if (!is_movable(maker) || group_of(maker) != own || !is_made_for(x, op)) continue;
        const Price price = price_of(maker, group);
        if (price.bytes == 0 && price.instructions <= kCheapInstructions) return group;
      }
    return std::nullopt;
  }

  // Whether a group that this one waits for reads the op's result: it would wait for itself with the op.
  bool waits_for_readers(int group, int op) const {
    std::vector<bool> known(groups_.size(), false);
    std::vector<int> open{group};
    known[static_cast<size_t>(group)] = true;
    while (!open.empty()) {
      const int at = open.back();
      open.pop_back();
      for (const int member : groups_[static_cast<size_t>(at)])
        for (const int wait : folded_.dependencies[static_cast<size_t>(member)]) {
          if (wait == op && at != group) return true;
          const int next = group_of(wait);
          if (next < 0 || known[static_cast<size_t>(next)]) continue;
          known[static_cast<size_t>(next)] = true;
          open.push_back(next);
        }
    }
    return false;
  }

  bool has_contraction(int group) const {
    return std::ranges::any_of(groups_[static_cast<size_t>(group)], [&](int member) {
      return is_contraction(graph_.ops[static_cast<size_t>(member)].attributes);
    });
  }
  bool has_reduction(int group) const {
    return std::ranges::any_of(groups_[static_cast<size_t>(group)], [&](int member) {
      return is_reduction(graph_.ops[static_cast<size_t>(member)]);
    });
  }

  // Whether the group has room for the op with all that may come with it from its own group, works over
  // elements of that shape, and is of pointwise ops and reductions, or reads the op's result behind its one
  // contraction.
  bool takes(int group, int op, const Dims& dims) const {
    const std::vector<int>& members = groups_[static_cast<size_t>(group)];
    if (members.size() + groups_[static_cast<size_t>(group_of(op))].size() > kMaxFusionOps) return false;
    int contractions = 0;
    bool works_over_dims = false;
    for (const int member : members) {
      const Op& described = graph_.ops[static_cast<size_t>(member)];
      const bool is_contraction_here = is_contraction(described.attributes);
      contractions += is_contraction_here ? 1 : 0;
      if (!is_contraction_here && !is_pointwise(described) && !is_reduction(described)) return false;
      works_over_dims =
          works_over_dims ||
          tensor(works_over_operand(described) ? described.inputs[0] : described.outputs[0]).dims == dims;
    }
    return works_over_dims && (contractions == 0 || (contractions == 1 && is_read_behind(group, result(op))));
  }

  // Whether all ops of the group that read the value wait for its contraction.
  bool is_read_behind(int group, int value) const {
    const std::vector<int>& members = groups_[static_cast<size_t>(group)];
    std::vector<int> behind;  // ascending
    for (const int member : members) {
      const bool waits =
          std::ranges::any_of(folded_.dependencies[static_cast<size_t>(member)],
                              [&](int wait) { return std::ranges::binary_search(behind, wait); });
      if (waits || is_contraction(graph_.ops[static_cast<size_t>(member)].attributes))
        behind.push_back(member);
    }
    return std::ranges::all_of(folded_.index.consumers(value), [&](int reader) {
      return group_of(reader) != group || (std::ranges::binary_search(behind, reader) &&
                                           is_pointwise(graph_.ops[static_cast<size_t>(reader)]));
    });
  }

  // ---- Values ----

  bool reads(int group, int value) const {
    return std::ranges::any_of(folded_.index.consumers(value), [&](int reader) {
      return !folded_.folded[static_cast<size_t>(reader)] && group_of(reader) == group;
    });
  }

  // Whether only the op reads the value, so that what makes it may move with it.
  bool is_made_for(int value, int op) const {
    return std::ranges::all_of(folded_.index.consumers(value), [&](int reader) { return reader == op; });
  }

  // ---- Prices ----

  struct Price {
    int64_t bytes = 0;
    int instructions = 0;
  };

  // The bytes that the reading group must read, and others store for it, so that it can compute the op.
  Price price_of(int op, int reader) const {
    Price price{0, pointwise_cost(graph_.ops[static_cast<size_t>(op)])};
    for (const int input : graph_.ops[static_cast<size_t>(op)].inputs) {
      const int maker = folded_.index.producer(input);
      if (tensor(input).is_scalar() || reads(reader, input)) continue;
      if (is_movable(maker) && group_of(maker) == group_of(op) && is_made_for(input, op)) {
        const Price behind = price_of(maker, reader);
        price.bytes += behind.bytes;
        price.instructions += behind.instructions;
        continue;
      }
      if (!is_read_there_instead(input, op))
        price.bytes += (is_stored(input, group_of(op)) ? 1 : 2) * tensor(input).bytes();
    }
    return price;
  }

  // Whether the op's own group need not read what others make for it once the op moves.
  bool is_read_there_instead(int value, int op) const {
    const int maker = folded_.index.producer(value), own = group_of(op);
    return (maker < 0 || group_of(maker) != own) &&
           std::ranges::none_of(folded_.index.consumers(value),
                                [&](int reader) { return reader != op && group_of(reader) == own; });
  }

  // Whether the value lies in memory whatever becomes of what `group` makes of it.
  bool is_stored(int value, int group) const {
    const int maker = folded_.index.producer(value);
    if (!tensor(value).is_virtual() || maker < 0 || group_of(maker) != group) return true;
    return std::ranges::any_of(folded_.index.consumers(value), [&](int reader) {
      return folded_.folded[static_cast<size_t>(reader)] || group_of(reader) != group;
    });
  }

  bool is_cheaper_there(int op, int reader) const {
    const Price price = price_of(op, reader);
    return price.instructions <= kCheapInstructions && price.bytes < 2 * tensor(result(op)).bytes();
  }

  // ---- Moves ----

  void move_chain(int op, int reader) {
    const int from = group_of(op);
    for (const int input : graph_.ops[static_cast<size_t>(op)].inputs) {
      const int maker = folded_.index.producer(input);
      if (is_movable(maker) && group_of(maker) == from && is_made_for(input, op) && !reads(reader, input))
        move_chain(maker, reader);
    }
    std::erase(groups_[static_cast<size_t>(from)], op);
    std::vector<int>& members = groups_[static_cast<size_t>(reader)];
    members.insert(std::ranges::lower_bound(members, op), op);
    group_of_[static_cast<size_t>(op)] = reader;
  }

  const Graph& graph_;
  const FoldedGraph& folded_;
  std::vector<std::vector<int>>& groups_;
  std::vector<int> group_of_;  // per op; -1 for folded ones
};

}  // namespace

std::vector<RepeatedValue> values_to_repeat(const Graph& graph, const FoldedGraph& folded,
                                            std::vector<std::vector<int>> groups) {
  return LateValues(graph, folded, groups).to_repeat();
}

void give_values_to_readers(const Graph& graph, const FoldedGraph& folded,
                            std::vector<std::vector<int>>& groups) {
  LateValues(graph, folded, groups).run();
}

}  // namespace fusor
