// Owns the oracle's evaluation by demand: backwards through the graph it marks the elements that a sample
// needs, then it evaluates those alone.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "backend/reference/contraction.h"
#include "backend/reference/expression.h"
#include "backend/reference/host_math.h"
#include "backend/reference/reference.h"
#include "backend/reference/sweep.h"
#include "core/convert.h"
#include "core/environment.h"
#include "core/fail.h"
#include "core/parallel.h"

namespace fusor {

namespace {

using namespace reference;

// Zeroed memory of which the system provides only the pages that are touched.
struct Freed {
  void operator()(std::byte* memory) const { std::free(memory); }
};
using SparseBytes = std::unique_ptr<std::byte, Freed>;

SparseBytes sparse_bytes(int64_t count) {
  SparseBytes bytes(static_cast<std::byte*>(std::calloc(static_cast<size_t>(count), 1)));
  if (!bytes) fail(ErrorKind::missing, "no memory for {} bytes of a sample", count);
  return bytes;
}

// What is known of one tensor: where its elements lie, and for computed ones which of them are needed.
struct Demand {
  DataType type = DataType::f32;
  Dims dims;
  Strides strides;
  std::byte* data = nullptr;
  bool computed = false;
  SparseBytes marks, values;
  std::vector<int64_t> needed;                   // row-major indices
  std::unordered_map<int64_t, int64_t> learnt;   // of indices: values by row-major index
  std::unordered_map<int64_t, int64_t> sources;  // of what is scattered: elements of x by those of the result

  void require(int64_t element) {
    if (!computed || marks.get()[element] != std::byte{0}) return;
    marks.get()[element] = std::byte{1};
    needed.push_back(element);
  }
  int64_t place(const Dims& at) const {
    int64_t element = 0;
    for (int i = 0; i < dims.rank(); ++i) element += at[i] * strides[i];
    return element;
  }
};

Dims coordinates(int64_t element, const Dims& dims) {
  Dims at = Dims::filled(dims.rank(), 0);
  unravel(element, dims, at.begin());
  return at;
}

int64_t row_major(const Dims& at, const Dims& dims) {
  int64_t index = 0;
  for (int i = 0; i < dims.rank(); ++i) index = index * dims[i] + at[i];
  return index;
}

// The coordinate of a broadcast operand behind the result's.
Dims broadcast_at(const Dims& at, const Dims& dims) {
  Dims from = Dims::filled(dims.rank(), 0);
  const int shift = at.rank() - dims.rank();
  for (int i = 0; i < dims.rank(); ++i)
    if (dims[i] != 1) from[i] = at[i + shift];
  return from;
}

// Calls visit(coordinate in x) for every element of x behind one element of its reduced form y.
template <class Visit>
void for_each_reduced(const Dims& x, const Dims& y, const Dims& at, Visit&& visit) {
  Dims group = Dims::filled(x.rank(), 1);
  for (int i = 0; i < x.rank(); ++i) group[i] = x[i] / y[i];
  Dims from = at;
  for (int64_t member = 0; member < element_count(group); ++member) {
    const Dims inside = coordinates(member, group);
    for (int i = 0; i < x.rank(); ++i) from[i] = at[i] * group[i] + inside[i];
    visit(from);
  }
}

class Sample {
 public:
  Sample(const Graph& graph, std::span<void* const> tensors)
      : graph_(graph), tensors_(tensors), demands_(graph.tensors.size()) {
    for (const Op& op : graph.ops)
      for (const int y : op.outputs) demand(y).computed = true;
    for (size_t i = 0; i < demands_.size(); ++i) describe(graph.tensors[i], tensors[i], demands_[i]);
  }

  std::vector<double> evaluate(int tensor, std::span<const int64_t> elements,
                               std::vector<bool>* written = nullptr) {
    Demand& wanted = demand(tensor);
    for (const int64_t element : elements) wanted.require(element);
    for (auto op = graph_.ops.rbegin(); op != graph_.ops.rend(); ++op) require_operands(*op);
    for (const Op& op : graph_.ops) evaluate_op(op);
    std::vector<double> values;
    for (const int64_t element : elements) {
      const Dims at = coordinates(element, wanted.dims);
      const bool left = is_left(tensor, element);
      if (written != nullptr) written->push_back(!left);
      values.push_back(left ? held(tensor, at) : load_real(wanted.type, wanted.data, wanted.place(at)));
    }
    return values;
  }

 private:
  // An element that no op writes is what the memory holds.
  bool is_left(int tensor, int64_t element) const {
    const int producer = graph_.producer(tensor);
    return producer >= 0 && leaves_gaps(graph_.ops[static_cast<size_t>(producer)].attributes) &&
           !demand(tensor).sources.contains(element);
  }
  double held(int tensor, const Dims& at) const {
    const Tensor& described = graph_.tensors[static_cast<size_t>(tensor)];
    int64_t place = 0;
    for (int i = 0; i < at.rank(); ++i) place += at[i] * described.strides[i];
    return load_real(described.type, tensors_[static_cast<size_t>(tensor)], place);
  }

  DataType type_of(int tensor) const { return graph_.tensors[static_cast<size_t>(tensor)].type; }
  Demand& demand(int tensor) { return demands_[static_cast<size_t>(tensor)]; }
  const Demand& demand(int tensor) const { return demands_[static_cast<size_t>(tensor)]; }

  void describe(const Tensor& tensor, void* buffer, Demand& out) {
    out.type = tensor.type;
    out.dims = tensor.dims;
    out.strides = tensor.strides;
    out.data = static_cast<std::byte*>(buffer);
    if (out.computed) {
      out.strides = packed_strides(tensor.dims);
      out.marks = sparse_bytes(element_count(tensor.dims));
      out.type = unpacked(tensor.type);
      out.values = sparse_bytes(element_count(tensor.dims) * byte_size(out.type));
      out.data = out.values.get();
    } else if (tensor.memory == Memory::constant) {
      out.values = sparse_bytes(8);
      out.data = out.values.get();
      if (const auto* integer = std::get_if<int64_t>(&tensor.value))
        store_int(tensor.type, out.data, 0, *integer);
      else
        store_real(tensor.type, out.data, 0, std::get<double>(tensor.value));
    } else if (buffer == nullptr) {
      fail("the oracle needs a buffer for tensor '{}'", tensor.name);
    }
  }

  Contraction contraction(const Op& op) const {
    return {op.attributes, demand(op.inputs[0]).dims, demand(op.inputs[1]).dims, demand(op.outputs[0]).dims};
  }

  // --- backwards -------------------------------------------------------------------------------------------

  void require_operands(const Op& op) {
    const Demand& y = demand(op.outputs[0]);
    if (y.needed.empty()) return;
    if (is_contraction(op.attributes)) return require_terms(op, y);
    if (std::holds_alternative<Gather>(op.attributes)) learn_indices(op, y);
    if (const auto* const scatter = std::get_if<Scatter>(&op.attributes))
      find_sources(op, static_cast<int>(scatter->axis));
    for (const int64_t element : y.needed)
      for_each_operand(op, coordinates(element, y.dims), [&](int input, const Dims& at) {
        demand(input).require(row_major(at, demand(input).dims));
      });
  }

  // Which elements a gather needs is known with its indices: computed ones are sampled first.
  void learn_indices(const Op& op, const Demand& y) {
    Demand& index = demand(op.inputs[1]);
    index.learnt.clear();
    if (!index.computed) return;
    std::vector<int64_t> wanted;
    for (const int64_t element : y.needed)
      wanted.push_back(row_major(broadcast_at(coordinates(element, y.dims), index.dims), index.dims));
    std::ranges::sort(wanted);
    wanted.erase(std::unique(wanted.begin(), wanted.end()), wanted.end());
    learn(op.inputs[1], wanted);
  }

  void learn(int index, std::span<const int64_t> elements) {
    const std::vector<double> values = Sample(graph_, tensors_).evaluate(index, elements);
    for (size_t i = 0; i < elements.size(); ++i)
      demand(index).learnt[elements[i]] = static_cast<int64_t>(values[i]);
  }

  int64_t index_at(const Demand& index, const Dims& place) const {
    const auto known = index.learnt.find(row_major(place, index.dims));
    return known != index.learnt.end() ? known->second : load_int(index.type, index.data, index.place(place));
  }

  // Which element of x goes to each that is needed: the last one, where several do. Indices are learnt block
  // by block.
  void find_sources(const Op& op, int axis) {
    constexpr int64_t kBlock = int64_t{1} << 18;
    const Demand& x = demand(op.inputs[0]);
    Demand &index = demand(op.inputs[1]), &y = demand(op.outputs[0]);
    const int along = axis - (x.dims.rank() - y.dims.rank());
    const std::unordered_set<int64_t> needed(y.needed.begin(), y.needed.end());
    y.sources.clear();
    for (int64_t first = 0; first < element_count(x.dims); first += kBlock) {
      const int64_t end = std::min(first + kBlock, element_count(x.dims));
      learn_block(op.inputs[1], x.dims, first, end);
      for (int64_t element = first; element < end; ++element) {
        const Dims at = coordinates(element, x.dims);
        const int64_t value = index_at(index, broadcast_at(at, index.dims));
        if (value < 0 || value >= y.dims[along]) continue;
        Dims to = broadcast_at(at, y.dims);
        to[along] = value;
        if (const int64_t place = row_major(to, y.dims); needed.contains(place)) y.sources[place] = element;
      }
    }
    index.learnt.clear();
  }

  void learn_block(int tensor, const Dims& dims, int64_t first, int64_t end) {
    Demand& index = demand(tensor);
    index.learnt.clear();
    if (!index.computed) return;
    std::vector<int64_t> wanted;
    for (int64_t element = first; element < end; ++element)
      wanted.push_back(row_major(broadcast_at(coordinates(element, dims), index.dims), index.dims));
    std::ranges::sort(wanted);
    wanted.erase(std::unique(wanted.begin(), wanted.end()), wanted.end());
    learn(tensor, wanted);
  }

  // The element of x behind one of a gather's result, or nothing where the index is outside.
  template <class Visit>
  void visit_taken(const Op& op, int axis, const Dims& at, Visit&& visit) const {
    const Demand& x = demand(op.inputs[0]);
    const Demand& index = demand(op.inputs[1]);
    const Dims place = broadcast_at(at, index.dims);
    const int64_t value = index_at(index, place);
    visit(op.inputs[1], place);
    if (value < 0 || value >= x.dims[axis]) return;
    Dims from = broadcast_at(at, x.dims);
    from[axis] = value;
    visit(op.inputs[0], from);
  }

  void require_terms(const Op& op, const Demand& y) {
    Demand& a = demand(op.inputs[0]);
    Demand& b = demand(op.inputs[1]);
    if (!a.computed && !b.computed) return;
    const Contraction shape = contraction(op);
    const Terms terms(shape, packed_strides(a.dims), packed_strides(b.dims));
    for (const int64_t element : y.needed)
      terms.of(coordinates(element, y.dims), [&](const Run& run) {
        for (int64_t i = 0; i < run.count; ++i) {
          a.require(run.a + i * run.step_a);
          b.require(run.b + i * run.step_b);
        }
      });
  }

  // Calls visit(tensor, coordinate) for every element that the result's element at `at` is made of, in order.
  template <class Visit>
  void for_each_operand(const Op& op, const Dims& at, Visit&& visit) const {
    const int x = op.inputs[0];
    const Dims& dims = demand(x).dims;
    const Dims& y_dims = demand(op.outputs[0]).dims;
    std::visit(Overloaded{
                   [&](const Pointwise&) {
                     for (const int input : op.inputs) visit(input, broadcast_at(at, demand(input).dims));
                   },
                   [&](const Reduction&) {
                     for_each_reduced(dims, y_dims, at, [&](const Dims& from) { visit(x, from); });
                   },
                   [](const Matmul&) { refuse("a contraction's operands are walked as terms"); },
                   [](const Conv&) { refuse("a contraction's operands are walked as terms"); },
                   [&](const Reshape&) { visit(x, coordinates(row_major(at, y_dims), dims)); },
                   [&](const Transpose& transpose) {
                     Dims from = at;
                     for (int i = 0; i < at.rank(); ++i)
                       from[static_cast<int>(transpose.permutation[i])] = at[i];
                     visit(x, from);
                   },
                   [&](const Slice& slice) {
                     Dims from = at;
                     for (int i = 0; i < at.rank(); ++i) from[i] = slice.start[i] + at[i] * slice.step[i];
                     visit(x, from);
                   },
                   [&](const Concatenate& concatenate) {
                     visit_part(op, static_cast<int>(concatenate.axis), at, visit);
                   },
                   [&](const Gather& gather) { visit_taken(op, static_cast<int>(gather.axis), at, visit); },
                   [&](const Scatter&) {
                     const Demand& y = demand(op.outputs[0]);
                     const auto source = y.sources.find(row_major(at, y.dims));
                     if (source != y.sources.end()) visit(x, coordinates(source->second, dims));
                   },
                   [](const CompositeFamily auto&) { refuse("a composite op is sampled by its expansion"); },
               },
               op.attributes);
  }

  [[noreturn]] static void refuse(const char* why) { fail(ErrorKind::internal, "{}", why); }

  template <class Visit>
  void visit_part(const Op& op, int axis, const Dims& at, Visit&& visit) const {
    Dims from = at;
    for (const int input : op.inputs) {
      const int64_t extent = demand(input).dims[axis];
      if (from[axis] < extent) return visit(input, from);
      from[axis] -= extent;
    }
  }

  // --- forwards --------------------------------------------------------------------------------------------

  void evaluate_op(const Op& op) {
    Demand& y = demand(op.outputs[0]);
    const int64_t behind_one = gathered_per_element(op);
    const int64_t per_task = std::max<int64_t>(1, kTaskElements / behind_one);
    const int64_t count = static_cast<int64_t>(y.needed.size());
    parallel_for(ceil_div(count, per_task), environment::threads(), [&](int64_t task) {
      const int64_t first = task * per_task;
      const std::span<const int64_t> elements(y.needed.data() + first,
                                              static_cast<size_t>(std::min(per_task, count - first)));
      if (is_contraction(op.attributes))
        sum_terms(op, elements, y);
      else
        compute(op, elements, behind_one, y);
    });
  }

  int64_t gathered_per_element(const Op& op) const {
    if (is_contraction(op.attributes))
      return static_cast<int64_t>(multiply_adds(contraction(op)) /
                                  static_cast<double>(element_count(demand(op.outputs[0]).dims))) +
             1;
    if (!std::holds_alternative<Reduction>(op.attributes)) return 1;
    return element_count(demand(op.inputs[0]).dims) / element_count(demand(op.outputs[0]).dims);
  }

  void sum_terms(const Op& op, std::span<const int64_t> elements, Demand& y) const {
    if (is_real(*compute_type(op.attributes)))
      sum_terms_as<double>(op, elements, y,
                           [](const Demand& x, int64_t i) { return load_real(x.type, x.data, i); });
    else
      sum_terms_as<int64_t>(op, elements, y,
                            [](const Demand& x, int64_t i) { return load_int(x.type, x.data, i); });
  }

  template <class S, class Load>
  void sum_terms_as(const Op& op, std::span<const int64_t> elements, Demand& y, const Load& load) const {
    using T = Arithmetic<S>;
    const Demand& a = demand(op.inputs[0]);
    const Demand& b = demand(op.inputs[1]);
    const Contraction shape = contraction(op);
    const Terms terms(shape, a.strides, b.strides);
    const DataType rounding = type_of(op.outputs[0]);
    const auto rounded = [&](auto value) { return is_packed(rounding) ? round_to(rounding, value) : value; };
    for (const int64_t element : elements) {
      T sum(0);
      terms.of(coordinates(element, y.dims), [&](const Run& run) {
        for (int64_t i = 0; i < run.count; ++i)
          sum = sum + T(load(a, run.a + i * run.step_a)) * T(load(b, run.b + i * run.step_b));
      });
      if constexpr (std::is_floating_point_v<S>)
        store_real(y.type, y.data, element, rounded(sum));
      else
        store_int(y.type, y.data, element,
                  rounded(shape.compute() == DataType::i32 ? int64_t{static_cast<int32_t>(sum.value)}
                                                           : int64_t{sum.value}));
    }
  }

  // Gathers the operands side by side and evaluates the op over them as a dense Expr.
  void compute(const Op& op, std::span<const int64_t> elements, int64_t behind_one, Demand& y) const {
    const int64_t count = static_cast<int64_t>(elements.size());
    const bool reduces = std::holds_alternative<Reduction>(op.attributes);
    const size_t operands = std::holds_alternative<Pointwise>(op.attributes) ? op.inputs.size() : 1;
    std::vector<std::vector<int64_t>> gathered(operands + 1,
                                               std::vector<int64_t>(static_cast<size_t>(count * behind_one)));
    gather(op, elements, y, gathered);
    Expr expr;
    expr.domain = {count, behind_one};
    std::vector<Buffer> buffers;
    for (size_t i = 0; i < operands; ++i) {
      const DataType type = is_index(op) ? DataType::i64 : unpacked(demand(op.inputs[i]).type);
      buffers.push_back({type, gathered[i].data()});
      expr.nodes.push_back({.kind = Node::Kind::load,
                            .type = type,
                            .access = {static_cast<int>(i), 0, {behind_one, 1}, false}});
    }
    buffers.push_back({y.type, gathered[operands].data()});
    Store store;
    store.access = {static_cast<int>(operands), 0, {1, 0}, false};
    store.type = y.type;
    const DataType rounding = type_of(op.outputs[0]);
    store.node = add_operation(op, rounding, expr);
    if (reduces) {
      const DataType sums = is_packed(rounding) ? *compute_type(op.attributes) : rounding;
      Node total{.kind = Node::Kind::reduce, .type = sums, .reduction = std::get<Reduction>(op.attributes)};
      total.over = 2;
      total.args[0] = store.node;
      expr.nodes.push_back(total);
      store.node = static_cast<int>(expr.nodes.size()) - 1;
      if (is_packed(rounding)) {
        Node last{.kind = Node::Kind::pointwise, .type = rounding, .pointwise = {.compute = sums}};
        last.args[0] = store.node;
        expr.nodes.push_back(last);
        ++store.node;
      }
    }
    expr.stores.push_back(store);
    evaluate_expression(expr, buffers, Reading::oracle);
    const int64_t size = byte_size(y.type);
    const auto* made = reinterpret_cast<const std::byte*>(gathered[operands].data());
    for (int64_t i = 0; i < count; ++i)
      std::memcpy(y.data + elements[static_cast<size_t>(i)] * size, made + i * size,
                  static_cast<size_t>(size));
  }

  static bool is_index(const Op& op) {
    const auto* pointwise = std::get_if<Pointwise>(&op.attributes);
    return pointwise != nullptr && pointwise->mode == PointwiseMode::gen_index;
  }

  static int add_operation(const Op& op, DataType type, Expr& expr) {
    const auto* pointwise = std::get_if<Pointwise>(&op.attributes);
    if (pointwise == nullptr || is_index(op)) return 0;
    Node node{.kind = Node::Kind::pointwise, .type = type, .pointwise = *pointwise};
    for (size_t i = 0; i < expr.nodes.size(); ++i) node.args[i] = static_cast<int>(i);
    expr.nodes.push_back(node);
    return static_cast<int>(expr.nodes.size()) - 1;
  }

  static void copy_element(const Demand& x, const Dims& from, void* to, int64_t at) {
    if (is_packed(x.type))
      return store_real(unpacked(x.type), to, at, load_real(x.type, x.data, x.place(from)));
    const int64_t size = byte_size(x.type);
    std::memcpy(static_cast<std::byte*>(to) + at * size, x.data + x.place(from) * size,
                static_cast<size_t>(size));
  }

  // gathered[i]: packed elements of operand i. gen_index gets the coordinate itself in its operand's place.
  void gather(const Op& op, std::span<const int64_t> elements, const Demand& y,
              std::vector<std::vector<int64_t>>& gathered) const {
    const auto* pointwise = std::get_if<Pointwise>(&op.attributes);
    std::vector<int64_t> filled(gathered.size(), 0);
    for (const int64_t element : elements) {
      const Dims at = coordinates(element, y.dims);
      if (is_index(op)) {
        gathered[0][static_cast<size_t>(filled[0]++)] = at[static_cast<int>(pointwise->axis)];
        continue;
      }
      size_t operand = 0;
      if (std::holds_alternative<Scatter>(op.attributes)) {
        for_each_operand(op, at, [&](int input, const Dims& from) {
          copy_element(demand(input), from, gathered[0].data(), filled[0]);
        });
        ++filled[0];
        continue;
      }
      if (std::holds_alternative<Gather>(op.attributes)) {
        // Behind the index comes the element, unless the index is outside: then zeros stay.
        for_each_operand(op, at, [&](int input, const Dims& from) {
          if (operand++ == 1) copy_element(demand(input), from, gathered[0].data(), filled[0]);
        });
        ++filled[0];
        continue;
      }
      for_each_operand(op, at, [&](int input, const Dims& from) {
        copy_element(demand(input), from, gathered[operand].data(), filled[operand]);
        ++filled[operand];
        if (pointwise != nullptr) ++operand;
      });
    }
  }

  const Graph& graph_;
  std::span<void* const> tensors_;
  std::vector<Demand> demands_;
};

}  // namespace

std::vector<double> evaluate_sample(const Graph& graph, std::span<void* const> tensors, int tensor,
                                    std::span<const int64_t> elements, std::vector<bool>* written) {
  return Sample(graph, tensors).evaluate(tensor, elements, written);
}

}  // namespace fusor
