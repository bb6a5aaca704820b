// Owns the random attentions: every mask, bias, lengths, dropout and sinks.
#pragma once

#include <algorithm>
#include <cmath>

#include "tools/fuzz/families/proposer.h"
#include "tools/fuzz/families/sequences.h"

namespace fusor::fuzz {

/// Scales, and masks of every kind.
inline SdpaAttributes attention_of(Random& random, int64_t depth) {
  SdpaAttributes op;
  op.attn_scale = random.pick({1.0, 1 / std::sqrt(static_cast<double>(depth)), 1 / static_cast<double>(depth),
                               1 / static_cast<double>(depth)});
  if (random.once_in(2)) op.right_bound = random.between(0, 3);
  if (random.once_in(5)) op.left_bound = random.between(1, 8);
  if (op.right_bound >= 0 && random.once_in(3)) op.diagonal_alignment = DiagonalAlignment::bottom_right;
  if (random.once_in(4)) op.alibi_mask = true;
  if (random.once_in(4)) op.padding_mask = true;
  if (random.once_in(6)) op.dropout_probability = random.pick({0.25, 0.5});
  return op;
}

/// q, k and v of one attention; nothing where they would be too large.
inline std::optional<std::vector<int>> attention_operands(Draft& draft, const SdpaAttributes& op, int q) {
  Random& random = draft.random;
  const Dims dims = draft.tensor(q).dims;
  const int64_t heads = random.pick<int64_t>({dims[1], 1}), keys = random.between(1, 40);
  Dims k{dims[0], heads, keys, dims[3]}, v = k;
  v[3] = random.between(1, 16);
  Dims scores{dims[0], dims[1], dims[2], keys};
  const bool is_far = op.alibi_mask && std::max(dims[2], keys) > 8;
  if (is_far || element_count(scores) > draft.limits().elements ||
      element_count(k) > draft.limits().elements || element_count(v) > draft.limits().elements)
    return std::nullopt;
  return std::vector{q, draft.operand_of(k, draft.tensor(q).type), draft.operand_of(v, draft.tensor(q).type)};
}

/// Appends bias, seq_len_q, seq_len_kv, seed, offset, sink and block_mask, as the attributes ask for them.
inline void append_optional_operands(Draft& draft, const SdpaAttributes& op, std::vector<int>& inputs) {
  constexpr int64_t kBlock = 128;  // of block_mask
  Random& random = draft.random;
  const Dims q = draft.tensor(inputs[0]).dims, k = draft.tensor(inputs[1]).dims;
  const Dims blocks{q[0], q[1], (q[2] + kBlock - 1) / kBlock, (k[2] + kBlock - 1) / kBlock};
  inputs.push_back(random.once_in(3) ? draft.operand_of(broadcast_of(random, {q[0], q[1], q[2], k[2]})) : -1);
  for (int i = 0; i < 2; ++i)
    inputs.push_back(op.padding_mask ? draft.operand_of({q[0], 1, 1, 1}, DataType::i32) : -1);
  for (int i = 0; i < 2; ++i) inputs.push_back(op.dropout_probability > 0 ? seed_of(draft) : -1);
  inputs.push_back(random.once_in(5) ? draft.operand_of({1, q[1], 1, 1}) : -1);
  inputs.push_back(random.once_in(6) ? draft.operand_of(broadcast_of(random, blocks), DataType::u8) : -1);
}

template <>
struct Proposer<SdpaForward> {
  static constexpr int kShare = 2;

  static std::optional<Proposal> propose(Draft& draft) {
    const int q = draft.operand(4, 4);
    const SdpaForward op{attention_of(draft.random, draft.tensor(q).dims[3])};
    auto inputs = attention_operands(draft, op, q);
    if (!inputs) return std::nullopt;
    append_optional_operands(draft, op, *inputs);
    return Proposal{op, *inputs, {}};
  }
};

/// Mostly a new input of at most 1: gradients are steep where scores are large.
inline int small_query(Draft& draft) {
  if (draft.random.once_in(3)) return draft.operand(4, 4);
  const DataType type = draft.random.pick({DataType::f32, DataType::f16, DataType::bf16});
  return draft.new_input(draft.dims(4, draft.limits().elements / 8), type, Filling::unit);
}

template <>
struct Proposer<SdpaBackward> {
  static constexpr int kShare = 2;

  static std::optional<Proposal> propose(Draft& draft) {
    const int q = small_query(draft);
    const Dims dims = draft.tensor(q).dims;
    const SdpaBackward op{attention_of(draft.random, dims[3])};
    auto inputs = attention_operands(draft, op, q);
    if (!inputs) return std::nullopt;
    const Dims o{dims[0], dims[1], dims[2], draft.tensor((*inputs)[2]).dims[3]};
    for (int i = 0; i < 2; ++i) inputs->push_back(draft.operand_of(o));
    inputs->push_back(draft.new_input({dims[0], dims[1], dims[2], 1}, DataType::f32, Filling::unit));
    append_optional_operands(draft, op, *inputs);
    return Proposal{op, *inputs, {}};
  }
};

}  // namespace fusor::fuzz
