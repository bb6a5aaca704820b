// Owns `fusor doctor` and `fusor devices`: what this machine has, what it lacks, and what that means.
#include <algorithm>
#include <filesystem>

#include "codegen/cuda_driver.h"
#include "codegen/kernel_cache.h"
#include "codegen/nvrtc.h"
#include "core/environment.h"
#include "core/fail.h"
#include "core/words.h"
#include "serialization/serialization.h"
#include "tools/commands.h"
#include "tools/print.h"

namespace fusor::command {

namespace {

struct Problem {
  std::string what;
  std::string means;
};

struct Library {
  std::string version, path;  ///< empty where it cannot be used
};

struct Cache {
  std::string folder;  ///< empty: switched off
  int64_t kernels = 0;
  int64_t bytes = 0;
};

struct Findings {
  bool gpu = false;
  std::vector<Problem> remarks;  ///< nothing to fix
  Library driver, nvrtc;
  std::vector<DeviceInfo> devices;
  std::vector<int> targets;
  Cache cache;
  std::vector<Problem> problems;
};

void look_at_driver(Findings& found) {
  std::string problem;
  found.gpu = cuda::available(&problem);
  if (!found.gpu) {
    // A machine without a GPU is healthy; one with a GPU that cannot be used, or a driver that was asked for,
    // is not.
    const bool is_broken = environment::libcuda() || std::filesystem::exists("/dev/nvidiactl");
    (is_broken ? found.problems : found.remarks)
        .push_back({"no GPU: " + problem,
                    "graphs run on the CPU; plans and kernels for any GPU can still be made with --device"});
    return;
  }
  found.driver = {cuda::driver_version(), cuda::library_path()};
  for (int i = 0; i < cuda::device_count(); ++i) found.devices.push_back(cuda::describe(i));
}

void look_at_nvrtc(Findings& found) {
  std::string problem;
  if (!nvrtc::available(&problem)) {
    found.problems.push_back({"no NVRTC: " + problem,
                              "no new kernel can be compiled: GPU plans load only where their kernels are in "
                              "the cache. Install the CUDA "
                              "toolkit 12.8 or later, or set FUSOR_CUDA_ROOT or FUSOR_LIBNVRTC"});
    return;
  }
  found.nvrtc = {nvrtc::version(), nvrtc::library_path()};
  found.targets = nvrtc::targets();
  for (const DeviceInfo& device : found.devices)
    if (std::ranges::find(found.targets, device.compute_capability) == found.targets.end())
      found.problems.push_back(
          {fmt::format("NVRTC {} does not compile for sm_{} ({})", found.nvrtc.version,
                       device.compute_capability, device.name),
           "this GPU cannot be used with it; install another version of the CUDA toolkit"});
}

void look_at_cache(Findings& found) {
  found.cache.folder = environment::cache_dir().value_or("");
  if (found.cache.folder.empty()) {
    found.problems.push_back(
        {"no folder for compiled kernels (FUSOR_CACHE_DIR is empty, or there is no HOME)",
         "every process compiles its kernels again"});
    return;
  }
  if (const std::string problem = cache_problem(); !problem.empty())
    found.problems.push_back({"the cache cannot be written: " + problem,
                              "every process compiles its kernels again; set FUSOR_CACHE_DIR"});
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(found.cache.folder, ignored)) {
    if (entry.path().extension() == ".cubin") ++found.cache.kernels;
    const auto bytes = entry.file_size(ignored);
    if (!ignored) found.cache.bytes += static_cast<int64_t>(bytes);
  }
}

Findings look() {
  Findings found;
  look_at_driver(found);
  look_at_nvrtc(found);
  look_at_cache(found);
  return found;
}

std::string target_list(const std::vector<int>& targets) {
  std::string list;
  for (const int target : targets) list += fmt::format("{}sm_{}", list.empty() ? "" : " ", target);
  return list;
}

std::string findings_text(const Findings& found) {
  const DeviceInfo cpu = DeviceInfo::cpu();
  std::string text = fmt::format("fusor   {}\n", kLibraryVersion);
  text += fmt::format("CPU     {} cores, {}, {}\n", cpu.sm_count, cpu.architecture,
                      words::bytes(cpu.memory_bytes));
  if (found.gpu) text += fmt::format("driver  CUDA {}, {}\n", found.driver.version, found.driver.path);
  for (size_t i = 0; i < found.devices.size(); ++i) {
    const DeviceInfo& device = found.devices[i];
    text += fmt::format("GPU {}   {}, sm_{}, {} multiprocessors, {}\n", i, device.name,
                        device.compute_capability, device.sm_count, words::bytes(device.memory_bytes));
  }
  if (!found.nvrtc.version.empty())
    text += fmt::format("NVRTC   {}, {}\n        compiles for {}\n", found.nvrtc.version, found.nvrtc.path,
                        target_list(found.targets));
  if (!found.cache.folder.empty())
    text += fmt::format("cache   {}: {} kernels, {} of at most {}\n", found.cache.folder, found.cache.kernels,
                        words::bytes(found.cache.bytes), words::bytes(environment::cache_limit_bytes()));
  for (const Problem& problem : found.problems)
    text += fmt::format("missing: {}\n  this means: {}\n", problem.what, problem.means);
  for (const Problem& remark : found.remarks)
    text += fmt::format("{}\n  this means: {}\n", remark.what, remark.means);
  return text + (found.problems.empty() ? "nothing needs fixing\n" : "");
}

Report library_report(const Library& library) {
  return Report::object().set("version", library.version).set("path", library.path);
}

Report problems_report(const std::vector<Problem>& problems) {
  Report list = Report::list();
  for (const Problem& problem : problems)
    list.add(Report::object().set("what", problem.what).set("means", problem.means));
  return list;
}

Report findings_report(const Findings& found) {
  Report devices = Report::list(), targets = Report::list();
  for (const DeviceInfo& device : found.devices) devices.add(Report::object().set_fields(device));
  for (const int target : found.targets) targets.add(fmt::format("sm_{}", target));
  Report report = Report::object();
  report.set("library", kLibraryVersion).set("gpu", found.gpu);
  report.set("driver", library_report(found.driver)).set("devices", std::move(devices));
  report.set("nvrtc", library_report(found.nvrtc).set("targets", std::move(targets)));
  report.set("cache", Report::object()
                          .set("folder", found.cache.folder)
                          .set("kernels", found.cache.kernels)
                          .set("bytes", found.cache.bytes)
                          .set("limit_bytes", environment::cache_limit_bytes()));
  report.set("cpu", Report::object().set_fields(DeviceInfo::cpu()));
  return report.set("problems", problems_report(found.problems))
      .set("remarks", problems_report(found.remarks));
}

std::string device_line(const DeviceInfo& device) {
  return fmt::format("{:<10} {:<10} {:<8} {:>4} {:>7.2f} {:>9.0f} {:>9.0f}  {}\n", device.name,
                     device.architecture,
                     device.is_cpu() ? "-" : fmt::format("sm_{}", device.compute_capability), device.sm_count,
                     device.dram_bytes_per_s * 1e-12, device.fp32_flops * 1e-12,
                     device.tensor_flops_16 * 1e-12, device.source);
}

}  // namespace

int doctor(const Options& options) {
  const Findings found = look();
  if (options.json)
    print(findings_report(found));
  else
    print(findings_text(found));
  return found.problems.empty() ? 0 : kMachineLacks;
}

int devices(const Options& options) {
  const DeviceInfo current = DeviceInfo::current();
  if (options.json) {
    Report profiles = Report::list();
    for (const DeviceInfo& profile : DeviceInfo::profiles())
      profiles.add(Report::object().set_fields(profile));
    print(Report::object()
              .set("profiles", std::move(profiles))
              .set("current", Report::object().set_fields(current))
              .set("cpu", Report::object().set_fields(DeviceInfo::cpu())));
    return 0;
  }
  std::string text = fmt::format("{:<10} {:<10} {:<8} {:>4} {:>7} {:>9} {:>9}  {}\n", "name", "generation",
                                 "target", "SMs", "TB/s", "fp32", "16-bit", "source");
  for (const DeviceInfo& profile : DeviceInfo::profiles()) text += device_line(profile);
  text += "fp32 and 16-bit products are in TFLOP/s\nthis machine (current):\n" + device_line(current);
  if (!current.is_cpu()) text += device_line(DeviceInfo::cpu());
  print(text);
  return 0;
}

}  // namespace fusor::command
