// Owns the steps by which a block's nodes get their values.
#include "backend/reference/block_evaluator.h"

#include "backend/reference/pointwise.h"

namespace fusor::reference {

int64_t element_at(const Access& access, const Dims& at) {
  int64_t element = access.offset;
  for (int i = 0; i < access.strides.rank(); ++i) element += at[i] * access.strides[i];
  return element;
}

BlockEvaluator::BlockEvaluator(const Expr& expr, std::span<const Buffer> buffers, Reading reading, int axis)
    : expr_(expr),
      buffers_(buffers),
      reading_(reading),
      axis_(axis),
      values_(expr.nodes.size() * kPlace),
      temporaries_(4 * kPlace) {
  for (size_t i = 0; i < expr.nodes.size(); ++i)
    if (expr.nodes[i].kind == Node::Kind::scalar) load(static_cast<int>(i), 0, 0, kBlock);
}

void BlockEvaluator::evaluate(const Dims& at, int64_t count) {
  for (size_t i = 0; i < expr_.nodes.size(); ++i) {
    const Node& node = expr_.nodes[i];
    const int index_of_node = static_cast<int>(i);
    switch (node.kind) {
      case Node::Kind::scalar:
      case Node::Kind::reduce:  // its totals are known after the walk
        break;
      case Node::Kind::load:
        if (node.access.is_indexed())
          gather(index_of_node, at, count);
        else
          load(index_of_node, element_at(node.access, at), step_along(node.access, axis_), count);
        break;
      case Node::Kind::index:
        index(index_of_node, at, count);
        break;
      case Node::Kind::pointwise:
        pointwise(index_of_node, count);
        break;
      case Node::Kind::input:
        fail(ErrorKind::internal, "an input's value was not put in its place");
    }
  }
}

void BlockEvaluator::load(int node, int64_t first, int64_t stride, int64_t count) {
  const Buffer& buffer = buffers_[static_cast<size_t>(described(node).access.operand)];
  const DataType loaded = held_type(buffer.type, reading_);
  const DataType type = described(node).type;
  if (loaded == held(node)) {
    load_block(buffer.type, buffer.data, first, stride, count, loaded, value(node));
    if (type != buffer.type) round_block(type, loaded, count, value(node));
    return;
  }
  load_block(buffer.type, buffer.data, first, stride, count, loaded, temporary(0));
  settle(node, loaded, temporary(0), count);
}

// The elements that an access reaches before its indices are known.
void BlockEvaluator::begin_elements(const Access& access, const Dims& at, int64_t count) {
  const int64_t first = element_at(access, at), step = step_along(access, axis_);
  for (int64_t i = 0; i < count; ++i) elements_[static_cast<size_t>(i)] = first + i * step;
  inside_.fill(true);
}

void BlockEvaluator::step_by_index(const IndexedAxis& axis, int index, int64_t count) {
  const auto* indices = static_cast<const int64_t*>(temporary(1));
  convert_block(held(index), value(index), DataType::i64, count, temporary(1));
  for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
    inside_[i] = inside_[i] && indices[i] >= 0 && indices[i] < axis.extent;
    if (inside_[i]) elements_[i] += indices[i] * axis.stride;
  }
}

// Elements through indices; 0 where one of them is outside of its extent.
void BlockEvaluator::gather(int node, const Dims& at, int64_t count) {
  const Access& access = described(node).access;
  begin_elements(access, at, count);
  for (size_t k = 0; k < access.indexed.size() && access.indexed[k].extent > 0; ++k)
    step_by_index(access.indexed[k], described(node).args[k], count);
  const Buffer& buffer = buffers_[static_cast<size_t>(access.operand)];
  const DataType loaded = held_type(buffer.type, reading_);
  load_scattered(buffer.type, buffer.data, {elements_.data(), static_cast<size_t>(count)},
                 {inside_.data(), static_cast<size_t>(count)}, loaded, temporary(0));
  settle(node, loaded, temporary(0), count);
}

// Nothing leaves where the index is outside of its extent.
void BlockEvaluator::scatter(const Store& store, const Dims& at, int64_t count) {
  begin_elements(store.access, at, count);
  step_by_index(store.access.indexed[0], store.index, count);
  const Buffer& buffer = buffers_[static_cast<size_t>(store.access.operand)];
  store_scattered(held(store.node), value(store.node), store.type, buffer.data,
                  {elements_.data(), static_cast<size_t>(count)},
                  {inside_.data(), static_cast<size_t>(count)});
}

void BlockEvaluator::index(int node, const Dims& at, int64_t count) {
  const int axis = described(node).axis;
  const Access& access = described(node).access;
  const int64_t stride = access.strides.empty() ? 1 : access.strides[axis];
  const int64_t first = access.offset + at[axis] * stride;
  const int64_t step = axis == axis_ ? stride : 0;
  auto* coordinates = static_cast<int64_t*>(temporary(0));
  for (int64_t i = 0; i < count; ++i) coordinates[i] = first + i * step;
  settle(node, DataType::i64, temporary(0), count);
}

void BlockEvaluator::pointwise(int node, int64_t count) {
  const Pointwise& op = described(node).pointwise;
  const DataType compute = held_type(op.compute, reading_);
  // The oracle holds int32 in int64: operands that come from elsewhere must be brought into int32's range.
  const bool narrow = op.compute == DataType::i32 && compute == DataType::i64;
  std::array<const void*, 3> operands{};
  for (size_t i = 0; i < operands.size(); ++i) {
    const int argument = described(node).args[i];
    if (argument < 0) continue;
    operands[i] = value(argument);
    if (held(argument) == compute && !narrow) continue;
    convert_block(held(argument), value(argument), compute, count, temporary(i));
    if (narrow) round_block(DataType::i32, compute, count, temporary(i));
    operands[i] = temporary(i);
  }
  void* result = temporary(operands.size());
  pointwise_block(op, compute, operands, count, result);
  settle(node, compute, result, count);
}

// Puts computed values in their place, held and rounded as the node's type asks.
void BlockEvaluator::settle(int node, DataType from, const void* values, int64_t count) {
  convert_rounded(from, values, described(node).type, held(node), count, value(node));
}

const void* BlockEvaluator::value_as(int node, DataType as, int64_t count) {
  if (held(node) == as) return value(node);
  convert_block(held(node), value(node), as, count, temporary(0));
  return temporary(0);
}

void BlockEvaluator::store_elementwise(const Dims& at, int64_t count) {
  for (const Store& store : expr_.stores) {
    if (reduction_of(expr_, store)) continue;
    if (store.index >= 0) {
      scatter(store, at, count);
      continue;
    }
    const Buffer& buffer = buffers_[static_cast<size_t>(store.access.operand)];
    store_block(held(store.node), value(store.node), count, store.type, buffer.data,
                element_at(store.access, at), step_along(store.access, axis_));
  }
}

}  // namespace fusor::reference
