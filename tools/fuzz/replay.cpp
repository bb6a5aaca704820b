// Owns the text of requests, answers and replaying commands.
#include "tools/fuzz/replay.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <sstream>

#include "serialization/serialization.h"
#include "tools/fuzz/random_graph.h"

namespace fusor::fuzz {

namespace {

std::string text_of(const Verdict& verdict) {
  return fmt::format("{}\n{}\n{}", static_cast<int>(verdict.kind), verdict.key, verdict.text);
}

Verdict answer(const std::string& request, const Job& job, uint64_t seed, const Limits& limits) {
  std::istringstream words(request);
  std::string kind;
  words >> kind;
  if (kind == "index") {
    int64_t index = 0;
    words >> index;
    try {
      return check(random_graph(seed, index, limits), random_variant(seed, index, job.device), job);
    } catch (const std::exception& error) {
      const std::string text = fmt::format("the generator: {}", error.what());
      return {Verdict::Kind::refused, text, key_of(text)};
    }
  }
  Variant variant;
  size_t forbidden = 0;
  words >> variant.candidate >> variant.input_seed >> forbidden;
  variant.forbid.resize(forbidden);
  for (std::string& engine : variant.forbid) words >> engine;
  return check(graph_from_json(request.substr(request.find('\n') + 1)), variant, job);
}

}  // namespace

Worker checking_worker(const Job& job, uint64_t seed, const Limits& limits) {
  return Worker([=](const std::string& request) { return text_of(answer(request, job, seed, limits)); });
}

std::string request_for(int64_t index) { return fmt::format("index {}", index); }

std::string request_for(const Graph& graph, const Variant& variant) {
  return fmt::format("graph {} {} {} {}\n{}", variant.candidate, variant.input_seed, variant.forbid.size(),
                     fmt::join(variant.forbid, " "), to_json(graph));
}

Verdict verdict_of(bool answered, const std::string& answer) {
  if (!answered) return {Verdict::Kind::crashed, answer, answer};
  const size_t kind_end = answer.find('\n'), key_end = answer.find('\n', kind_end + 1);
  return {static_cast<Verdict::Kind>(std::stoi(answer)), answer.substr(key_end + 1),
          answer.substr(kind_end + 1, key_end - kind_end - 1)};
}

std::string job_words(const Job& job) {
  return fmt::format("--device {}{}{}{}", job.device.name, job.plans_only ? " --plan-only" : "",
                     job.compiles ? " --compile" : "", job.on_cpu ? " --on-cpu" : "");
}

std::string replay_command(const Job& job, uint64_t seed, int64_t index, const Limits& limits) {
  return fmt::format("fusor fuzz {} --seed {} --index {} --runs 1 --ops {} --elements {}", job_words(job),
                     seed, index, limits.ops, limits.elements);
}

std::string replay_command(const Job& job, const std::string& file, const Variant& variant) {
  std::string line = fmt::format("fusor fuzz {} {} --inputs {}", file, job_words(job), variant.input_seed);
  if (variant.candidate != 0) line += fmt::format(" --candidate {}", variant.candidate);
  for (const std::string& engine : variant.forbid) line += fmt::format(" --forbid {}", engine);
  return line;
}

}  // namespace fusor::fuzz
