// Owns the search for convolutions whose windows do not overlap, and their rewriting.
#include "backend/planner/rewrites/products/patch_products.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "backend/planner/kinds.h"
#include "core/attributes.h"
#include "core/dims.h"

namespace fusor {

namespace {

constexpr int64_t kChunkBytes = 16;

class PatchProducts {
 public:
  PatchProducts(Graph& graph, Additions& additions)
      : graph_(graph), additions_(additions), given_(std::move(graph.ops)) {}

  // Whether any convolution was written so.
  bool run() {
    bool changes = false;
    for (const Op& op : given_) {
      const bool has_patches = is_written(op);
      if (has_patches)
        append_product(op);
      else
        ops_.push_back(op);
      changes = changes || has_patches;
    }
    graph_.ops = std::move(ops_);
    return changes;
  }

 private:
  const Tensor& tensor(int at) const { return graph_.tensors[static_cast<size_t>(at)]; }
  const Dims& dims(int at) const { return tensor(at).dims; }

  // The tensors of a convolution or of the gradient of its filters.
  struct Roles {
    int image, filters, result;
  };
  static Roles roles(const Op& op) {
    if (std::get<Conv>(op.attributes).pass == ConvPass::fprop)
      return {op.inputs[0], op.inputs[1], op.outputs[0]};
    return {op.inputs[1], op.outputs[0], op.inputs[0]};
  }

  bool is_written(const Op& op) const {
    const auto* const conv = std::get_if<Conv>(&op.attributes);
    if (conv == nullptr || conv->pass == ConvPass::dgrad || conv->mode != ConvMode::cross_correlation)
      return false;
    const Roles r = roles(op);
    const auto is_plain = [&](int at) { return !tensor(at).is_scalar() && !is_packed(tensor(at).type); };
    if (!is_plain(r.image) || !is_plain(r.filters) || !is_plain(r.result)) return false;
    const Dims &x = dims(r.image), &w = dims(r.filters), &y = dims(r.result);
    if (x[1] != w[1] || x[1] * byte_size(tensor(r.image).type) % kChunkBytes == 0 ||
        2 * x.rank() - 2 > kMaxRank)
      return false;
    int64_t window = 1;
    for (int i = 0; i + 2 < x.rank(); ++i) {
      if (conv->pre_padding[i] != 0 || conv->post_padding[i] != 0 || conv->stride[i] != w[i + 2] ||
          (conv->dilation[i] != 1 && w[i + 2] != 1) || x[i + 2] != y[i + 2] * w[i + 2])
        return false;
      window *= w[i + 2];
    }
    return window > 1;
  }

  // ---- Rewriting ----

  void append_product(const Op& conv) {
    const Roles r = roles(conv);
    const bool channels_last = tensor(r.filters).strides[1] == 1;
    const int patches = patches_of(r, channels_last, conv.name);
    if (std::get<Conv>(conv.attributes).pass == ConvPass::fprop)
      append_fprop(conv, r, channels_last, patches);
    else
      append_wgrad(conv, r, channels_last, patches);
  }

  void append_fprop(const Op& conv, const Roles& r, bool channels_last, int patches) {
    const int rank = dims(r.filters).rank();
    int filters = r.filters;
    if (channels_last) filters = transposed(filters, to_last(rank), conv.name);
    filters = reshaped(filters, {dims(r.filters)[0], dims(patches)[1]}, conv.name);
    filters = transposed(filters, {1, 0}, conv.name);
    const int product = multiplied(patches, filters, r.result, conv);
    const int rows = reshaped(product, permuted(dims(r.result), to_last(rank)), conv.name);
    ops_.push_back({additions_.op_name(conv.name + ".out"), Transpose{from_last(rank)}, {rows}, {r.result}});
  }

  void append_wgrad(const Op& conv, const Roles& r, bool channels_last, int patches) {
    const int rank = dims(r.filters).rank();
    int dy = transposed(r.result, to_last(rank), conv.name);
    dy = reshaped(dy, {dims(patches)[0], dims(r.result)[1]}, conv.name);
    dy = transposed(dy, {1, 0}, conv.name);
    const int product = multiplied(dy, patches, r.filters, conv);
    const std::string name = additions_.op_name(conv.name + ".out");
    if (channels_last) {
      const int filters = reshaped(product, permuted(dims(r.filters), to_last(rank)), conv.name);
      ops_.push_back({name, Transpose{from_last(rank)}, {filters}, {r.filters}});
    } else {
      ops_.push_back({name, Reshape{}, {product}, {r.filters}});
    }
  }

  // A row for each window, whose elements are in the order of a filter's.
  int patches_of(const Roles& r, bool channels_last, const std::string& name) {
    const Dims &x = dims(r.image), &w = dims(r.filters), &y = dims(r.result);
    const int spatial = x.rank() - 2;
    Dims apart{x[0], x[1]}, order{0};
    for (int i = 0; i < spatial; ++i) {
      apart.push_back(y[i + 2]);
      apart.push_back(w[i + 2]);
      order.push_back(2 + 2 * i);
    }
    if (!channels_last) order.push_back(1);
    for (int i = 0; i < spatial; ++i) order.push_back(3 + 2 * i);
    if (channels_last) order.push_back(1);
    const int64_t steps = element_count(w) / w[0], windows = element_count(y) / y[1];
    const int windows_apart = transposed(reshaped(r.image, apart, name), order, name);
    return reshaped(windows_apart, {windows, steps}, name);
  }

  // A matmul whose result has the type of `model`, by the convolution's name.
  int multiplied(int a, int b, int model, const Op& conv) {
    const Dims shape{dims(a)[0], dims(b)[1]};
    const int product = additions_.tensor(Tensor(tensor(model)), shape, conv.name + ".product");
    ops_.push_back(
        {conv.name, Matmul{.compute = std::get<Conv>(conv.attributes).compute}, {a, b}, {product}});
    return product;
  }

  int reshaped(int x, const Dims& shape, const std::string& name) {
    if (dims(x) == shape) return x;
    ops_.push_back(additions_.view(Reshape{}, x, shape, name + ".in"));
    return ops_.back().outputs[0];
  }
  int transposed(int x, const Dims& permutation, const std::string& name) {
    ops_.push_back(additions_.view(Transpose{permutation}, x, permuted(dims(x), permutation), name + ".in"));
    return ops_.back().outputs[0];
  }

  static Dims permuted(const Dims& dims, const Dims& permutation) {
    Dims found;
    for (const int64_t axis : permutation) found.push_back(dims[static_cast<int>(axis)]);
    return found;
  }
  // The permutation that puts the second axis last, and the one that brings it back.
  static Dims to_last(int rank) {
    Dims permutation{0};
    for (int axis = 2; axis < rank; ++axis) permutation.push_back(axis);
    permutation.push_back(1);
    return permutation;
  }
  static Dims from_last(int rank) {
    Dims permutation{0, rank - 1};
    for (int axis = 1; axis + 1 < rank; ++axis) permutation.push_back(axis);
    return permutation;
  }

  Graph& graph_;
  Additions& additions_;
  std::vector<Op> given_, ops_;
};

}  // namespace

bool multiply_patches(Graph& graph, Additions& additions) {
  const auto is_convolution = [](const Op& op) { return std::holds_alternative<Conv>(op.attributes); };
  return std::ranges::any_of(graph.ops, is_convolution) && PatchProducts(graph, additions).run();
}

}  // namespace fusor
