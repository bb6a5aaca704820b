// Owns the calls into NVRTC.
#include "codegen/nvrtc.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <filesystem>

#include "codegen/device_files.h"
#include "codegen/shared_library.h"
#include "core/environment.h"
#include "core/fail.h"

#ifdef FUSOR_WITH_CUDA
#include <nvrtc.h>
#endif

namespace fusor::nvrtc {

namespace {

// Without --fmad=false the compiler would fuse a multiplication and an addition only where they meet in one
// kernel, and results would depend on the partition; device code says fma where it means it.
constexpr std::array kLanguageOptions = {"--std=c++17", "--fmad=false", "--ptxas-options=-v"};

// An embedded device file with the terminators that C interfaces want.
struct TextFile {
  std::string name;
  std::string text;
};

const std::vector<TextFile>& text_files() {
  // Never destroyed: threads may compile while the process ends.
  static const std::vector<TextFile>& files = *[] {
    auto* const copies = new std::vector<TextFile>;
    for (const DeviceFile& file : device_files())
      copies->push_back({std::string(file.name), std::string(file.text)});
    return copies;
  }();
  return files;
}

const TextFile& root_file(std::string_view root) {
  const std::string name = fmt::format("codegen/device/{}", root);
  const auto found = std::ranges::find(text_files(), name, &TextFile::name);
  if (found == text_files().end()) fail(ErrorKind::internal, "no device file '{}' is embedded", name);
  return *found;
}

}  // namespace

std::vector<std::string> language_options(const std::string& target) {
  std::vector<std::string> all = {"--gpu-architecture=" + target};
  all.insert(all.end(), kLanguageOptions.begin(), kLanguageOptions.end());
  return all;
}

std::vector<std::string> options(const std::string& target) {
  std::vector<std::string> all = language_options(target);
  // Leaves out NVRTC's own declarations for textures and the runtime: several milliseconds of every
  // compilation.
  all.emplace_back("--minimal");
  return all;
}

std::string readable_source(std::string_view root, const std::string& generated_header,
                            const std::string& target) {
  const std::string include = fmt::format("#include \"{}\"", kGeneratedHeader);
  std::string text = root_file(root).text;
  const size_t at = text.find(include);
  if (at != std::string::npos) text.replace(at, include.size(), generated_header);
  return fmt::format(
      "// codegen/device/{} with its generated header written out. To compile it alone, in fusor's folder:\n"
      "//   nvcc -x cu -cubin -I. {} FILE\n{}",
      root, fmt::join(language_options(target), " "), text);
}

#ifdef FUSOR_WITH_CUDA

namespace {

namespace fs = std::filesystem;

// The first with every target and instruction form that the device code uses (sm_100 and later).
constexpr int kOldestMajor = 12;
constexpr int kOldestMinor = 8;
constexpr std::array kSonames = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};

struct Library {
  SharedLibrary file;
  int major = 0;
  int minor = 0;
  std::vector<int> targets;
  decltype(::nvrtcVersion)* version = nullptr;
  decltype(::nvrtcGetErrorString)* error_string = nullptr;
  decltype(::nvrtcGetNumSupportedArchs)* target_count = nullptr;
  decltype(::nvrtcGetSupportedArchs)* supported_targets = nullptr;
  decltype(::nvrtcCreateProgram)* create_program = nullptr;
  decltype(::nvrtcDestroyProgram)* destroy_program = nullptr;
  decltype(::nvrtcCompileProgram)* compile_program = nullptr;
  decltype(::nvrtcGetProgramLogSize)* log_size = nullptr;
  decltype(::nvrtcGetProgramLog)* log = nullptr;
  decltype(::nvrtcGetCUBINSize)* cubin_size = nullptr;
  decltype(::nvrtcGetCUBIN)* cubin = nullptr;

  bool find_functions(const SharedLibrary& from) {
    return from.find(version, "nvrtcVersion") && from.find(error_string, "nvrtcGetErrorString") &&
           from.find(target_count, "nvrtcGetNumSupportedArchs") &&
           from.find(supported_targets, "nvrtcGetSupportedArchs") &&
           from.find(create_program, "nvrtcCreateProgram") &&
           from.find(destroy_program, "nvrtcDestroyProgram") &&
           from.find(compile_program, "nvrtcCompileProgram") &&
           from.find(log_size, "nvrtcGetProgramLogSize") && from.find(log, "nvrtcGetProgramLog") &&
           from.find(cubin_size, "nvrtcGetCUBINSize") && from.find(cubin, "nvrtcGetCUBIN");
  }
};

// NVRTC's files in the folders that a toolkit (lib64, targets/*/lib) or a folder of wheels (nvidia/*/lib)
// has. Where there is none, the file that should be there: opening it says so.
std::vector<std::string> files_below(const std::string& root) {
  std::vector<fs::path> folders = {fs::path(root) / "lib64", fs::path(root) / "lib"};
  for (const char* parent : {"targets", "nvidia"}) {
    std::error_code error;
    std::vector<fs::path> found;
    for (const auto& entry : fs::directory_iterator(fs::path(root) / parent, error))
      found.push_back(entry.path() / "lib");
    std::ranges::sort(found, std::greater<>());
    folders.insert(folders.end(), found.begin(), found.end());
  }
  std::vector<std::string> files;
  for (const char* soname : kSonames)
    for (const fs::path& folder : folders) {
      std::error_code error;
      if (fs::exists(folder / soname, error)) files.push_back((folder / soname).string());
    }
  if (files.empty()) files.push_back((folders.front() / kSonames.back()).string());
  return files;
}

std::vector<std::string> candidates() {
  if (const auto chosen = environment::libnvrtc()) return {*chosen};
  std::vector<std::string> all;
  const auto append = [&](const std::vector<std::string>& files) {
    all.insert(all.end(), files.begin(), files.end());
  };
  if (const auto root = environment::cuda_root()) append(files_below(*root));
  append(files_below(FUSOR_CUDA_FOUND_ROOT));
  all.insert(all.end(), kSonames.begin(), kSonames.end());
  append(files_below("/usr/local/cuda"));
  std::vector<std::string> distinct;
  for (const std::string& candidate : all)
    if (std::ranges::find(distinct, candidate) == distinct.end()) distinct.push_back(candidate);
  return distinct;
}

// NVRTC opens its builtins by bare name, which the loader does not look for beside NVRTC; once loaded from
// there, it is found by that name, and is surely the one that belongs to this NVRTC.
void load_builtins(const Library& library) {
  const fs::path beside = fs::path(library.file.path()).parent_path() /
                          fmt::format("libnvrtc-builtins.so.{}.{}", library.major, library.minor);
  const std::array names = {beside.string()};
  SharedLibrary::open_first("NVRTC's builtins", names, [](const SharedLibrary&) { return std::string(); });
}

Library open_library() {
  Library library;
  const auto objection = [&](const SharedLibrary& file) -> std::string {
    if (!library.find_functions(file)) return "lacks functions of NVRTC 11.2 and newer";
    if (library.version(&library.major, &library.minor) != NVRTC_SUCCESS) return "does not say its version";
    if (std::pair(library.major, library.minor) >= std::pair(kOldestMajor, kOldestMinor)) return {};
    return fmt::format("is NVRTC {}.{}, and {}.{} or newer is needed", library.major, library.minor,
                       kOldestMajor, kOldestMinor);
  };
  library.file = SharedLibrary::open_first("NVRTC", candidates(), objection);
  if (!library.file) return library;
  load_builtins(library);
  int count = 0;
  if (library.target_count(&count) == NVRTC_SUCCESS) {
    library.targets.resize(static_cast<size_t>(count));
    if (library.supported_targets(library.targets.data()) != NVRTC_SUCCESS) library.targets.clear();
  }
  return library;
}

const Library& library_or_none() {
  static const Library library = open_library();
  return library;
}

const Library& library() {
  const Library& found = library_or_none();
  if (!found.file)
    fail(ErrorKind::missing, "{}; FUSOR_LIBNVRTC names the file, FUSOR_CUDA_ROOT a toolkit",
         found.file.problem());
  return found;
}

void check(nvrtcResult result, const char* what) {
  if (result != NVRTC_SUCCESS)
    fail(ErrorKind::internal, "NVRTC {} cannot {}: {}", version(), what, library().error_string(result));
}

void check_target(const std::string& target) {
  int capability = 0;
  const char* digits = target.data() + std::min<size_t>(target.size(), 3);
  std::from_chars(digits, target.data() + target.size(), capability);
  const std::vector<int>& known = library().targets;
  if (!target.starts_with("sm_") || std::ranges::find(known, capability) == known.end())
    fail(ErrorKind::missing, "NVRTC {} does not compile for '{}'; it knows sm_{}", version(), target,
         fmt::join(known, ", sm_"));
}

// One program in NVRTC, destroyed with this.
class Program {
 public:
  Program(std::string_view root, const std::string& generated_header) {
    const std::string generated_name(kGeneratedHeader);
    std::vector<const char*> names = {generated_name.c_str()};
    std::vector<const char*> texts = {generated_header.c_str()};
    for (const TextFile& file : text_files()) {
      names.push_back(file.name.c_str());
      texts.push_back(file.text.c_str());
    }
    create(root_file(root), names, texts);
  }
  explicit Program(const TextFile& alone) { create(alone, {}, {}); }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  ~Program() { library().destroy_program(&program_); }

  nvrtcResult compile(const std::vector<std::string>& arguments) {
    std::vector<const char*> pointers;
    pointers.reserve(arguments.size());
    for (const std::string& argument : arguments) pointers.push_back(argument.c_str());
    return library().compile_program(program_, static_cast<int>(pointers.size()), pointers.data());
  }

  std::string log() const {
    size_t size = 0;
    check(library().log_size(program_, &size), "give its log's size");
    std::string text(size, '\0');
    check(library().log(program_, text.data()), "give its log");
    while (!text.empty() && (text.back() == '\0' || text.back() == '\n')) text.pop_back();
    return text;
  }

  std::string cubin() const {
    size_t size = 0;
    check(library().cubin_size(program_, &size), "give the cubin's size");
    std::string bytes(size, '\0');
    check(library().cubin(program_, bytes.data()), "give the cubin");
    return bytes;
  }

 private:
  void create(const TextFile& file, const std::vector<const char*>& names,
              const std::vector<const char*>& texts) {
    check(library().create_program(&program_, file.text.c_str(), file.name.c_str(),
                                   static_cast<int>(names.size()), texts.data(), names.data()),
          "create a program");
  }

  nvrtcProgram program_ = nullptr;
};

std::string first_lines(const std::string& text, int lines) {
  size_t end = 0;
  for (int i = 0; i < lines && end != std::string::npos; ++i) end = text.find('\n', end + 1);
  return end == std::string::npos ? text : text.substr(0, end) + "\n...";
}

}  // namespace

bool available(std::string* problem) {
  const Library& found = library_or_none();
  if (problem != nullptr) *problem = found.file.problem();
  return static_cast<bool>(found.file);
}

std::string version() { return fmt::format("{}.{}", library().major, library().minor); }
std::string library_path() { return library().file.path(); }
std::vector<int> targets() { return library().targets; }

namespace {

Compilation finish(Program& program, const std::vector<std::string>& all, const std::string& about,
                   std::chrono::steady_clock::time_point start) {
  const nvrtcResult result = program.compile(all);
  Compilation done;
  done.log = program.log();
  if (result != NVRTC_SUCCESS)
    fail(ErrorKind::internal, "NVRTC {} does not compile {} ({}):\n{}", version(), about,
         library().error_string(result), first_lines(done.log, 24));
  done.cubin = program.cubin();
  done.milliseconds =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  return done;
}

}  // namespace

Compilation compile(std::string_view root, const std::string& generated_header, const std::string& target) {
  check_target(target);
  const auto start = std::chrono::steady_clock::now();
  Program program(root, generated_header);
  std::vector<std::string> all = options(target);
  // On a machine with a driver NVRTC keeps a cache of its own from 12.9 on, which swallows the log and hides
  // what a compilation costs. Kernels have fusor's.
  if (library().major > 12 || library().minor >= 9) all.emplace_back("--no-cache");
  return finish(program, all, fmt::format("{} for {}", root, target), start);
}

Compilation compile_alone(const std::string& text, const std::vector<std::string>& options) {
  const auto start = std::chrono::steady_clock::now();
  Program program(TextFile{"kernel.cu", text});
  return finish(program, options, "a text", start);
}

#endif  // FUSOR_WITH_CUDA

}  // namespace fusor::nvrtc
