// Owns the translation of ops that move elements: reshape, concatenation, pages of a cache.
#include <algorithm>
#include <numeric>

#include "compat/cudnn/src/translate/translator.h"

namespace fusor::cudnn {

namespace {

// Axes from the largest stride to the smallest; axes of one element come first, where they do no harm.
Dims memory_order(const Dims& dims, const Strides& strides) {
  Dims order;
  for (int i = 0; i < dims.rank(); ++i) order.push_back(i);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    const int i = static_cast<int>(a), j = static_cast<int>(b);
    if (dims[i] == 1 || dims[j] == 1) return dims[i] == 1 && dims[j] != 1;
    return strides[i] > strides[j];
  });
  return order;
}

Dims permuted(const Dims& dims, const Dims& order) {
  Dims result;
  for (const int64_t axis : order) result.push_back(dims[static_cast<int>(axis)]);
  return result;
}

Dims inverse(const Dims& order) {
  Dims result = order;
  for (int i = 0; i < order.rank(); ++i) result[static_cast<int>(order[i])] = i;
  return result;
}

void concat_in_place(Translator& t, const Descriptor& op, const std::vector<DescriptorPointer>& parts,
                     int64_t own) {
  const TensorFacts whole = Translator::facts(op, CUDNN_ATTR_OPERATION_CONCAT_OUTPUT_DESC);
  const auto axis = static_cast<int>(op.get<int64_t>(CUDNN_ATTR_OPERATION_CONCAT_AXIS));
  if (whole.is_virtual || t.is_read(whole.uid) || axis < 0 || axis >= whole.dims.rank())
    refuse(CUDNN_STATUS_NOT_SUPPORTED, "an in-place concatenation whose result {} is read again", whole.uid);
  if (is_packed(whole.type))
    refuse(CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE,
           "an in-place concatenation of {}, elements of which share bytes (tensor {})",
           to_string(whole.type), whole.uid);
  int64_t start = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    const TensorFacts part = facts_of(*parts[i]);
    if (static_cast<int64_t>(i) != own)
      t.place(t.in(*parts[i]), whole, start * whole.strides[axis] * byte_size(whole.type));
    start += part.dims[axis];
  }
}

}  // namespace

// The elements of the result lie in memory as those of the operand do: each is read in the order of its
// strides.
void translate_reshape(Translator& t, const Descriptor& op) {
  const TensorFacts from = Translator::facts(op, CUDNN_ATTR_OPERATION_RESHAPE_XDESC),
                    to = Translator::facts(op, CUDNN_ATTR_OPERATION_RESHAPE_YDESC);
  if (element_count(from.dims) != element_count(to.dims))
    refuse(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, "a reshape from {} to {}", to_string(from.dims),
           to_string(to.dims));
  const Dims x_order = memory_order(from.dims, from.strides), y_order = memory_order(to.dims, to.strides);
  Tensor x = t.in(op, CUDNN_ATTR_OPERATION_RESHAPE_XDESC);
  // Rounded in front of the view, so that a matmul reads the view itself.
  if (const auto type = Translator::asked_type(to); to.is_virtual && type && x.type != *type)
    x = t.builder().identity(x, {.type = *type});
  const Tensor in_memory = t.transposed(x, x_order);
  const Tensor shaped = t.reshaped(in_memory, permuted(to.dims, y_order));
  t.out(op, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, t.transposed(shaped, inverse(y_order)));
}

void translate_concat(Translator& t, const Descriptor& op) {
  const std::vector<DescriptorPointer>& parts = op.find(CUDNN_ATTR_OPERATION_CONCAT_INPUT_DESCS)->children;
  const auto own = op.get<int64_t>(CUDNN_ATTR_OPERATION_CONCAT_INPLACE_INDEX, -1);
  if (own >= 0) {
    concat_in_place(t, op, parts, own);
    return;
  }
  std::vector<Tensor> operands;
  operands.reserve(parts.size());
  for (const DescriptorPointer& part : parts) operands.push_back(t.in(*part));
  t.out(op, CUDNN_ATTR_OPERATION_CONCAT_OUTPUT_DESC,
        t.builder().concatenate(operands, op.get<int64_t>(CUDNN_ATTR_OPERATION_CONCAT_AXIS)));
}

void translate_paged_cache_load(Translator& t, const Descriptor& op) {
  const Tensor container = t.in(op, CUDNN_ATTR_OPERATION_PAGED_CACHE_LOAD_CONTAINER_DESC);
  const TensorFacts made = Translator::facts(op, CUDNN_ATTR_OPERATION_PAGED_CACHE_LOAD_YDESC);
  if (made.dims.rank() != 4 || container.dims.rank() != 4)
    refuse(CUDNN_STATUS_BAD_PARAM, "a paged cache of {} loaded as {}; both have 4 axes",
           to_string(container.dims), to_string(made.dims));
  // Keys are asked for with their depth in front of the rows; the strides say so where the extents do not.
  const int64_t depth = container.dims[3];
  const bool swaps = made.dims[3] != depth || (made.dims[2] == depth && made.strides[2] < made.strides[3]);
  PagedCacheOptions options;
  options.max_seq_len = made.dims[swaps ? 3 : 2];
  options.lengths = t.in(op, CUDNN_ATTR_OPERATION_PAGED_CACHE_LOAD_SEQUENCE_DESC);
  const Tensor rows = t.builder().paged_cache_load(
      container, t.in(op, CUDNN_ATTR_OPERATION_PAGED_CACHE_LOAD_PAGE_TABLE_DESC), options);
  t.out(op, CUDNN_ATTR_OPERATION_PAGED_CACHE_LOAD_YDESC, swaps ? t.transposed(rows, {0, 1, 3, 2}) : rows);
}

}  // namespace fusor::cudnn
