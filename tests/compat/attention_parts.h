// Owns attention as cudnn-frontend sends it to the library: forward and backward, in primitives, with the
// order of ops and the tensors in its workspace that it has.
#pragma once

#include <vector>

#include "tests/compat/client.h"

namespace fusor::compat_test {

struct AttentionShape {
  int64_t batch = 2, heads = 4, key_heads = 4, queries = 24, keys = 24, depth = 16;
  cudnnDataType_t type = CUDNN_DATA_BFLOAT16;
  bool is_causal = true;
  bool has_lengths = false;
  bool has_stats = true;           // asked for by the client
  bool has_copied_values = false;  // v comes through an op
  bool ends_together = false;      // causal: the last query that exists sees the last key that does
  bool has_dropout = false;        // which keeps everything, times a number of each run
};

/// The uids of tensors that a client binds.
enum AttentionUid : int64_t {
  kQ = 1,
  kK,
  kV,
  kO,
  kStats,
  kDO,
  kDQ,
  kDK,
  kDV,
  kScale,
  kFill,
  kOne,
  kRowSums,
  kSumOfDQ,
  kHeadsOfDK,
  kHeadsOfDV,
  kQueryLengths,
  kKeyLengths,
  kKept
};

class AttentionOps {
 public:
  explicit AttentionOps(const AttentionShape& shape) : c_(shape) {}

  std::vector<Part> forward() {
    const Part masked = with_mask(scores());
    const Part largest = row(), exponents = whole(), sum = row(), logarithm = row(),
               divided = whole(c_.has_dropout ? CUDNN_DATA_FLOAT : c_.type);
    add(reduction(CUDNN_REDUCE_TENSOR_MAX, masked, largest));
    const Part less = whole();
    add(binary(CUDNN_POINTWISE_SUB, masked, largest, less));
    add(unary(CUDNN_POINTWISE_EXP, less, exponents));
    add(reduction(CUDNN_REDUCE_TENSOR_ADD, exponents, sum));
    add(unary(CUDNN_POINTWISE_LOG, sum, logarithm));
    add(binary(CUDNN_POINTWISE_ADD, largest, logarithm, stats()));
    add(binary(CUDNN_POINTWISE_DIV, exponents, sum, divided));
    const Part p = c_.has_dropout ? dropped(divided) : divided;
    Part v = values(kV, c_.key_heads, c_.keys);
    if (c_.has_copied_values) {
      const Part copy = made({c_.batch, c_.key_heads, c_.keys, c_.depth}, c_.type);
      add(unary(CUDNN_POINTWISE_IDENTITY, v, copy));
      v = copy;
    }
    add(product(p, v, queries_like(kO), true, true));
    return ops_;
  }

  /// The same as one op, without a mask.
  std::vector<Part> forward_as_one(cudnnDataType_t scale = CUDNN_DATA_FLOAT) const {
    Part op(CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR);
    return {op.child(CUDNN_ATTR_OPERATION_SDPA_FWD_QDESC, queries_like(kQ))
                .child(CUDNN_ATTR_OPERATION_SDPA_FWD_KDESC, values(kK, c_.key_heads, c_.keys))
                .child(CUDNN_ATTR_OPERATION_SDPA_FWD_VDESC, values(kV, c_.key_heads, c_.keys))
                .child(CUDNN_ATTR_OPERATION_SDPA_FWD_SCALEDESC,
                       tensor(kScale, {1, 1, 1, 1}, {.type = scale, .by_value = true}))
                .child(CUDNN_ATTR_OPERATION_SDPA_FWD_ODESC, queries_like(kO))
                .finalize()};
  }

  std::vector<Part> backward() {
    const Part product_of_rows = made({c_.batch, c_.heads, c_.queries, c_.depth}), sum = row(),
               row_sums = tensor(kRowSums, {c_.batch, c_.heads, c_.queries, 1});
    const Part gradient = queries_like(kDO);
    add(binary(CUDNN_POINTWISE_MUL, gradient, queries_like(kO), product_of_rows));
    add(reduction(CUDNN_REDUCE_TENSOR_ADD, product_of_rows, sum));
    add(binary(CUDNN_POINTWISE_MUL, sum, scalar(kOne), row_sums));
    Part s = scores();
    if (c_.has_lengths) s = with_lengths(s);
    const Part less = whole();
    add(binary(CUDNN_POINTWISE_SUB, s, stats(), less));
    const Part masked = c_.is_causal ? with_causal(less) : less, p = whole();
    add(unary(CUDNN_POINTWISE_EXP, masked, p));
    const Part dv = results_of_heads(kDV, kHeadsOfDV);
    add(product(transposed(p), gradient, dv, false, true));
    sum_of_heads(dv, kDV);
    const Part dp = whole(), difference = whole(), unscaled = whole(), ds = whole(c_.type);
    add(product(gradient, keys_in_columns(kV), dp, true, false));
    add(binary(CUDNN_POINTWISE_SUB, dp, row_sums, difference));
    add(binary(CUDNN_POINTWISE_MUL, difference, p, unscaled));
    add(binary(CUDNN_POINTWISE_MUL, unscaled, scalar(kScale), ds));
    const Part dk = results_of_heads(kDK, kHeadsOfDK);
    add(product(transposed(ds), queries_like(kQ), dk, false, true));
    sum_of_heads(dk, kDK);
    const Part keys =
        tensor(next_++, {c_.batch, c_.key_heads, c_.keys, c_.depth},
               {.strides = {c_.keys * c_.key_heads * c_.depth, c_.depth, c_.key_heads * c_.depth, 1},
                .type = c_.type,
                .is_virtual = true});
    add(reshape(keys_in_columns(kK), keys));
    const Part total = tensor(kSumOfDQ, {c_.batch, c_.heads, c_.queries, c_.depth});
    add(product(ds, keys, total, true, true));
    add(unary(CUDNN_POINTWISE_IDENTITY, total, queries_like(kDQ)));
    return ops_;
  }

 private:
  void add(Part op) { ops_.push_back(std::move(op)); }
  Part made(const Dims& dims, cudnnDataType_t type = CUDNN_DATA_FLOAT) {
    return tensor(next_++, dims, {.type = type, .is_virtual = true});
  }
  Part whole(cudnnDataType_t type = CUDNN_DATA_FLOAT) {
    return made({c_.batch, c_.heads, c_.queries, c_.keys}, type);
  }
  Part row() { return made({c_.batch, c_.heads, c_.queries, 1}); }
  static Part scalar(int64_t uid) { return tensor(uid, {1}, {.by_value = true}); }
  // [b, h, s, d], with the heads of a row beside each other.
  Part values(int64_t uid, int64_t heads, int64_t rows) const {
    return tensor(uid, {c_.batch, heads, rows, c_.depth},
                  {.strides = {rows * heads * c_.depth, c_.depth, heads * c_.depth, 1}, .type = c_.type});
  }
  Part queries_like(int64_t uid) const { return values(uid, c_.heads, c_.queries); }
  Part keys_in_columns(int64_t uid) const {
    const int64_t heads = c_.key_heads;
    return tensor(uid, {c_.batch, heads, c_.depth, c_.keys},
                  {.strides = {c_.keys * heads * c_.depth, c_.depth, 1, heads * c_.depth}, .type = c_.type});
  }
  Part stats() const {
    return tensor(kStats, {c_.batch, c_.heads, c_.queries, 1},
                  {.strides = {c_.queries * c_.heads, 1, c_.heads, 1}, .is_virtual = !c_.has_stats});
  }
  Part lengths(int64_t uid) const {
    return tensor(uid, {c_.batch, 1, 1, 1}, {.strides = {1, 1, 1, 1}, .type = CUDNN_DATA_INT32});
  }

  // `sums_rows`: the product sums over queries or keys, and not over a head's elements.
  Part product(const Part& a, const Part& b, const Part& c, bool queries_are_rows, bool sums_rows) {
    Part description(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    description.one(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT).finalize();
    Part op(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    op.child(CUDNN_ATTR_OPERATION_MATMUL_DESC, description)
        .child(CUDNN_ATTR_OPERATION_MATMUL_ADESC, a)
        .child(CUDNN_ATTR_OPERATION_MATMUL_BDESC, b)
        .child(CUDNN_ATTR_OPERATION_MATMUL_CDESC, c);
    if (c_.has_lengths) {
      const Part rows = lengths(queries_are_rows ? kQueryLengths : kKeyLengths),
                 others = lengths(queries_are_rows ? kKeyLengths : kQueryLengths);
      op.child(CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC, rows);
      op.child(sums_rows ? CUDNN_ATTR_OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC
                         : CUDNN_ATTR_OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC,
               others);
    }
    return op.finalize();
  }

  Part scores() {
    Part product_of_both = whole(), scaled = whole();
    add(product(queries_like(kQ), keys_in_columns(kK), product_of_both, true, false));
    add(binary(CUDNN_POINTWISE_MUL, product_of_both, scalar(kScale), scaled));
    return scaled;
  }
  Part index(const Part& of, int64_t axis) {
    Part y = whole(CUDNN_DATA_INT32);
    Part op(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    Part mode = pointwise(CUDNN_POINTWISE_GEN_INDEX);
    mode.one(CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, axis).finalize();
    add(op.child(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, mode)
            .child(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, of)
            .child(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y)
            .finalize());
    return y;
  }
  Part where(const Part& x, const Part& condition) {
    Part y = whole();
    Part op(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    add(op.child(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR,
                 pointwise(CUDNN_POINTWISE_BINARY_SELECT).finalize())
            .child(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x)
            .child(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, scalar(kFill))
            .child(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, condition)
            .child(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y)
            .finalize());
    return y;
  }
  Part compared(cudnnPointwiseMode_t mode, const Part& a, const Part& b) {
    Part y = whole(CUDNN_DATA_BOOLEAN);
    add(binary(mode, a, b, y));
    return y;
  }
  Part dropped(const Part& p) {
    Part kept = whole(), multiplied = whole(), scaled = whole(c_.type);
    Part rng(CUDNN_BACKEND_RNG_DESCRIPTOR);
    rng.one(CUDNN_ATTR_RNG_DISTRIBUTION, CUDNN_TYPE_RNG_DISTRIBUTION, CUDNN_RNG_DISTRIBUTION_BERNOULLI)
        .one(CUDNN_ATTR_RNG_BERNOULLI_DIST_PROBABILITY, CUDNN_TYPE_DOUBLE, 1.0)
        .finalize();
    Part op(CUDNN_BACKEND_OPERATION_RNG_DESCRIPTOR);
    add(op.child(CUDNN_ATTR_OPERATION_RNG_DESC, rng)
            .child(CUDNN_ATTR_OPERATION_RNG_YDESC, kept)
            .one(CUDNN_ATTR_OPERATION_RNG_SEED, CUDNN_TYPE_INT64, int64_t{7})
            .finalize());
    add(binary(CUDNN_POINTWISE_MUL, p, kept, multiplied));
    add(binary(CUDNN_POINTWISE_MUL, multiplied, scalar(kKept), scaled));
    return scaled;
  }
  Part shifted(const Part& queries) {
    Part sum = whole(CUDNN_DATA_INT32), difference = whole(CUDNN_DATA_INT32);
    add(binary(CUDNN_POINTWISE_ADD, queries, lengths(kKeyLengths), sum));
    add(binary(CUDNN_POINTWISE_SUB, sum, lengths(kQueryLengths), difference));
    return difference;
  }
  Part with_causal(const Part& x) {
    const Part first = index(x, 2), key = index(x, 3);
    const Part query = c_.ends_together ? shifted(first) : first;
    return where(x, compared(CUDNN_POINTWISE_CMP_GE, query, key));
  }
  Part with_lengths(const Part& x) {
    const Part query = compared(CUDNN_POINTWISE_CMP_LT, index(x, 2), lengths(kQueryLengths)),
               key = compared(CUDNN_POINTWISE_CMP_LT, index(x, 3), lengths(kKeyLengths));
    return where(x, compared(CUDNN_POINTWISE_LOGICAL_AND, query, key));
  }
  Part with_mask(const Part& x) {
    const Part within = c_.has_lengths ? with_lengths(x) : x;
    return c_.is_causal ? with_causal(within) : within;
  }

  Part reshape(const Part& x, const Part& y) {
    Part op(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    return op.child(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x)
        .child(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y)
        .finalize();
  }
  Part transposed(const Part& x) {
    const int64_t rows = c_.queries, columns = c_.keys;
    Part y = tensor(next_++, {c_.batch, c_.heads, columns, rows},
                    {.strides = {c_.heads * rows * columns, rows * columns, 1, columns},
                     .type = c_.type,
                     .is_virtual = true});
    add(reshape(x, y));
    return y;
  }
  Part results_of_heads(int64_t result, int64_t of_heads) const {
    return c_.key_heads == c_.heads ? values(result, c_.heads, c_.keys)
                                    : tensor(of_heads, {c_.batch, c_.heads, c_.keys, c_.depth},
                                             {.type = c_.type, .is_virtual = true});
  }
  void sum_of_heads(const Part& of_heads, int64_t result) {
    if (c_.key_heads != c_.heads)
      add(reduction(CUDNN_REDUCE_TENSOR_ADD, of_heads, values(result, c_.key_heads, c_.keys)));
  }

  AttentionShape c_;
  std::vector<Part> ops_;
  int64_t next_ = 100;
};

}  // namespace fusor::compat_test
