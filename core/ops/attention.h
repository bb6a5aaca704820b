// Owns scaled dot-product attention, forward and backward.
#pragma once

#include "core/api.h"
#include "core/ops/family.h"

namespace fusor {

class Expansion;

/// Where the diagonal of scores lies that bounds count from: through the first query and the first key, or
/// through the last ones (of each batch entry, where lengths are given).
enum class DiagonalAlignment : uint8_t { top_left, bottom_right };
FUSOR_API std::string_view to_string(DiagonalAlignment alignment);
constexpr int enum_count(DiagonalAlignment) { return 2; }

/// The attributes of both directions. Query i of a batch entry attends to key j where j <= i + shift +
/// right_bound (causal: 0), j > i + shift - left_bound, both lie within their sequence lengths
/// (padding_mask), and block_mask, where it is given, is not 0. -1: no bound. shift is 0 for top_left, and
/// the number of keys less that of queries for bottom_right (the entry's lengths, with padding_mask). Scores
/// are attn_scale * q k^T + bias + alibi. An attn_scale that is left out is 1, as in cuDNN, and not the 1 /
/// sqrt(d) of PyTorch.
struct SdpaAttributes {
  static constexpr int64_t kNoBound = -1;

  double attn_scale = 1;
  DiagonalAlignment diagonal_alignment = DiagonalAlignment::top_left;
  int64_t left_bound = kNoBound;
  int64_t right_bound = kNoBound;
  bool alibi_mask = false;
  bool padding_mask = false;
  double dropout_probability = 0;
  int64_t max_seq_len_kv = 0;  ///< with page tables: the number of keys; 0: all of their rows

  template <class Self, class Visitor>
  static void visit(Self& self, Visitor&& field) {
    field("attn_scale", self.attn_scale);
    field("diagonal_alignment", self.diagonal_alignment);
    field("left_bound", self.left_bound);
    field("right_bound", self.right_bound);
    field("alibi_mask", self.alibi_mask);
    field("padding_mask", self.padding_mask);
    field("dropout_probability", self.dropout_probability);
    field("max_seq_len_kv", self.max_seq_len_kv);
  }
  friend bool operator==(const SdpaAttributes&, const SdpaAttributes&) = default;
};

/// o = softmax(scores) v for q [b, h, s, d], k [b, h_k, t, d], v [b, h_v, t, e]; h_k and h_v divide h. Rows
/// that attend to nothing give o = 0 and stats = -inf. stats is the logarithm of the row's sum of
/// exponentials, max its largest score, sum_exp the sum relative to it; rng_dump is 1 where dropout keeps a
/// probability.
struct SdpaForward : SdpaAttributes {
  static constexpr Nature nature = Nature::composite;
  static constexpr size_t typed_by = 3;
  static constexpr std::array<Product, 2> products{{{0, 1}, {2, 2}}};  // q k, probabilities v
  std::string_view kind() const { return "sdpa_fwd"; }
  Roles roles() const;
  std::vector<Inferred> infer(const Call& call) const;
  void expand(Expansion& e) const;
  friend bool operator==(const SdpaForward&, const SdpaForward&) = default;
};

/// The gradients, from o and stats of the forward pass: deterministic.
struct SdpaBackward : SdpaAttributes {
  static constexpr Nature nature = Nature::composite;
  static constexpr size_t typed_by = 5;
  static constexpr std::array<Product, 2> products{{{0, 1}, {2, 4}}};  // q k, v do
  std::string_view kind() const { return "sdpa_bwd"; }
  Roles roles() const;
  std::vector<Inferred> infer(const Call& call) const;
  void expand(Expansion& e) const;
  friend bool operator==(const SdpaBackward&, const SdpaBackward&) = default;
};

}  // namespace fusor
