// Owns the evaluation of one fusion: its sites and anchors, one after another.
#include <memory>
#include <utility>
#include <vector>

#include "backend/reference/contraction.h"
#include "backend/reference/expression.h"
#include "backend/reference/reference.h"
#include "backend/reference/slices.h"
#include "backend/reference/values.h"
#include "core/convert.h"

namespace fusor {

namespace {

using namespace reference;

// Buffers of the fusion's operands, then those made here: constants and the anchor's dense operands and
// result.
class FusionBuffers {
 public:
  FusionBuffers(const Fusion& fusion, std::span<void* const> operands) {
    for (size_t i = 0; i < fusion.operands.size(); ++i) {
      const Operand& operand = fusion.operands[i];
      if (operand.memory != Memory::constant) {
        buffers_.push_back({operand.type, operands[i]});
        continue;
      }
      void* value = allocate(8);
      if (const auto* integer = std::get_if<int64_t>(&operand.value))
        store_int(operand.type, value, 0, *integer);
      else
        store_real(operand.type, value, 0, std::get<double>(operand.value));
      buffers_.push_back({operand.type, value});
    }
  }

  /// A new dense buffer; returns its index.
  int add(DataType type, int64_t elements) {
    buffers_.push_back({type, allocate(elements * byte_size(type))});
    return static_cast<int>(buffers_.size()) - 1;
  }
  void* data(int index) const { return buffers_[static_cast<size_t>(index)].data; }
  std::span<const Buffer> all() const { return buffers_; }

 private:
  void* allocate(int64_t bytes) {
    owned_.push_back(std::make_unique_for_overwrite<std::byte[]>(static_cast<size_t>(bytes)));
    return owned_.back().get();
  }
  std::vector<Buffer> buffers_;
  std::vector<std::unique_ptr<std::byte[]>> owned_;
};

// Strides over a site's domain for a dense result of `dims`, whose axes the domain may split.
Strides over_split(const Dims& domain, const Dims& dims, const Strides& strides) {
  Strides out = Dims::filled(domain.rank(), 0);
  int axis = 0;
  for (int i = 0; i < dims.rank(); ++i) {
    int64_t passed = 1;
    do {
      passed *= domain[axis];
      out[axis++] = strides[i] * (dims[i] / passed);
    } while (passed < dims[i]);
  }
  return out;
}

// Evaluates sites and anchors in topological order; values between them lie in dense buffers.
class FusionEvaluator {
 public:
  FusionEvaluator(const Fusion& fusion, FusionBuffers& buffers, Reading reading)
      : fusion_(fusion), buffers_(buffers), reading_(reading), results_(fusion.anchors.size()) {
    for (const Site& site : fusion.sites) yields_.emplace_back(site.expr.yields.size());
    for (const Anchor& anchor : fusion.anchors) ports_.emplace_back(anchor.operands.size(), -1);
  }

  void run() {
    for (size_t site = 0; site < fusion_.sites.size(); ++site) evaluate_site(site);
  }

  /// A slice of a coordinate that products sum over: adds its parts of their results to `sums`, by anchor.
  void add_to(std::vector<std::vector<std::byte>>& sums, const SummedAxis& summed) {
    for (size_t site = 0; site < fusion_.sites.size(); ++site)
      if (!summed.is_late[site]) evaluate_site(site);
    for (const size_t anchor : summed.anchors) {
      evaluate_anchor(anchor);
      add_part(sums[anchor], anchor);
    }
  }
  /// Evaluates the sites that wait for these sums.
  void finish(const std::vector<std::vector<std::byte>>& sums, const SummedAxis& summed) {
    for (const size_t anchor : summed.anchors) {
      add_result(anchor);
      std::ranges::copy(sums[anchor], static_cast<std::byte*>(buffers_.data(results_[anchor].buffer)));
    }
    for (size_t site = 0; site < fusion_.sites.size(); ++site)
      if (summed.is_late[site]) evaluate_site(site);
  }

 private:
  // A dense buffer and how a site's domain walks it.
  struct Dense {
    int buffer = -1;
    Strides strides = {};
  };

  bool is_oracle() const { return reading_ == Reading::oracle; }

  Dims result_dims(size_t anchor) const { return anchor_dims(fusion_, anchor); }

  Contraction shape_of(size_t at) const {
    const Anchor& anchor = fusion_.anchors[at];
    return {anchor.attributes, operand_dims(fusion_, anchor.operands[0]),
            operand_dims(fusion_, anchor.operands[1]), result_dims(at)};
  }

  void evaluate_site(size_t at) {
    const Site& site = fusion_.sites[at];
    for (const Input& input : site.inputs)
      if (input.from == Input::From::anchor) evaluate_anchor(static_cast<size_t>(input.at));
    Expr expr = site.expr;
    for (Node& node : expr.nodes)
      if (node.kind == Node::Kind::input)
        load_input(node, expr.domain, site.inputs[static_cast<size_t>(node.input)]);
    for (size_t yield = 0; yield < expr.yields.size(); ++yield) add_stores(expr, at, yield);
    evaluate_expression(expr, buffers_.all(), reading_);
  }

  void load_input(Node& node, const Dims& domain, const Input& input) const {
    const size_t at = static_cast<size_t>(input.at);
    node.kind = Node::Kind::load;
    if (input.from == Input::From::anchor) {
      const Dense& result = results_[at];
      node.access = {result.buffer, 0, over_split(domain, result_dims(at), result.strides)};
    } else {
      const Dense& yield = yields_[at][static_cast<size_t>(input.yield)];
      node.access = {yield.buffer, 0, yield.strides};
    }
  }

  // What a site yields goes to every port in the order that its contraction wants, and to sites as it is.
  void add_stores(Expr& expr, size_t site, size_t yield) {
    const int node = expr.yields[yield];
    for (size_t anchor = 0; anchor < fusion_.anchors.size(); ++anchor)
      for (size_t i = 0; i < ports_[anchor].size(); ++i) {
        const Port& port = fusion_.anchors[anchor].operands[i];
        if (std::cmp_equal(port.site, site) && std::cmp_equal(port.yield, yield))
          add_port(expr, node, anchor, i);
      }
    const auto takes = [&](const Input& input) {
      return input.from == Input::From::site && std::cmp_equal(input.at, site) &&
             std::cmp_equal(input.yield, yield);
    };
    const auto waits = [&](const Site& other) { return std::ranges::any_of(other.inputs, takes); };
    if (std::ranges::none_of(fusion_.sites, waits)) return;
    const DataType held = held_type(expr.node(node).type, reading_);
    Dense& dense = yields_[site][yield];
    dense = {buffers_.add(held, element_count(expr.domain)), packed_strides(expr.domain)};
    expr.stores.push_back({.node = node, .type = held, .access = {dense.buffer, 0, dense.strides}});
  }

  void add_port(Expr& expr, int node, size_t anchor, size_t i) {
    // Siblings share their first operand.
    if (form_of(fusion_) == Form::siblings && anchor == 1 && i == 0) {
      ports_[1][0] = ports_[0][0];
      return;
    }
    const Contraction shape = shape_of(anchor);
    const int which = static_cast<int>(i);
    const Strides strides = is_oracle() ? oracle_strides(shape, which) : device_strides(shape, which);
    Strides over = strides;
    const Dims& axes = fusion_.anchors[anchor].operands[i].axes;
    for (int axis = 0; axis < axes.rank(); ++axis) over[static_cast<int>(axes[axis])] = strides[axis];
    const DataType held = held_type(shape.compute(), reading_);
    ports_[anchor][i] = buffers_.add(held, element_count(expr.domain));
    expr.stores.push_back({.node = node, .type = held, .access = {ports_[anchor][i], 0, over}});
  }

  DataType held_type_of(size_t anchor) const { return held_type(shape_of(anchor).compute(), reading_); }

  void add_result(size_t at) {
    const Contraction shape = shape_of(at);
    results_[at] = {buffers_.add(held_type_of(at), element_count(shape.c)),
                    is_oracle() ? packed_strides(shape.c) : device_result_strides(shape)};
  }

  template <class T>
  static void add_elements(std::byte* sum, const void* part, int64_t count) {
    for (int64_t i = 0; i < count; ++i) reinterpret_cast<T*>(sum)[i] += static_cast<const T*>(part)[i];
  }
  void add_part(std::vector<std::byte>& sum, size_t anchor) {
    const DataType held = held_type_of(anchor);
    const int64_t count = element_count(result_dims(anchor));
    const auto* const part = static_cast<const std::byte*>(buffers_.data(results_[anchor].buffer));
    if (sum.empty())
      sum.assign(part, part + count * byte_size(held));
    else if (held == DataType::f64)
      add_elements<double>(sum.data(), part, count);
    else if (held == DataType::f32)
      add_elements<float>(sum.data(), part, count);
    else if (held == DataType::i64)
      add_elements<uint64_t>(sum.data(), part, count);
    else
      add_elements<uint32_t>(sum.data(), part, count);
  }

  void evaluate_anchor(size_t at) {
    if (results_[at].buffer >= 0) return;
    const Contraction shape = shape_of(at);
    const DataType held = held_type_of(at);
    add_result(at);
    const void* const first = buffers_.data(ports_[at][0]);
    const void* const second = buffers_.data(ports_[at][1]);
    void* const result = buffers_.data(results_[at].buffer);
    if (is_oracle())
      oracle_contraction(shape, held, first, second, result);
    else
      device_contraction(shape, first, second, result);
  }

  const Fusion& fusion_;
  FusionBuffers& buffers_;
  Reading reading_;
  std::vector<Dense> results_;              // by anchor
  std::vector<std::vector<Dense>> yields_;  // by site and yield: those that other sites take
  std::vector<std::vector<int>> ports_;     // by anchor and operand: buffers
};

}  // namespace

void evaluate(const Fusion& fusion, std::span<void* const> operands, Reading reading) {
  if (reading == Reading::oracle) {
    FusionBuffers buffers(fusion, operands);
    return FusionEvaluator(fusion, buffers, reading).run();
  }
  evaluate_in_slices(fusion, operands, kSliceElements);
}

void evaluate_in_slices(const Fusion& fusion, std::span<void* const> operands, int64_t most) {
  const auto evaluate_part = [&](const Fusion& part) {
    const std::optional<SummedAxis> summed = summed_axis(part, most);
    FusionBuffers buffers(part, operands);
    FusionEvaluator whole(part, buffers, Reading::device);
    if (!summed) return whole.run();
    std::vector<std::vector<std::byte>> sums(part.anchors.size());
    for_each_slice(part, {summed->axis}, {summed->count}, [&](const Fusion& slice) {
      FusionBuffers own(slice, operands);
      FusionEvaluator(slice, own, Reading::device).add_to(sums, *summed);
    });
    whole.finish(sums, *summed);
  };
  const std::vector<FreeAxis> axes = free_axes(fusion);
  for_each_slice(fusion, axes, slice_extents(fusion, axes, most), evaluate_part);
}

}  // namespace fusor
