// Owns loaded cubins and the launches of their kernels.
#include "codegen/cuda_driver.h"

#ifdef FUSOR_WITH_CUDA

#include <array>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>

#include "codegen/driver/table.h"
#include "codegen/text/entry_name.h"

namespace fusor::cuda {

namespace {

// Lets every block of a launch have this much dynamic shared memory on a device.
void allow_shared_bytes(CUkernel kernel, const std::string& entry, int64_t bytes, CUdevice device) {
  check(driver().cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                      static_cast<int>(bytes), kernel, device),
        "give kernel '{}' {} bytes of shared memory a block (the device allows {})", entry, bytes,
        attribute(device, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN));
}

void allow_large_clusters(CUkernel kernel, const std::string& entry, CUdevice device) {
  check(driver().cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1, kernel, device),
        "allow kernel '{}' clusters of more than {} blocks", entry, kPortableCluster);
}

// A loaded cubin. Launches that share a kernel may want different amounts of shared memory: what is allowed
// only grows.
class Module {
 public:
  /// Called `name` where there is one and it can be.
  Module(const std::string& cubin, const std::string& entry, const std::string& name) {
    if (!name.empty() && load_renamed(cubin, entry, name)) return;
    check(driver().cuLibraryLoadData(&library_, cubin.data(), nullptr, nullptr, 0, nullptr, nullptr, 0),
          "load the cubin of kernel '{}' ({} bytes)", entry, cubin.size());
  }
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;
  ~Module() {
    const BesideCaptures beside;
    driver().cuLibraryUnload(library_);
  }

  CUkernel kernel(const std::string& entry, int64_t shared_bytes, bool large_clusters) {
    const std::scoped_lock lock(mutex_);
    Entry& found = entries_[entry];
    if (found.kernel == nullptr)
      check(driver().cuLibraryGetKernel(&found.kernel, library_, entry.c_str()),
            "find kernel '{}' in its cubin", entry);
    const CUdevice device = current_device();
    int64_t& allowed = found.allowed.try_emplace(device, kAlwaysAllowed).first->second;
    if (shared_bytes > allowed) {
      allow_shared_bytes(found.kernel, entry, shared_bytes, device);
      allowed = shared_bytes;
    }
    if (large_clusters && !found.with_large_clusters.contains(device)) {
      allow_large_clusters(found.kernel, entry, device);
      found.with_large_clusters.insert(device);
    }
    return found.kernel;
  }

 private:
  // A kernel's static arrays, of up to 40 KiB, take a part of the 48 KiB that every block may have.
  static constexpr int64_t kAlwaysAllowed = 8 << 10;

  // A driver that refuses the renamed cubin is given the one that was compiled.
  bool load_renamed(const std::string& cubin, const std::string& entry, const std::string& name) {
    const std::optional<std::string> renamed = with_entry_named(cubin, entry, name);
    if (!renamed) return false;
    if (driver().cuLibraryLoadData(&library_, renamed->data(), nullptr, nullptr, 0, nullptr, nullptr, 0) !=
        CUDA_SUCCESS)
      return false;
    if (driver().cuLibraryGetKernel(&entries_[entry].kernel, library_, name.c_str()) == CUDA_SUCCESS)
      return true;
    entries_.clear();
    driver().cuLibraryUnload(library_);
    return false;
  }

  struct Entry {
    CUkernel kernel = nullptr;
    std::map<CUdevice, int64_t> allowed;  // bytes of dynamic shared memory
    std::set<CUdevice> with_large_clusters;
  };

  CUlibrary library_ = nullptr;
  std::mutex mutex_;
  std::map<std::string, Entry> entries_;
};

using Name = std::function<std::string()>;

std::string asked(const Name& name) { return name ? name() : std::string(); }

// The modules of this process that someone holds, by key.
std::shared_ptr<Module> shared_module(const std::string& key, const std::string& cubin,
                                      const std::string& entry, const Name& name) {
  static auto& mutex = *new std::mutex;
  static auto& modules = *new std::map<std::string, std::weak_ptr<Module>>;
  const std::scoped_lock lock(mutex);
  std::weak_ptr<Module>& known = modules[key];
  if (std::shared_ptr<Module> module = known.lock()) return module;
  auto module = std::make_shared<Module>(cubin, entry, asked(name));
  known = module;
  std::erase_if(modules, [](const auto& each) { return each.second.expired(); });
  return module;
}

// A kernel that is loaded by its first launch would be loaded during a capture, where that is forbidden.
void load_into_context(CUkernel kernel, const std::string& entry) {
  CUcontext context = nullptr;
  if (driver().cuCtxGetCurrent(&context) != CUDA_SUCCESS || context == nullptr) return;
  CUfunction function = nullptr;
  check(driver().cuKernelGetFunction(&function, kernel), "load kernel '{}'", entry);
  if (driver().cuFuncLoad != nullptr) check(driver().cuFuncLoad(function), "load kernel '{}'", entry);
}

}  // namespace

Kernel Kernel::load(const std::string& cubin, const std::string& entry, int64_t shared_bytes,
                    const std::string& key, bool large_clusters, const Name& name) {
  const BesideCaptures beside;
  const std::shared_ptr<Module> module = key.empty() ? std::make_shared<Module>(cubin, entry, asked(name))
                                                     : shared_module(key, cubin, entry, name);
  Kernel loaded;
  const CUkernel kernel = module->kernel(entry, shared_bytes, large_clusters);
  load_into_context(kernel, entry);
  loaded.module_ = module;
  loaded.handle_ = kernel;
  return loaded;
}

namespace {

// Attributes that differ from a plain launch's; returns how many.
unsigned write_attributes(const LaunchShape& shape, std::array<CUlaunchAttribute, 3>& attributes) {
  unsigned count = 0;
  if (shape.cluster[0] * shape.cluster[1] * shape.cluster[2] != 1) {
    CUlaunchAttribute& cluster = attributes[count++];
    cluster.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    cluster.value.clusterDim.x = shape.cluster[0];
    cluster.value.clusterDim.y = shape.cluster[1];
    cluster.value.clusterDim.z = shape.cluster[2];
  }
  if (shape.cooperative) {
    CUlaunchAttribute& cooperative = attributes[count++];
    cooperative.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
    cooperative.value.cooperative = 1;
  }
  if (shape.programmatic) {
    CUlaunchAttribute& programmatic = attributes[count++];
    programmatic.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    programmatic.value.programmaticStreamSerializationAllowed = 1;
  }
  return count;
}

}  // namespace

void launch(void* kernel, const LaunchShape& shape, const void* arguments, size_t bytes, void* stream) {
  CUlaunchConfig config{};
  config.gridDimX = shape.grid[0];
  config.gridDimY = shape.grid[1];
  config.gridDimZ = shape.grid[2];
  config.blockDimX = shape.block[0];
  config.blockDimY = shape.block[1];
  config.blockDimZ = shape.block[2];
  config.sharedMemBytes = shape.shared_bytes;
  config.hStream = static_cast<CUstream>(stream);
  std::array<CUlaunchAttribute, 3> attributes{};
  config.attrs = attributes.data();
  config.numAttrs = write_attributes(shape, attributes);
  void* block[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, const_cast<void*>(arguments), CU_LAUNCH_PARAM_BUFFER_SIZE,
                   &bytes, CU_LAUNCH_PARAM_END};
  // A block that is aligned to more than 8 bytes does not begin where a plain one does: the driver knows
  // where. And a capture refuses cooperative launches with a block that the driver did not place.
  void* parameters[] = {const_cast<void*>(arguments)};
  const bool placed_by_driver = shape.argument_alignment > 8 || shape.cooperative;
  const auto start = [&] {
    return driver().cuLaunchKernelEx(&config, static_cast<CUfunction>(kernel),
                                     placed_by_driver ? parameters : nullptr,
                                     placed_by_driver ? nullptr : block);
  };
  CUresult result = start();
  if (result == CUDA_ERROR_INVALID_CONTEXT && adopt_context()) result = start();
  check(result,
        "launch a kernel (grid {}, block {}, cluster {}, {} bytes of shared memory, {} bytes of arguments)",
        shape.grid, shape.block, shape.cluster, shape.shared_bytes, bytes);
}

}  // namespace fusor::cuda

#endif  // FUSOR_WITH_CUDA
