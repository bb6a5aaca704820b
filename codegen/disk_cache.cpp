// Owns the format of the cache's files, their safe writing, and which of them go when the folder is full.
#include "codegen/disk_cache.h"

#include <fmt/format.h>
#include <algorithm>
#include <charconv>
#include <chrono>
#include <fstream>
#include <map>
#include <system_error>
#include <vector>

#include "core/hash.h"
#include "core/whole_file.h"

namespace fusor {

namespace {

namespace fs = std::filesystem;

constexpr size_t kKeyDigits = 32;
constexpr size_t kLongestHead = 256;
// An unfinished file this old was left behind by a process that died.
constexpr auto kAbandoned = std::chrono::hours(1);

// The first line of an entry: format, key, bytes, the checksum of all of it, and the time that compiling
// took.
std::string head_line(std::string_view key, std::string_view cubin, std::string_view milliseconds) {
  const std::string checksum = Hasher().add(key).add(cubin).add(milliseconds).hex();
  return fmt::format("fusor-cubin-1 {} {} {} {}\n", key, cubin.size(), checksum, milliseconds);
}

// An entry is whole if its first line is the one that would be written for what follows.
bool parse(std::string_view key, std::string_view bytes, DiskEntry& entry) {
  const size_t line_end = bytes.substr(0, kLongestHead).find('\n');
  if (line_end == std::string_view::npos) return false;
  const std::string_view line = bytes.substr(0, line_end);
  const std::string_view milliseconds = line.substr(line.rfind(' ') + 1);
  const std::string_view cubin = bytes.substr(line_end + 1);
  if (bytes.substr(0, line_end + 1) != head_line(key, cubin, milliseconds)) return false;
  std::from_chars(milliseconds.data(), milliseconds.data() + milliseconds.size(), entry.compile_ms);
  entry.cubin = cubin;
  return true;
}

bool is_key(std::string_view text) {
  return text.size() == kKeyDigits && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// The files of one key count, and go, together.
struct Stored {
  int64_t bytes = 0;
  fs::file_time_type used = fs::file_time_type::min();
  std::vector<fs::path> files;
};

// Everything in the folder that has a cache file's name; others are not ours to count or to remove.
std::map<std::string, Stored> look_through(const fs::path& folder) {
  std::map<std::string, Stored> found;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    const std::string key = name.substr(0, kKeyDigits);
    std::error_code gone;  // another process may remove files meanwhile
    if (!is_key(key) || !at->is_regular_file(gone)) continue;
    const auto used = at->last_write_time(gone);
    const auto bytes = gone ? 0 : at->file_size(gone);
    if (gone) continue;
    const bool aside = name.find(kUnfinished) != std::string::npos;
    if (aside && used > fs::file_time_type::clock::now() - kAbandoned) continue;
    if (aside) {
      fs::remove(at->path(), gone);
      continue;
    }
    Stored& stored = found[key];
    stored.bytes += static_cast<int64_t>(bytes);
    stored.used = std::max(stored.used, used);
    stored.files.push_back(at->path());
  }
  return found;
}

}  // namespace

DiskCache::DiskCache(fs::path folder, int64_t limit_bytes)
    : folder_(std::move(folder)), limit_(limit_bytes) {}

fs::path DiskCache::file(std::string_view key, std::string_view extension) const {
  return folder_ / fmt::format("{}{}", key, extension);
}

bool DiskCache::has(std::string_view key) const {
  std::error_code error;
  return fs::is_regular_file(file(key, ".cubin"), error);
}

DiskCache::Outcome DiskCache::read(std::string_view key, DiskEntry& entry) {
  const fs::path path = file(key, ".cubin");
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) return Outcome::absent;
  if (!fs::is_regular_file(status)) return fs::exists(status) ? Outcome::damaged : Outcome::absent;
  const auto size = fs::file_size(path, error);
  std::ifstream stream(path, std::ios::binary);
  if (error || !stream) return Outcome::damaged;
  std::string bytes(std::min<size_t>(size, static_cast<size_t>(limit_)), '\0');
  stream.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (!stream || !parse(key, bytes, entry)) return Outcome::damaged;
  fs::last_write_time(path, fs::file_time_type::clock::now(), error);  // it was used: it stays longer
  return Outcome::found;
}

std::string DiskCache::write(std::string_view key, const DiskEntry& entry, std::string_view source) {
  const std::string head = head_line(key, entry.cubin, fmt::format("{:.3f}", entry.compile_ms));
  std::string problem = made_folder();
  if (problem.empty()) problem = written(fmt::format("{}.cu", key), source, {});
  if (problem.empty()) problem = written(fmt::format("{}.cubin", key), head, entry.cubin);
  if (problem.empty()) make_room(key, static_cast<int64_t>(head.size() + entry.cubin.size() + source.size()));
  return problem;
}

std::string DiskCache::problem() {
  if (std::string problem = made_folder(); !problem.empty()) return problem;
  const std::string name(kKeyDigits, '0');
  std::error_code ignored;
  std::string problem = written(name, "fusor was here\n", {});
  if (problem.empty()) fs::remove(folder_ / name, ignored);
  return problem;
}

std::string DiskCache::made_folder() const {
  std::error_code error;
  fs::create_directories(folder_, error);
  return error ? fmt::format("cannot make the folder {}: {}", folder_.string(), error.message())
               : std::string();
}

std::string DiskCache::written(std::string_view name, std::string_view head, std::string_view body) const {
  const fs::path path = folder_ / name;
  const int error = write_whole(path.string(), {head, body}, false);
  return error == 0
             ? std::string()
             : fmt::format("cannot write {}: {}", path.string(), std::generic_category().message(error));
}

void DiskCache::make_room(std::string_view newest, int64_t written) {
  const std::scoped_lock lock(mutex_);
  room_ -= written;
  if (room_ >= 0) return;
  std::map<std::string, Stored> found = look_through(folder_);
  int64_t total = 0;
  std::vector<const Stored*> oldest_first;
  for (const auto& [key, stored] : found) {
    total += stored.bytes;
    if (key != newest) oldest_first.push_back(&stored);
  }
  std::ranges::sort(oldest_first, {}, &Stored::used);
  // Some room more than is needed now, so that a full folder is not looked through at every write.
  const int64_t wanted = total > limit_ ? limit_ - limit_ / 8 : limit_;
  for (const Stored* stored : oldest_first) {
    if (total <= wanted) break;
    std::error_code error;
    for (const fs::path& path : stored->files) fs::remove(path, error);
    total -= stored->bytes;
  }
  // Other processes write too: look again before much more than this could have been added.
  room_ = std::min(limit_ - total, limit_ / 16);
}

}  // namespace fusor
