// Owns reading and writing of files: whole or not at all.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "core/fail.h"
#include "core/whole_file.h"
#include "serialization/bench_cases.h"
#include "serialization/serialization.h"

namespace fusor {

namespace {

/// Beyond any graph; keeps an endless file from filling the memory.
constexpr size_t kLargestFile = size_t{256} << 20;

[[noreturn]] void fail_with_errno(const std::string& path, const char* what) {
  const int reason = errno;
  fail(kind_of(reason), "{}: cannot {}: {}", path, what, std::generic_category().message(reason));
}

class OpenFile {
 public:
  OpenFile(const std::string& path, int flags, const char* what)
      : descriptor_(::open(path.c_str(), flags | O_CLOEXEC, 0666)) {
    if (descriptor_ < 0) fail_with_errno(path, what);
  }
  ~OpenFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  int get() const { return descriptor_; }
  /// Closes now; false where the system reports a late write error.
  bool close() { return ::close(std::exchange(descriptor_, -1)) == 0; }

 private:
  int descriptor_;
};

std::string read_text(const std::string& path) {
  const OpenFile file(path, O_RDONLY, "be read");
  std::string text;
  while (true) {
    constexpr size_t kPiece = 1 << 16;
    const size_t used = text.size();
    text.resize(used + kPiece);
    const ssize_t got = ::read(file.get(), text.data() + used, kPiece);
    if (got < 0 && errno != EINTR) fail_with_errno(path, "be read");
    text.resize(used + static_cast<size_t>(std::max<ssize_t>(got, 0)));
    if (got == 0) return text;
    if (text.size() > kLargestFile) fail("{}: larger than {} MiB", path, kLargestFile >> 20);
  }
}

/// Devices and pipes (/dev/stdout) have no neighbour to rename: they are written in place.
bool is_special_file(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode);
}

void write_in_place(const std::string& path, std::string_view text) {
  OpenFile file(path, O_WRONLY, "be written");
  if (!write_all(file.get(), text) || !file.close()) fail_with_errno(path, "be written");
}

void write_text(const std::string& path, std::string_view text) {
  if (is_special_file(path)) return write_in_place(path, text);
  // Through a link to the file it names, so that the link stays a link.
  std::error_code ignored;
  const std::filesystem::path target = std::filesystem::weakly_canonical(path, ignored);
  errno = write_whole(ignored ? path : target.string(), {text}, true);
  if (errno != 0) fail_with_errno(path, "be written");
}

/// Reads `path` with `parse`, whose messages get the path in front.
template <class Parse>
auto read_file(const std::string& path, Parse parse) {
  const std::string text = read_text(path);
  try {
    return parse(std::string_view(text));
  } catch (const Error& error) {
    fail(error.kind(), "{}: {}", path, error.what());
  }
}

}  // namespace

void save(const Graph& graph, const std::string& path) { write_text(path, to_json(graph)); }
void save(const Plan& plan, const std::string& path) { write_text(path, to_json(plan)); }
void save(const TuningTable& table, const std::string& path) { write_text(path, to_json(table)); }
Graph read_graph(const std::string& path) { return read_file(path, graph_from_json); }
Plan read_plan(const std::string& path) { return read_file(path, plan_from_json); }
DeviceInfo read_device(const std::string& path) { return read_file(path, device_from_json); }
TuningTable read_tuning(const std::string& path) { return read_file(path, tuning_from_json); }
std::variant<Graph, Plan> read_graph_or_plan(const std::string& path) {
  return read_file(path, graph_or_plan_from_json);
}
std::vector<BenchCase> read_bench_cases(const std::string& path) {
  return read_file(path, bench_cases_from_json);
}

}  // namespace fusor
