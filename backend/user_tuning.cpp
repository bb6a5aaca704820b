// Owns when the user's tuning table is read and how it is added to.
#include "backend/user_tuning.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <mutex>

#include "core/environment.h"
#include "core/fail.h"
#include "serialization/serialization.h"

namespace fusor {

namespace {

namespace fs = std::filesystem;

struct Loaded {
  std::mutex mutex;
  std::string path;
  std::shared_ptr<const TuningTable> table;  ///< null: not read yet
  std::string problem;
};

Loaded& loaded() {
  static Loaded state;
  return state;
}

// Held by whoever rewrites the table, in any process: what others add meanwhile waits. Closing the file (and
// a process that dies) lets go.
class TableLock {
 public:
  explicit TableLock(const std::string& table) {
    const std::string path = table + ".lock";
    descriptor_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (descriptor_ < 0) fail(ErrorKind::missing, "{}: cannot be made: {}", path, std::strerror(errno));
    while (::flock(descriptor_, LOCK_EX) != 0) {
      if (errno == EINTR) continue;
      const int reason = errno;
      ::close(descriptor_);
      fail(ErrorKind::missing, "{}: cannot be locked: {}", path, std::strerror(reason));
    }
  }
  TableLock(const TableLock&) = delete;
  TableLock& operator=(const TableLock&) = delete;
  ~TableLock() { ::close(descriptor_); }

 private:
  int descriptor_ = -1;
};

TuningTable read_or_empty(const std::string& path, std::string& problem) {
  problem.clear();
  std::error_code error;
  if (path.empty() || !fs::exists(path, error)) return {};
  try {
    return read_tuning(path);
  } catch (const Error& damage) {
    problem = fmt::format("the tuning table is ignored: {}", damage.what());
    return {};
  }
}

// The table that is about to be written anew. One whose text cannot be read, as that of a newer library, is
// kept beside it as tuning.json.damaged. A file that cannot be opened stays where it is, and is the error.
TuningTable read_or_set_aside(const std::string& path) {
  std::error_code error;
  const bool is_there = fs::exists(path, error);
  if (error) fail(ErrorKind::missing, "{}: cannot be looked at: {}", path, error.message());
  if (!is_there) return {};
  try {
    return read_tuning(path);
  } catch (const Error& damage) {
    if (damage.kind() != ErrorKind::bad_input || ::access(path.c_str(), R_OK) != 0) throw;
    fs::rename(path, path + ".damaged", error);
    if (error) fail(ErrorKind::missing, "{}: cannot be set aside: {}", path, error.message());
    return {};
  }
}

}  // namespace

std::string user_tuning_path() {
  const auto folder = environment::cache_dir();
  return folder ? (fs::path(*folder) / "tuning.json").string() : "";
}

std::shared_ptr<const TuningTable> user_tuning() {
  const std::string path = user_tuning_path();
  Loaded& state = loaded();
  const std::scoped_lock lock(state.mutex);
  if (!state.table || state.path != path) {
    state.path = path;
    state.table = std::make_shared<const TuningTable>(read_or_empty(path, state.problem));
  }
  return state.table;
}

std::string tuning_problem() {
  Loaded& state = loaded();
  const std::scoped_lock lock(state.mutex);
  return state.problem;
}

void record_tuning(TunedFusion fusion) {
  const std::string path = user_tuning_path();
  if (path.empty())
    fail("there is no folder to keep measurements in: FUSOR_CACHE_DIR is empty, or there is no HOME");
  Loaded& state = loaded();
  const std::scoped_lock lock(state.mutex);
  std::error_code error;
  fs::create_directories(fs::path(path).parent_path(), error);
  const TableLock table_lock(path);
  TuningTable table = read_or_set_aside(path);
  table.put(std::move(fusion));
  save(table, path);
  state.path = path;
  state.problem.clear();
  state.table = std::make_shared<const TuningTable>(std::move(table));
}

}  // namespace fusor
