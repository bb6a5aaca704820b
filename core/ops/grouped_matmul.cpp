// Owns the rules and expansions of matmuls of some rows.
#include "core/ops/grouped_matmul.h"

#include <array>

#include "core/ops/expansion.h"
#include "core/ops/rules.h"

namespace fusor {

namespace {

constexpr std::array<std::string_view, 3> kTokenModes = {"none", "gather", "scatter"};

// The index of tokens as [1, rows, 1].
int token_index(Expansion& e) {
  const int index = e.input("token_index");
  return e.reshape(index, {1, element_count(e.dims(index)), 1});
}

// The token that each of the experts' rows comes of; one in front of the first where an index is negative,
// which a division would round to the first.
int source_token(Expansion& e, int64_t top_k) {
  const int index = token_index(e);
  if (top_k == 1) return index;
  return e.binary_select(e.div(index, e.integer(top_k)), e.integer(-1), e.cmp_ge(index, e.integer(0)));
}

// For each row of the users' order, the row of the experts' that goes there, or -1.
int origins(Expansion& e, int64_t rows) {
  const Dims dims{rows, rows};
  const int target = e.reshape(e.input("token_index"), {1, rows});
  const int source = e.binary_select(e.index(dims, 1), e.integer(-1), e.cmp_eq(e.index(dims, 0), target));
  return e.reshape(e.reduce(ReductionMode::max, source, 1), {1, rows, 1});
}

}  // namespace

std::string_view to_string(TokenMode mode) { return kTokenModes[static_cast<size_t>(mode)]; }

std::vector<Inferred> MoeGroupedMatmul::infer(const Call& call) const {
  refuse_scalars(call);
  const Dims &tokens = call.input(0).dims, &weights = call.input(1).dims;
  const int rank = tokens.rank();
  if (rank < 2 || rank > 3 || (rank == 3 && tokens[0] != 1))
    fail("{}: tokens {} are not [tokens, k] or [1, tokens, k]", call.label, to_string(tokens));
  if (weights.rank() != 3 || weights[1] != tokens.back())
    fail("{}: weights {} are not [experts, {}, n]", call.label, to_string(weights), tokens.back());
  const Tensor& offset = call.input(2);
  expect_integers(call, "first_token_offset");
  if (element_count(offset.dims) != weights[0])
    fail("{}: '{}' {} has not one offset for each of the {} experts", call.label, offset.name,
         to_string(offset.dims), weights[0]);
  if (top_k < 1) fail("{}: top_k {} is below 1", call.label, top_k);
  int64_t rows = tokens[rank - 2];
  const Tensor* const index = call.operand("token_index");
  if ((index != nullptr) != (mode != TokenMode::none))
    fail("{}: mode {} {} the operand token_index", call.label, to_string(mode),
         mode == TokenMode::none ? "does not take" : "needs");
  if (index != nullptr) {
    if (index->type != DataType::i32 && index->type != DataType::i64)
      fail("{}: '{}' is {}; it must be int32 or int64", call.label, index->name, to_string(index->type));
    const int64_t listed = element_count(index->dims);
    if (mode == TokenMode::scatter && listed != rows)
      fail("{}: '{}' {} does not list the {} rows of the tokens", call.label, index->name,
           to_string(index->dims), rows);
    rows = listed;
  }
  Dims dims{rows, weights[2]};
  if (rank == 3) dims.insert(0, 1);
  return {in_row_major(call, dims, real_type(call))};
}

void MoeGroupedMatmul::expand(Expansion& e) const {
  const int weights = e.input("weights");
  const Dims given = e.dims(e.input("tokens"));
  const Dims result = e.result_dims("y");
  const int64_t experts = e.dims(weights)[0];
  int tokens = e.reshape(e.input("tokens"), {1, given[given.rank() - 2], given.back()});
  if (mode == TokenMode::gather) {
    tokens = e.op(Gather{1}, {tokens, source_token(e, top_k)});
  }
  const int64_t rows = e.dims(tokens)[1];
  const auto scattered = [&](int y) {
    return mode == TokenMode::scatter ? e.op(Gather{1}, {y, origins(e, rows)}) : y;
  };
  const auto give = [&](int y) { e.result("y", e.dims(y) == result ? y : e.reshape(y, result)); };
  // An engine may carry out what is not gathered or scattered.
  const int offsets = e.input("first_token_offset");
  if (mode != TokenMode::none && e.stays_whole(MoeGroupedMatmul{}, {tokens, weights, offsets}))
    return give(
        scattered(e.op(MoeGroupedMatmul{}, {tokens, weights, offsets}, {1, rows, e.dims(weights)[2]})));
  // Every row by every expert; each takes its own. The experts that have begun, less one.
  const int all = e.matmul(tokens, weights);
  const int begun = e.cmp_ge(e.index({1, rows}, 1), e.reshape(offsets, {experts, 1}));
  const int count = e.reduce(ReductionMode::add, e.binary_select(e.integer(1), e.integer(0), begun), 0);
  const int expert = e.reshape(e.sub(count, e.integer(1)), {1, rows, 1});
  give(scattered(e.op(Gather{0}, {all, expert})));
}

std::vector<Inferred> MatmulLengths::infer(const Call& call) const {
  refuse_scalars(call);
  const Matmul whole{.compute = real_type(call)};
  const Inferred c = whole.infer({call.label, call.inputs.first(2), {}, whole.roles()}).front();
  Dims lengths = c.dims;
  lengths[lengths.rank() - 2] = lengths[lengths.rank() - 1] = 1;
  for (const char* role : {"m_override", "n_override", "k_override"}) {
    expect_integers(call, role);
    expect_broadcast(call, role, lengths);
  }
  return {{c.dims, c.strides, real_type(call)}};
}

void MatmulLengths::expand(Expansion& e) const {
  int keep = -1;
  const auto within = [&](const Dims& dims, int axis, const char* role) {
    return e.cmp_lt(e.index(dims, axis), e.input(role));
  };
  // Neither padding that is multiplied by zero may be a NaN.
  const auto kept_terms = [&](int x, int axis) {
    if (!e.has("k_override")) return x;
    Dims dims = e.dims(x);
    if (!broadcast_dims(dims, e.dims(e.input("k_override")), dims)) return x;
    return e.binary_select(x, e.constant(0), within(dims, dims.rank() - axis, "k_override"));
  };
  const int c = e.matmul(kept_terms(e.input("a"), 1), kept_terms(e.input("b"), 2));
  const Dims dims = e.dims(c);
  for (const auto& [role, axis] : {std::pair("m_override", 2), std::pair("n_override", 1)}) {
    if (!e.has(role)) continue;
    const int condition = within(dims, dims.rank() - axis, role);
    keep = keep < 0 ? condition : e.logical_and(keep, condition);
  }
  e.result("c", keep < 0 ? c : e.binary_select(c, e.constant(padding), keep));
}

}  // namespace fusor
