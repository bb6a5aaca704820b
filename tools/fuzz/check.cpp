// Owns the steps of a check: candidates, plan, kernels, plan file, run, comparison.
#include "tools/fuzz/check.h"

#include <fmt/format.h>

#include <cctype>

#include "backend/engines/list.h"
#include "backend/executable.h"
#include "backend/planning.h"
#include "backend/verify.h"
#include "core/fail.h"
#include "core/ops/expansion.h"
#include "serialization/serialization.h"
#include "tools/fuzz/guarded_buffers.h"
#include "tools/fuzz/random.h"

namespace fusor::fuzz {

namespace {

/// Measured times of this machine must not decide what a seed tests.
const TuningTable& no_measurements() {
  static const TuningTable table;
  return table;
}

BuildOptions options_of(const Variant& variant, const Job& job) {
  BuildOptions options;
  options.forbid = variant.forbid;
  options.compile = job.compiles;
  options.tuning = &no_measurements();
  return options;
}

Plan planned(const Graph& graph, const Variant& variant, const Job& job) {
  const BuildOptions options = options_of(variant, job);
  if (variant.candidate == 0) return build(graph, job.device, options);
  const std::vector<Candidate> found = candidates(graph, job.device, options);
  return build(graph, job.device, found[static_cast<size_t>(variant.candidate) % found.size()], options);
}

/// Which engines carry the plan out: part of what a failure is.
std::string engines_of(const Plan& plan) {
  std::string text;
  for (const PlannedFusion& fusion : plan.fusions)
    text +=
        fmt::format("{}{} [{}]", text.empty() ? "" : ", ", fusion.config.engine, fmt::join(fusion.ops, " "));
  return text;
}

void expect_saved_whole(const Plan& plan) {
  const Plan read = plan_from_json(to_json(plan));
  if (read.fusions != plan.fusions || read.graph != plan.graph)
    fail(ErrorKind::internal, "the plan's file does not say the plan");
}

/// The plan's partition with the CPU device in each engine's place.
Plan on_cpu(Plan plan) {
  plan.device = DeviceInfo::cpu();
  for (PlannedFusion& fusion : plan.fusions)
    fusion.config = {
        .engine = std::string(cpu_engine().name()), .revision = cpu_engine().revision(), .knobs = {}};
  return plan;
}

void expect_same_fusions(const Plan& asked, const Plan& loaded) {
  const auto ops = [](const Plan& plan) {
    std::vector<std::vector<int>> all;
    for (const PlannedFusion& fusion : plan.fusions) all.push_back(fusion.ops);
    return all;
  };
  if (ops(asked) != ops(loaded))
    fail(ErrorKind::internal, "the CPU device planned anew: {}", fmt::join(loaded.remarks, "; "));
}

Verdict run(const Graph& graph, const Plan& plan, const Variant& variant) {
  const Executable executable = load(plan);
  expect_same_fusions(plan, executable.plan());
  GuardedBuffers buffers(graph, !plan.device.is_cpu(), executable.workspace_bytes(), variant.input_seed);
  executable.run(buffers.bindings(), buffers.workspace());
  if (!plan.device.is_cpu()) cuda::synchronize();
  buffers.fetch();
  if (const std::string damage = buffers.damage(); !damage.empty())
    return {Verdict::Kind::wrong, damage + "\nplan: " + engines_of(plan), key_of(damage)};
  VerifyReport report = verify(graph, buffers.host(), variant.input_seed, plan.notes);
  if (report.passed()) return {};
  std::erase_if(report.outputs, [](const OutputCheck& output) { return output.wrong == 0; });
  return {Verdict::Kind::wrong, to_string(report) + "plan: " + engines_of(plan), "wrong numbers"};
}

}  // namespace

Variant random_variant(uint64_t seed, int64_t index, const DeviceInfo& device) {
  Random random(seed ^ 0x5eed, static_cast<uint64_t>(index));
  Variant variant;
  variant.input_seed = random.next() % 1'000'000;
  if (random.once_in(3)) variant.candidate = random.below(16);
  if (device.is_cpu()) return variant;
  // The plain engines stay: they are what makes every graph possible.
  for (const Engine* engine : engines())
    if (engine != &elementwise_engine() && engine != &packed_engine() && engine != &direct_engine() &&
        engine != &cpu_engine() && random.once_in(10))
      variant.forbid.emplace_back(engine->name());
  return variant;
}

std::string key_of(const std::string& text) {
  std::string key;
  bool quoted = false;
  for (const char c : text) {
    if (c == '\'') quoted = !quoted;
    if (quoted || std::isdigit(static_cast<unsigned char>(c))) continue;
    key += c;
    if (c == '\n') break;
  }
  return key;
}

Verdict check(const Graph& graph, const Variant& variant, const Job& job) {
  try {
    // The CPU device has no engine for ops that others carry out whole: it takes them in steps.
    const Plan plan = planned(job.on_cpu ? expand_composites(graph) : graph, variant, job);
    expect_saved_whole(plan);
    if (job.plans_only || job.compiles) {
      kernels(plan);
      if (job.compiles) source(plan);
      return {};
    }
    return run(graph, job.on_cpu ? on_cpu(plan) : plan, variant);
  } catch (const std::exception& error) {
    return {Verdict::Kind::refused, error.what(), key_of(error.what())};
  }
}

}  // namespace fusor::fuzz
