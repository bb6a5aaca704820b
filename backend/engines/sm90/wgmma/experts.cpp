// Owns the rewriting of matmuls by experts, and their tiles.
#include "backend/engines/sm90/wgmma/experts.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "backend/choose.h"
#include "backend/engines/list.h"
#include "backend/engines/rules.h"
#include "backend/engines/sm90/copy/units.h"
#include "backend/planner/planner.h"
#include "codegen/text/parameters.h"
#include "core/ceil_div.h"

namespace fusor::wgmma {

namespace {

// codegen/device/sm90/wgmma/expert_tiles.cuh
constexpr int64_t kMostExperts = 1024, kThreads = 1024, kTileBytes = 16;
enum Role : size_t { kTokens, kWeights, kFirstRows };

bool is_half(DataType type) { return type == DataType::f16 || type == DataType::bf16; }

bool is_load(const Expr& site) {
  return site.nodes.size() == 1 && site.nodes[0].kind == Node::Kind::load &&
         !site.nodes[0].access.is_indexed();
}

// The site of all experts' weights as that of the first one's, with as many axes as the result has.
void keep_first_expert(Expr& weights, int rank) {
  weights.domain[0] = 1;
  if (weights.domain.rank() == rank) return;
  weights.domain.erase(0);
  for (Node& node : weights.nodes) node.access.strides.erase(0);
}

// Where a tensor's elements lie in memory that starts at a multiple of `alignment` bytes.
struct Lines {
  Strides strides;
  int64_t offset = 0;
  int64_t alignment = 0;
};

// Where the elements of tensor `at` lie, through the views in front of it; nothing where the planner copies
// it.
std::optional<Lines> lines_of(const Graph& graph, int at) {
  const auto makes = [&](const Op& op) { return std::ranges::find(op.outputs, at) != op.outputs.end(); };
  const auto producer = std::ranges::find_if(graph.ops, makes);
  if (producer == graph.ops.end() || !is_view(producer->attributes)) {
    const Tensor& tensor = graph.tensors[static_cast<size_t>(at)];
    return Lines{tensor.strides, 0, tensor.alignment};
  }
  const int x = producer->inputs[0];
  const std::optional<Lines> before = lines_of(graph, x);
  Placement placed;
  if (!before || !view_placement(graph, *producer, {x, before->offset, before->strides}, placed))
    return std::nullopt;
  return Lines{placed.strides, placed.offset, before->alignment};
}

// Whether TMA reads the tensor: neighbours along one of its last two axes, all else in units of 16 bytes.
bool is_copied(const Graph& graph, int at) {
  const Tensor& tensor = graph.tensors[static_cast<size_t>(at)];
  const std::optional<Lines> lines = lines_of(graph, at);
  const int rank = tensor.dims.rank(), unit = static_cast<int>(kCopyUnit / byte_size(tensor.type));
  if (!lines || lines->offset % unit != 0 || lines->alignment % kCopyUnit != 0) return false;
  const Strides& strides = lines->strides;
  const int adjacent = strides[rank - 1] == 1 ? rank - 1 : rank - 2;
  if (strides[adjacent] != 1 || tensor.dims[adjacent] % unit != 0) return false;
  for (int axis = 0; axis < rank; ++axis)
    if (axis != adjacent && tensor.dims[axis] > 1 && (strides[axis] <= 0 || strides[axis] % unit != 0))
      return false;
  return true;
}

bool is_carried_out(const Graph& graph, const Op& op) {
  const auto* const moe = std::get_if<MoeGroupedMatmul>(&op.attributes);
  if (moe == nullptr || moe->mode != TokenMode::none) return false;
  const auto tensor = [&](size_t role) -> const Tensor& {
    return graph.tensors[static_cast<size_t>(op.inputs[role])];
  };
  const Tensor &tokens = tensor(kTokens), &weights = tensor(kWeights);
  constexpr int64_t kUnit = 8, kMost = std::numeric_limits<int32_t>::max() / 1024;
  const Dims& dims = weights.dims;
  return is_half(tokens.type) && tokens.type == weights.type && dims[0] <= kMostExperts &&
         dims[2] % kUnit == 0 && std::ranges::max(dims) < kMost && std::ranges::max(tokens.dims) < kMost &&
         std::ranges::none_of(
             op.inputs,
             [&](int at) { return at >= 0 && graph.tensors[static_cast<size_t>(at)].is_scalar(); }) &&
         is_copied(graph, op.inputs[kTokens]) && is_copied(graph, op.inputs[kWeights]);
}

}  // namespace

bool has_experts(const Fusion& fusion) {
  return !fusion.anchors.empty() && std::holds_alternative<MoeGroupedMatmul>(fusion.anchors[0].attributes);
}

std::variant<MatmulOfExperts, Refusal> matmul_of_experts(const Fusion& fusion) {
  const auto refuse = [&](const char* rule, const char* expected, std::string actual) {
    return refusal_at_anchor(fusion, rule, expected, std::move(actual));
  };
  const Anchor& given = fusion.anchors[0];
  if (fusion.anchors.size() > 1)
    return refuse("one-product", "one product", fmt::format("{}", fusion.anchors.size()));
  const int rank = result_site(fusion).domain.rank();
  for (const size_t role : {kTokens, kWeights})
    if (!is_load(operand_site(fusion, 0, role)) || !given.operands[role].axes.empty())
      return refuse("plain-operands", "operands in memory", "ops in front of them");
  const Expr& weights = operand_site(fusion, 0, kWeights);
  MatmulOfExperts made{
      fusion, {operand_site(fusion, 0, kFirstRows), weights.domain[0], weights.nodes[0].access.strides[0]}};
  if (made.experts.count > kMostExperts)
    return refuse("experts", "up to 1024 experts", fmt::format("{}", made.experts.count));
  Fusion& matmul = made.fusion;
  matmul.anchors[0].attributes = Matmul{};
  keep_first_expert(operand_site(matmul, 0, kWeights), rank);
  const int site = given.operands[kFirstRows].site;
  matmul.anchors[0].operands.resize(2);
  matmul.sites.erase(matmul.sites.begin() + site);
  for (Port& port : matmul.anchors[0].operands) port.site -= port.site > site ? 1 : 0;
  return made;
}

int64_t bytes_of_tiles(const Experts& experts, int64_t rows, int64_t tile) {
  // Beside full ones, each expert, and the rows in front of the first, have one at most; a line has the
  // count.
  const int64_t most = ceil_div(rows, tile) + experts.count + 1;
  return (1 + most) * kTileBytes;
}

Launch list_of_tiles(const Experts& experts, const Fusion& fusion, int64_t rows, int64_t tile,
                     const std::string& target) {
  KernelSource source{
      .root = "sm90/wgmma/expert_tiles.cuh", .target = target, .types = {"sm90/wgmma/experts.cuh"}};
  source.config = {{"index_bits", 64}};
  source.sites.push_back({"F", experts.first_rows, experts.first_rows.domain.rank() - 1});
  Parameters p(64);
  p.scratch("tiles", "ExpertTile", 0);
  p.wide("experts", experts.count);
  p.wide("rows", rows);
  p.wide("tile", tile);
  p.divisors("extents", experts.first_rows.domain);
  p.site("f", source.sites.back(), fusion);
  Launch launch;
  p.move_to(std::move(source), launch);
  launch.entry = "wgmma_expert_tiles";
  launch.block[0] = static_cast<uint32_t>(kThreads);
  return launch;
}

StaysWhole matmuls_by_experts(const DeviceInfo& device, const PlannerOptions& options) {
  const bool is_hopper = !device.is_cpu() && device.compute_capability == 90;
  if (!is_hopper || !is_allowed(wgmma_engine(), options)) return {};
  return is_carried_out;
}

}  // namespace fusor::wgmma
