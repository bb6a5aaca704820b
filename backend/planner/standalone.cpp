// Owns the cutting of one fusion out of its graph.
#include <algorithm>

#include "backend/planner/planner.h"

namespace fusor {

namespace {

// The alignment that the workspace promises; the key of the fusion stays what it was.
constexpr int64_t kWorkspaceAlignment = 256;

// Collects ops, then the tensors between them.
class Cutting {
 public:
  Cutting(const Graph& graph, const FoldedGraph& folded, std::span<const int> ops)
      : graph_(graph), folded_(folded), kept_(graph.ops.size(), false) {
    for (const int op : ops) keep(op);
    for (const int op : ops)
      for (const int output : graph.ops[static_cast<size_t>(op)].outputs) keep_views_into_outputs(output);
  }

  Graph cut() const {
    Graph part;
    part.name = graph_.name;
    part.precision = graph_.precision;
    std::vector<int> place(graph_.tensors.size(), -1);
    for (size_t i = 0; i < graph_.tensors.size(); ++i) {
      const int tensor = static_cast<int>(i);
      if (!is_touched(tensor)) continue;
      place[i] = static_cast<int>(part.tensors.size());
      part.tensors.push_back(described(tensor));
    }
    for (size_t i = 0; i < kept_.size(); ++i) {
      if (!kept_[i]) continue;
      part.ops.push_back(graph_.ops[i]);
      for (int& input : part.ops.back().inputs) input = place[static_cast<size_t>(input)];
      for (int& output : part.ops.back().outputs) output = place[static_cast<size_t>(output)];
    }
    return part;
  }

 private:
  bool is_kept(int op) const { return op >= 0 && kept_[static_cast<size_t>(op)]; }
  bool is_folded(int op) const { return op >= 0 && folded_.folded[static_cast<size_t>(op)]; }

  // The op, and the views through which it reads.
  void keep(int op) {
    if (is_kept(op)) return;
    kept_[static_cast<size_t>(op)] = true;
    for (const int input : graph_.ops[static_cast<size_t>(op)].inputs)
      if (const int producer = folded_.index.producer(input); is_folded(producer)) keep(producer);
  }

  // Views through which a result reaches the user's tensor: it is written there and nowhere else.
  void keep_views_into_outputs(int tensor) {
    for (const int reader : folded_.index.consumers(tensor)) {
      if (!is_folded(reader) || is_kept(reader)) continue;
      const int result = graph_.ops[static_cast<size_t>(reader)].outputs[0];
      if (!graph_.tensors[static_cast<size_t>(result)].is_virtual()) keep(reader);
    }
  }

  bool is_touched(int tensor) const {
    return is_kept(folded_.index.producer(tensor)) ||
           std::ranges::any_of(folded_.index.consumers(tensor), [this](int op) { return is_kept(op); });
  }

  // A view of what others make is read again by whoever else reads it.
  bool crosses_the_cut(int tensor) const {
    const int buffer = folded_.placements[static_cast<size_t>(tensor)].buffer;
    if (is_folded(folded_.index.producer(tensor)) && !is_kept(folded_.index.producer(buffer))) return false;
    return !is_kept(folded_.index.producer(tensor)) ||
           std::ranges::any_of(folded_.index.consumers(tensor), [this](int op) { return !is_kept(op); });
  }

  Tensor described(int tensor) const {
    Tensor description = graph_.tensors[static_cast<size_t>(tensor)];
    if (!description.is_virtual() || !crosses_the_cut(tensor)) return description;
    description.memory = Memory::device;
    description.alignment = kWorkspaceAlignment;
    return description;
  }

  const Graph& graph_;
  const FoldedGraph& folded_;
  std::vector<bool> kept_;
};

}  // namespace

Graph standalone(const Graph& graph, const FoldedGraph& folded, std::span<const int> ops) {
  return Cutting(graph, folded, ops).cut();
}

}  // namespace fusor
