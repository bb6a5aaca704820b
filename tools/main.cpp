// Owns the command line of fusor: its parts, their options, and what errors become.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <limits>
#include <new>
#include <optional>
#include <string>
#include <string_view>

#include "backend/user_tuning.h"
#include "core/error.h"
#include "serialization/report.h"
#include "serialization/serialization.h"
#include "tools/arguments.h"
#include "tools/commands.h"

namespace {

using fusor::command::Options;

/// A part of the command, its one function.
using Part = int (*)(const Options&);

/// What the whole text says as a number, or nothing.
template <class Number>
std::optional<Number> number_in(const std::string& text) {
  Number value{};
  const char* const end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stopped != end) return std::nullopt;
  return value;
}

/// Numbers that do not fit are refused, not clamped.
CLI::Validator whole_number(int64_t least, int64_t most) {
  return {[least, most](const std::string& text) {
            const auto value = number_in<int64_t>(text);
            if (value && *value >= least && *value <= most) return std::string();
            return fmt::format("expected an integer from {} to {}, got '{}'", least, most, text);
          },
          ""};
}

CLI::Validator positive_seconds() {
  return {[](const std::string& text) {
            const auto value = number_in<double>(text);
            if (value && std::isfinite(*value) && *value > 0) return std::string();
            return fmt::format("expected a number of seconds above 0, got '{}'", text);
          },
          ""};
}

/// An empty text stands for no option at all, which nobody means who gives it.
CLI::Validator not_empty() {
  return {[](const std::string& text) { return text.empty() ? "it is empty" : ""; }, ""};
}

constexpr int64_t kMostInt = std::numeric_limits<int>::max(),
                  kMostInt64 = std::numeric_limits<int64_t>::max();

void add_json(CLI::App& part, Options& options) {
  part.add_flag("--json", options.json, "One JSON document on standard output, errors too");
}

void add_device(CLI::App& part, Options& options) {
  part.add_option("--device", options.device,
                  "A profile (H200), architecture (hopper), target (sm_90), cpu, current, or a JSON file; "
                  "default: the plan's, else current")
      ->check(not_empty());
}

CLI::App* add_part(CLI::App& app, Part& chosen, const char* name, const char* help, Part part) {
  CLI::App* sub = app.add_subcommand(name, help);
  sub->callback([&chosen, part] { chosen = part; });
  return sub;
}

/// A part that looks at a device and may print JSON.
CLI::App* add_device_part(CLI::App& app, Options& options, Part& chosen, const char* name, const char* help,
                          Part part) {
  CLI::App* sub = add_part(app, chosen, name, help, part);
  add_device(*sub, options);
  add_json(*sub, options);
  return sub;
}

void add_file(CLI::App& part, Options& options) {
  part.add_option("FILE", options.file, "A graph or plan, as JSON; - is standard input")->required();
}

void add_build_options(CLI::App& part, Options& options) {
  part.add_option("--forbid", options.build.forbid, "An engine that must not be used; may be repeated")
      ->allow_extra_args(false)
      ->type_name("ENGINE");
  part.add_option_function<std::string>(
          "--kernels",
          [&options](const std::string& word) {
            using enum fusor::KernelChoice;
            options.build.kernels = word == "best"          ? best
                                    : word == "best_effort" ? best_effort
                                                            : only_compiled;
          },
          "Which kernels may be chosen: best (default); best_effort: compiled ones where they cost at most "
          "10 % more; only_compiled")
      ->check(CLI::IsMember({"best", "best_effort", "only_compiled"}))
      ->type_name("WHICH");
  part.add_option(
          "--max-workspace", options.build.max_workspace,
          "Most bytes of workspace; default: a quarter of the GPU's memory where a plan fits, else no limit")
      ->check(whole_number(0, kMostInt64))
      ->type_name("BYTES");
}

void add_seed(CLI::App& part, Options& options) {
  part.add_option("--seed", options.seed, "Seed of the inputs")
      ->check(whole_number(0, kMostInt64))
      ->type_name("N")
      ->capture_default_str();
}

void add_timing_options(CLI::App& part, Options& options, int64_t least_flush) {
  constexpr int64_t kMostFlush = 1 << 20;
  part.add_option("--runs", options.runs, "Timed runs of each")
      ->check(whole_number(1, kMostInt))
      ->type_name("N")
      ->capture_default_str();
  part.add_option("--flush", options.flush_mb, "MiB that are read before each run, to empty caches")
      ->check(whole_number(least_flush, kMostFlush))
      ->type_name("MIB")
      ->capture_default_str();
  add_seed(part, options);
}

void add_measure_options(CLI::App& part, Options& options) {
  part.add_option("--candidates", options.build.max_candidates, "Most candidates that are measured")
      ->check(whole_number(1, kMostInt))
      ->type_name("N")
      ->capture_default_str();
  add_timing_options(part, options, 1);
}

void add_bench(CLI::App& app, Options& options, Part& chosen) {
  CLI::App* bench = add_device_part(app, options, chosen, "bench",
                                    "Check and time the benchmark suite, one JSON document a line and case",
                                    fusor::command::bench);
  fusor::command::BenchOptions& to = options.bench;
  bench->add_option("CASES", to.cases,
                    "Ids, what ids begin with, groups, or files of cases, graphs or plans; default: all");
  add_build_options(*bench, options);
  add_measure_options(*bench, options);
  bench->add_option("--folder", to.folder, "Where the files of cases are")
      ->check(not_empty())
      ->capture_default_str();
  CLI::Option* const list = bench->add_flag("--list", to.list, "Only name the cases and their floors");
  CLI::Option* const cubins =
      bench->add_flag("--cubins", to.cubins, "Only count the kernels that 20 shapes of each case need");
  bench->add_flag("--estimates", to.estimates, "Only estimate every candidate; needs no GPU with --device")
      ->excludes(list, cubins);
  bench->add_flag("--serve", to.serve, "Time a case for each line 'ID [RUNS]' of standard input")
      ->excludes(list, cubins);
  cubins->excludes(list);
  bench->add_flag("--all-candidates", to.all_candidates, "Time every candidate, in turn");
  bench->add_flag("!--no-verify", to.verify, "Do not compare with a float64 evaluation");
  bench->add_option("--seconds", to.seconds, "Most time for a case's runs")
      ->check(positive_seconds())
      ->capture_default_str();
  bench
      ->add_option("--lock", to.lock,
                   "A file that is locked while runs are timed, for several processes at once")
      ->check(not_empty());
}

void add_tune(CLI::App& app, Options& options, Part& chosen) {
  CLI::App* tune =
      add_device_part(app, options, chosen, "tune",
                      "Measure the fusions of graphs; later plans use the times", fusor::command::tune);
  tune->add_option("GRAPHS", options.tune.graphs, "Graphs or plans, as JSON")->required();
  add_build_options(*tune, options);
  add_measure_options(*tune, options);
  tune->add_option("--budget", options.tune.budget, "Most time for everything")
      ->check(positive_seconds())
      ->type_name("SECONDS")
      ->capture_default_str();
  tune->add_flag("--again", options.tune.again, "Measure what is known already, too");
}

void add_calibrate(CLI::App& app, Options& options, Part& chosen) {
  constexpr int64_t kMostFlush = 1 << 20;
  CLI::App* calibrate =
      add_device_part(app, options, chosen, "calibrate", "Measure this machine's GPU: a profile for --device",
                      fusor::command::calibrate);
  calibrate->add_option("-o,--output", options.output, "Where the profile is saved")
      ->check(not_empty())
      ->type_name("PROFILE");
  calibrate->add_option("--runs", options.calibrate_runs, "Timed runs of each setting")
      ->check(whole_number(1, kMostInt))
      ->type_name("N")
      ->capture_default_str();
  calibrate->add_option("--flush", options.flush_mb, "MiB that are read before each run, to empty caches")
      ->check(whole_number(1, kMostFlush))
      ->type_name("MIB")
      ->capture_default_str();
}

void add_fuzz(CLI::App& app, Options& options, Part& chosen) {
  CLI::App* fuzz = add_device_part(app, options, chosen, "fuzz",
                                   "Check random graphs against a float64 evaluation", fusor::command::fuzz);
  fusor::command::FuzzOptions& to = options.fuzz;
  constexpr int64_t kMostOps = 200, kMostElements = 1 << 24, kMostThreads = 256;
  CLI::Option* const files = fuzz->add_option("GRAPHS", to.files, "Graphs to check instead, as JSON");
  fuzz->add_option("--runs", to.runs, "Number of graphs")
      ->check(whole_number(1, kMostInt))
      ->type_name("N")
      ->excludes(files)
      ->capture_default_str();
  fuzz->add_option("--seed", options.seed, "Seed of the graphs")
      ->check(whole_number(0, kMostInt64))
      ->type_name("N")
      ->capture_default_str();
  fuzz->add_option("--index", to.index, "Number of the first graph of that seed")
      ->check(whole_number(0, kMostInt))
      ->type_name("N")
      ->capture_default_str();
  CLI::Option* const plan_only =
      fuzz->add_flag("--plan-only", to.plan_only, "Plan only, for any device, and lower");
  fuzz->add_flag("--compile", to.compile, "Plan and compile the kernels, for any device")
      ->excludes(plan_only);
  fuzz->add_flag("--on-cpu", to.on_cpu, "Plan for the device, and run its fusions on the CPU")
      ->excludes(plan_only);
  fuzz->add_option("--ops", to.ops, "Most ops of a graph")
      ->check(whole_number(1, kMostOps))
      ->type_name("N")
      ->capture_default_str();
  fuzz->add_option("--elements", to.elements, "Most elements of a tensor")
      ->check(whole_number(1, kMostElements))
      ->type_name("N")
      ->capture_default_str();
  fuzz->add_option("--seconds", to.seconds, "Most time for everything; default: no limit")
      ->check(positive_seconds());
  fuzz->add_option("--timeout", to.timeout, "Most time for one graph")
      ->check(positive_seconds())
      ->capture_default_str();
  fuzz->add_option("--threads", to.threads, "Processes that check graphs")
      ->check(whole_number(1, kMostThreads))
      ->type_name("N")
      ->capture_default_str();
  fuzz->add_flag("!--no-shrink", to.shrink, "Tell failures as they are");
  fuzz->add_option("--keep", to.keep, "Folder for the graphs that fail")
      ->check(not_empty())
      ->type_name("DIR");
  fuzz->add_option("--forbid", options.build.forbid,
                   "Of GRAPHS: an engine that must not be used; may be repeated")
      ->allow_extra_args(false)
      ->type_name("ENGINE");
  fuzz->add_option("--candidate", to.candidate,
                   "Of GRAPHS: the candidate of that number, 0 (default) being the best")
      ->check(whole_number(0, kMostInt))
      ->type_name("N");
  fuzz->add_option("--inputs", to.inputs, "Of GRAPHS: seed of the inputs")
      ->check(whole_number(0, kMostInt64))
      ->type_name("N")
      ->capture_default_str();
}

void define(CLI::App& app, Options& options, Part& chosen) {
  namespace command = fusor::command;
  app.fallthrough();
  app.require_subcommand(0, 1);
  app.set_version_flag("--version", std::string(fusor::kLibraryVersion));
  add_device(app, options);
  add_json(app, options);
  app.footer("Exit codes: 0; 1 a wrong result; 2 bad input; 3 the machine lacks something.");

  CLI::App* plan = add_device_part(app, options, chosen, "plan",
                                   "Plan a graph, compile its kernels, save the plan", command::plan);
  add_file(*plan, options);
  add_build_options(*plan, options);
  plan->add_option("-o,--output", options.output, "Where the plan is saved; default: nowhere")
      ->check(not_empty())
      ->type_name("PLAN");
  plan->add_option("--candidate", options.candidate,
                   "The candidate of that number, 0 (default) being the best")
      ->check(whole_number(0, kMostInt64))
      ->type_name("N");
  plan->add_flag("!--no-compile", options.build.compile, "Leave the kernels to the first load");

  CLI::App* run = add_device_part(app, options, chosen, "run",
                                  "Run a graph or plan, on random inputs or NumPy's files", command::run);
  add_file(*run, options);
  add_build_options(*run, options);
  run->add_flag("--verify", options.verify,
                "Compare with a float64 evaluation; exit code 1 where it differs");
  run->add_option("--input", options.inputs,
                  "A tensor's elements from a file of NumPy's; may be repeated; without NAME= where there is "
                  "one input")
      ->type_name("NAME=FILE.npy");
  run->add_option(
         "--output", options.outputs,
         "Where a tensor's elements are written; may be repeated; without NAME= where there is one output")
      ->type_name("NAME=FILE.npy");
  run->add_option("--repeat", options.repeat, "Number of runs")
      ->check(whole_number(1, kMostInt))
      ->type_name("N")
      ->capture_default_str();
  add_seed(*run, options);

  CLI::App* profile =
      add_device_part(app, options, chosen, "profile",
                      "Where a run's time goes: each fusion and kernel, measured", command::profile);
  add_file(*profile, options);
  add_build_options(*profile, options);
  add_timing_options(*profile, options, 0);

  CLI::App* explain =
      add_device_part(app, options, chosen, "explain",
                      "What runs: each fusion's engine, time, bound and runner-up", command::explain);
  add_file(*explain, options);
  explain->add_flag("--all", options.all, "Every engine's answer and setting, and the prices of cuts");
  add_build_options(*explain, options);
  explain
      ->add_option("--html", options.html,
                   "Write one page that shows the graph, its fusions and what was considered")
      ->check(not_empty())
      ->type_name("FILE");
  explain->add_option("--dot", options.dot, "Write the graph by fusions in Graphviz's language")
      ->check(not_empty())
      ->type_name("FILE");
  explain->add_option("--onnx", options.onnx, "Write the graph as ONNX for viewers (Netron)")
      ->check(not_empty())
      ->type_name("FILE");

  CLI::App* source =
      add_device_part(app, options, chosen, "source", "The CUDA source of the kernels", command::source);
  add_file(*source, options);
  add_build_options(*source, options);
  source->add_option("--fusion", options.fusion, "Only the kernels of that fusion, numbered as in explain")
      ->check(whole_number(1, kMostInt))
      ->type_name("N");
  source->add_flag("--generated", options.generated,
                   "Only what was generated, without the device files around it");
  source
      ->add_option("-o,--output", options.output,
                   "A folder for the kernels, each of which compiles with the command that is printed")
      ->check(not_empty())
      ->type_name("DIR");

  CLI::App* candidates = add_device_part(app, options, chosen, "candidates",
                                         "Ways to run the graph, best first", command::candidates);
  add_file(*candidates, options);
  add_build_options(*candidates, options);

  add_bench(app, options, chosen);
  add_tune(app, options, chosen);
  add_calibrate(app, options, chosen);
  add_fuzz(app, options, chosen);

  CLI::App* engines = add_part(app, chosen, "engines",
                               "The engines: what each supports, where, and its notes", command::engines);
  engines
      ->add_option("--device", options.device,
                   "Only those that run there: a profile (H200), architecture (hopper), target (sm_90), cpu, "
                   "current, or a JSON file; default: all")
      ->check(not_empty());
  add_json(*engines, options);
  add_json(
      *add_part(app, chosen, "ops", "Every kind of op, its operands and attributes, as JSON", command::ops),
      options);
  add_json(*add_part(app, chosen, "doctor", "What this machine has and lacks, and what that means",
                     command::doctor),
           options);
  add_json(
      *add_part(app, chosen, "devices", "The device profiles, and this machine's devices", command::devices),
      options);
}

/// "plan, run, ... or devices".
std::string parts_of(const CLI::App& app) {
  std::string text;
  const auto parts = app.get_subcommands([](const CLI::App*) { return true; });
  for (const CLI::App* part : parts)
    text += (text.empty() ? "" : part == parts.back() ? " or " : ", ") + part->get_name();
  return text;
}

/// Whether --device says something to the part that was chosen.
bool looks_at_a_device(const CLI::App& app) {
  return app.get_subcommands().front()->get_option_no_throw("--device") != nullptr;
}

std::string_view name_of(fusor::ErrorKind kind) {
  switch (kind) {
    case fusor::ErrorKind::bad_input:
      return "bad_input";
    case fusor::ErrorKind::missing:
      return "missing";
    case fusor::ErrorKind::device:
      return "device";
    case fusor::ErrorKind::internal:
      return "internal";
  }
  return "internal";
}

/// The document of an error, where documents were asked for; a closed pipe cannot be told of a second error.
void print_error(std::string_view message, std::string_view kind, int code) {
  const std::string text = to_json(fusor::Report::object().set(
      "error", fusor::Report::object().set("kind", kind).set("message", message).set("exit_code", code)));
  std::fputs(text.c_str(), stdout);
}

/// One line on standard error: the lines of a longer message are joined.
int complain(std::string_view message, int code) {
  std::string line;
  for (size_t at = 0; at < message.size();) {
    const size_t end = std::min(message.find('\n', at), message.size());
    line += message.substr(at, end - at);
    at = std::min(message.find_first_not_of("\n ", end), message.size());
    if (at < message.size()) line += line.ends_with(':') ? " " : "; ";
  }
  std::fprintf(stderr, "fusor: %s\n", line.c_str());
  return code;
}

int exit_code(fusor::ErrorKind kind) {
  switch (kind) {
    case fusor::ErrorKind::bad_input:
      return fusor::command::kBadInput;
    case fusor::ErrorKind::missing:
    case fusor::ErrorKind::device:
      return fusor::command::kMachineLacks;
    case fusor::ErrorKind::internal:
      return fusor::command::kWrongResult;
  }
  return fusor::command::kWrongResult;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Plans, runs and explains fused operation graphs.", "fusor");
  Options options;
  Part chosen = nullptr;
  // Also where parsing fails: then nothing else says it.
  const bool json =
      std::any_of(argv, argv + argc, [](const char* word) { return std::string_view(word) == "--json"; });
  const auto fail_with = [&](std::string_view message, std::string_view kind, int code) {
    if (json) print_error(message, kind, code);
    return complain(message, code);
  };
  try {
    define(app, options, chosen);
    app.parse(argc, argv);
    if (chosen == nullptr)
      return fail_with(fmt::format("say what to do: {} (see --help)", parts_of(app)), "bad_input",
                       fusor::command::kBadInput);
    if (!options.device.empty() && !looks_at_a_device(app))
      return fail_with(
          fmt::format("--device: {} looks at no device", app.get_subcommands().front()->get_name()),
          "bad_input", fusor::command::kBadInput);
    const int code = chosen(options);
    if (const std::string problem = fusor::tuning_problem(); !problem.empty()) complain(problem, code);
    return code;
  } catch (const CLI::ExtrasError&) {
    return fail_with(fusor::command::unknown_argument(app), "bad_input", fusor::command::kBadInput);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    // A missing argument is the smaller mistake, and perhaps the unknown option was meant to give it.
    if (dynamic_cast<const CLI::RequiredError*>(&error) != nullptr && fusor::command::has_unknown_option(app))
      return fail_with(fusor::command::unknown_argument(app), "bad_input", fusor::command::kBadInput);
    return fail_with(error.what(), "bad_input", fusor::command::kBadInput);
  } catch (const fusor::Error& error) {
    return fail_with(error.what(), name_of(error.kind()), exit_code(error.kind()));
  } catch (const std::bad_alloc&) {
    return fail_with("not enough memory", "missing", fusor::command::kMachineLacks);
  } catch (const std::exception& error) {
    return fail_with(error.what(), "internal", fusor::command::kWrongResult);
  }
}
