// Owns the keys of kernels, the memory in front of the disk, and who compiles.
#include "codegen/kernel_cache.h"

#include <atomic>
#include <filesystem>
#include <limits>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>

#include "codegen/device_files.h"
#include "codegen/disk_cache.h"
#include "codegen/nvrtc.h"
#include "codegen/text/expr_emitter.h"
#include "core/environment.h"
#include "core/fail.h"
#include "core/hash.h"
#include "core/parallel.h"

namespace fusor {

namespace {

namespace fs = std::filesystem;

struct Counters {
  std::atomic<int64_t> memory_hits{0}, disk_hits{0}, compilations{0}, damaged_entries{0};
};

Counters& counters() {
  static Counters all;
  return all;
}

// One kernel in memory. Its mutex is held while it is read or compiled: whoever asks meanwhile waits for it.
struct Slot {
  std::mutex mutex;
  std::shared_ptr<const CompiledKernel> kernel;
};

class MemoryCache {
 public:
  std::shared_ptr<Slot> slot(const std::string& key) {
    {
      const std::shared_lock lock(mutex_);
      if (const auto found = slots_.find(key); found != slots_.end()) return found->second;
    }
    const std::unique_lock lock(mutex_);
    std::shared_ptr<Slot>& slot = slots_[key];
    if (!slot) slot = std::make_shared<Slot>();
    return slot;
  }

  // False also while it is being compiled.
  bool holds(const std::string& key) {
    std::shared_ptr<Slot> slot;
    {
      const std::shared_lock lock(mutex_);
      if (const auto found = slots_.find(key); found != slots_.end()) slot = found->second;
    }
    if (!slot) return false;
    const std::unique_lock lock(slot->mutex, std::try_to_lock);
    return lock && slot->kernel;
  }

  void clear() {
    const std::unique_lock lock(mutex_);
    slots_.clear();
  }

 private:
  std::shared_mutex mutex_;
  std::unordered_map<std::string, std::shared_ptr<Slot>> slots_;
};

MemoryCache& memory() {
  static MemoryCache all;
  return all;
}

// The cache of the folder that the environment names now, or null where it names none.
std::shared_ptr<DiskCache> disk() {
  static std::mutex mutex;
  static std::shared_ptr<DiskCache> current;
  const auto folder = environment::cache_dir();
  if (!folder) return nullptr;
  const int64_t limit = environment::cache_limit_bytes();
  const std::scoped_lock lock(mutex);
  if (!current || current->folder() != *folder || current->limit_bytes() != limit)
    current = std::make_shared<DiskCache>(*folder, limit);
  return current;
}

// The folder of shipped kernels that a library sets.
struct ShippedFolder {
  std::mutex mutex;
  fs::path path;
};

ShippedFolder& shipped_folder() {
  static ShippedFolder folder;
  return folder;
}

fs::path shipped() {
  if (const auto named = environment::shipped_kernels()) return *named;
  const std::scoped_lock lock(shipped_folder().mutex);
  return shipped_folder().path;
}

// A cache that nothing is removed from.
DiskCache unlimited(const fs::path& folder) { return {folder, std::numeric_limits<int64_t>::max()}; }

// The part of keys that is the same on every machine: the device code, the emitter, the options.
Hasher portable_part(std::string_view emitter) {
  Hasher hash;
  hash.add(device_tree_hash()).add(emitter);
  for (const std::string& option : nvrtc::options("")) hash.add(option);
  return hash;
}

// The part that all keys of this process share: besides those, which NVRTC reads them. Another build of NVRTC
// under the same version has another size or time.
Hasher common_part(std::string_view emitter) {
  Hasher hash = portable_part(emitter);
  const fs::path library = nvrtc::library_path();
  hash.add(nvrtc::version()).add(library.string());
  std::error_code error;
  hash.add(fs::file_size(library, error));
  hash.add(fs::last_write_time(library, error).time_since_epoch().count());
  return hash;
}

std::string key_after(const Hasher& common, const KernelSource& source) {
  return Hasher(common).add(structure_hash(source)).add(source.root).add(source.target).hex();
}

std::shared_ptr<CompiledKernel> from_disk(DiskCache& cache, const std::string& key) {
  DiskEntry entry;
  const DiskCache::Outcome outcome = cache.read(key, entry);
  if (outcome == DiskCache::Outcome::damaged) ++counters().damaged_entries;
  if (outcome != DiskCache::Outcome::found) return nullptr;
  ++counters().disk_hits;
  return std::make_shared<CompiledKernel>(
      CompiledKernel{key, std::move(entry.cubin), {}, KernelOrigin::disk, entry.compile_ms});
}

std::shared_ptr<CompiledKernel> from_shipped(const KernelSource& source, const std::string& key) {
  const fs::path folder = shipped();
  if (folder.empty()) return nullptr;
  DiskCache cache = unlimited(folder);
  std::shared_ptr<CompiledKernel> kernel = from_disk(cache, portable_key(source));
  if (kernel) kernel->key = key;
  return kernel;
}

std::shared_ptr<CompiledKernel> compile_now(const KernelSource& source, const std::string& key,
                                            DiskCache* cache) {
  const std::string header = emit_header(source);
  nvrtc::Compilation done = nvrtc::compile(source.root, header, source.target);
  ++counters().compilations;
  if (cache != nullptr)
    cache->write(key, {done.cubin, done.milliseconds},
                 nvrtc::readable_source(source.root, header, source.target));
  return std::make_shared<CompiledKernel>(CompiledKernel{key, std::move(done.cubin), std::move(done.log),
                                                         KernelOrigin::compiled, done.milliseconds});
}

// Null also where another thread is at it.
std::shared_ptr<const CompiledKernel> in_memory_now(const std::string& key) {
  const std::shared_ptr<Slot> slot = memory().slot(key);
  const std::unique_lock lock(slot->mutex, std::try_to_lock);
  if (!lock || !slot->kernel) return nullptr;
  ++counters().memory_hits;
  return slot->kernel;
}

std::shared_ptr<const CompiledKernel> find_or_compile(const KernelSource& source, const std::string& key) {
  const std::shared_ptr<Slot> slot = memory().slot(key);
  const std::scoped_lock lock(slot->mutex);
  if (slot->kernel) {
    ++counters().memory_hits;
    return slot->kernel;
  }
  const std::shared_ptr<DiskCache> cache = disk();
  std::shared_ptr<CompiledKernel> kernel = cache ? from_disk(*cache, key) : nullptr;
  if (!kernel) kernel = from_shipped(source, key);
  if (!kernel) kernel = compile_now(source, key, cache.get());
  slot->kernel = std::make_shared<CompiledKernel>(
      CompiledKernel{key, kernel->cubin, {}, KernelOrigin::memory, kernel->compile_ms});
  return kernel;
}

}  // namespace

std::string kernel_key(const KernelSource& source) {
  static const Hasher common = common_part(emitter_revision());
  return key_after(common, source);
}

std::string kernel_key(const KernelSource& source, std::string_view emitter_revision) {
  return key_after(common_part(emitter_revision), source);
}

std::string portable_key(const KernelSource& source) {
  static const Hasher common = portable_part(emitter_revision());
  return key_after(common, source);
}

void ship_kernel(const KernelSource& source, const fs::path& folder) {
  DiskCache cache = unlimited(folder);
  const std::string key = portable_key(source);
  if (cache.has(key)) return;
  const std::shared_ptr<const CompiledKernel> kernel = compiled_kernel(source);
  const std::string problem =
      cache.write(key, {kernel->cubin, kernel->compile_ms},
                  nvrtc::readable_source(source.root, emit_header(source), source.target));
  if (!problem.empty()) fail(ErrorKind::missing, "{}", problem);
}

void set_shipped_kernels(fs::path folder) {
  const std::scoped_lock lock(shipped_folder().mutex);
  shipped_folder().path = std::move(folder);
}

bool is_compiled(const KernelSource& source) {
  const std::string key = kernel_key(source);
  if (memory().holds(key)) return true;
  if (const std::shared_ptr<DiskCache> cache = disk(); cache && cache->has(key)) return true;
  const fs::path folder = shipped();
  return !folder.empty() && unlimited(folder).has(portable_key(source));
}

std::shared_ptr<const CompiledKernel> compiled_kernel(const KernelSource& source) {
  return find_or_compile(source, kernel_key(source));
}

std::vector<std::shared_ptr<const CompiledKernel>> compiled_kernels(
    std::span<const std::shared_ptr<const KernelSource>> sources) {
  std::unordered_map<std::string, std::shared_ptr<const CompiledKernel>> kernels;
  std::vector<std::string> keys;
  std::vector<std::pair<const KernelSource*, decltype(kernels)::value_type*>> missing;
  keys.reserve(sources.size());
  for (const auto& source : sources) {
    keys.push_back(kernel_key(*source));
    const auto [place, is_new] = kernels.try_emplace(keys.back());
    if (!is_new) continue;
    place->second = in_memory_now(keys.back());
    if (!place->second) missing.emplace_back(source.get(), &*place);
  }
  parallel_for(static_cast<int64_t>(missing.size()), environment::threads(), [&](int64_t i) {
    const auto& [source, place] = missing[static_cast<size_t>(i)];
    place->second = find_or_compile(*source, place->first);
  });
  std::vector<std::shared_ptr<const CompiledKernel>> result;
  result.reserve(sources.size());
  for (const std::string& key : keys) result.push_back(kernels.at(key));
  return result;
}

CacheStats cache_stats() {
  const Counters& all = counters();
  return {all.memory_hits, all.disk_hits, all.compilations, all.damaged_entries};
}

std::string cache_problem() {
  const std::shared_ptr<DiskCache> cache = disk();
  return cache ? cache->problem() : std::string();
}

void clear_memory_cache() { memory().clear(); }

}  // namespace fusor
