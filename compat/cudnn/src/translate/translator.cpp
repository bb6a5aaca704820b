// Owns what all rules of translation share: tensors, their places, and views.
#include "compat/cudnn/src/translate/translator.h"

#include <algorithm>
#include <limits>
#include <set>

namespace fusor::cudnn {

namespace {

Dims dims_of(const std::vector<int64_t>& list) { return Dims(std::span<const int64_t>(list)); }

// Bytes that pointers are promised to be a multiple of; a client that promises less than an element has none.
int64_t alignment_of(const Descriptor& tensor, DataType type) {
  const auto said = tensor.get<int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 16);
  int64_t alignment = byte_size(type);
  while (alignment * 2 <= said && said % (alignment * 2) == 0) alignment *= 2;
  return alignment;
}

void refuse_unsupported(const Descriptor& tensor) {
  const auto uid = tensor.get<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID);
  // Tensors that an attention keeps for its own backward pass, and what cudnnReorderFilterAndBias writes, may
  // lie as the library likes: here, as it is declared.
  const int order = tensor.get<int>(CUDNN_ATTR_TENSOR_REORDERING_MODE, CUDNN_TENSOR_REORDERING_NONE);
  if (order != CUDNN_TENSOR_REORDERING_NONE && order != CUDNN_TENSOR_REORDERING_F16x16 &&
      order != CUDNN_TENSOR_REORDERING_INT8x32)
    refuse(CUDNN_STATUS_NOT_SUPPORTED_LAYOUT, "tensor {} is reordered; no engine reads reordered elements",
           uid);
}

int64_t times(const TensorFacts& facts, int64_t number, int64_t factor) {
  int64_t product = 0;
  if (__builtin_mul_overflow(number, factor, &product))
    refuse(CUDNN_STATUS_NOT_SUPPORTED_SHAPE, "tensor {} {} with strides {} is too large", facts.uid,
           to_string(facts.dims), to_string(facts.strides));
  return product;
}

void read_vectors(const Descriptor& tensor, TensorFacts& facts) {
  facts.vector_count = tensor.get<int64_t>(CUDNN_ATTR_TENSOR_VECTOR_COUNT, 1);
  if (facts.vector_count == 1) return;
  const auto axis = tensor.get<int64_t>(CUDNN_ATTR_TENSOR_VECTORIZED_DIMENSION, -1);
  constexpr int64_t kMostNeighbours = 64;
  if (facts.vector_count < 1 || facts.vector_count > kMostNeighbours || axis < 0 || axis >= facts.dims.rank())
    refuse(CUDNN_STATUS_BAD_PARAM, "tensor {} {} has vectors of {} elements along axis {}", facts.uid,
           to_string(facts.dims), facts.vector_count, axis);
  facts.vector_axis = static_cast<int>(axis);
  facts.dims[facts.vector_axis] = times(facts, facts.dims[facts.vector_axis], facts.vector_count);
  for (const int64_t stride : facts.strides) times(facts, stride, facts.vector_count);
}

// The parts of a complex number lie beside each other.
void add_parts(TensorFacts& facts) {
  if (facts.vector_count != 1 || facts.dims.rank() == kMaxRank)
    refuse(CUDNN_STATUS_NOT_SUPPORTED_LAYOUT, "tensor {} of complex numbers has vectors, or {} axes",
           facts.uid, facts.dims.rank());
  for (int i = 0; i < facts.dims.rank(); ++i)
    if (facts.dims[i] > 1) facts.strides[i] = times(facts, facts.strides[i], 2);
  facts.dims.push_back(2);
  facts.strides.push_back(1);
}

// Integers of 4 bits lie in pairs along the axis whose neighbours touch.
int packed_axis(const TensorFacts& facts) {
  int axis = -1;
  for (int i = 0; i < facts.dims.rank(); ++i) {
    if (facts.dims[i] == 1) continue;
    if (facts.strides[i] == 1)
      axis = i;
    else if (facts.strides[i] % 2 != 0)
      refuse(CUDNN_STATUS_NOT_SUPPORTED_LAYOUT, "tensor {} of unsigned 4-bit integers has the odd stride {}",
             facts.uid, facts.strides[i]);
  }
  if (axis < 0 || facts.dims[axis] % 2 != 0)
    refuse(CUDNN_STATUS_NOT_SUPPORTED_LAYOUT,
           "tensor {} {} of unsigned 4-bit integers has no even axis of stride 1", facts.uid,
           to_string(facts.dims));
  return axis;
}

std::string name_of_uid(int64_t uid) { return fmt::format("t{}", uid); }

// How far offsets of this type may reach into a ragged tensor. Clients say it on the device only; nothing is
// read or written beyond the last offset.
int64_t reach_of(const TensorFacts& facts, DataType offsets) {
  constexpr int64_t kMostWith32Bits = (int64_t{1} << 31) - (int64_t{1} << 25),
                    kMostWith64Bits = int64_t{1} << 42;
  int64_t entry = 1, reach = 0;
  bool fits = true;
  for (int i = 1; i < facts.dims.rank(); ++i) {
    int64_t step = 0;
    fits = fits && !__builtin_mul_overflow(facts.dims[i] - 1, facts.strides[i], &step) &&
           !__builtin_add_overflow(entry, step, &entry);
  }
  fits = fits && !__builtin_mul_overflow(facts.dims[0], std::max(facts.strides[0], entry), &reach);
  if (!fits)
    refuse(CUDNN_STATUS_NOT_SUPPORTED_SHAPE, "the ragged tensor {} {} with strides {} is too large",
           facts.uid, to_string(facts.dims), to_string(facts.strides));
  return std::max(reach, offsets == DataType::i64 ? kMostWith64Bits : kMostWith32Bits);
}

// Strides of the axes behind the batch.
Dims ragged_strides(const TensorFacts& facts) {
  Dims strides = facts.strides;
  strides.erase(0);
  return strides;
}

}  // namespace

DataType data_type_of(cudnnDataType_t type) {
  switch (type) {
    case CUDNN_DATA_FLOAT:
    case CUDNN_DATA_FAST_FLOAT_FOR_FP8:
      return DataType::f32;
    case CUDNN_DATA_DOUBLE:
      return DataType::f64;
    case CUDNN_DATA_HALF:
      return DataType::f16;
    case CUDNN_DATA_BFLOAT16:
      return DataType::bf16;
    case CUDNN_DATA_FP8_E4M3:
      return DataType::f8_e4m3;
    case CUDNN_DATA_FP8_E5M2:
      return DataType::f8_e5m2;
    case CUDNN_DATA_FP8_E8M0:
      return DataType::f8_e8m0;
    case CUDNN_DATA_FP4_E2M1:
      return DataType::f4_e2m1;
    case CUDNN_DATA_INT4:
      return DataType::i4;
    case CUDNN_DATA_INT8:
      return DataType::i8;
    case CUDNN_DATA_UINT8:
      return DataType::u8;
    case CUDNN_DATA_INT32:
      return DataType::i32;
    case CUDNN_DATA_INT64:
      return DataType::i64;
    case CUDNN_DATA_BOOLEAN:
      return DataType::b8;
    default:
      refuse(CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE, "data type {} is not supported", static_cast<int>(type));
  }
}

DataType sum_type_of(cudnnDataType_t type) {
  const DataType asked = data_type_of(type), carried = carrier(asked);
  if (!is_real(asked) && asked != carried)
    refuse(CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE, "sums of type {}: integers are summed in int32 or int64",
           to_string(asked));
  return carried;
}

DataType part_type_of(cudnnDataType_t type) {
  if (type == CUDNN_DATA_COMPLEX_FP32) return DataType::f32;
  return type == CUDNN_DATA_COMPLEX_FP64 ? DataType::f64 : data_type_of(type);
}

Dims TensorFacts::memory_dims() const {
  if (vector_count == 1) return dims;
  Dims memory;
  for (int i = 0; i < dims.rank(); ++i) {
    memory.push_back(i == vector_axis ? dims[i] / vector_count : dims[i]);
    if (i == vector_axis) memory.push_back(vector_count);
  }
  return memory;
}

Strides TensorFacts::memory_strides() const {
  if (vector_count == 1) return strides;
  Strides memory;
  for (int i = 0; i < dims.rank(); ++i) {
    memory.push_back(strides[i] * vector_count);
    if (i == vector_axis) memory.push_back(1);
  }
  return memory;
}

TensorFacts facts_of(const Descriptor& tensor) {
  refuse_unsupported(tensor);
  TensorFacts facts;
  facts.uid = tensor.get<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID);
  const auto type = tensor.get<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE);
  facts.is_packed = type == CUDNN_DATA_UINT4;
  facts.is_complex = type == CUDNN_DATA_COMPLEX_FP32 || type == CUDNN_DATA_COMPLEX_FP64;
  facts.type = facts.is_packed ? DataType::u8 : part_type_of(type);
  facts.dims = dims_of(tensor.list<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS));
  facts.strides = dims_of(tensor.list<int64_t>(CUDNN_ATTR_TENSOR_STRIDES));
  // Strides of axes of one element may be anything.
  for (int i = 0; i < facts.dims.rank(); ++i)
    if (facts.dims[i] == 1) facts.strides[i] = 1;
  read_vectors(tensor, facts);
  if (facts.is_complex) add_parts(facts);
  facts.alignment = alignment_of(tensor, facts.type);
  facts.is_virtual = tensor.get<bool>(CUDNN_ATTR_TENSOR_IS_VIRTUAL, false);
  facts.is_by_value = tensor.get<bool>(CUDNN_ATTR_TENSOR_IS_BY_VALUE, false);
  // In memory booleans are bits; a client's scalar is a bool of its own, a virtual one lies as fusor likes.
  if (facts.type == DataType::b8 && !facts.is_virtual && !facts.is_by_value) facts.type = DataType::b1;
  // A virtual tensor lies where fusor likes.
  if (!facts.is_virtual) facts.ragged_offset = tensor.child(CUDNN_ATTR_TENSOR_RAGGED_OFFSET_DESC);
  if (facts.ragged_offset &&
      (facts.is_packed || facts.is_complex || facts.vector_count > 1 || facts.is_by_value))
    refuse(CUDNN_STATUS_NOT_SUPPORTED_LAYOUT,
           "the ragged tensor {} has vectors, complex numbers, unsigned integers of 4 bits or is a scalar",
           facts.uid);
  return facts;
}

TensorFacts Translator::facts(const Descriptor& op, cudnnBackendAttributeName_t attribute) {
  const DescriptorPointer tensor = op.child(attribute);
  if (!tensor) refuse(CUDNN_STATUS_BAD_PARAM, "{} is not set", op.row().find(attribute)->words);
  return facts_of(*tensor);
}

Tensor Translator::make_input(const TensorFacts& facts) {
  if (facts.is_virtual)
    refuse(CUDNN_STATUS_BAD_PARAM, "virtual tensor {} is read, but no op writes it", facts.uid);
  const std::string name = name_of_uid(facts.uid);
  bound_[name] = {0, facts.uid, 0};
  if (facts.is_packed) return make_packed_input(name, facts);
  if (facts.ragged_offset) return make_ragged_input(name, facts);
  if (!facts.is_by_value)
    return reshaped(builder_.input(name, facts.memory_dims(), facts.type,
                                   {.strides = facts.memory_strides(), .alignment = facts.alignment}),
                    facts.dims);
  if (element_count(facts.dims) != 1)
    refuse(CUDNN_STATUS_NOT_SUPPORTED_SHAPE, "tensor {} {} is passed by value; only scalars are", facts.uid,
           to_string(facts.dims));
  return builder_.scalar(name, facts.type);
}

// Elements at and beyond a batch entry's next offset are 0.
Tensor Translator::make_ragged_input(const std::string& name, const TensorFacts& facts) {
  const Tensor offset = in(*facts.ragged_offset);
  auto whole = ragged_.find(facts.uid);
  if (whole == ragged_.end())
    whole = ragged_
                .emplace(facts.uid, builder_.input(name, {reach_of(facts, offset.type)}, facts.type,
                                                   {.alignment = facts.alignment}))
                .first;
  return builder_.ragged_load(whole->second, offset, facts.dims, ragged_strides(facts));
}

// The bytes, each read for both of its integers: the lower half of a byte is the first.
Tensor Translator::make_packed_input(const std::string& name, const TensorFacts& facts) {
  const int axis = packed_axis(facts);
  Dims dims = facts.dims;
  Strides strides = facts.strides;
  for (int i = 0; i < dims.rank(); ++i) strides[i] = i == axis || dims[i] == 1 ? 1 : strides[i] / 2;
  dims[axis] /= 2;
  const Tensor bytes = builder_.input(name, dims, DataType::u8, {.strides = strides, .alignment = 1});
  const Tensor place = numbers_along(axis, dims.rank(), facts.dims[axis]);
  const Tensor byte = builder_.identity(
      builder_.gather(bytes, builder_.div(place, number(2), whole()), {.axis = axis}), whole());
  const Tensor is_second = builder_.cmp_eq(builder_.mod(place, number(2), whole()), number(1));
  const Tensor value = builder_.binary_select(builder_.div(byte, number(16), whole()),
                                              builder_.mod(byte, number(16), whole()), is_second, whole());
  return builder_.identity(value, {.type = DataType::u8});
}

// Loaded in the order in which its elements lie: what is copied on the way lies as it did before.
Tensor Translator::loaded(const TensorFacts& facts) {
  const int rank = facts.dims.rank();
  const bool is_copied = facts.ragged_offset || existing_rows.contains(facts.uid);
  if (!is_copied || rank < 2 || facts.strides[rank - 2] >= facts.strides[rank - 1])
    return with_existing_rows(facts, make_input(facts), false);
  TensorFacts in_order = facts;
  std::swap(in_order.dims[rank - 2], in_order.dims[rank - 1]);
  std::swap(in_order.strides[rank - 2], in_order.strides[rank - 1]);
  Dims back;
  for (int i = 0; i < rank; ++i) back.push_back(i);
  std::swap(back[rank - 2], back[rank - 1]);
  return transposed(with_existing_rows(in_order, make_input(in_order), true), back);
}

// Rows behind a length become 0, whatever lies there. `swapped`: the last two axes have changed places.
Tensor Translator::with_existing_rows(const TensorFacts& facts, const Tensor& x, bool swapped) {
  const auto rows = existing_rows.find(facts.uid);
  if (rows == existing_rows.end()) return x;
  const int rank = x.dims.rank();
  const int axis = swapped ? 2 * rank - 3 - rows->second.axis : rows->second.axis;
  const Tensor exists =
      builder_.cmp_lt(numbers_along(axis, x.dims.rank(), x.dims[axis]), in(*rows->second.lengths));
  return builder_.binary_select(x, builder_.constant(0), exists, {.type = x.type});
}

Tensor Translator::in(const Descriptor& tensor) {
  const TensorFacts facts = facts_of(tensor);
  const auto known = known_.find(facts.uid);
  if (known != known_.end()) return known->second;
  return known_.emplace(facts.uid, loaded(facts)).first->second;
}

Tensor Translator::presumed_positive(const TensorFacts& scalar) {
  const auto known = positive_.find(scalar.uid);
  if (known != positive_.end()) return known->second;
  const auto bound = known_.find(scalar.uid);
  const Tensor x =
      bound != known_.end() ? bound->second : known_.emplace(scalar.uid, make_input(scalar)).first->second;
  if (!presumes) return x;
  const Tensor least = builder_.constant(std::numeric_limits<float>::min());
  return positive_.emplace(scalar.uid, builder_.max(x, least)).first->second;
}

Tensor Translator::in(const Descriptor& op, cudnnBackendAttributeName_t attribute) {
  const DescriptorPointer tensor = op.child(attribute);
  if (!tensor) return {};
  const bool is_product = op.type() == CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR && !existing_rows.empty();
  const TensorFacts facts = is_product ? facts_of(*tensor) : TensorFacts{};
  if (!facts.ragged_offset || (known_.contains(facts.uid) && !ragged_.contains(facts.uid)))
    return in(*tensor);
  // Beside attention's matmuls, which read rows where they lie, ops on elements load them on their own.
  const auto known = of_elements_.find(facts.uid);
  return known != of_elements_.end() ? known->second
                                     : of_elements_.emplace(facts.uid, loaded(facts)).first->second;
}

std::optional<DataType> Translator::asked_type(const TensorFacts& facts) {
  if (facts.is_virtual && facts.type == DataType::f32) return std::nullopt;
  return facts.type;
}

OpOptions Translator::options(const TensorFacts& made, std::optional<DataType> compute) {
  return {.type = asked_type(made), .compute = compute};
}

Tensor Translator::op(const Attributes& attributes, std::initializer_list<Tensor> operands,
                      const TensorFacts& made) {
  const DataType* compute = compute_type(attributes);
  OpOptions asked = options(made, compute != nullptr ? std::optional(*compute) : std::nullopt);
  if (is_view(attributes) || std::holds_alternative<Concatenate>(attributes)) asked.type = std::nullopt;
  const std::array<Dims, 1> given{made.dims};
  return builder_.op(attributes, std::span<const Tensor>(operands.begin(), operands.size()), asked, given)
      .front();
}

Tensor Translator::reshaped(const Tensor& x, const Dims& dims) {
  return x.dims == dims ? x : builder_.reshape(x, dims);
}

Tensor Translator::transposed(const Tensor& x, const Dims& permutation) {
  for (int i = 0; i < permutation.rank(); ++i)
    if (permutation[i] != i) return builder_.transpose(x, permutation);
  return x;
}

Tensor Translator::scaled(const Tensor& x, double factor) {
  return factor == 1 ? x : builder_.mul(x, builder_.constant(factor));
}

Tensor Translator::numbers_along(int axis, int rank, int64_t extent) {
  Dims dims = Dims::filled(rank, 1);
  dims[axis] = extent;
  const Pointwise coordinate{.mode = PointwiseMode::gen_index, .compute = DataType::i32, .axis = axis};
  const std::array<Dims, 1> given{dims};
  const std::array<Tensor, 1> of{number(0)};
  return builder_.op(coordinate, of, {.type = DataType::i32}, given).front();
}

Tensor Translator::as_scalar(const Tensor& x) { return x.is_scalar() ? x : reshaped(x, {1}); }

void Translator::out(const Descriptor& op, cudnnBackendAttributeName_t attribute, const Tensor& result) {
  const DescriptorPointer tensor = op.child(attribute);
  if (!tensor) return;
  TensorFacts facts = facts_of(*tensor);
  // Products and views that a client keeps ragged between the ops of one graph are its workspace, which some
  // lay out by offsets that they multiply: they stay in the graph. So do gradients on their way to a result.
  const bool is_kept = op.type() == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR ||
                       op.type() == CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR;
  if (facts.ragged_offset && is_kept && is_read(facts.uid)) facts.is_virtual = true;
  out(facts, result);
}

void Translator::out(const TensorFacts& facts, const Tensor& result) {
  if (element_count(result.dims) != element_count(facts.dims))
    refuse(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, "tensor {} is declared as {}, but its op gives {}",
           facts.uid, to_string(facts.dims), to_string(result.dims));
  if (known_.contains(facts.uid))
    refuse(CUDNN_STATUS_BAD_PARAM, "tensor {} is written twice, or read before it is written", facts.uid);
  Tensor made = reshaped(result, facts.dims);
  if (facts.is_virtual) {
    const bool is_open = !asked_type(facts).has_value();
    if (!is_open && made.type != facts.type) made = builder_.identity(made, {.type = facts.type});
    known_.emplace(facts.uid, made);
    return;
  }
  if (facts.ragged_offset) return out_ragged(facts, made);
  if (facts.is_packed) return out_packed(facts, made);
  const std::string name = name_of_uid(facts.uid);
  made = builder_.output(
      reshaped(made, facts.memory_dims()),
      {.name = name, .type = facts.type, .strides = facts.memory_strides(), .alignment = facts.alignment});
  bound_[name] = {0, facts.uid, 0};
  outputs_.push_back(made);
  known_.emplace(facts.uid, is_read(facts.uid) ? reshaped(made, facts.dims) : made);
}

// Stored as the signed integers of the same bits: 8 to 15 are those less 16.
void Translator::out_packed(const TensorFacts& facts, const Tensor& result) {
  const Tensor rounded = builder_.identity(builder_.identity(result, {.type = DataType::u8}), whole());
  const Tensor value = builder_.min(rounded, number(15), whole());
  const Tensor bits = builder_.binary_select(builder_.sub(value, number(16), whole()), value,
                                             builder_.cmp_gt(value, number(7)), whole());
  const std::string name = name_of_uid(facts.uid);
  outputs_.push_back(builder_.output(
      reshaped(bits, facts.memory_dims()),
      {.name = name, .type = DataType::i4, .strides = facts.memory_strides(), .alignment = facts.alignment}));
  bound_[name] = {0, facts.uid, 0};
  known_.emplace(facts.uid, is_read(facts.uid) ? builder_.identity(value, {.type = DataType::u8}) : value);
}

// Elements at and beyond a batch entry's next offset are not written.
void Translator::out_ragged(const TensorFacts& facts, const Tensor& result) {
  const std::string name = name_of_uid(facts.uid);
  const Tensor offset = in(*facts.ragged_offset);
  const Tensor stored = builder_.ragged_store(result, offset, reach_of(facts, offset.type),
                                              ragged_strides(facts), {.type = facts.type}, true);
  outputs_.push_back(
      builder_.output(stored, {.name = name, .type = facts.type, .alignment = facts.alignment}));
  bound_[name] = {0, facts.uid, 0};
  const bool is_rounded = result.type == facts.type || !is_read(facts.uid);
  known_.emplace(facts.uid, is_rounded ? result : builder_.identity(result, {.type = facts.type}));
}

void Translator::place(const Tensor& result, const TensorFacts& whole, int64_t byte_offset) {
  const std::string name = fmt::format("t{}at{}", whole.uid, byte_offset);
  int64_t alignment = whole.alignment;
  while (byte_offset % alignment != 0) alignment /= 2;
  outputs_.push_back(builder_.output(
      result, {.name = name, .type = whole.type, .strides = whole.strides, .alignment = alignment}));
  bound_[name] = {0, whole.uid, byte_offset};
}

bool Translator::is_read(int64_t uid) const { return readers_.contains(uid); }

void Translator::note_reduction(const Tensor& y, ReductionMode mode) { reductions_[y.uid] = mode; }

std::optional<ReductionMode> Translator::reduction_of(const Tensor& x) const {
  const auto found = reductions_.find(x.uid);
  return found == reductions_.end() ? std::nullopt : std::optional(found->second);
}

int Translator::sink_step(const Tensor& x) const {
  const auto found = sink_steps_.find(x.uid);
  return found == sink_steps_.end() ? 0 : found->second;
}

bool Translator::is_row_maximum(const Tensor& x) const {
  const auto found = reductions_.find(x.uid);
  return has_matmul && found != reductions_.end() && found->second == ReductionMode::max;
}

bool Translator::is_row_sum(const Tensor& x) const {
  const auto found = reductions_.find(x.uid);
  return has_matmul && found != reductions_.end() && found->second == ReductionMode::add;
}

Translation Translator::finish() {
  if (outputs_.empty()) refuse(CUDNN_STATUS_BAD_PARAM, "the graph has no result that is not virtual");
  Translation translation{
      .graph = builder_.finish(), .placed = {}, .is_attention_backward = pattern.is_backward};
  for (const auto& [uid, tensor] : positive_) translation.positive.push_back(uid);
  std::set<int64_t> taken;
  for (const auto& [name, bound] : bound_) taken.insert(bound.client_uid);
  int64_t next = 1;
  std::set<int64_t> used;
  for (Tensor& tensor : translation.graph.tensors) {
    const auto bound = bound_.find(tensor.name);
    if (bound != bound_.end() && tensor.name == name_of_uid(bound->second.client_uid)) {
      tensor.uid = bound->second.client_uid;
      if (presumes && tensor.is_scalar() &&
          std::ranges::find(pattern.fills, tensor.uid) != pattern.fills.end()) {
        tensor.memory = Memory::constant;
        tensor.value = -std::numeric_limits<double>::infinity();
        translation.minus_infinity.push_back(tensor.uid);
      }
      continue;
    }
    while (taken.contains(next)) ++next;
    tensor.uid = next++;
    if (bound != bound_.end())
      translation.placed.push_back({tensor.uid, bound->second.client_uid, bound->second.byte_offset});
  }
  return translation;
}

}  // namespace fusor::cudnn
