// Owns the order of a translation: ops are sorted by the tensors between them, those that nobody needs are
// left out, and each goes to the rule of its family.
#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <queue>
#include <set>

#include "compat/cudnn/src/translate/attention_pattern.h"
#include "compat/cudnn/src/translate/heads.h"
#include "compat/cudnn/src/translate/row_lengths.h"
#include "compat/cudnn/src/translate/translator.h"

namespace fusor::cudnn {

namespace {

struct RuleRow {
  cudnnBackendDescriptorType_t type;
  Rule rule;
};

constexpr RuleRow kRules[] = {
    {CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, translate_pointwise},
    {CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, translate_reduction},
    {CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, translate_matmul},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, translate_conv_forward},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR, translate_conv_backward_data},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR, translate_conv_backward_filter},
    {CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR, translate_norm_forward},
    {CUDNN_BACKEND_OPERATION_NORM_BACKWARD_DESCRIPTOR, translate_norm_backward},
    {CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR, translate_gen_stats},
    {CUDNN_BACKEND_OPERATION_BN_FINALIZE_STATISTICS_DESCRIPTOR, translate_bn_finalize},
    {CUDNN_BACKEND_OPERATION_BN_BWD_WEIGHTS_DESCRIPTOR, translate_bn_backward_weights},
    {CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, translate_reshape},
    {CUDNN_BACKEND_OPERATION_CONCAT_DESCRIPTOR, translate_concat},
    {CUDNN_BACKEND_OPERATION_PAGED_CACHE_LOAD_DESCRIPTOR, translate_paged_cache_load},
    {CUDNN_BACKEND_OPERATION_RESAMPLE_FWD_DESCRIPTOR, translate_resample_forward},
    {CUDNN_BACKEND_OPERATION_RESAMPLE_BWD_DESCRIPTOR, translate_resample_backward},
    {CUDNN_BACKEND_OPERATION_RNG_DESCRIPTOR, translate_rng},
    {CUDNN_BACKEND_OPERATION_BLOCK_SCALE_QUANTIZE_DESCRIPTOR, translate_block_scale_quantize},
    {CUDNN_BACKEND_OPERATION_BLOCK_SCALE_DEQUANTIZE_DESCRIPTOR, translate_block_scale_dequantize},
    {CUDNN_BACKEND_OPERATION_MOE_GROUPED_MATMUL_DESCRIPTOR, translate_moe},
    {CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR, translate_sdpa_forward},
};

// One op with the uids that it reads and writes.
struct Node {
  DescriptorPointer op;
  std::vector<int64_t> reads, writes;
  bool is_real = false;  // some result is not virtual
};

// A batch norm's inference reads the statistics that training writes.
bool reads_statistics(const Descriptor& op) {
  return op.type() == CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR &&
         op.get<cudnnBackendNormFwdPhase_t>(CUDNN_ATTR_OPERATION_NORM_FWD_PHASE) == CUDNN_NORM_FWD_INFERENCE;
}

bool is_read(const Descriptor& op, const AttributeRow& row) {
  if (row.flow == Flow::reads) return true;
  return reads_statistics(op) && (row.name == CUDNN_ATTR_OPERATION_NORM_FWD_MEAN_DESC ||
                                  row.name == CUDNN_ATTR_OPERATION_NORM_FWD_INV_VARIANCE_DESC);
}

Node node_of(const DescriptorPointer& op) {
  Node node{op, {}, {}, false};
  for (const AttributeRow& row : op->row().attributes) {
    if (row.flow == Flow::none) continue;
    const Value* value = op->find(row.name);
    if (value == nullptr) continue;
    for (const DescriptorPointer& tensor : value->children) {
      const auto uid = tensor->get<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID);
      if (is_read(*op, row)) {
        node.reads.push_back(uid);
        continue;
      }
      node.writes.push_back(uid);
      node.is_real = node.is_real || !tensor->get<bool>(CUDNN_ATTR_TENSOR_IS_VIRTUAL, false);
    }
  }
  return node;
}

std::map<int64_t, size_t> writers_of(const std::vector<Node>& nodes) {
  std::map<int64_t, size_t> writers;
  for (size_t i = 0; i < nodes.size(); ++i)
    for (const int64_t uid : nodes[i].writes)
      if (!writers.emplace(uid, i).second) refuse(CUDNN_STATUS_BAD_PARAM, "two ops write the tensor {}", uid);
  return writers;
}

// Indices of the ops, each behind those that it reads from; the client's order otherwise.
std::vector<size_t> sorted(const std::vector<Node>& nodes, const std::map<int64_t, size_t>& writers) {
  std::vector<int> waits(nodes.size(), 0);
  std::vector<std::vector<size_t>> readers(nodes.size());
  for (size_t i = 0; i < nodes.size(); ++i)
    for (const int64_t uid : nodes[i].reads)
      if (const auto writer = writers.find(uid); writer != writers.end()) {
        ++waits[i];
        readers[writer->second].push_back(i);
      }
  std::priority_queue<size_t, std::vector<size_t>, std::greater<>> ready;
  for (size_t i = 0; i < nodes.size(); ++i)
    if (waits[i] == 0) ready.push(i);
  std::vector<size_t> order;
  while (!ready.empty()) {
    const size_t next = ready.top();
    ready.pop();
    order.push_back(next);
    for (const size_t reader : readers[next])
      if (--waits[reader] == 0) ready.push(reader);
  }
  if (order.size() != nodes.size())
    refuse(CUDNN_STATUS_BAD_PARAM, "the ops read each other's results in a circle");
  return order;
}

bool has_row_lengths(const Descriptor& op) {
  return op.type() == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR &&
         op.has(CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC);
}

// Leaves out ops whose results nobody reads: clients append some without need.
std::vector<size_t> needed(const std::vector<Node>& nodes, const std::vector<size_t>& order) {
  std::set<int64_t> wanted;
  std::vector<size_t> live;
  for (auto at = order.rbegin(); at != order.rend(); ++at) {
    const Node& node = nodes[*at];
    const bool is_wanted =
        std::ranges::any_of(node.writes, [&](int64_t uid) { return wanted.contains(uid); });
    if (!node.is_real && !is_wanted) continue;
    wanted.insert(node.reads.begin(), node.reads.end());
    live.push_back(*at);
  }
  std::ranges::reverse(live);
  return live;
}

// With `presumes`, scalars are taken to be what clients give in such patterns.
Translation translate(const std::vector<DescriptorPointer>& ops, bool presumes) {
  std::vector<Node> nodes;
  nodes.reserve(ops.size());
  for (const DescriptorPointer& op : ops) nodes.push_back(node_of(op));
  const std::vector<size_t> order = needed(nodes, sorted(nodes, writers_of(nodes)));
  std::vector<DescriptorPointer> live;
  live.reserve(order.size());
  for (const size_t index : order) live.push_back(nodes[index].op);
  Translator translator;
  for (const size_t index : order) {
    const cudnnBackendDescriptorType_t type = nodes[index].op->type();
    translator.has_matmul = translator.has_matmul || type == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR;
    translator.has_lengths = translator.has_lengths || has_row_lengths(*nodes[index].op);
    for (const int64_t uid : nodes[index].reads) translator.note_reader(uid);
  }
  translator.pattern = attention_pattern(live);
  translator.presumes = presumes;
  // Without presumptions a mask's number may leave probabilities to what it hides: forward, rows of values
  // and of results that do not exist are 0 all the same.
  if ((presumes || translator.pattern.is_forward) && translator.has_lengths)
    if (auto rows = existing_rows(live, translator.pattern)) {
      translator.existing_rows = std::move(*rows);
      translator.hides_missing_rows = true;
    }
  for (const DescriptorPointer& op : live) {
    const auto rule = std::ranges::find(kRules, op->type(), &RuleRow::type);
    if (rule == std::end(kRules))
      refuse(CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN, "{} is not translated", op->row().name);
    if (has_complex_numbers(*op))
      translate_complex(translator, *op);
    else
      rule->rule(translator, *op);
  }
  return translator.finish();
}

}  // namespace

Translation translate(const std::vector<DescriptorPointer>& ops) {
  const std::vector<DescriptorPointer> split = with_split_heads(ops);
  Translation translation = translate(split, true);
  if (translation.minus_infinity.empty() && translation.positive.empty()) return translation;
  Translation general = translate(split, false);
  if (!translation.placed.empty() || !general.placed.empty()) return general;
  translation.general = std::move(general.graph);
  return translation;
}

}  // namespace fusor::cudnn
