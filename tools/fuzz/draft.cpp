// Owns the random shapes, types and places of a draft's tensors.
#include "tools/fuzz/draft.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "core/error.h"
#include "core/infer.h"

namespace fusor::fuzz {

namespace {

constexpr int64_t kLarge = 1 << 17;

/// Strides of `dims` with the axes in random order, gaps behind some of them.
Strides nested_places(Random& random, const Dims& dims, bool permutes, bool pads) {
  std::vector<int> order(static_cast<size_t>(dims.rank()));
  std::iota(order.begin(), order.end(), 0);
  if (permutes)
    for (size_t i = order.size(); i > 1; --i)
      std::swap(order[i - 1], order[static_cast<size_t>(random.below(static_cast<int64_t>(i)))]);
  Strides strides = Dims::filled(dims.rank(), 1);
  int64_t step = pads && random.once_in(4) ? 2 : 1;
  for (auto axis = order.rbegin(); axis != order.rend(); ++axis) {
    strides[*axis] = step;
    step *= dims[*axis];
    if (pads && random.once_in(3)) step += random.between(1, 9);
  }
  return strides;
}

}  // namespace

Draft::Draft(uint64_t seed, int64_t index, const Limits& limits)
    : random(seed, static_cast<uint64_t>(index)), limits_(limits) {
  graph_.name = fmt::format("fuzz_{}_{}", seed, index);
  graph_.precision = random.pick({Precision::exact, Precision::exact, Precision::exact, Precision::allow_tf32,
                                  Precision::allow_short_sums});
  style_ = random.pick({Style::odd, Style::eights, Style::small, Style::mixed});
  main_type_ = type();
  plain_places_ = random.percent(40);
}

int64_t Draft::extent() {
  const Style style =
      style_ == Style::mixed ? random.pick({Style::odd, Style::eights, Style::small}) : style_;
  if (random.once_in(8)) return 1;
  // Where large tensors are asked for, some axes are long enough for every tile and split.
  if (limits_.elements >= kLarge && random.once_in(3))
    return random.pick<int64_t>({512, 1000, 1024, 1536, 2047, 4096});
  switch (style) {
    case Style::odd:
      return random.pick<int64_t>({3, 5, 7, 9, 13, 15, 17, 31, 33, 47, 63, 65, 77, 100, 127, 129, 200, 257});
    case Style::eights:
      return random.pick<int64_t>({8, 16, 16, 24, 32, 32, 64, 64, 72, 96, 128, 192, 256});
    default:
      return random.between(1, 6);
  }
}

Dims Draft::dims(int rank, int64_t elements) {
  Dims dims = Dims::filled(rank, 1);
  std::vector<int> order(static_cast<size_t>(rank));
  std::iota(order.begin(), order.end(), 0);
  std::swap(order[0], order[static_cast<size_t>(random.below(rank))]);
  for (const int axis : order) {
    const int64_t wanted = extent();
    dims[axis] = wanted <= elements ? wanted : random.between(1, std::min<int64_t>(elements, 4));
    elements /= dims[axis];
  }
  return dims;
}

DataType Draft::type() {
  using enum DataType;
  return random.pick({f32,  f32, f32,     f32,     f32,     f32, f16, f16, f16, f16, bf16, bf16, bf16,
                      bf16, f64, f8_e4m3, f8_e5m2, f4_e2m1, i8,  i8,  u8,  i4,  i32, i64,  b8,   b1});
}

int Draft::operand(int rank, int most_rank) {
  std::vector<int> found;
  for (size_t i = 0; i < graph_.tensors.size(); ++i) {
    const Tensor& each = graph_.tensors[i];
    if (each.is_scalar() || each.dims.rank() < rank || each.dims.rank() > most_rank ||
        has_gaps(static_cast<int>(i)))
      continue;
    // A result that nothing has read yet comes more often, so that chains grow long.
    for (int share = reads_[i] == 0 && each.is_virtual() ? 4 : 1; share > 0; --share)
      found.push_back(static_cast<int>(i));
  }
  if (!found.empty() && random.percent(85)) return random.pick(found);
  const int64_t usual = random.pick({2, 2, 3, 3, 4, 4, 1, 5, 6, 7, 8});
  return new_input(dims(static_cast<int>(std::clamp<int64_t>(usual, rank, most_rank)), limits_.elements),
                   type());
}

int Draft::operand_of(const Dims& wanted, std::optional<DataType> said) {
  std::vector<int> found;
  for (size_t i = 0; i < graph_.tensors.size(); ++i) {
    const Tensor& each = graph_.tensors[i];
    if (!each.is_scalar() && each.dims == wanted && (!said || each.type == *said) &&
        !has_gaps(static_cast<int>(i)))
      found.push_back(static_cast<int>(i));
  }
  if (!found.empty() && random.percent(40)) return random.pick(found);
  return new_input(wanted, said ? *said : random.percent(60) ? main_type_ : type());
}

// Whether some of its elements are written only.
bool Draft::has_gaps(int tensor) const {
  const int producer = graph_.producer(tensor);
  return producer >= 0 && leaves_gaps(graph_.ops[static_cast<size_t>(producer)].attributes);
}

int Draft::new_input(const Dims& wanted, DataType of_type, std::optional<Filling> said) {
  const Filling filling = said ? *said : static_cast<Filling>(random.below(kFillings));
  Tensor tensor;
  tensor.name = fmt::format("x{}.{}", graph_.tensors.size(), to_string(filling));
  tensor.type = of_type;
  tensor.dims = wanted;
  tensor.strides = place(wanted, filling != Filling::distinct);
  tensor.alignment = random.once_in(4) ? byte_size(of_type) << random.below(3) : random.pick({16, 16, 256});
  const Values values = values_of(tensor);
  return add(std::move(tensor), values);
}

int Draft::new_scalar(DataType of_type) {
  const auto filling = static_cast<Filling>(random.below(kFillings));
  Tensor tensor;
  tensor.name = fmt::format("s{}.{}", graph_.tensors.size(), to_string(filling));
  tensor.type = of_type;
  tensor.dims = Dims::filled(random.once_in(4) ? static_cast<int>(random.between(1, 4)) : 1, 1);
  tensor.strides = tensor.dims;
  tensor.memory = random.once_in(2) ? Memory::host : Memory::constant;
  if (tensor.memory == Memory::constant) {
    if (is_real(of_type))
      tensor.value = random.pick({0.3, 1.5, -0.7, 0.0, 2.0, 1.0});
    else
      tensor.value = of_type == DataType::u8 || info(of_type).kind == NumberKind::boolean
                         ? random.between(0, 1)
                         : random.between(-3, 3);
  }
  const Values values = values_of(tensor);
  return add(std::move(tensor), values);
}

int Draft::add(Tensor tensor, const Values& values) {
  tensor.uid = static_cast<int64_t>(graph_.tensors.size());
  graph_.tensors.push_back(std::move(tensor));
  values_.push_back(values);
  reads_.push_back(0);
  return static_cast<int>(graph_.tensors.size()) - 1;
}

Strides Draft::place(const Dims& wanted, bool is_input) {
  if (plain_places_ || random.percent(40))
    return packed_strides(wanted, random.once_in(3) ? Layout::nhwc : Layout::row_major);
  const bool permutes = random.once_in(2), pads = random.once_in(2);
  Strides strides = nested_places(random, wanted, permutes, pads);
  for (int axis = 0; axis < wanted.rank(); ++axis) {
    if (is_input && random.once_in(8)) strides[axis] = 0;
    // An axis of one element is never stepped along, so any stride is right.
    if (wanted[axis] == 1 && random.once_in(4)) strides[axis] = random.pick<int64_t>({0, 1, 7, 1 << 20});
  }
  // Windows that overlap: neighbours of one axis are also neighbours of another, which has some.
  if (is_input && wanted.rank() > 1 && random.once_in(12) && wanted[1] > 1) strides[0] = strides[1];
  return strides;
}

DataType Draft::compute_for(const Attributes& attributes, const std::vector<int>& inputs) {
  std::vector<const Tensor*> operands;
  operands.reserve(inputs.size());
  for (const int input : inputs) operands.push_back(input < 0 ? nullptr : &tensor(input));
  if (random.percent(90)) return default_compute(attributes, operands);
  return random.pick({DataType::f32, DataType::f32, DataType::f64, DataType::i32, DataType::i64});
}

DataType Draft::result_type(const Attributes& attributes, DataType inferred) {
  if (keeps_type(attributes)) return inferred;
  if (random.percent(50)) return inferred;
  if (random.percent(50)) return main_type_;
  return type();
}

bool Draft::append(const Proposal& proposal) {
  Op op;
  op.name = fmt::format("{}{}", short_name(proposal.attributes), graph_.ops.size());
  op.attributes = proposal.attributes;
  op.inputs = proposal.inputs;
  std::vector<const Tensor*> operands;
  std::vector<Values> values;
  for (const int input : op.inputs) {
    if (input >= 0 && element_count(tensor(input).dims) > limits_.elements) return false;
    operands.push_back(input < 0 ? nullptr : &tensor(input));
    values.push_back(input < 0 ? Values{} : values_[static_cast<size_t>(input)]);
  }
  const size_t before = graph_.tensors.size();
  const auto drop = [&] {
    graph_.tensors.resize(before);
    values_.resize(before);
    reads_.resize(before);
    return false;
  };
  try {
    std::vector<Inferred> inferred = infer_all(op.name, op.attributes, operands, {&proposal.given, 1});
    const std::vector<Role> results = roles(op.attributes).outputs;
    std::vector<Dims> asked;
    for (size_t i = 0; i < inferred.size(); ++i) {
      const bool wanted = !results[i].optional || random.percent(i == 0 ? 80 : 40);
      asked.push_back(wanted ? inferred[i].dims : Dims{});
    }
    if (std::ranges::all_of(asked, &Dims::empty)) asked[0] = inferred[0].dims;
    // Some results exist only beside operands that may be left out.
    if (inferred.size() > 1) inferred = infer_all(op.name, op.attributes, operands, asked);
    for (size_t i = 0; i < inferred.size(); ++i) {
      op.outputs.push_back(-1);
      if (asked[i].empty()) continue;
      if (element_count(inferred[i].dims) > limits_.elements) return drop();
      Tensor result;
      result.name = fmt::format("t{}", graph_.tensors.size());
      result.dims = inferred[i].dims;
      result.type = result_type(op.attributes, inferred[i].type);
      result.strides = random.percent(75) ? inferred[i].strides : place(inferred[i].dims, false);
      result.memory = Memory::workspace;
      op.outputs.back() = add(std::move(result), {});
    }
  } catch (const Error&) {
    return drop();
  }
  const auto after = values_after(graph_, op, values);
  if (!after) return drop();
  for (size_t i = 0; i < op.outputs.size(); ++i)
    if (op.outputs[i] >= 0) values_[static_cast<size_t>(op.outputs[i])] = (*after)[i];
  for (const int input : op.inputs)
    if (input >= 0) ++reads_[static_cast<size_t>(input)];
  graph_.ops.push_back(std::move(op));
  return true;
}

Graph Draft::finish() {
  for (size_t i = 0; i < graph_.tensors.size(); ++i) {
    Tensor& each = graph_.tensors[i];
    if (!each.is_virtual() || (reads_[i] > 0 && !random.percent(12))) continue;
    each.memory = Memory::device;
    each.alignment = random.once_in(4) ? byte_size(each.type) : 16;
  }
  // Inputs of proposals that were dropped.
  std::vector<int> renamed(graph_.tensors.size(), -1);
  Graph kept = graph_;
  kept.tensors.clear();
  for (size_t i = 0; i < graph_.tensors.size(); ++i) {
    if (reads_[i] == 0 && graph_.producer(static_cast<int>(i)) < 0) continue;
    renamed[i] = static_cast<int>(kept.tensors.size());
    kept.tensors.push_back(graph_.tensors[i]);
  }
  for (Op& op : kept.ops) {
    for (std::vector<int>* list : {&op.inputs, &op.outputs})
      for (int& each : *list)
        if (each >= 0) each = renamed[static_cast<size_t>(each)];
  }
  return kept;
}

}  // namespace fusor::fuzz
