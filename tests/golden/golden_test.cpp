// Runs every golden case of a folder - one op in a JSON file with its inputs and outputs - three ways: the
// oracle, a plan for the CPU in fp64, and one in fp32. With a device it plans them for that one, and runs
// them where it is this machine's. Usage: golden_test DIR [--device NAME].
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/build.h"
#include "backend/executable.h"
#include "backend/planning.h"
#include "backend/reference/reference.h"
#include "codegen/cuda_driver.h"
#include "core/convert.h"
#include "frontend/graph_builder.h"

namespace {

using namespace fusor;
using nlohmann::json;

struct Array {
  Dims dims;
  std::vector<double> data;
};

double number(const json& value) {
  if (!value.is_string()) return value.get<double>();
  const std::string text = value.get<std::string>();
  if (text == "nan") return std::nan("");
  return text == "inf" ? std::numeric_limits<double>::infinity() : -std::numeric_limits<double>::infinity();
}

Dims dims_of(const json& values) {
  const auto list = values.get<std::vector<int64_t>>();
  return Dims(std::span<const int64_t>(list));
}

std::map<std::string, Array> arrays_of(const json& named) {
  std::map<std::string, Array> arrays;
  for (const auto& [name, value] : named.items()) {
    Array& array = arrays[name];
    array.dims = dims_of(value["dims"]);
    for (const json& item : value["data"]) array.data.push_back(number(item));
  }
  return arrays;
}

struct Case {
  std::string op;
  json attributes;
  std::map<std::string, Array> inputs, outputs;
};

/// Builds the graph of one case; every tensor has the given type.
class CaseGraph {
 public:
  CaseGraph(const Case& golden, DataType type) : golden_(golden), builder_(golden.op), type_(type) {}

  /// Nothing where the op is not known.
  std::optional<Graph> build() {
    Results results = append_composite();
    if (results.empty()) {
      const std::optional<Tensor> y = append();
      if (!y) return std::nullopt;
      results.emplace(golden_.outputs.begin()->first, *y);
    }
    for (const auto& [name, result] : results)
      if (golden_.outputs.contains(name)) builder_.output(result, {.name = name, .type = type_});
    return builder_.finish();
  }

 private:
  /// By the names that the cases give them.
  using Results = std::map<std::string, Tensor>;

  Tensor input(const std::string& name) { return builder_.input(name, golden_.inputs.at(name).dims, type_); }
  /// Tensor{} where the case has none.
  Tensor optional_input(const std::string& name) {
    return golden_.inputs.contains(name) ? input(name) : Tensor{};
  }
  Dims optional_attribute(const std::string& name) const {
    return golden_.attributes.contains(name) ? attribute(name) : Dims{};
  }
  Dims attribute(const std::string& name) const { return dims_of(golden_.attributes.at(name)); }

  Results append_composite() {
    if (golden_.op == "softmax") return softmax();
    if (golden_.op == "norm_fwd") return norm_fwd();
    if (golden_.op == "norm_bwd") return norm_bwd();
    if (golden_.op == "resample_fwd") return {{"y", builder_.resample_fwd(input("x"), resample()).y}};
    if (golden_.op == "resample_bwd") {
      const Tensor x = input("x");
      return {{"dx", builder_.resample_bwd(input("dy"), x.dims, resample(), x)}};
    }
    if (golden_.op == "rnn_fwd") return rnn_fwd();
    if (golden_.op == "rnn_bwd") return rnn_bwd();
    if (golden_.op == "sdpa_fwd") return sdpa_fwd();
    if (golden_.op == "sdpa_bwd") return sdpa_bwd();
    return {};
  }

  Results softmax() {
    const SoftmaxResults all = builder_.softmax(
        input("x"), {.axis = golden_.attributes.at("axis"), .log = golden_.attributes.value("log", false)});
    return {{"y", all.y}, {"max", all.max}, {"sum_exp", all.sum_exp}, {"logsumexp", all.logsumexp}};
  }

  SdpaOptions sdpa_options() {
    SdpaOptions options;
    options.attributes.attn_scale = golden_.attributes.at("attn_scale");
    options.attributes.left_bound = golden_.attributes.value("left_bound", int64_t{-1});
    options.attributes.right_bound = golden_.attributes.value("right_bound", int64_t{-1});
    options.attributes.alibi_mask = golden_.attributes.value("alibi_mask", false);
    options.attributes.padding_mask = golden_.attributes.value("padding_mask", false);
    if (golden_.attributes.value("diagonal_alignment", "top_left") == "bottom_right")
      options.attributes.diagonal_alignment = DiagonalAlignment::bottom_right;
    options.bias = optional_input("bias");
    for (const auto& [name, length] :
         {std::pair("seq_len_q", &options.seq_len_q), std::pair("seq_len_kv", &options.seq_len_kv)})
      if (golden_.inputs.contains(name))
        *length = builder_.input(name, golden_.inputs.at(name).dims, DataType::i32);
    return options;
  }

  Results sdpa_fwd() {
    const Tensor q = input("q"), k = input("k"), v = input("v");
    const SdpaResults all = builder_.sdpa_fwd(q, k, v, sdpa_options());
    return {{"o", all.o}, {"stats", all.stats}, {"max", all.max}, {"sum_exp", all.sum_exp}};
  }

  Results sdpa_bwd() {
    const Tensor q = input("q"), k = input("k"), v = input("v"), o = input("o"), d_o = input("do");
    const SdpaGradients all = builder_.sdpa_bwd(q, k, v, o, d_o, input("stats"), sdpa_options());
    return {{"dq", all.dq}, {"dk", all.dk}, {"dv", all.dv}, {"dbias", all.dbias}, {"dsink", all.dsink}};
  }

  template <class Enum>
  Enum named(const char* attribute) const {
    for (int i = 0; i < enum_count(Enum{}); ++i)
      if (to_string(static_cast<Enum>(i)) == golden_.attributes.at(attribute).get<std::string>())
        return static_cast<Enum>(i);
    throw std::runtime_error(fmt::format("unknown {}", attribute));
  }
  NormMode norm_mode() const { return named<NormMode>("norm"); }

  ResampleOptions resample() const {
    return {.mode = named<ResampleMode>("mode"),
            .window = attribute("window"),
            .stride = attribute("stride"),
            .pre_padding = attribute("pre_padding"),
            .post_padding = attribute("post_padding")};
  }

  RnnOptions rnn() {
    return {.cell = named<RnnCell>("cell"),
            .hidden_size = golden_.attributes.at("hidden_size"),
            .layers = golden_.attributes.at("layers"),
            .bidirectional = golden_.attributes.at("bidirectional"),
            .h0 = optional_input("h0"),
            .c0 = optional_input("c0")};
  }
  std::vector<std::string> weight_names() const {
    std::vector<std::string> names;
    RnnAttributes attributes;
    attributes.layers = golden_.attributes.at("layers");
    attributes.bidirectional = golden_.attributes.at("bidirectional");
    for (const std::string_view name : attributes.weight_names()) names.emplace_back(name);
    return names;
  }
  std::vector<Tensor> weights() {
    std::vector<Tensor> tensors;
    for (const std::string& name : weight_names()) tensors.push_back(input(name));
    return tensors;
  }

  Results rnn_fwd() {
    const RnnResults all = builder_.rnn_fwd(input("x"), weights(), rnn());
    return {{"y", all.y}, {"hn", all.hn}, {"cn", all.cn}};
  }

  Results rnn_bwd() {
    const RnnGradients all = builder_.rnn_bwd(input("dy"), input("x"), weights(), rnn());
    Results results{{"dx", all.dx}, {"dh0", all.dh0}, {"dc0", all.dc0}};
    const std::vector<std::string> names = weight_names();
    for (size_t i = 0; i < names.size(); ++i) results["d_" + names[i]] = all.dweights[i];
    return results;
  }

  /// rms_norm's factor has a name of its own in the cases.
  Tensor inv_std() {
    const bool is_rms = norm_mode() == NormMode::rms_norm;
    return optional_input(is_rms ? "inv_rms" : "inv_std");
  }

  Results norm_fwd() {
    NormOptions options{.norm = norm_mode()};
    const bool infers = golden_.attributes.value("phase", "training") == "inference";
    options.phase = infers ? NormPhase::inference : NormPhase::training;
    options.epsilon = golden_.attributes.at("epsilon");
    options.momentum = golden_.attributes.value("momentum", options.momentum);
    options.axes = optional_attribute("normalized_axes");
    options.scale = optional_input("scale");
    options.bias = optional_input("bias");
    options.mean = optional_input("mean");
    options.inv_std = inv_std();
    options.prev_running_mean = optional_input("prev_running_mean");
    options.prev_running_var = optional_input("prev_running_var");
    const NormResults all = builder_.norm_fwd(input("x"), options);
    return {{"y", all.y},
            {"mean", all.mean},
            {options.norm == NormMode::rms_norm ? "inv_rms" : "inv_std", all.inv_std},
            {"next_running_mean", all.next_running_mean},
            {"next_running_var", all.next_running_var}};
  }

  Results norm_bwd() {
    NormBackwardOptions options{.norm = norm_mode()};
    options.axes = optional_attribute("normalized_axes");
    options.scale = optional_input("scale");
    options.mean = optional_input("mean");
    options.inv_std = inv_std();
    const NormGradients all = builder_.norm_bwd(input("dy"), input("x"), options);
    return {{"dx", all.dx}, {"dscale", all.dscale}, {"dbias", all.dbias}};
  }

  std::optional<Tensor> append() {
    if (golden_.op == "pointwise") return pointwise();
    if (golden_.op == "reduction") return reduction();
    if (golden_.op == "matmul") return builder_.matmul(input("a"), input("b"), {.compute = carrier(type_)});
    if (golden_.op == "conv_fprop") return builder_.conv_fprop(input("x"), input("w"), convolution());
    if (golden_.op == "conv_dgrad")
      return builder_.conv_dgrad(input("dy"), input("w"), attribute("dx_dims"), convolution());
    if (golden_.op == "conv_wgrad")
      return builder_.conv_wgrad(input("dy"), input("x"), attribute("dw_dims"), convolution());
    if (golden_.op == "reshape") return builder_.reshape(input("x"), attribute("dims"));
    if (golden_.op == "transpose") return builder_.transpose(input("x"), attribute("permutation"));
    if (golden_.op == "slice")
      return builder_.slice(input("x"), attribute("start"), attribute("limit"), attribute("step"));
    if (golden_.op == "concatenate") {
      std::vector<Tensor> parts;
      for (const auto& [name, array] : golden_.inputs) parts.push_back(input(name));
      return builder_.concatenate(parts, golden_.attributes.at("axis").get<int64_t>());
    }
    return std::nullopt;
  }

  std::optional<Tensor> pointwise() {
    const std::string mode_name = golden_.attributes.at("mode");
    PointwiseOptions options{.compute = carrier(type_)};
    options.lower_clip = golden_.attributes.value("lower_clip", options.lower_clip);
    options.upper_clip = golden_.attributes.value("upper_clip", options.upper_clip);
    options.lower_clip_slope = golden_.attributes.value("lower_clip_slope", options.lower_clip_slope);
    options.elu_alpha = golden_.attributes.value("alpha", options.elu_alpha);
    (mode_name.starts_with("softplus") ? options.softplus_beta : options.swish_beta) =
        golden_.attributes.value("beta", 1.0);
    if (mode_name == "gen_index")
      return builder_.gen_index(input("x"), golden_.attributes.at("axis").get<int64_t>());
    for (int i = 0; i < pointwise_mode_count(); ++i) {
      const auto mode = static_cast<PointwiseMode>(i);
      if (to_string(mode) == mode_name) return builder_.pointwise(mode, operands(mode), options);
    }
    return std::nullopt;
  }

  std::vector<Tensor> operands(PointwiseMode mode) {
    std::vector<Tensor> tensors;
    const std::vector<std::string> names =
        info(mode).name.ends_with("_bwd") ? std::vector<std::string>{"dy", "x"}
        : golden_.inputs.contains("x")    ? std::vector<std::string>{"x"}
                                          : std::vector<std::string>{"a", "b", "t"};
    for (const std::string& name : std::span(names).first(static_cast<size_t>(info(mode).inputs)))
      tensors.push_back(input(name));
    return tensors;
  }

  std::optional<Tensor> reduction() {
    const std::string mode_name = golden_.attributes.at("mode");
    for (int i = 0; i < reduction_mode_count(); ++i) {
      const auto mode = static_cast<ReductionMode>(i);
      if (to_string(mode) == mode_name)
        return builder_.reduce(input("x"), mode, attribute("axes"), {.compute = carrier(type_)});
    }
    return std::nullopt;
  }

  ConvOptions convolution() const {
    const bool mirrored = golden_.attributes.at("mode") == "convolution";
    return {.pre_padding = attribute("pre_padding"),
            .post_padding = attribute("post_padding"),
            .stride = attribute("stride"),
            .dilation = attribute("dilation"),
            .mode = mirrored ? ConvMode::convolution : ConvMode::cross_correlation,
            .compute = carrier(type_)};
  }

  const Case& golden_;
  GraphBuilder builder_;
  DataType type_;
};

/// One host buffer for every tensor that is not virtual; inputs filled from the case.
class Buffers {
 public:
  Buffers(const Case& golden, const Graph& graph) : graph_(graph) {
    for (const Tensor& tensor : graph.tensors) {
      owned_.emplace_back(tensor.is_virtual() ? 0 : static_cast<size_t>(tensor.bytes()));
      pointers_.push_back(tensor.is_virtual() ? nullptr : owned_.back().data());
      const auto array = golden.inputs.find(tensor.name);
      if (array == golden.inputs.end()) continue;
      for (size_t i = 0; i < array->second.data.size(); ++i)
        store_real(tensor.type, owned_.back().data(), static_cast<int64_t>(i), array->second.data[i]);
    }
  }
  std::span<void* const> pointers() const { return pointers_; }
  std::vector<Binding> bindings() const {
    std::vector<Binding> bound;
    for (size_t i = 0; i < pointers_.size(); ++i)
      if (pointers_[i] != nullptr) bound.emplace_back(graph_.tensors[i], pointers_[i]);
    return bound;
  }

  /// The largest error of an output against the case, relative to the case's largest value (1 at least).
  double error(const Case& golden) const {
    double worst = 0;
    for (const auto& [name, array] : golden.outputs) {
      const int tensor = graph_.find(name);
      double scale = 1;
      for (const double want : array.data)
        if (std::isfinite(want)) scale = std::max(scale, std::abs(want));
      if (graph_.tensors[static_cast<size_t>(tensor)].dims != array.dims)
        return std::numeric_limits<double>::infinity();
      for (size_t i = 0; i < array.data.size(); ++i) {
        const double want = array.data[i];
        const double got = load_real(graph_.tensors[static_cast<size_t>(tensor)].type,
                                     pointers_[static_cast<size_t>(tensor)], static_cast<int64_t>(i));
        if (got == want || (std::isnan(got) && std::isnan(want))) continue;
        const double difference = std::abs(got - want) / scale;
        worst =
            std::isnan(difference) ? std::numeric_limits<double>::infinity() : std::max(worst, difference);
      }
    }
    return worst;
  }

 private:
  const Graph& graph_;
  std::vector<std::vector<std::byte>> owned_;
  std::vector<void*> pointers_;
};

double oracle_error(const Case& golden, const Graph& graph) {
  const Buffers buffers(golden, graph);
  evaluate_graph(graph, buffers.pointers());
  return buffers.error(golden);
}

double plan_error(const Case& golden, const Graph& graph) {
  const Buffers buffers(golden, graph);
  const Executable executable = load(build(graph, DeviceInfo::cpu()));
  std::vector<std::byte> workspace(static_cast<size_t>(executable.workspace_bytes()) + 256);
  void* aligned = workspace.data();
  size_t space = workspace.size();
  std::align(256, static_cast<size_t>(executable.workspace_bytes()), aligned, space);
  executable.run(buffers.bindings(), aligned);
  return buffers.error(golden);
}

/// On this machine's GPU.
double gpu_error(const Case& golden, const Graph& graph) {
  cuda::make_current();
  const Buffers buffers(golden, graph);
  const Executable executable = load(build(graph, DeviceInfo::current()));
  std::vector<cuda::DeviceBuffer> device;
  std::vector<Binding> bindings;
  for (size_t i = 0; i < graph.tensors.size(); ++i) {
    const Tensor& tensor = graph.tensors[i];
    device.emplace_back(tensor.memory == Memory::device ? tensor.bytes() : 1);
    if (tensor.is_virtual()) continue;
    const bool is_scalar = tensor.is_scalar();
    if (!is_scalar) cuda::copy_to_device(device[i].get(), buffers.pointers()[i], tensor.bytes());
    bindings.emplace_back(tensor, is_scalar ? buffers.pointers()[i] : device[i].get());
  }
  const cuda::DeviceBuffer workspace(std::max<int64_t>(executable.workspace_bytes(), 1));
  executable.run(bindings, workspace.get());
  cuda::synchronize();
  for (size_t i = 0; i < graph.tensors.size(); ++i)
    if (graph.tensors[i].memory == Memory::device)
      cuda::copy_to_host(buffers.pointers()[i], device[i].get(), graph.tensors[i].bytes());
  return buffers.error(golden);
}

enum class Outcome { passed, failed, skipped };

// The cases are float64 results of another program: sums in another order differ by some 1e-15. In fp32 the
// inputs are rounded as well, and steep functions (tan, exp, products of 120 numbers) magnify that.
constexpr double kDoubleBound = 1e-12, kFloatBound = 2e-5;

Case read_case(const std::filesystem::path& file) {
  std::ifstream stream(file);
  const json content = json::parse(stream);
  return {content["op"], content["attrs"], arrays_of(content["inputs"]), arrays_of(content["outputs"])};
}

Outcome skipped(const std::string& name, const Case& golden) {
  fmt::print("skipped {}: op '{}' is not known\n", name, golden.op);
  return Outcome::skipped;
}

Outcome run_case(const std::filesystem::path& file) {
  const Case golden = read_case(file);
  const std::string name = file.stem().string();
  const std::optional<Graph> wide = CaseGraph(golden, DataType::f64).build();
  if (!wide) return skipped(name, golden);
  const Graph narrow = *CaseGraph(golden, DataType::f32).build();
  const double oracle = oracle_error(golden, *wide);
  const double plan64 = plan_error(golden, *wide);
  const double plan32 = plan_error(golden, narrow);
  const bool right = oracle <= kDoubleBound && plan64 <= kDoubleBound && plan32 <= kFloatBound;
  fmt::print("{} {}: oracle {:.1e}, cpu fp64 {:.1e}, cpu fp32 {:.1e}\n", right ? "passed" : "FAILED", name,
             oracle, plan64, plan32);
  return right ? Outcome::passed : Outcome::failed;
}

/// Planned for a device in three types, and run where it is this machine's GPU.
Outcome plan_case(const std::filesystem::path& file, const DeviceInfo& device) {
  const Case golden = read_case(file);
  const std::string name = file.stem().string();
  std::optional<Graph> narrow;
  for (const DataType type : {DataType::f16, DataType::f64, DataType::f32}) {
    narrow = CaseGraph(golden, type).build();
    if (!narrow) return skipped(name, golden);
    kernels(build(*narrow, device, {.compile = false}));
  }
  if (!cuda::available() || DeviceInfo::current().name != device.name) return Outcome::passed;
  const double error = gpu_error(golden, *narrow);
  const bool right = error <= kFloatBound;
  fmt::print("{} {}: fp32 {:.1e}\n", right ? "passed" : "FAILED", name, error);
  return right ? Outcome::passed : Outcome::failed;
}

int run_all(const std::filesystem::path& folder, const std::optional<DeviceInfo>& device) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().extension() == ".json") files.push_back(entry.path());
  std::ranges::sort(files);
  std::map<Outcome, int> counts;
  for (const auto& file : files) {
    try {
      ++counts[device ? plan_case(file, *device) : run_case(file)];
    } catch (const std::exception& error) {
      fmt::print("FAILED {}: {}\n", file.stem().string(), error.what());
      ++counts[Outcome::failed];
    }
  }
  fmt::print("{} passed, {} failed, {} skipped\n", counts[Outcome::passed], counts[Outcome::failed],
             counts[Outcome::skipped]);
  return counts[Outcome::failed] == 0 && counts[Outcome::passed] > 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const bool has_device = argc == 4 && std::string_view(argv[2]) == "--device";
  if ((argc != 2 && !has_device) || !std::filesystem::is_directory(argv[1])) {
    fmt::print("usage: golden_test DIR [--device NAME]\n");
    return 2;
  }
  return run_all(argv[1], has_device ? std::optional(DeviceInfo::named(argv[3])) : std::nullopt);
}
