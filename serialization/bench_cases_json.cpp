// Owns JSON -> BenchCase.
#include <array>
#include <set>

#include "serialization/bench_cases.h"
#include "serialization/documents.h"
#include "serialization/json_fields.h"
#include "serialization/serialization.h"

namespace fusor {

namespace {

constexpr std::array<std::string_view, 20> kOps = {
    "matmul",         "gated_matmul", "conv_fprop",   "conv_dgrad",
    "conv_wgrad",     "softmax",      "softmax_bwd",  "layer_norm",
    "layer_norm_bwd", "rms_norm",     "rms_norm_bwd", "residual_norm_quantize",
    "cross_entropy",  "group_norm",   "batch_norm",   "batch_norm_bwd",
    "max_pool",       "max_pool_bwd", "attention",    "attention_bwd"};
constexpr std::array<std::string_view, 2> kStored = {"kn", "nk"};
constexpr std::array<std::string_view, 2> kImageLayouts = {"nchw", "nhwc"};

template <class T>
void read_optional(const JsonReader& row, std::string_view key, T& to) {
  if (row.has(key)) read_field(row.at(key), to);
}

std::vector<std::string> steps(const JsonReader& row, std::string_view key) {
  std::vector<std::string> names;
  if (!row.has(key)) return names;
  const JsonReader list = row.at(key);
  for (size_t i = 0; i < list.size(); ++i) names.push_back(list.at(i).name());
  return names;
}

/// Extents, each of 1 or more.
Dims extents(const JsonReader& from) {
  const Dims dims = from.dims();
  for (int i = 0; i < dims.rank(); ++i)
    if (dims[i] < 1)
      from.at(static_cast<size_t>(i)).refuse("expected an extent of 1 or more, got {}", dims[i]);
  return dims;
}

void read_matmul(const JsonReader& row, BenchCase& to) {
  const Dims mnk = extents(row.at("mnk"));
  if (mnk.rank() != 3) row.at("mnk").refuse("expected m, n and k, got {} numbers", mnk.rank());
  to.m = mnk[0];
  to.n = mnk[1];
  to.k = mnk[2];
  read_optional(row, "batch", to.batch);
  if (to.batch < 1) row.at("batch").refuse("expected 1 or more, got {}", to.batch);
  to.transposed_b = row.has("b") && row.at("b").one_of(kStored) == 1;
  read_optional(row, "weights", to.weights);
  read_optional(row, "block", to.block);
  if (to.block < 0 || (to.block > 0 && to.k % to.block != 0))
    row.at("block").refuse("expected a divisor of the {} steps, got {}", to.k, to.block);
  if (row.has("scales")) read_field(row.at("scales"), to.scales.emplace());
  read_optional(row, "zero_points", to.zero_points);
}

void read_layout(const JsonReader& row, BenchCase& to) {
  if (row.has("layout"))
    to.layout = kImageLayouts[row.at("layout").one_of(kImageLayouts)] == "nhwc" ? Layout::nhwc : Layout::nchw;
}

void read_conv(const JsonReader& row, BenchCase& to) {
  to.x = extents(row.at("x"));
  to.w = extents(row.at("w"));
  read_optional(row, "padding", to.pre_padding);
  to.post_padding = to.pre_padding;
  read_optional(row, "pre_padding", to.pre_padding);
  read_optional(row, "post_padding", to.post_padding);
  read_optional(row, "stride", to.stride);
  read_optional(row, "dilation", to.dilation);
  read_layout(row, to);
}

void read_rows(const JsonReader& row, BenchCase& to) {
  to.x = extents(row.at("x"));
  const int rank = to.x.rank();
  if (rank < 2) row.at("x").refuse("expected rows of elements, got {} axes", rank);
  to.axes = {rank - 1};
  read_optional(row, "axes", to.axes);
  for (int i = 0; i < to.axes.rank(); ++i)
    if (to.axes[i] < 0 || to.axes[i] >= rank)
      row.at("axes").at(static_cast<size_t>(i)).refuse("expected an axis of x, got {}", to.axes[i]);
  read_optional(row, "groups", to.groups);
  if (to.groups < 1 || to.x[1] % to.groups != 0)
    row.at("groups").refuse("expected a divisor of the channels, got {}", to.groups);
  read_layout(row, to);
}

void read_attention(const JsonReader& row, BenchCase& to) {
  to.q = extents(row.at("q"));
  to.keys = extents(row.at("k"));
  for (const auto& [key, dims] : {std::pair{"q", &to.q}, {"k", &to.keys}})
    if (dims->rank() != 4)
      row.at(key).refuse("expected batch, heads, positions and elements, got {} numbers", dims->rank());
  if (to.q[0] != to.keys[0] || to.q[1] % to.keys[1] != 0 || to.q[3] != to.keys[3])
    row.at("k").refuse("expected q's batch and elements, and a divisor of its heads, got {}",
                       to_string(to.keys));
  to.value = to.keys[3];
  read_optional(row, "value", to.value);
  if (to.value < 1) row.at("value").refuse("expected 1 or more, got {}", to.value);
  read_optional(row, "causal", to.causal);
  read_optional(row, "page", to.page);
  if (to.page < 0 || (to.page > 0 && to.keys[2] % to.page != 0))
    row.at("page").refuse("expected a divisor of the {} keys, got {}", to.keys[2], to.page);
  if (to.page > 0 && to.op == BenchCase::Op::attention_bwd)
    row.at("page").refuse("expected no pages of what gradients are asked for");
  for (const auto& [key, to_read] : {std::pair{"newest", &to.newest}, {"documents", &to.documents}}) {
    read_optional(row, key, *to_read);
    if (*to_read < 0) row.at(key).refuse("expected 0 or more, got {}", *to_read);
  }
  read_optional(row, "ragged", to.ragged);
  to.scores = steps(row, "scores");
  if (to.documents > 0 && to.q[2] != to.keys[2])
    row.at("k").refuse("expected as many keys as queries of documents, got {} and {}", to.keys[2], to.q[2]);
  const bool has_scores = to.newest > 0 || !to.scores.empty();
  if (has_scores && to.op == BenchCase::Op::attention_bwd)
    row.refuse("newest and scores are of a forward pass");
  if ((has_scores || to.ragged || to.documents > 0) && to.page > 0)
    row.refuse("newest, ragged, scores and documents come without pages");
}

void read_pool(const JsonReader& row, BenchCase& to) {
  const size_t spatial = static_cast<size_t>(to.x.rank()) - 2;
  const auto read = [&](std::string_view key, Dims& into) {
    into = row.at(key).dims();
    if (static_cast<size_t>(into.rank()) != spatial)
      row.at(key).refuse("expected {} spatial dims, got {}", spatial, into.rank());
  };
  read("window", to.w);
  read("stride", to.stride);
  read("padding", to.pre_padding);
  to.post_padding = to.pre_padding;
  read_optional(row, "index", to.index);
}

BenchCase parse_case(const JsonReader& row) {
  BenchCase parsed;
  parsed.op = static_cast<BenchCase::Op>(row.at("op").one_of(kOps));
  if (parsed.is_conv())
    row.expect_keys({"id", "group", "about", "op", "type", "result", "x", "w", "stride", "padding",
                     "pre_padding", "post_padding", "dilation", "layout", "epilogue", "tf32", "short_sums",
                     "max_workspace"});
  else if (parsed.is_pool())
    row.expect_keys({"id", "group", "about", "op", "type", "result", "x", "window", "stride", "padding",
                     "index", "layout", "max_workspace"});
  else if (parsed.is_rows())
    row.expect_keys(
        {"id", "group", "about", "op", "type", "result", "x", "axes", "groups", "layout", "max_workspace"});
  else if (parsed.is_attention())
    row.expect_keys({"id", "group", "about", "op", "type", "result", "q", "k", "value", "causal", "page",
                     "newest", "documents", "ragged", "scores", "short_sums", "max_workspace"});
  else
    row.expect_keys({"id", "group", "about", "op", "type", "result", "mnk", "batch", "b", "prologue",
                     "weights", "block", "scales", "zero_points", "epilogue", "tf32", "short_sums",
                     "max_workspace"});
  parsed.id = row.at("id").name();
  parsed.group = row.at("group").name();
  read_optional(row, "about", parsed.about);
  read_field(row.at("type"), parsed.type);
  if (row.has("result")) read_field(row.at("result"), parsed.result.emplace());
  if (parsed.is_conv())
    read_conv(row, parsed);
  else if (parsed.is_rows())
    read_rows(row, parsed);
  else if (parsed.is_attention())
    read_attention(row, parsed);
  else
    read_matmul(row, parsed);
  if (parsed.is_pool()) read_pool(row, parsed);
  parsed.prologue = steps(row, "prologue");
  parsed.epilogue = steps(row, "epilogue");
  read_optional(row, "tf32", parsed.tf32);
  read_optional(row, "short_sums", parsed.short_sums);
  read_optional(row, "max_workspace", parsed.max_workspace);
  return parsed;
}

/// The type that the graph's first contraction reads, or of its first tensor.
DataType type_of(const Graph& graph) {
  for (const Op& op : graph.ops)
    if (is_contraction(op.attributes)) return graph.tensors[static_cast<size_t>(op.inputs[0])].type;
  return graph.tensors.empty() ? DataType::f32 : graph.tensors.front().type;
}

BenchCase case_of(Graph graph) {
  BenchCase made;
  made.id = graph.name;
  made.group = "graph";
  made.about = "a graph's file";
  made.type = type_of(graph);
  made.tf32 = graph.precision >= Precision::allow_tf32;
  made.graph = std::make_shared<const Graph>(std::move(graph));
  return made;
}

}  // namespace

std::vector<BenchCase> bench_cases_from_json(std::string_view text) {
  const Json document = parse_json(text);
  const JsonReader reader(document);
  if (reader.has("kind") && reader.at("kind").name() != "bench_cases") {
    std::variant<Graph, Plan> read = graph_or_plan_from_json(text);
    auto* graph = std::get_if<Graph>(&read);
    return {case_of(graph != nullptr ? std::move(*graph) : std::move(std::get<Plan>(read).graph))};
  }
  expect_header(reader, "bench_cases");
  reader.expect_keys({"format", "kind", "about", "cases"});
  const JsonReader rows = reader.at("cases");
  std::vector<BenchCase> cases;
  std::set<std::string> ids;
  for (size_t i = 0; i < rows.size(); ++i) {
    cases.push_back(parse_case(rows.at(i)));
    if (!ids.insert(cases.back().id).second)
      rows.at(i).at("id").refuse("two cases are called {}", in_quotes(cases.back().id));
  }
  return cases;
}

}  // namespace fusor
