// Owns what each case of attention means in terms of GraphBuilder, and what it costs.
#include "tools/bench/attention_cases.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "core/fail.h"
#include "core/ops/attention.h"
#include "frontend/graph_builder.h"

namespace fusor::command {

namespace {

constexpr const char* kPageTable = "page_table";
constexpr const char* kDocument = "document";
constexpr const char *kLengths = "lengths", *kKeyLengths = "key_lengths";
constexpr const char* kStart = "_start";
constexpr double kSoftCap = 30;

bool has_step(const BenchCase& bench_case, const std::string& step) {
  return std::ranges::find(bench_case.scores, step) != bench_case.scores.end();
}

/// Scores of one head that bounds leave. Query i sees keys from i + shift - newest + 1 (newest: 0 is no
/// bound) to i + shift (causal).
double live_scores(int64_t queries, int64_t keys, bool causal, int64_t newest, int64_t shift) {
  double live = 0;
  for (int64_t row = 0; row < queries; ++row) {
    const int64_t end = causal ? std::clamp<int64_t>(row + shift + 1, 0, keys) : keys;
    const int64_t begin = newest > 0 ? std::clamp<int64_t>(row + shift + 1 - newest, 0, end) : 0;
    live += static_cast<double>(end - begin);
  }
  return live;
}

double live_scores(const SdpaAttributes& attributes, int64_t queries, int64_t keys) {
  const bool ends_together = attributes.diagonal_alignment == DiagonalAlignment::bottom_right;
  return live_scores(queries, keys, attributes.right_bound == 0, std::max<int64_t>(0, attributes.left_bound),
                     ends_together ? keys - queries : 0);
}

class AttentionGraph {
 public:
  explicit AttentionGraph(const BenchCase& bench_case)
      : case_(bench_case),
        g_(bench_case.id, bench_case.short_sums ? Precision::allow_short_sums : Precision::exact),
        result_(bench_case.result.value_or(bench_case.type)) {
    attributes_.attn_scale = 1 / std::sqrt(static_cast<double>(case_.q[3]));
    attributes_.diagonal_alignment = DiagonalAlignment::bottom_right;
    if (case_.causal) attributes_.right_bound = 0;
    if (case_.newest > 0) attributes_.left_bound = case_.newest;
    for (const std::string& step : case_.scores)
      if (step != "soft_cap" && step != "alibi" && step != "bias")
        fail("case '{}': expected soft_cap, alibi or bias for scores, got {}", case_.id, step);
    const bool has_options = case_.newest > 0 || has_step(case_, "alibi") || has_step(case_, "bias");
    if ((is_by_hand() || case_.ragged) && has_options)
      fail("case '{}': documents, soft_cap and ragged come without newest, alibi and bias", case_.id);
    if (is_by_hand() && case_.ragged)
      fail("case '{}': ragged comes without documents and soft_cap", case_.id);
  }

  Graph build() {
    if (case_.page > 0)
      from_pages();
    else if (case_.ragged)
      case_.op == BenchCase::Op::attention_bwd ? gradients_of_ragged() : of_ragged();
    else if (case_.op == BenchCase::Op::attention_bwd)
      is_by_hand() ? gradients_by_hand() : gradients();
    else if (is_by_hand())
      by_hand();
    else
      forward();
    return g_.finish();
  }

 private:
  /// The op has no attribute for these.
  bool is_by_hand() const { return has_step(case_, "soft_cap") || case_.documents > 0; }
  Tensor input(const char* name, const Dims& dims) { return g_.input(name, dims, case_.type); }
  Dims values() const { return {case_.keys[0], case_.keys[1], case_.keys[2], case_.value}; }
  Dims results() const { return {case_.q[0], case_.q[1], case_.q[2], case_.value}; }

  void from_pages() {
    const int64_t pages = case_.keys[2] / case_.page;
    const Tensor table = g_.input(kPageTable, {case_.keys[0], 1, pages, 1}, DataType::i32);
    const auto cache = [&](const char* name, int64_t elements) {
      return input(name, {case_.keys[0] * pages, case_.keys[1], case_.page, elements});
    };
    const Tensor q = input("q", case_.q), k = cache("k", case_.keys[3]), v = cache("v", case_.value);
    attributes_.max_seq_len_kv = case_.keys[2];
    const SdpaOptions options{.attributes = attributes_, .page_table_k = table, .page_table_v = table};
    g_.output(g_.sdpa_fwd(q, k, v, options).o, {.name = "o", .type = result_});
  }

  void forward() {
    const Tensor q = input("q", case_.q), k = input("k", case_.keys), v = input("v", values());
    SdpaOptions options{.attributes = attributes_};
    options.attributes.alibi_mask = has_step(case_, "alibi");
    if (has_step(case_, "bias")) options.bias = input("bias", {1, case_.q[1], case_.q[2], case_.keys[2]});
    g_.output(g_.sdpa_fwd(q, k, v, options).o, {.name = "o", .type = result_});
  }

  void gradients() {
    const Tensor q = input("q", case_.q), k = input("k", case_.keys), v = input("v", values());
    const Tensor o = input("o", results()), dy = input("do", results());
    const Tensor stats = g_.input("stats", {case_.q[0], case_.q[1], case_.q[2], 1}, DataType::f32);
    const SdpaGradients made = g_.sdpa_bwd(q, k, v, o, dy, stats, {.attributes = attributes_});
    g_.output(made.dq, {.name = "dq", .type = result_});
    g_.output(made.dk, {.name = "dk", .type = result_});
    g_.output(made.dv, {.name = "dv", .type = result_});
  }

  // Sequences lie one behind the other, [positions of all, heads, elements of a head].
  static int64_t positions(const Dims& dims) {
    int64_t all = 0;
    for (int64_t i = 0; i < dims[0]; ++i) all += ragged_length(dims, i);
    return all;
  }
  Tensor starts(const std::string& name) { return g_.input(name + kStart, {case_.q[0] + 1}, DataType::i64); }
  Tensor load(const std::string& name, const Dims& dims, int64_t head, std::optional<DataType> type = {}) {
    const int64_t row = dims[1] * head;
    const Tensor x = g_.input(name, {positions(dims) * row}, type.value_or(case_.type));
    return g_.ragged_load(x, starts(name), {dims[0], dims[1], dims[2], head}, {head, row, 1});
  }
  void store(const std::string& name, const Tensor& x, const Dims& dims, int64_t head) {
    const int64_t row = dims[1] * head;
    const Tensor y =
        g_.ragged_store(x, starts(name), positions(dims) * row, {head, row, 1}, {.type = result_}, true);
    g_.output(y, {.name = name, .type = result_});
  }
  void add_lengths(SdpaOptions& options) {
    const auto lengths = [&](const char* name) {
      return g_.input(name, {case_.q[0], 1, 1, 1}, DataType::i32);
    };
    options.seq_len_q = options.seq_len_kv = lengths(kLengths);
    if (case_.q[2] != case_.keys[2]) options.seq_len_kv = lengths(kKeyLengths);
    options.attributes.padding_mask = true;
  }

  void of_ragged() {
    const Tensor q = load("q", case_.q, case_.q[3]), k = load("k", case_.keys, case_.keys[3]),
                 v = load("v", case_.keys, case_.value);
    SdpaOptions options{.attributes = attributes_};
    add_lengths(options);
    store("o", g_.sdpa_fwd(q, k, v, options).o, case_.q, case_.value);
  }

  void gradients_of_ragged() {
    const Tensor q = load("q", case_.q, case_.q[3]), k = load("k", case_.keys, case_.keys[3]),
                 v = load("v", case_.keys, case_.value), o = load("o", case_.q, case_.value),
                 dy = load("do", case_.q, case_.value), stats = load("stats", case_.q, 1, DataType::f32);
    SdpaOptions options{.attributes = attributes_};
    add_lengths(options);
    const SdpaGradients made = g_.sdpa_bwd(q, k, v, o, dy, stats, options);
    store("dq", made.dq, case_.q, case_.q[3]);
    store("dk", made.dk, case_.keys, case_.keys[3]);
    store("dv", made.dv, case_.keys, case_.value);
  }

  // Soft-capped, and hidden from keys of other documents and later ones.
  Tensor score_by_hand(const Tensor& q, const Tensor& transposed_k) {
    Tensor score = g_.mul(g_.matmul(q, transposed_k), g_.constant(attributes_.attn_scale));
    if (has_step(case_, "soft_cap"))
      score = g_.mul(g_.tanh(g_.mul(score, g_.constant(1 / kSoftCap))), g_.constant(kSoftCap));
    const Tensor nothing = g_.constant(-std::numeric_limits<double>::infinity());
    if (case_.documents > 0) {
      const Tensor of_key = g_.input(kDocument, {case_.q[0], 1, 1, case_.keys[2]}, DataType::i32);
      score = g_.binary_select(score, nothing, g_.cmp_eq(g_.transpose(of_key, {0, 1, 3, 2}), of_key));
    }
    if (case_.causal)
      score = g_.binary_select(score, nothing, g_.cmp_ge(g_.gen_index(score, 2), g_.gen_index(score, 3)));
    return score;
  }
  Tensor transposed(const Tensor& x) { return g_.transpose(x, {0, 1, 3, 2}); }

  void by_hand() {
    const Tensor q = input("q", case_.q), k = input("k", case_.keys), v = input("v", values());
    const Tensor score = score_by_hand(q, transposed(k));
    const Tensor e = g_.exp(g_.sub(score, g_.reduce(score, ReductionMode::max, {-1})));
    const Tensor p = g_.div(e, g_.reduce(e, ReductionMode::add, {-1}));
    g_.output(g_.matmul(p, v), {.name = "o", .type = result_});
  }

  void gradients_by_hand() {
    const Tensor q = input("q", case_.q), k = input("k", case_.keys), v = input("v", values());
    const Tensor o = input("o", results()), dy = input("do", results());
    const Tensor stats = g_.input("stats", {case_.q[0], case_.q[1], case_.q[2], 1}, DataType::f32);
    const Tensor p = g_.exp(g_.sub(score_by_hand(q, transposed(k)), stats));
    const Tensor delta = g_.reduce(g_.mul(dy, o), ReductionMode::add, {-1});
    const Tensor ds =
        g_.mul(g_.mul(p, g_.sub(g_.matmul(dy, transposed(v)), delta)), g_.constant(attributes_.attn_scale));
    g_.output(g_.matmul(ds, k), {.name = "dq", .type = result_});
    g_.output(g_.matmul(transposed(ds), q), {.name = "dk", .type = result_});
    g_.output(g_.matmul(transposed(p), dy), {.name = "dv", .type = result_});
  }

  const BenchCase& case_;
  GraphBuilder g_;
  DataType result_;
  SdpaAttributes attributes_;
};

void shuffle_pages(int64_t count, int32_t* table) {
  std::iota(table, table + count, 0);
  std::mt19937_64 random(static_cast<uint64_t>(count));
  std::shuffle(table, table + count, random);
}

/// Fills in where each sequence of an operand or of its gradient begins and the last one ends.
void fill_starts(const BenchCase& bench_case, const std::string& name, int64_t* starts) {
  const char operand = name.front() == 'd' ? name[1] : name.front();
  const bool is_of_keys = operand == 'k' || operand == 'v', has_values = operand == 'v' || operand == 'o';
  const Dims& dims = is_of_keys ? bench_case.keys : bench_case.q;
  const int64_t head = operand == 's' ? 1 : has_values ? bench_case.value : bench_case.q[3];
  starts[0] = 0;
  for (int64_t i = 0; i < dims[0]; ++i) starts[i + 1] = starts[i] + ragged_length(dims, i) * dims[1] * head;
}

void fill_lengths(const Dims& dims, int32_t* lengths) {
  for (int64_t i = 0; i < dims[0]; ++i) lengths[i] = static_cast<int32_t>(ragged_length(dims, i));
}

void fill_documents(const BenchCase& bench_case, int32_t* documents) {
  const int64_t keys = bench_case.keys[2];
  for (int64_t batch = 0; batch < bench_case.q[0]; ++batch)
    for (int64_t i = 0; i < bench_case.documents; ++i)
      std::fill(documents + batch * keys + document_start(bench_case, i),
                documents + batch * keys + document_start(bench_case, i + 1), static_cast<int32_t>(i));
}

}  // namespace

Graph attention_graph_of(const BenchCase& bench_case) { return AttentionGraph(bench_case).build(); }

int64_t ragged_length(const Dims& dims, int64_t sequence) {
  return (dims[2] * (sequence + 1) + dims[0] - 1) / dims[0];
}

int64_t document_start(const BenchCase& bench_case, int64_t document) {
  const int64_t documents = bench_case.documents;
  return bench_case.keys[2] * document * document / (documents * documents);
}

bool fill_attention_input(const BenchCase& bench_case, const Graph& graph, size_t tensor, void* data) {
  const std::string& name = graph.tensors[tensor].name;
  if (name == kPageTable) {
    shuffle_pages(element_count(graph.tensors[tensor].dims), static_cast<int32_t*>(data));
  } else if (name == kDocument) {
    fill_documents(bench_case, static_cast<int32_t*>(data));
  } else if (name == kLengths || name == kKeyLengths) {
    fill_lengths(name == kLengths ? bench_case.q : bench_case.keys, static_cast<int32_t*>(data));
  } else if (name.ends_with(kStart)) {
    fill_starts(bench_case, name, static_cast<int64_t*>(data));
  } else {
    return false;
  }
  return true;
}

double attention_flops(const BenchCase& bench_case) {
  const int64_t queries = bench_case.q[2], keys = bench_case.keys[2], batch = bench_case.q[0];
  const auto live = [&](int64_t rows, int64_t columns) {
    return live_scores(rows, columns, bench_case.causal, bench_case.newest, columns - rows);
  };
  double scores = 0;
  if (bench_case.ragged) {
    for (int64_t i = 0; i < batch; ++i)
      scores += live(ragged_length(bench_case.q, i), ragged_length(bench_case.keys, i));
  } else if (bench_case.documents > 0) {
    for (int64_t i = 0; i < bench_case.documents; ++i) {
      const int64_t length = document_start(bench_case, i + 1) - document_start(bench_case, i);
      scores += static_cast<double>(batch) * live(length, length);
    }
  } else {
    scores = static_cast<double>(batch) * live(queries, keys);
  }
  const int64_t head = bench_case.q[3], value = bench_case.value;
  const int64_t elements = bench_case.op == BenchCase::Op::attention ? head + value : 3 * head + 2 * value;
  return 2 * static_cast<double>(bench_case.q[1]) * scores * static_cast<double>(elements);
}

double attention_flops(const Graph& graph, const Op& op) {
  const auto* const forward = std::get_if<SdpaForward>(&op.attributes);
  const auto* const backward = std::get_if<SdpaBackward>(&op.attributes);
  if (forward == nullptr && backward == nullptr) return 0;
  const auto dims = [&](size_t input) { return graph.tensors[static_cast<size_t>(op.inputs[input])].dims; };
  const Dims q = dims(0), v = dims(2);
  Dims k = dims(1);
  const SdpaAttributes& attributes =
      forward != nullptr ? static_cast<const SdpaAttributes&>(*forward) : *backward;
  if (attributes.max_seq_len_kv > 0) k[2] = attributes.max_seq_len_kv;
  const int64_t elements = forward != nullptr ? q[3] + v[3] : 3 * q[3] + 2 * v[3];
  return 2 * static_cast<double>(q[0] * q[1]) * live_scores(attributes, q[2], k[2]) *
         static_cast<double>(elements);
}

}  // namespace fusor::command
