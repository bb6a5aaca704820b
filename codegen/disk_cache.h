// Owns the folder of compiled kernels: one file a cubin and its source beside it, shared by any number of
// processes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

namespace fusor {

/// A cubin as it is stored.
struct DiskEntry {
  std::string cubin;
  double compile_ms = 0;
};

/// KEY.cubin (a line of text that describes the bytes after it) and KEY.cu. Both are written aside and then
/// renamed, so that a reader sees a whole file or none. Nothing here throws: a cache that cannot be used
/// costs time, not results.
class DiskCache {
 public:
  enum class Outcome { found, absent, damaged };

  /// Keys are 32 hex digits. The folder is made when it is first written to, and kept below `limit_bytes`.
  DiskCache(std::filesystem::path folder, int64_t limit_bytes);

  const std::filesystem::path& folder() const { return folder_; }
  int64_t limit_bytes() const { return limit_; }

  /// damaged: something is there under this key, and it is not a whole entry of this key.
  Outcome read(std::string_view key, DiskEntry& entry);
  /// Whether there is a file under this key, whole or not.
  bool has(std::string_view key) const;
  /// Gives the reason where it could not be written, in words; else nothing.
  std::string write(std::string_view key, const DiskEntry& entry, std::string_view source);
  /// Why the folder cannot be written, in words; empty where it can. Tries to write.
  std::string problem();

 private:
  std::filesystem::path file(std::string_view key, std::string_view extension) const;
  std::string made_folder() const;
  std::string written(std::string_view name, std::string_view head, std::string_view body) const;
  void make_room(std::string_view newest, int64_t written);

  std::filesystem::path folder_;
  int64_t limit_;
  std::mutex mutex_;
  int64_t room_ = 0;  ///< bytes that may be written before the folder is looked through again
};

}  // namespace fusor
