// Owns the lengths of attention's rows.
#include "compat/cudnn/src/translate/row_lengths.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "compat/cudnn/src/translate/heads.h"

namespace fusor::cudnn {

namespace {

int64_t uid_of(const Descriptor& tensor) { return tensor.get<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID); }
int rank_of(const Descriptor& tensor) {
  return static_cast<int>(tensor.list<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS).size());
}

// Ops by the tensor that they write.
class Writers {
 public:
  explicit Writers(const std::vector<DescriptorPointer>& ops) {
    for (const DescriptorPointer& op : ops)
      if (op->type() == CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR)
        if (const DescriptorPointer y = op->child(CUDNN_ATTR_OPERATION_POINTWISE_YDESC))
          ops_[uid_of(*y)] = op;
  }
  // The pointwise op of that mode that writes what the op reads, or null.
  DescriptorPointer of(const Descriptor& op, cudnnBackendAttributeName_t operand,
                       cudnnPointwiseMode_t mode) const {
    const DescriptorPointer tensor = op.child(operand);
    if (!tensor) return nullptr;
    const auto found = ops_.find(uid_of(*tensor));
    return found != ops_.end() && is_pointwise_op(*found->second, mode) ? found->second : nullptr;
  }

 private:
  std::map<int64_t, DescriptorPointer> ops_;
};

// The uids of the lengths of queries and keys.
struct Lengths {
  int64_t queries = 0, keys = 0;
  friend bool operator==(const Lengths&, const Lengths&) = default;
};

// "row < lengths" along the axis that is so far from the last.
std::optional<int64_t> compared_lengths(const Writers& writers, const Descriptor& condition,
                                        cudnnBackendAttributeName_t operand, int from_last) {
  const DescriptorPointer less = writers.of(condition, operand, CUDNN_POINTWISE_CMP_LT);
  if (!less) return std::nullopt;
  const DescriptorPointer index =
      writers.of(*less, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_POINTWISE_GEN_INDEX);
  const DescriptorPointer lengths = less->child(CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
  if (!index || !lengths || lengths->get<bool>(CUDNN_ATTR_TENSOR_IS_VIRTUAL, false)) return std::nullopt;
  const auto axis =
      index->child(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR)->get<int64_t>(CUDNN_ATTR_POINTWISE_AXIS, 0);
  const int rank = rank_of(*index->child(CUDNN_ATTR_OPERATION_POINTWISE_YDESC));
  return axis == rank - from_last ? std::optional(uid_of(*lengths)) : std::nullopt;
}

// The lengths by which a select hides scores.
std::optional<Lengths> masked_lengths(const std::vector<DescriptorPointer>& ops,
                                      const AttentionPattern& pattern) {
  const Writers writers(ops);
  for (const DescriptorPointer& op : ops) {
    if (!is_pointwise_op(*op, CUDNN_POINTWISE_BINARY_SELECT)) continue;
    const DescriptorPointer fill = op->child(CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
    if (!fill || std::ranges::find(pattern.fills, uid_of(*fill)) == pattern.fills.end()) continue;
    const DescriptorPointer condition =
        writers.of(*op, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, CUDNN_POINTWISE_LOGICAL_AND);
    if (!condition) continue;
    const auto queries = compared_lengths(writers, *condition, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, 2);
    const auto keys = compared_lengths(writers, *condition, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, 1);
    if (queries && keys) return Lengths{*queries, *keys};
  }
  return std::nullopt;
}

struct Operand {
  cudnnBackendAttributeName_t tensor, lengths;
  int from_last;
};
constexpr Operand kOperands[] = {
    {CUDNN_ATTR_OPERATION_MATMUL_ADESC, CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC, 2},
    {CUDNN_ATTR_OPERATION_MATMUL_ADESC, CUDNN_ATTR_OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC, 1},
    {CUDNN_ATTR_OPERATION_MATMUL_BDESC, CUDNN_ATTR_OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC, 2},
    {CUDNN_ATTR_OPERATION_MATMUL_BDESC, CUDNN_ATTR_OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC, 1}};

// Adds tensors that are multiplied, element by element, with rows of which some do not exist: results beside
// their gradients.
void add_factors(const std::vector<DescriptorPointer>& ops, std::map<int64_t, ExistingRows>& rows) {
  for (const DescriptorPointer& op : ops) {
    if (!is_pointwise_op(*op, CUDNN_POINTWISE_MUL)) continue;
    const DescriptorPointer x = op->child(CUDNN_ATTR_OPERATION_POINTWISE_XDESC),
                            b = op->child(CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
    if (!x || !b || x->get<bool>(CUDNN_ATTR_TENSOR_IS_VIRTUAL, false) ||
        b->get<bool>(CUDNN_ATTR_TENSOR_IS_VIRTUAL, false) ||
        x->list<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS) != b->list<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS))
      continue;
    for (const auto& [known, other] : {std::pair{x, b}, {b, x}})
      if (const auto found = rows.find(uid_of(*known)); found != rows.end())
        rows.emplace(uid_of(*other), found->second);
  }
}

// The tensor that each view shows.
std::map<int64_t, int64_t> views_of(const std::vector<DescriptorPointer>& ops) {
  std::map<int64_t, int64_t> views;
  for (const DescriptorPointer& op : ops) {
    if (op->type() != CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR) continue;
    const DescriptorPointer x = op->child(CUDNN_ATTR_OPERATION_RESHAPE_XDESC),
                            y = op->child(CUDNN_ATTR_OPERATION_RESHAPE_YDESC);
    if (x && y) views[uid_of(*y)] = uid_of(*x);
  }
  return views;
}

// Whether nothing but matmuls, views for them and products of two such tensors touches the rows: any other op
// would see zeros where it is to see what lies in memory.
bool only_products_read(const std::vector<DescriptorPointer>& ops,
                        const std::map<int64_t, ExistingRows>& rows,
                        const std::map<int64_t, int64_t>& views) {
  const auto is_one = [&](const Descriptor& tensor) {
    const auto view = views.find(uid_of(tensor));
    return rows.contains(view == views.end() ? uid_of(tensor) : view->second);
  };
  return std::ranges::all_of(ops, [&](const DescriptorPointer& op) {
    if (op->type() == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR) return true;
    int touched = 0;
    for (const AttributeRow& row : op->row().attributes)
      if (const Value* const value = op->find(row.name))
        touched +=
            static_cast<int>(std::ranges::count_if(value->children, [&](const DescriptorPointer& child) {
              return child->type() == CUDNN_BACKEND_TENSOR_DESCRIPTOR && is_one(*child);
            }));
    if (op->type() == CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR)
      return touched == 0 ||
             op->child(CUDNN_ATTR_OPERATION_RESHAPE_YDESC)->get<bool>(CUDNN_ATTR_TENSOR_IS_VIRTUAL, false);
    return touched == 0 || (touched == 2 && is_pointwise_op(*op, CUDNN_POINTWISE_MUL));
  });
}

}  // namespace

std::optional<std::map<int64_t, ExistingRows>> existing_rows(const std::vector<DescriptorPointer>& ops,
                                                             const AttentionPattern& pattern) {
  const auto masked = masked_lengths(ops, pattern);
  if (!masked || (!pattern.is_forward && !pattern.is_backward)) return std::nullopt;
  std::map<int64_t, ExistingRows> rows;
  const std::map<int64_t, int64_t> views = views_of(ops);
  std::vector<int64_t> shown;
  for (const DescriptorPointer& op : ops) {
    if (op->type() != CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR) continue;
    const DescriptorPointer matmul = op->child(CUDNN_ATTR_OPERATION_MATMUL_DESC);
    if (!matmul || matmul->get<double>(CUDNN_ATTR_MATMUL_PADDING_VALUE, 0.0) != 0) return std::nullopt;
    for (const Operand& operand : kOperands) {
      const DescriptorPointer tensor = op->child(operand.tensor), lengths = op->child(operand.lengths);
      if (!tensor || !lengths) continue;
      if (uid_of(*lengths) != masked->queries && uid_of(*lengths) != masked->keys) return std::nullopt;
      const bool is_summed = operand.lengths == CUDNN_ATTR_OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC;
      if (tensor->get<bool>(CUDNN_ATTR_TENSOR_IS_VIRTUAL, false)) {
        // Tensors made of the masked scores are 0 where those are hidden; a view has the rows of the tensor
        // that it shows.
        if (pattern.of_scores.contains(uid_of(*tensor))) continue;
        const auto view = views.find(uid_of(*tensor));
        if (view == views.end()) return std::nullopt;
        shown.push_back(view->second);
        continue;
      }
      if (!is_summed && !pattern.is_backward) continue;
      const ExistingRows found{rank_of(*tensor) - operand.from_last, lengths};
      const auto [known, is_new] = rows.emplace(uid_of(*tensor), found);
      if (!is_new && (known->second.axis != found.axis || uid_of(*known->second.lengths) != uid_of(*lengths)))
        return std::nullopt;
    }
  }
  if (!std::ranges::all_of(shown, [&](int64_t uid) { return rows.contains(uid); })) return std::nullopt;
  add_factors(ops, rows);
  if (!only_products_read(ops, rows, views)) return std::nullopt;
  return rows;
}

}  // namespace fusor::cudnn
