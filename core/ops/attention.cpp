// Owns the rules and expansions of scaled dot-product attention.
#include "core/ops/attention.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numbers>
#include <tuple>

#include "core/ops/expansion.h"
#include "core/ops/paged.h"
#include "core/ops/paged_rows.h"
#include "core/ops/random.h"
#include "core/ops/rules.h"

namespace fusor {

namespace {

constexpr int64_t kBlock = 128;  // queries and keys of one element of a block mask
constexpr double kInfinity = std::numeric_limits<double>::infinity();
// No score is less, and it is finite: rows without any have this for their maximum.
double least_score(DataType type) {
  return type == DataType::f64 ? std::numeric_limits<double>::lowest() : std::numeric_limits<float>::lowest();
}
// Factor of probabilities in fp8_e4m3: the largest power of two that takes the largest of them,
// 1 or what dropout scales it to, to at most 448.
double narrow_weight(double dropout_probability) {
  return std::exp2(std::floor(std::log2(448 * (1 - dropout_probability))));
}

// ---- Rules ----

struct Shape {
  int64_t batch, heads, queries, keys, key_heads, value_heads, depth, value_depth;
};

void expect_rank_4(const Call& call, const char* role) {
  const Tensor* const x = call.operand(role);
  if (x != nullptr && x->dims.rank() != 4)
    fail("{}: {} '{}' {} needs 4 axes: batch, heads, sequence, depth", call.label, role, x->name,
         to_string(x->dims));
}

// k or v, as they are or through a page table.
Dims keys_of(const Call& call, const char* role, const char* table, const SdpaAttributes& op) {
  expect_rank_4(call, role);
  const Tensor& x = *call.operand(role);
  const Tensor* const pages = call.operand(table);
  return pages == nullptr ? x.dims : paged_dims(call, x, *pages, op.max_seq_len_kv);
}

Shape shape_of(const Call& call, const SdpaAttributes& op) {
  expect_rank_4(call, "q");
  const Tensor& q = *call.operand("q");
  const Dims k = keys_of(call, "k", "page_table_k", op), v = keys_of(call, "v", "page_table_v", op);
  const Shape shape{q.dims[0], q.dims[1], q.dims[2], k[2], k[1], v[1], q.dims[3], v[3]};
  if (k[0] != q.dims[0] || v[0] != q.dims[0] || k[3] != q.dims[3] || v[2] != k[2])
    fail("{}: q {}, k {} and v {} do not fit: one batch, one depth of q and k, one length of k and v",
         call.label, to_string(q.dims), to_string(k), to_string(v));
  for (const int64_t heads : {k[1], v[1]})
    if (q.dims[1] % heads != 0)
      fail("{}: the {} heads of k or v do not divide the {} of q", call.label, heads, q.dims[1]);
  return shape;
}

void expect_attributes(const Call& call, const SdpaAttributes& op) {
  if (!std::isfinite(op.attn_scale)) fail("{}: attn_scale {} is not finite", call.label, op.attn_scale);
  if (op.left_bound < -1 || op.left_bound == 0)
    fail("{}: left_bound {} is neither 1 or more keys nor -1 (none)", call.label, op.left_bound);
  if (op.right_bound < -1) fail("{}: right_bound {} is below -1 (none)", call.label, op.right_bound);
  if (!(op.dropout_probability >= 0 && op.dropout_probability < 1))
    fail("{}: dropout_probability {} is not in 0 to below 1", call.label, op.dropout_probability);
  const bool has_seed = call.operand("seed") != nullptr && call.operand("offset") != nullptr;
  if (op.dropout_probability > 0 && !has_seed)
    fail("{}: dropout needs the operands seed and offset", call.label);
  const bool has_lengths = call.operand("seq_len_q") != nullptr && call.operand("seq_len_kv") != nullptr;
  if (op.padding_mask && !has_lengths)
    fail("{}: padding_mask needs the operands seq_len_q and seq_len_kv", call.label);
  for (const char* role : {"seq_len_q", "seq_len_kv"})
    if (!op.padding_mask && call.operand(role) != nullptr)
      fail("{}: {} is given, but padding_mask, which makes use of it, is false", call.label, role);
  const bool has_pages = call.operand("page_table_k") != nullptr || call.operand("page_table_v") != nullptr;
  if (op.max_seq_len_kv != 0 && !has_pages)
    fail("{}: max_seq_len_kv {} counts the keys of page tables, and none is given", call.label,
         op.max_seq_len_kv);
}

Shape expect_operands(const Call& call, const SdpaAttributes& op) {
  refuse_scalars_but(call, {"seed", "offset", "scale"});
  expect_dims(call, "scale", {1});
  const Shape shape = shape_of(call, op);
  expect_attributes(call, op);
  expect_seed(call);
  expect_broadcast(call, "bias", {shape.batch, shape.heads, shape.queries, shape.keys});
  for (const char* role : {"seq_len_q", "seq_len_kv"}) {
    expect_integers(call, role);
    expect_dims(call, role, {shape.batch, 1, 1, 1});
  }
  expect_dims(call, "sink", {1, shape.heads, 1, 1});
  expect_broadcast(
      call, "block_mask",
      {shape.batch, shape.heads, (shape.queries + kBlock - 1) / kBlock, (shape.keys + kBlock - 1) / kBlock});
  return shape;
}

// ---- Expansion ----

// Scores of one attention, with heads in groups that share a key, [b, h_k, h / h_k, s, t], where there are
// any.
class Attention {
 public:
  Attention(Expansion& e, const SdpaAttributes& op) : e_(e), op_(op) {
    k_ = loaded("k", "page_table_k");
    v_ = loaded("v", "page_table_v");
    const Dims q = e.dims(e.input("q")), k = e.dims(k_), v = e.dims(v_);
    heads_ = q[1];
    is_grouped_ = k[1] == v[1] && k[1] != heads_ && k[1] != 1;
    groups_ = k[1];
    scores_ =
        is_grouped_ ? Dims{q[0], groups_, heads_ / groups_, q[2], k[2]} : Dims{q[0], heads_, q[2], k[2]};
    if (op.padding_mask) {
      query_length_ = per_query(e.input("seq_len_q"));
      key_length_ = per_query(e.input("seq_len_kv"));
    }
    keep_ = kept_scores();
    if (op.dropout_probability > 0)
      kept_by_dropout_ =
          kept_elements(e, scores_, e.input("seed"), e.input("offset"), 1 - op.dropout_probability);
  }

  int queries_axis() const { return scores_.rank() - 2; }
  int keys_axis() const { return scores_.rank() - 1; }
  bool masks() const { return keep_ >= 0; }

  // [b or 1, h or 1, rows, columns] as scores have it.
  int per_query(int x) {
    if (!is_grouped_) return x;
    const Dims dims = e_.dims(x);
    const bool one = dims[1] == 1;
    const Dims grouped{dims[0], one ? 1 : groups_, one ? 1 : heads_ / groups_, dims[2], dims[3]};
    const Op* const writer = e_.asked_writer(x);
    const auto* const ragged = writer == nullptr ? nullptr : std::get_if<RaggedLoad>(&writer->attributes);
    const int64_t share = grouped[2];
    if (ragged == nullptr || one || ragged->strides[0] > std::numeric_limits<int64_t>::max() / share)
      return e_.reshape(x, grouped);
    // Loaded in groups: no view splits an axis of elements whose places are computed.
    Dims strides = ragged->strides;
    strides.insert(0, strides[0] * share);
    return e_.op(RaggedLoad{strides}, writer->inputs, grouped);
  }
  // The rows of of_queries(x), made once more for another fusion: both read them where they lie, while one
  // result that both read would be a copy.
  int of_queries_again(int x) {
    const Op* const writer = e_.asked_writer(x);
    const auto* const ragged = writer == nullptr ? nullptr : std::get_if<RaggedLoad>(&writer->attributes);
    // Where heads are in groups, per_query() loads ragged rows anew at each call.
    return of_queries(ragged == nullptr || is_grouped_ ? x : e_.op(*ragged, writer->inputs, e_.dims(x)));
  }
  // [b, h_k, rows, columns]: one for each group.
  int per_key(int x) {
    const Dims dims = e_.dims(x);
    if (is_grouped_) return e_.reshape(x, {dims[0], groups_, 1, dims[2], dims[3]});
    if (dims[1] == heads_ || dims[1] == 1) return x;
    const int split = e_.reshape(x, {dims[0], dims[1], 1, dims[2], dims[3]});
    const Dims repeated{dims[0], dims[1], heads_ / dims[1], dims[2], dims[3]};
    const int copies = e_.op(Pointwise{.mode = PointwiseMode::identity}, {split}, repeated);
    return e_.reshape(copies, {dims[0], heads_, dims[2], dims[3]});
  }
  // The way back: a tensor of scores' batch and heads, summed to the dims of the result.
  void result(const char* role, int x) {
    if (!e_.wants(role)) return;
    Dims target = e_.result_dims(role);
    while (target.rank() < 4) target.insert(0, 1);
    if (is_grouped_) {
      const bool one = target[1] == 1, whole = target[1] == heads_;
      target = {target[0], one ? 1 : groups_, whole ? heads_ / groups_ : 1, target[2], target[3]};
    }
    if (e_.dims(x) != target) x = e_.reduce_to(ReductionMode::add, x, target);
    e_.reshaped_result(role, x);
  }

  int transposed(int x) {
    Dims order;
    for (int i = 0; i < e_.dims(x).rank(); ++i) order.push_back(i);
    std::swap(order[order.rank() - 2], order[order.rank() - 1]);
    return e_.transpose(x, order);
  }

  // Rows beyond their lengths are 0, whatever lies there.
  int of_queries(int x) { return without_padding(per_query(x), query_length_); }
  int of_keys(int x) { return without_padding(per_key(x), key_length_); }
  int key() const { return k_; }
  int value() const { return v_; }

  // The forward pass multiplies queries and keys as they are, the backward pass those with zeros beyond their
  // lengths.
  int scores() { return scores(per_query(e_.input("q")), per_key(k_)); }
  int scores(int q, int k) {
    int s = e_.matmul(q, transposed(k));
    if (op_.attn_scale != 1) s = e_.mul(s, e_.constant(op_.attn_scale));
    if (e_.has("scale")) s = e_.mul(s, e_.input("scale"));
    if (e_.has("bias")) s = e_.add(s, bias());
    if (op_.alibi_mask) s = e_.add(s, e_.mul(alibi_slopes(), e_.real(distance())));
    return s;
  }

  int masked(int x, double otherwise) {
    return masks() ? e_.binary_select(x, e_.constant(otherwise), keep_) : x;
  }
  // Keeps x in rows that are queries; the others are `otherwise`.
  int of_live_rows(int x, double otherwise) {
    if (!op_.padding_mask) return x;
    const int row = e_.index(e_.dims(x), queries_axis());
    return e_.binary_select(x, e_.constant(otherwise), e_.cmp_lt(row, query_length_));
  }

  int dropped(int p) {
    if (kept_by_dropout_ < 0) return p;
    const int scaled = e_.mul(p, e_.constant(1 / (1 - op_.dropout_probability)));
    return e_.binary_select(scaled, e_.constant(0), kept_by_dropout_);
  }
  // 1 where dropout keeps a probability, in the dims of the result.
  int dump() {
    const Dims dims = e_.result_dims("rng_dump");
    if (kept_by_dropout_ < 0)
      return e_.op(Pointwise{.mode = PointwiseMode::identity}, {e_.constant(1)}, dims);
    return is_grouped_ ? e_.reshape(kept_by_dropout_, dims) : kept_by_dropout_;
  }

  int bias() {
    const int x = e_.input("bias");
    Dims dims = e_.dims(x);
    while (dims.rank() < 4) dims.insert(0, 1);
    return per_query(dims == e_.dims(x) ? x : e_.reshape(x, dims));
  }

 private:
  // As it is, or through a page table.
  int loaded(const char* role, const char* table) {
    const int x = e_.input(role);
    if (!e_.has(table)) return x;
    const Dims q = e_.dims(e_.input("q"));
    int y = -1;
    if (are_few_rows(q[1] * q[2] / e_.dims(x)[1], e_.type(x)))
      y = paged_rows(e_, x, e_.input(table), op_.max_seq_len_kv);
    return y >= 0 ? y : paged_load(e_, x, e_.input(table), op_.max_seq_len_kv);
  }

  int without_padding(int x, int length) {
    if (!op_.padding_mask) return x;
    const Dims dims = e_.dims(x);
    const int row = e_.index(dims, dims.rank() - 2);
    return e_.binary_select(x, e_.constant(0), e_.cmp_lt(row, length));
  }

  // Key less query.
  int distance() {
    if (distance_ < 0) distance_ = e_.sub(e_.index(scores_, keys_axis()), e_.index(scores_, queries_axis()));
    return distance_;
  }

  // How far the diagonal lies from that of the first query and key, plus `more`: beyond all queries and keys,
  // a bound bounds nothing, and overflows no number.
  int diagonal(int64_t more) {
    const int64_t all = scores_[keys_axis()] + scores_[queries_axis()];
    more = std::clamp(more, -all, all);
    if (op_.diagonal_alignment == DiagonalAlignment::top_left) return e_.integer(more);
    if (!op_.padding_mask) return e_.integer(scores_[keys_axis()] - scores_[queries_axis()] + more);
    const int shift = e_.sub(key_length_, query_length_);
    return more == 0 ? shift : e_.add(shift, e_.integer(more));
  }

  void also(int& keep, int condition) { keep = keep < 0 ? condition : e_.logical_and(keep, condition); }

  int kept_scores() {
    int keep = -1;
    if (op_.right_bound >= 0) also(keep, e_.cmp_le(distance(), diagonal(op_.right_bound)));
    if (op_.left_bound >= 0) also(keep, e_.cmp_gt(distance(), diagonal(-op_.left_bound)));
    if (op_.padding_mask) {
      also(keep, e_.cmp_lt(e_.index(scores_, keys_axis()), key_length_));
      also(keep, e_.cmp_lt(e_.index(scores_, queries_axis()), query_length_));
    }
    if (e_.has("block_mask")) also(keep, block_mask());
    return keep;
  }

  // Whether the block mask's element for each query and key is set: blocks get axes of their own, in which
  // each element is repeated.
  int block_mask() {
    const int mask = e_.input("block_mask");
    Dims blocks = e_.dims(mask);
    while (blocks.rank() < 4) blocks.insert(0, 1);
    const auto extent = [&](int axis) { return blocks[axis] == 1 ? 1 : kBlock; };
    const Dims split{blocks[0], blocks[1], blocks[2], 1, blocks[3], 1};
    const Dims repeated{blocks[0], blocks[1], blocks[2], extent(2), blocks[3], extent(3)};
    const int is_set =
        e_.op(Pointwise{.mode = PointwiseMode::cmp_neq}, {e_.reshape(mask, split), e_.integer(0)}, repeated);
    int keep = e_.reshape(is_set, {blocks[0], blocks[1], blocks[2] * extent(2), blocks[3] * extent(3)});
    for (const auto& [axis, scores_axis] : {std::pair{2, queries_axis()}, std::pair{3, keys_axis()}})
      if (e_.dims(keep)[axis] > scores_[scores_axis]) keep = e_.slice(keep, axis, 0, scores_[scores_axis]);
    return per_query(keep);
  }

  // The number of a head, as scores have it. In groups it is made of both axes: a view of numbers that are
  // computed would be stored in front of the scores.
  int head_numbers() {
    if (!is_grouped_) return e_.index({1, heads_, 1, 1}, 1);
    const int64_t share = heads_ / groups_;
    const Dims dims{1, groups_, share, 1, 1};
    return e_.add(e_.mul(e_.index(dims, 1), e_.integer(share)), e_.index(dims, 2));
  }

  // Press et al. 2022: a geometric sequence over the heads; beyond a power of two, every other member of the
  // next.
  int alibi_slopes() {
    const auto power = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(heads_)));
    const double step = -8 * std::numbers::ln2 / static_cast<double>(power);
    const int head = head_numbers();
    int place = e_.real(e_.add(head, e_.integer(1)));
    if (power != heads_) {
      const int beyond = e_.add(e_.real(e_.sub(head, e_.integer(power))), e_.constant(0.5));
      place = e_.binary_select(place, beyond, e_.cmp_lt(head, e_.integer(power)));
    }
    return e_.exp(e_.mul(place, e_.constant(step)));
  }

  Expansion& e_;
  const SdpaAttributes& op_;
  Dims scores_;
  bool is_grouped_ = false;
  int64_t heads_ = 1, groups_ = 1;
  int k_ = -1, v_ = -1;
  int query_length_ = -1, key_length_ = -1;
  int keep_ = -1, kept_by_dropout_ = -1, distance_ = -1;
};

Roles roles_of(std::vector<Role> first, std::vector<Role> more, std::vector<Role> outputs) {
  const std::vector<Role> common = {
      {.name = "bias", .optional = true},       {.name = "seq_len_q", .optional = true},
      {.name = "seq_len_kv", .optional = true}, {.name = "seed", .optional = true},
      {.name = "offset", .optional = true},     {.name = "sink", .optional = true},
      {.name = "block_mask", .optional = true}};
  first.insert(first.end(), common.begin(), common.end());
  first.insert(first.end(), more.begin(), more.end());
  return {std::move(first), std::move(outputs)};
}

}  // namespace

std::string_view to_string(DiagonalAlignment alignment) {
  return alignment == DiagonalAlignment::top_left ? "top_left" : "bottom_right";
}

// --- forward -----------------------------------------------------------------------------------------------

Roles SdpaForward::roles() const {
  return roles_of({{"q"}, {"k"}, {"v"}},
                  {{.name = "page_table_k", .optional = true},
                   {.name = "page_table_v", .optional = true},
                   {.name = "scale", .optional = true}},
                  {{.name = "o", .optional = true},
                   {.name = "stats", .optional = true, .own_type = true},
                   {.name = "max", .optional = true, .own_type = true},
                   {.name = "sum_exp", .optional = true, .own_type = true},
                   {.name = "rng_dump", .optional = true, .own_type = true}});
}

std::vector<Inferred> SdpaForward::infer(const Call& call) const {
  const Shape s = expect_operands(call, *this);
  const DataType type = real_type(call);
  const Inferred statistic = in_row_major(call, {s.batch, s.heads, s.queries, 1}, type);
  return {in_order_of(call, {s.batch, s.heads, s.queries, s.value_depth}, type, call.input(0)), statistic,
          statistic, statistic, in_row_major(call, {s.batch, s.heads, s.queries, s.keys}, type)};
}

void SdpaForward::expand(Expansion& e) const {
  Attention a(e, *this);
  const bool has_sink = e.has("sink");
  const int s = a.masked(a.scores(), -kInfinity);
  const int axis = a.keys_axis();
  const int max = e.reduce(ReductionMode::max, s, axis);
  const int sink = has_sink ? a.per_query(e.input("sink")) : -1;
  const int highest = has_sink ? e.max(max, sink) : max;
  // Rows that see no key have no score, nor one of a sink that is -inf.
  const bool may_be_empty = a.masks();
  const int base = may_be_empty ? e.max(highest, e.constant(least_score(e.type(highest)))) : highest;
  const int exp = e.exp(e.sub(s, base));
  int sum = e.reduce(ReductionMode::add, exp, axis);
  if (has_sink) sum = e.add(sum, e.exp(e.sub(sink, base)));
  const int divisor = may_be_empty ? e.binary_select(sum, e.constant(1), e.cmp_neq(sum, e.constant(0))) : sum;
  const int p = a.dropped(e.div(exp, divisor));
  // Beside values of fp8, probabilities are rounded to it: they use its range.
  const bool is_narrow = e.type(a.value()) == DataType::f8_e4m3;
  const double weight = is_narrow ? narrow_weight(dropout_probability) : 1;
  const int weighted = is_narrow ? e.mul(p, e.constant(weight)) : p;
  const int o = e.matmul(weighted, a.of_keys(a.value()));
  a.result("o", is_narrow ? e.mul(o, e.constant(1 / weight)) : o);
  if (e.wants("stats")) a.result("stats", a.of_live_rows(e.add(base, e.log(sum)), -kInfinity));
  a.result("max", highest);
  a.result("sum_exp", sum);
  if (e.wants("rng_dump")) e.reshaped_result("rng_dump", a.dump());
}

// --- backward ----------------------------------------------------------------------------------------------

Roles SdpaBackward::roles() const {
  return roles_of({{"q"}, {"k"}, {"v"}, {"o"}, {"do"}, {"stats"}}, {},
                  {{.name = "dq", .optional = true},
                   {.name = "dk", .optional = true},
                   {.name = "dv", .optional = true},
                   {.name = "dbias", .optional = true, .own_type = true},
                   {.name = "dsink", .optional = true, .own_type = true}});
}

std::vector<Inferred> SdpaBackward::infer(const Call& call) const {
  const Shape s = expect_operands(call, *this);
  expect_dims(call, "o", {s.batch, s.heads, s.queries, s.value_depth});
  expect_dims(call, "do", {s.batch, s.heads, s.queries, s.value_depth});
  expect_dims(call, "stats", {s.batch, s.heads, s.queries, 1});
  const DataType type = real_type(call);
  const auto like = [&](const char* role) {
    const Tensor& x = *call.operand(role);
    return in_order_of(call, x.dims, type, x);
  };
  const Dims none{1};
  const Tensor* const bias = call.operand("bias");
  const Tensor* const sink = call.operand("sink");
  for (const auto& [place, role, operand] : {std::tuple(size_t{3}, "bias", bias), {size_t{4}, "sink", sink}})
    if (operand == nullptr && !call.given(place).empty())
      fail("{}: d{} is asked for, but the operand {} is left out", call.label, role, role);
  return {like("q"), like("k"), like("v"), in_row_major(call, bias != nullptr ? bias->dims : none, type),
          in_row_major(call, sink != nullptr ? sink->dims : none, type)};
}

void SdpaBackward::expand(Expansion& e) const {
  Attention a(e, *this);
  const int q = a.of_queries(e.input("q")), k = a.of_keys(a.key()), v = a.of_keys(a.value());
  const int gradient = a.of_queries(e.input("do"));
  int stats = a.per_query(e.input("stats"));
  // Rows without any score have stats of -inf.
  const int is_live = e.cmp_gt(stats, e.constant(-kInfinity));
  if (a.masks()) stats = e.binary_select(stats, e.constant(0), is_live);
  // Rows beyond their lengths are hidden: zeros there leave one operand for scores and for gradients.
  const int p = a.masked(e.exp(e.sub(a.scores(q, k), stats)), 0);
  const int o = a.of_queries(e.input("o")), again = a.of_queries_again(e.input("do"));
  const int delta = e.reduce(ReductionMode::add, e.mul(again, o), a.keys_axis());
  const int dp = a.dropped(e.matmul(gradient, a.transposed(v)));
  const int ds = a.masked(e.mul(p, e.sub(dp, delta)), 0);
  const auto scaled = [&](int x) { return attn_scale == 1 ? x : e.mul(x, e.constant(attn_scale)); };
  if (e.wants("dq")) a.result("dq", scaled(e.matmul(ds, k)));
  if (e.wants("dk")) a.result("dk", scaled(e.matmul(a.transposed(ds), q)));
  if (e.wants("dv")) a.result("dv", e.matmul(a.transposed(a.dropped(p)), gradient));
  a.result("dbias", ds);
  if (!e.wants("dsink")) return;
  const int share = e.mul(e.exp(e.sub(a.per_query(e.input("sink")), stats)), delta);
  const int of_rows = e.binary_select(share, e.constant(0), is_live);
  a.result("dsink", e.neg(a.of_live_rows(of_rows, 0)));
}

}  // namespace fusor
