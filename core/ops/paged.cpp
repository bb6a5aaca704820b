// Owns the rules and expansions of paged and ragged loads.
#include "core/ops/paged.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "core/attributes.h"
#include "core/ops/paged_rows.h"
#include "core/ops/rules.h"

namespace fusor {

namespace {

void expect_index(const Call& call, const Tensor& index) {
  if (index.type != DataType::i32 && index.type != DataType::i64)
    fail("{}: '{}' is {}; it must be int32 or int64", call.label, index.name, to_string(index.type));
}

// Axes from the slowest to the fastest; those of one element are left out.
std::vector<int> nested_axes(const Dims& dims, const Dims& strides) {
  std::vector<int> axes;
  for (int axis = 1; axis < dims.rank(); ++axis)
    if (dims[axis] > 1) axes.push_back(axis);
  std::ranges::stable_sort(axes, [&](int a, int b) { return strides[a - 1] > strides[b - 1]; });
  return axes;
}

// Offsets [batch + 1] of a tensor of `dims`.
void expect_offsets(const Call& call, const Dims& dims, const Dims& strides) {
  const Tensor& offset = call.input(1);
  expect_index(call, offset);
  if (element_count(offset.dims) != dims[0] + 1)
    fail("{}: '{}' {} has {} offsets; {} batch entries need {}", call.label, offset.name,
         to_string(offset.dims), element_count(offset.dims), dims[0], dims[0] + 1);
  expect_entries(call, "strides", strides, dims.rank() - 1, "axes behind the batch");
  for (const int64_t stride : strides)
    if (stride < 0) fail("{}: strides {} have a negative one", call.label, to_string(strides));
}

void expect_flat(const Call& call, const Dims& dims, std::string_view what) {
  if (dims.rank() != 1) fail("{}: {} {} must have one axis", call.label, what, to_string(dims));
}

// Integers wide enough for that many elements.
int wide(Expansion& e, int value, int64_t elements) {
  return elements > std::numeric_limits<int32_t>::max() ? e.cast(value, DataType::i64) : value;
}

// Offsets as [batch + 1, 1, ...]; those of the first, or the next, of each batch entry.
int offsets(Expansion& e, int rank, bool next) {
  const int64_t count = element_count(e.dims(e.input(1)));
  Dims dims = Dims::filled(rank, 1);
  dims[0] = count;
  return e.slice(e.reshape(e.input(1), dims), 0, next ? 1 : 0, next ? count : count - 1);
}

// Whether places of a ragged tensor need more than 32 bits: the sum of an offset within `elements` and of
// what the coordinates add.
bool needs_wide_places(const Dims& dims, const Dims& strides, int64_t elements) {
  int64_t reach = elements;
  for (int axis = 1; axis < dims.rank(); ++axis) {
    int64_t step = 0;
    if (__builtin_mul_overflow(dims[axis] - 1, strides[axis - 1], &step) ||
        __builtin_add_overflow(reach, step, &reach))
      return true;
  }
  return reach > std::numeric_limits<int32_t>::max();
}

// The place of each element of a tensor of `dims` in the ragged one of so many elements; -1 for those at and
// beyond the next batch entry's offset.
int places(Expansion& e, const Dims& dims, const Dims& strides, int64_t elements) {
  const bool is_wide = needs_wide_places(dims, strides, elements);
  const auto widened = [&](int value) { return is_wide ? e.cast(value, DataType::i64) : value; };
  int index = widened(offsets(e, dims.rank(), false));
  for (int axis = 1; axis < dims.rank(); ++axis)
    if (dims[axis] > 1 && strides[axis - 1] > 0) {
      const int coordinate = widened(e.index(dims, axis));
      const int64_t stride = strides[axis - 1];
      index = e.add(index, stride == 1 ? coordinate : e.mul(coordinate, e.integer(stride)));
    }
  return e.binary_select(index, e.integer(-1), e.cmp_lt(index, offsets(e, dims.rank(), true)));
}

// So many elements along the last of as many axes as `dims` has.
Dims one_row(const Dims& dims, int64_t elements) {
  Dims row = Dims::filled(dims.rank(), 1);
  row[dims.rank() - 1] = elements;
  return row;
}

}  // namespace

// --- paged_cache_load --------------------------------------------------------------------------------------

Dims paged_dims(const Call& call, const Tensor& container, const Tensor& table, int64_t max_seq_len) {
  const Dims &x = container.dims, &pages = table.dims;
  if (x.rank() != 4)
    fail("{}: '{}' {} needs 4 axes: pages, heads, rows of a page, depth", call.label, container.name,
         to_string(x));
  expect_index(call, table);
  if (element_count(pages) != pages[0] * (pages.rank() > 2 ? pages[2] : pages.back()))
    fail("{}: the page table '{}' {} is not [batch, 1, pages, 1]", call.label, table.name, to_string(pages));
  const int64_t rows = element_count(pages) / pages[0] * x[2];
  if (max_seq_len < 0 || max_seq_len > rows)
    fail("{}: max_seq_len {} is not within the {} rows of the page table '{}'", call.label, max_seq_len, rows,
         table.name);
  return {pages[0], x[1], max_seq_len == 0 ? rows : max_seq_len, x[3]};
}

int paged_rows(Expansion& e, int container, int table, int64_t max_seq_len) {
  const Dims x = e.dims(container), pages = e.dims(table);
  const int64_t heads = x[1], rows = x[2], depth = x[3], all = x[0] * heads * rows;
  const int64_t count = max_seq_len == 0 ? element_count(pages) / pages[0] * rows : max_seq_len;
  const auto lies = [&](const Strides& packed) {
    for (int axis = 0; axis < x.rank(); ++axis)
      if (x[axis] > 1 && e.strides(container)[axis] != packed[axis]) return false;
    return true;
  };
  const bool by_head = lies({heads * rows * depth, rows * depth, depth, 1});
  const bool by_row = lies({heads * rows * depth, depth, heads * depth, 1});
  if (!by_head && !by_row) return -1;
  const int row = e.index({1, 1, count, 1}, 2), head = e.index({1, heads, 1, 1}, 1);
  const int listed = e.reshape(table, {pages[0], 1, element_count(pages) / pages[0], 1});
  // Pages that do not exist become the ones before the first and behind the last.
  const int listed_page = e.gather(listed, e.div(row, e.integer(rows)), 2);
  const int page = wide(e, e.max(e.min(listed_page, e.integer(x[0])), e.integer(-1)), all + heads * rows);
  const int within = e.mod(row, e.integer(rows)), first = e.mul(page, e.integer(heads * rows));
  const int place =
      by_head ? e.add(e.mul(head, e.integer(rows)), within) : e.add(e.mul(within, e.integer(heads)), head);
  const int ordered = by_head ? container : e.transpose(container, {0, 2, 1, 3});
  return e.gather(e.reshape(ordered, {all, 1, 1, depth}), e.add(first, place), 0);
}

bool are_few_rows(int64_t queries, DataType type) {
  constexpr int64_t kFewRows = 128;
  return queries <= kFewRows && (type == DataType::f16 || type == DataType::bf16);
}

int paged_load(Expansion& e, int container, int table, int64_t max_seq_len) {
  const Dims x = e.dims(container), pages = e.dims(table);
  const int64_t count = element_count(pages) / pages[0], rows = count * x[2];
  const int index = e.reshape(table, {pages[0], 1, count, 1, 1});
  const int taken = e.op(Gather{0}, {e.reshape(container, {x[0], x[1], 1, x[2], x[3]}), index});
  const int all = e.reshape(taken, {pages[0], x[1], rows, x[3]});
  return max_seq_len == 0 || max_seq_len == rows ? all : e.slice(all, 2, 0, max_seq_len);
}

std::vector<Inferred> PagedCacheLoad::infer(const Call& call) const {
  refuse_scalars(call);
  const Dims dims = paged_dims(call, call.input(0), call.input(1), max_seq_len);
  expect_integers(call, "lengths");
  expect_dims(call, "lengths", {dims[0], 1, 1, 1});
  return {in_row_major(call, dims, call.input(0).type)};
}

namespace {

// Matrices of a tensor.
int64_t entries_of(const Dims& dims) { return element_count(dims) / (dims[dims.rank() - 2] * dims.back()); }

// Whether only products with a few rows read the tensor, perhaps through views: attention of a few queries.
bool feeds_few_rows(const Expansion& e, int tensor, DataType type) {
  const std::vector<const Op*> readers = e.readers(tensor);
  const auto is_few = [&](const Op* op) {
    const auto rows = [&](int results) {
      const Dims dims = e.dims(results);
      return element_count(dims) / dims.back() / entries_of(e.dims(tensor));
    };
    if (std::holds_alternative<Transpose>(op->attributes) || std::holds_alternative<Reshape>(op->attributes))
      return feeds_few_rows(e, op->outputs[0], type);
    if (std::holds_alternative<Matmul>(op->attributes))
      return op->inputs[0] != tensor && are_few_rows(rows(op->outputs[0]), type);
    if (std::holds_alternative<SdpaForward>(op->attributes))
      return op->inputs[0] != tensor && are_few_rows(rows(op->inputs[0]), type);
    return false;
  };
  return !readers.empty() && std::ranges::all_of(readers, is_few);
}

}  // namespace

void PagedCacheLoad::expand(Expansion& e) const {
  const int container = e.input(size_t{0});
  int y = -1;
  if (feeds_few_rows(e, e.output("y"), e.type(container)))
    y = paged_rows(e, container, e.input(1), max_seq_len);
  if (y < 0) y = paged_load(e, container, e.input(1), max_seq_len);
  if (e.has("lengths")) {
    const int row = e.index(e.dims(y), 2);
    y = e.binary_select(y, e.constant(0), e.cmp_lt(row, e.input("lengths")));
  }
  e.result("y", y);
}

// --- ragged tensors ----------------------------------------------------------------------------------------

std::vector<Inferred> RaggedLoad::infer(const Call& call) const {
  refuse_scalars(call);
  expect_flat(call, call.input(0).dims, "x");
  const Dims& dims = call.given();
  if (dims.empty()) fail("{}: the dims of the result are missing", call.label);
  expect_extents(call, {"dims", dims});
  expect_offsets(call, dims, strides);
  return {in_row_major(call, dims, call.input(0).type)};
}

void RaggedLoad::expand(Expansion& e) const {
  const Dims dims = e.result_dims("y");
  const int64_t elements = element_count(e.dims(e.input(size_t{0})));
  const int index = places(e, dims, strides, elements);
  // x's one axis behind others of one element: y's last axis names its elements.
  e.result("y",
           e.op(Gather{dims.rank() - 1}, {e.reshape(e.input(size_t{0}), one_row(dims, elements)), index}));
}

std::vector<Inferred> RaggedStore::infer(const Call& call) const {
  refuse_scalars(call);
  const Dims& dims = call.given();
  if (dims.empty()) fail("{}: the dims of the result are missing", call.label);
  expect_flat(call, dims, "dims");
  expect_extents(call, {"dims", dims});
  const Dims& x = call.input(0).dims;
  expect_offsets(call, x, strides);
  const std::vector<int> axes = nested_axes(x, strides);
  for (size_t i = 0; i + 1 < axes.size(); ++i)
    if (strides[axes[i] - 1] < strides[axes[i + 1] - 1] * x[axes[i + 1]])
      fail("{}: strides {} of dims {} do not nest, so that elements would share a place", call.label,
           to_string(strides), to_string(x));
  for (const int axis : axes)
    if (strides[axis - 1] == 0) fail("{}: strides {} have a 0", call.label, to_string(strides));
  return {in_row_major(call, dims, call.input(0).type)};
}

namespace {

// A value whose second axis, of that stride, is made of two, before these became one; -1 where it is another.
int before_merge(const Expansion& e, int value, int64_t stride) {
  const Op* const writer = e.writer(value);
  if (writer == nullptr || !std::holds_alternative<Reshape>(writer->attributes)) return -1;
  Dims merged = e.dims(writer->inputs[0]);
  if (merged.rank() < 3 || merged.rank() != e.dims(value).rank() + 1 ||
      stride > std::numeric_limits<int64_t>::max() / merged[2])
    return -1;
  merged[1] *= merged[2];
  merged.erase(2);
  return merged == e.dims(value) ? writer->inputs[0] : -1;
}

}  // namespace

void RaggedStore::expand(Expansion& e) const {
  const Dims x = e.dims(e.input(size_t{0})), y = e.result_dims("y");
  if (keeps_rest) {
    // Results of heads in groups are stored as they come: no view merges axes of places that are computed.
    const int split = before_merge(e, e.input(size_t{0}), strides[0]);
    const int value = split >= 0 ? split : e.input(size_t{0});
    const Dims dims = e.dims(value);
    Dims steps = strides;
    if (split >= 0) steps.insert(0, steps[0] * dims[2]);
    e.result_of("y", Scatter{dims.rank() - 1}, {value, places(e, dims, steps, y[0])});
    return;
  }
  const int64_t batch = x[0], count = y[0];
  // The batch entry of each element: as many as end at or before it.
  const int place = e.index({1, count}, 1);
  const int ended = e.cmp_ge(place, offsets(e, 2, true));
  int entry = e.reduce(ReductionMode::add, e.binary_select(e.integer(1), e.integer(0), ended), 0);
  const int first = e.op(Gather{0}, {e.reshape(e.input(1), {batch + 1, 1}), entry});
  const int rest = e.sub(place, first);
  // Its coordinates, and with them its place in x, row by row.
  int inside = e.logical_and(e.cmp_lt(entry, e.integer(batch)), e.cmp_ge(rest, e.integer(0)));
  int left = rest, index = e.mul(wide(e, entry, element_count(x)), e.integer(element_count(x) / batch));
  for (const int axis : nested_axes(x, strides)) {
    int64_t step = 1;
    for (int inner = axis + 1; inner < x.rank(); ++inner) step *= x[inner];
    const int stride = e.integer(strides[axis - 1]);
    const int at = e.div(left, stride);
    left = e.mod(left, stride);
    inside = e.logical_and(inside, e.cmp_lt(at, e.integer(x[axis])));
    index = e.add(index, e.mul(at, e.integer(step)));
  }
  inside = e.logical_and(inside, e.cmp_eq(left, e.integer(0)));
  index = e.reshape(e.binary_select(index, e.integer(-1), inside), {count});
  e.result("y", e.op(Gather{0}, {e.reshape(e.input(size_t{0}), {element_count(x)}), index}));
}

}  // namespace fusor
