// Owns the calls into the CUDA driver.
#include "codegen/cuda_driver.h"

#ifdef FUSOR_WITH_CUDA

#include <cuda.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "codegen/shared_library.h"
#include "core/environment.h"
#include "core/fail.h"

namespace fusor::cuda {

namespace {

// The functions of the driver by the names that it exports; all are there since 12.0.
#define FUSOR_DRIVER_FUNCTIONS(F) \
  F(cuInit)                       \
  F(cuDriverGetVersion)           \
  F(cuGetErrorName)               \
  F(cuGetErrorString)             \
  F(cuDeviceGet)                  \
  F(cuDeviceGetCount)             \
  F(cuDeviceGetName)              \
  F(cuDeviceGetAttribute)         \
  F(cuDeviceTotalMem_v2)          \
  F(cuDevicePrimaryCtxRetain)     \
  F(cuDevicePrimaryCtxRelease_v2) \
  F(cuCtxSetCurrent)              \
  F(cuCtxGetCurrent)              \
  F(cuCtxGetDevice)               \
  F(cuCtxPushCurrent_v2)          \
  F(cuCtxPopCurrent_v2)           \
  F(cuLibraryLoadData)            \
  F(cuLibraryUnload)              \
  F(cuLibraryGetKernel)           \
  F(cuKernelGetFunction)          \
  F(cuKernelSetAttribute)         \
  F(cuLaunchKernelEx)             \
  F(cuMemsetD8Async)              \
  F(cuMemAlloc_v2)                \
  F(cuMemFree_v2)                 \
  F(cuMemcpyHtoD_v2)              \
  F(cuMemcpyDtoH_v2)              \
  F(cuStreamCreate)               \
  F(cuStreamDestroy_v2)           \
  F(cuStreamSynchronize)          \
  F(cuStreamIsCapturing)          \
  F(cuStreamGetCtx)               \
  F(cuStreamBeginCapture_v2)      \
  F(cuStreamEndCapture)           \
  F(cuGraphInstantiateWithFlags)  \
  F(cuGraphDestroy)               \
  F(cuGraphExecDestroy)           \
  F(cuGraphLaunch)                \
  F(cuEventCreate)                \
  F(cuEventDestroy_v2)            \
  F(cuEventRecord)                \
  F(cuEventSynchronize)           \
  F(cuEventElapsedTime)           \
  F(cuTensorMapEncodeTiled)       \
  F(cuTensorMapEncodeIm2col)      \
  F(cuTensorMapReplaceAddress)

struct Driver {
  SharedLibrary file;
  int version = 0;  // 13000 for 13.0
  int devices = 0;
  std::string problem;                                        // why nothing can be run; empty: something can
#define FUSOR_MEMBER(name) decltype(::name)* name = nullptr;  // NOLINT(bugprone-macro-parentheses): declares
  FUSOR_DRIVER_FUNCTIONS(FUSOR_MEMBER)
#undef FUSOR_MEMBER
  decltype(::cuFuncLoad)* cuFuncLoad = nullptr;  // since 12.4
  // Functions on graphs that somebody else owns: since 12.3.
  decltype(::cuStreamBeginCaptureToGraph)* cuStreamBeginCaptureToGraph = nullptr;
  decltype(::cuGraphCreate)* cuGraphCreate = nullptr;
  decltype(::cuGraphGetNodes)* cuGraphGetNodes = nullptr;
  decltype(::cuGraphNodeGetType)* cuGraphNodeGetType = nullptr;
  decltype(::cuGraphKernelNodeGetParams_v2)* cuGraphKernelNodeGetParams = nullptr;
  decltype(::cuGraphKernelNodeSetParams_v2)* cuGraphKernelNodeSetParams = nullptr;
  decltype(::cuGraphMemsetNodeGetParams)* cuGraphMemsetNodeGetParams = nullptr;
  decltype(::cuGraphMemsetNodeSetParams)* cuGraphMemsetNodeSetParams = nullptr;

  bool makes_graph_nodes = false;

  // The first function that is not there, or null.
  const char* find_functions(const SharedLibrary& from) {
    from.find(cuFuncLoad, "cuFuncLoad");
    makes_graph_nodes = from.find(cuStreamBeginCaptureToGraph, "cuStreamBeginCaptureToGraph") &&
                        from.find(cuGraphCreate, "cuGraphCreate") &&
                        from.find(cuGraphGetNodes, "cuGraphGetNodes") &&
                        from.find(cuGraphNodeGetType, "cuGraphNodeGetType") &&
                        from.find(cuGraphKernelNodeGetParams, "cuGraphKernelNodeGetParams_v2") &&
                        from.find(cuGraphKernelNodeSetParams, "cuGraphKernelNodeSetParams_v2") &&
                        from.find(cuGraphMemsetNodeGetParams, "cuGraphMemsetNodeGetParams") &&
                        from.find(cuGraphMemsetNodeSetParams, "cuGraphMemsetNodeSetParams");
#define FUSOR_FIND(name) \
  if (!from.find(name, #name)) return #name;
    FUSOR_DRIVER_FUNCTIONS(FUSOR_FIND)
#undef FUSOR_FIND
    return nullptr;
  }

  std::string words(CUresult result) const {
    const char* name = nullptr;
    const char* text = nullptr;
    if (cuGetErrorName(result, &name) != CUDA_SUCCESS || cuGetErrorString(result, &text) != CUDA_SUCCESS)
      return fmt::format("error {}", static_cast<int>(result));
    return fmt::format("{}: {}", name, text);
  }
};

#undef FUSOR_DRIVER_FUNCTIONS

// Why the opened driver cannot run anything, or nothing.
std::string start(Driver& driver) {
  if (const CUresult result = driver.cuInit(0); result != CUDA_SUCCESS)
    return fmt::format("the CUDA driver ({}) does not start: {}", driver.file.path(), driver.words(result));
  if (const CUresult result = driver.cuDeviceGetCount(&driver.devices); result != CUDA_SUCCESS)
    return fmt::format("the CUDA driver ({}) does not count its devices: {}", driver.file.path(),
                       driver.words(result));
  if (driver.devices == 0) return fmt::format("the CUDA driver ({}) has no device", driver.file.path());
  return {};
}

Driver open_driver() {
  Driver driver;
  std::vector<std::string> candidates = {"libcuda.so.1", "libcuda.so"};
  if (const auto chosen = environment::libcuda()) candidates = {*chosen};
  driver.file =
      SharedLibrary::open_first("the CUDA driver", candidates, [&](const SharedLibrary& file) -> std::string {
        const char* absent = driver.find_functions(file);
        return absent == nullptr ? std::string()
                                 : fmt::format("has no {}: driver 12.0 or newer is needed", absent);
      });
  driver.problem = driver.file.problem();
  if (!driver.file) return driver;
  driver.cuDriverGetVersion(&driver.version);
  driver.problem = start(driver);
  return driver;
}

const Driver& driver_or_none() {
  static const Driver driver = open_driver();
  return driver;
}

const Driver& driver() {
  const Driver& found = driver_or_none();
  if (!found.problem.empty()) [[unlikely]]
    fail(ErrorKind::missing, "{}", found.problem);
  return found;
}

template <class... Args>
void check(CUresult result, fmt::format_string<Args...> what, Args&&... args) {
  if (result != CUDA_SUCCESS) [[unlikely]]
    fail(ErrorKind::device, "CUDA cannot {}: {}", fmt::format(what, std::forward<Args>(args)...),
         driver().words(result));
}

CUdeviceptr address(const void* pointer) { return std::bit_cast<CUdeviceptr>(pointer); }

int attribute(CUdevice device, CUdevice_attribute which) {
  int value = 0;
  check(driver().cuDeviceGetAttribute(&value, which, device), "read attribute {} of device {}",
        static_cast<int>(which), device);
  return value;
}

std::string_view architecture_of(int capability) {
  if (capability >= 100) return "Blackwell";
  if (capability >= 90) return "Hopper";
  if (capability == 89) return "Ada";
  if (capability >= 80) return "Ampere";
  if (capability >= 75) return "Turing";
  return capability >= 70 ? "Volta" : "older than Volta";
}

std::string device_name(CUdevice device) {
  std::array<char, 256> text{};
  check(driver().cuDeviceGetName(text.data(), static_cast<int>(text.size()) - 1, device), "name device {}",
        device);
  const std::string_view name(text.data());
  constexpr std::string_view kMaker = "NVIDIA ";
  return std::string(name.starts_with(kMaker) ? name.substr(kMaker.size()) : name);
}

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
  Module(const std::string& cubin, const std::string& entry) {
    check(driver().cuLibraryLoadData(&library_, cubin.data(), nullptr, nullptr, 0, nullptr, nullptr, 0),
          "load the cubin of kernel '{}' ({} bytes)", entry, cubin.size());
  }
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;
  ~Module() { driver().cuLibraryUnload(library_); }

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
    if (large_clusters && found.with_large_clusters.insert(device).second)
      allow_large_clusters(found.kernel, entry, device);
    return found.kernel;
  }

 private:
  // A kernel's static arrays, of up to 40 KiB, take a part of the 48 KiB that every block may have.
  static constexpr int64_t kAlwaysAllowed = 8 << 10;
  struct Entry {
    CUkernel kernel = nullptr;
    std::map<CUdevice, int64_t> allowed;  // bytes of dynamic shared memory
    std::set<CUdevice> with_large_clusters;
  };

  CUlibrary library_ = nullptr;
  std::mutex mutex_;
  std::map<std::string, Entry> entries_;
};

// The modules of this process that someone holds, by key.
std::shared_ptr<Module> shared_module(const std::string& key, const std::string& cubin,
                                      const std::string& entry) {
  static auto& mutex = *new std::mutex;
  static auto& modules = *new std::map<std::string, std::weak_ptr<Module>>;
  const std::scoped_lock lock(mutex);
  std::weak_ptr<Module>& known = modules[key];
  if (std::shared_ptr<Module> module = known.lock()) return module;
  auto module = std::make_shared<Module>(cubin, entry);
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

// cuMemsetD8Async takes the calling thread's context, a launch the stream's: this takes the stream's too.
CUresult fill_in_context_of(CUstream stream, void* pointer, uint8_t value, int64_t bytes) {
  CUcontext context = nullptr;
  CUresult result = driver().cuStreamGetCtx(stream, &context);
  if (result == CUDA_SUCCESS) result = driver().cuCtxPushCurrent_v2(context);
  if (result != CUDA_SUCCESS) return result;
  result = driver().cuMemsetD8Async(address(pointer), value, static_cast<size_t>(bytes), stream);
  driver().cuCtxPopCurrent_v2(&context);
  return result;
}

// A device's primary context, retained once for all who hold it. Making one anew takes long: whoever works
// with it holds it meanwhile.
std::shared_ptr<void> primary_context(CUdevice device) {
  static auto& mutex = *new std::mutex;
  static auto& contexts = *new std::map<CUdevice, std::weak_ptr<void>>;
  const std::scoped_lock lock(mutex);
  std::weak_ptr<void>& known = contexts[device];
  if (std::shared_ptr<void> context = known.lock()) return context;
  CUcontext made = nullptr;
  check(driver().cuDevicePrimaryCtxRetain(&made, device), "make a context on device {}", device);
  std::shared_ptr<void> context(made, [device](void*) { driver().cuDevicePrimaryCtxRelease_v2(device); });
  known = context;
  return context;
}

}  // namespace

bool available(std::string* problem) {
  const Driver& found = driver_or_none();
  if (problem != nullptr) *problem = found.problem;
  return found.problem.empty();
}

std::string driver_version() {
  return fmt::format("{}.{}", driver().version / 1000, driver().version % 1000 / 10);
}

std::string library_path() { return driver().file.path(); }
int device_count() { return driver().devices; }

DeviceInfo describe(int ordinal) {
  CUdevice device = 0;
  check(driver().cuDeviceGet(&device, ordinal), "get device {} of {}", ordinal, device_count());
  DeviceInfo info;
  info.name = device_name(device);
  info.compute_capability = 10 * attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) +
                            attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  info.architecture = architecture_of(info.compute_capability);
  info.sm_count = attribute(device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  info.shared_per_block = attribute(device, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
  info.shared_per_sm = attribute(device, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
  info.registers_per_sm = attribute(device, CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR);
  info.max_threads_per_sm = attribute(device, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
  info.l2_bytes = attribute(device, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
  size_t memory = 0;
  check(driver().cuDeviceTotalMem_v2(&memory, device), "read the memory size of device {}", ordinal);
  info.memory_bytes = static_cast<int64_t>(memory);
  info.clock_hz = 1e3 * attribute(device, CU_DEVICE_ATTRIBUTE_CLOCK_RATE);
  info.source = fmt::format("the driver's attributes ({})", driver_version());
  return info;
}

int current_device() {
  CUdevice device = 0;
  return driver().cuCtxGetDevice(&device) == CUDA_SUCCESS ? device : 0;
}

ContextScope::ContextScope() {
  CUcontext context = nullptr;
  if (driver().cuCtxGetCurrent(&context) == CUDA_SUCCESS && context != nullptr) return;
  CUdevice device = 0;
  check(driver().cuDeviceGet(&device, current_device()), "get device {}", current_device());
  held_ = primary_context(device);
  check(driver().cuCtxPushCurrent_v2(static_cast<CUcontext>(held_.get())), "use the context of device {}",
        current_device());
}

ContextScope::~ContextScope() {
  CUcontext context = nullptr;
  if (held_) driver().cuCtxPopCurrent_v2(&context);
}

Kernel Kernel::load(const std::string& cubin, const std::string& entry, int64_t shared_bytes,
                    const std::string& key, bool large_clusters) {
  const std::shared_ptr<Module> module =
      key.empty() ? std::make_shared<Module>(cubin, entry) : shared_module(key, cubin, entry);
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
  if (shape.attributes.cooperative) {
    CUlaunchAttribute& cooperative = attributes[count++];
    cooperative.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
    cooperative.value.cooperative = 1;
  }
  if (shape.attributes.programmatic) {
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
  // where.
  void* parameters[] = {const_cast<void*>(arguments)};
  const bool placed_by_driver = shape.argument_alignment > 8;
  check(
      driver().cuLaunchKernelEx(&config, static_cast<CUfunction>(kernel),
                                placed_by_driver ? parameters : nullptr, placed_by_driver ? nullptr : block),
      "launch a kernel (grid {}, block {}, cluster {}, {} bytes of shared memory, {} bytes of arguments)",
      shape.grid, shape.block, shape.cluster, shape.shared_bytes, bytes);
}

namespace {

CUtensorMapDataType map_type(const TensorMap& map) {
  if (map.rounds_to_tf32) return CU_TENSOR_MAP_DATA_TYPE_TFLOAT32;
  switch (map.type) {
    case DataType::f16:
      return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    case DataType::bf16:
      return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    case DataType::f32:
      return CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
    case DataType::i32:
      return CU_TENSOR_MAP_DATA_TYPE_INT32;
    default:
      return CU_TENSOR_MAP_DATA_TYPE_UINT8;
  }
}

// Lines are swizzled over their own length.
CUtensorMapSwizzle swizzle_of(int64_t line_bytes) {
  switch (line_bytes) {
    case 128:
      return CU_TENSOR_MAP_SWIZZLE_128B;
    case 64:
      return CU_TENSOR_MAP_SWIZZLE_64B;
    case 32:
      return CU_TENSOR_MAP_SWIZZLE_32B;
    default:
      return CU_TENSOR_MAP_SWIZZLE_NONE;
  }
}

// A map's numbers in the driver's types.
struct MapNumbers {
  cuuint32_t rank;
  std::array<cuuint64_t, 5> dims{}, strides{};
  std::array<cuuint32_t, 5> box{}, steps{1, 1, 1, 1, 1};
  CUtensorMapSwizzle swizzle;

  explicit MapNumbers(const TensorMap& map)
      : rank(static_cast<cuuint32_t>(map.dims.rank())),
        swizzle(swizzle_of(map.box[0] * byte_size(map.type))) {
    std::ranges::copy(map.dims, dims.begin());
    std::ranges::copy(map.stride_bytes, strides.begin());
    std::ranges::copy(map.box, box.begin());
    if (map.window) std::ranges::copy(map.window->strides, steps.begin() + 1);
  }
};

// Drivers up to 13.1 set a bit of im2col maps of tensors below 128 KiB that makes them read wrong elements
// (known to CUTLASS, which clears it likewise).
void mend_small_window(const TensorMap& map, void* encoded) {
  if (driver().version > 13010 || element_count(map.dims) * byte_size(map.type) >= 131072) return;
  uint64_t word = 0;
  std::memcpy(&word, static_cast<std::byte*>(encoded) + 8, sizeof word);
  word &= ~(uint64_t{1} << 21);
  std::memcpy(static_cast<std::byte*>(encoded) + 8, &word, sizeof word);
}

// How much TMA fetches into L2 at a time. Lines that begin on multiples of 128 bytes may come in pairs;
// others lie in two of L2's already, and a matmul of 3016 takes 97 us in pairs, 85 without (one H200).
CUtensorMapL2promotion promotion_of(const TensorMap& map) {
  constexpr int64_t kLine = 128;
  const auto is_aligned = [](int64_t stride) { return stride % kLine == 0; };
  return std::ranges::all_of(map.stride_bytes, is_aligned) ? CU_TENSOR_MAP_L2_PROMOTION_L2_256B
                                                           : CU_TENSOR_MAP_L2_PROMOTION_L2_128B;
}

}  // namespace

void encode(const TensorMap& map, void* encoded) {
  const ContextScope context;
  const MapNumbers numbers(map);
  // The address is put in by repoint(); until then any aligned one will do.
  alignas(256) static std::byte nowhere[256];
  CUtensorMap* const to = static_cast<CUtensorMap*>(encoded);
  if (map.window) {
    const std::vector<int> lower(map.window->lower.begin(), map.window->lower.end()),
        upper(map.window->upper.begin(), map.window->upper.end());
    check(
        driver().cuTensorMapEncodeIm2col(to, map_type(map), numbers.rank, nowhere, numbers.dims.data(),
                                         numbers.strides.data(), lower.data(), upper.data(), numbers.box[0],
                                         numbers.box[1], numbers.steps.data(), CU_TENSOR_MAP_INTERLEAVE_NONE,
                                         numbers.swizzle, promotion_of(map),
                                         CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
        "describe an operand of dims {} with strides of {} bytes and windows from {} to {}, {} apart, to TMA",
        to_string(map.dims), to_string(map.stride_bytes), to_string(map.window->lower),
        to_string(map.window->upper), to_string(map.window->strides));
    mend_small_window(map, encoded);
    return;
  }
  check(driver().cuTensorMapEncodeTiled(to, map_type(map), numbers.rank, nowhere, numbers.dims.data(),
                                        numbers.strides.data(), numbers.box.data(), numbers.steps.data(),
                                        CU_TENSOR_MAP_INTERLEAVE_NONE, numbers.swizzle, promotion_of(map),
                                        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
        "describe an operand of dims {} with strides of {} bytes and boxes of {} to TMA", to_string(map.dims),
        to_string(map.stride_bytes), to_string(map.box));
}

void repoint(void* encoded, void* address) {
  check(driver().cuTensorMapReplaceAddress(static_cast<CUtensorMap*>(encoded), address),
        "point an operand's map at {}", address);
}

void fill(void* pointer, uint8_t value, int64_t bytes, void* stream) {
  const CUstream in = static_cast<CUstream>(stream);
  CUresult result = driver().cuMemsetD8Async(address(pointer), value, static_cast<size_t>(bytes), in);
  const bool other_context = result == CUDA_ERROR_INVALID_CONTEXT || result == CUDA_ERROR_INVALID_HANDLE;
  if (other_context && stream != nullptr) result = fill_in_context_of(in, pointer, value, bytes);
  check(result, "set {} bytes of device memory", bytes);
}

void make_current(int ordinal) {
  CUdevice device = 0;
  check(driver().cuDeviceGet(&device, ordinal), "get device {} of {}", ordinal, device_count());
  static auto& mutex = *new std::mutex;
  static auto& held = *new std::map<CUdevice, std::shared_ptr<void>>;
  const std::scoped_lock lock(mutex);
  std::shared_ptr<void>& context = held[device];
  if (!context) context = primary_context(device);
  check(driver().cuCtxSetCurrent(static_cast<CUcontext>(context.get())), "use the context of device {}",
        ordinal);
}

void synchronize(void* stream) {
  check(driver().cuStreamSynchronize(static_cast<CUstream>(stream)), "finish the stream's work");
}

bool is_capturing(void* stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  check(driver().cuStreamIsCapturing(static_cast<CUstream>(stream), &status),
        "ask whether a stream is captured");
  return status != CU_STREAM_CAPTURE_STATUS_NONE;
}

void copy_to_device(void* device, const void* host, int64_t bytes) {
  check(driver().cuMemcpyHtoD_v2(address(device), host, static_cast<size_t>(bytes)),
        "copy {} bytes to the device", bytes);
}

void copy_to_host(void* host, const void* device, int64_t bytes) {
  check(driver().cuMemcpyDtoH_v2(host, address(device), static_cast<size_t>(bytes)),
        "copy {} bytes to the host", bytes);
}

DeviceBuffer::DeviceBuffer(int64_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  CUdeviceptr pointer = 0;
  check(driver().cuMemAlloc_v2(&pointer, static_cast<size_t>(bytes)), "allocate {} bytes of device memory",
        bytes);
  pointer_ = std::bit_cast<void*>(pointer);
}

DeviceBuffer::DeviceBuffer(DeviceBuffer&& other) noexcept
    : pointer_(std::exchange(other.pointer_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& other) noexcept {
  std::swap(pointer_, other.pointer_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

DeviceBuffer::~DeviceBuffer() {
  if (pointer_ != nullptr) driver().cuMemFree_v2(address(pointer_));
}

Timer::Timer() {
  CUevent begin = nullptr;
  CUevent end = nullptr;
  check(driver().cuEventCreate(&begin, CU_EVENT_DEFAULT), "create an event");
  begin_ = begin;
  check(driver().cuEventCreate(&end, CU_EVENT_DEFAULT), "create an event");
  end_ = end;
}

Timer::~Timer() {
  driver().cuEventDestroy_v2(static_cast<CUevent>(begin_));
  driver().cuEventDestroy_v2(static_cast<CUevent>(end_));
}

void Timer::start(void* stream) {
  check(driver().cuEventRecord(static_cast<CUevent>(begin_), static_cast<CUstream>(stream)),
        "record an event");
}

void Timer::stop(void* stream) {
  check(driver().cuEventRecord(static_cast<CUevent>(end_), static_cast<CUstream>(stream)), "record an event");
}

double Timer::seconds() {
  check(driver().cuEventSynchronize(static_cast<CUevent>(end_)), "wait for an event");
  float milliseconds = 0;
  check(driver().cuEventElapsedTime(&milliseconds, static_cast<CUevent>(begin_), static_cast<CUevent>(end_)),
        "read the time between two events");
  return 1e-3 * milliseconds;
}

OwnStream::OwnStream() {
  CUstream stream = nullptr;
  check(driver().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "create a stream");
  stream_ = stream;
}

OwnStream::~OwnStream() {
  if (graph_ != nullptr) driver().cuGraphExecDestroy(static_cast<CUgraphExec>(graph_));
  driver().cuStreamDestroy_v2(static_cast<CUstream>(stream_));
}

void OwnStream::begin_capture() {
  check(driver().cuStreamBeginCapture_v2(static_cast<CUstream>(stream_), CU_STREAM_CAPTURE_MODE_GLOBAL),
        "capture a stream");
}

void* OwnStream::end_capture() {
  CUgraph captured = nullptr;
  check(driver().cuStreamEndCapture(static_cast<CUstream>(stream_), &captured),
        "end the capture of a stream");
  CUgraphExec executable = nullptr;
  const CUresult result = driver().cuGraphInstantiateWithFlags(&executable, captured, 0);
  driver().cuGraphDestroy(captured);
  check(result, "make a captured graph executable");
  if (graph_ != nullptr) driver().cuGraphExecDestroy(static_cast<CUgraphExec>(graph_));
  graph_ = executable;
  return graph_;
}

void OwnStream::launch_graph(void* graph) {
  check(driver().cuGraphLaunch(static_cast<CUgraphExec>(graph), static_cast<CUstream>(stream_)),
        "launch a graph");
}

namespace {

void expect_graph_nodes() {
  if (!driver().makes_graph_nodes)
    fail(ErrorKind::missing, "the driver makes no nodes of a given graph: CUDA 12.3 or newer is needed");
}

// The work that a launch puts on a stream, as nodes of a graph.
void capture_to(CUgraph graph, const std::function<void(void* stream)>& launch) {
  const OwnStream own;
  auto* const stream = static_cast<CUstream>(own.get());
  check(driver().cuStreamBeginCaptureToGraph(stream, graph, nullptr, nullptr, 0,
                                             CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
        "capture a stream to a graph");
  CUgraph captured = nullptr;
  try {
    launch(stream);
  } catch (...) {
    driver().cuStreamEndCapture(stream, &captured);
    throw;
  }
  check(driver().cuStreamEndCapture(stream, &captured), "end the capture of a stream to a graph");
}

std::vector<CUgraphNode> nodes_of(CUgraph graph) {
  size_t count = 0;
  check(driver().cuGraphGetNodes(graph, nullptr, &count), "count the nodes of a graph");
  std::vector<CUgraphNode> nodes(count);
  if (count > 0) check(driver().cuGraphGetNodes(graph, nodes.data(), &count), "read the nodes of a graph");
  return nodes;
}

CUgraphNodeType type_of(CUgraphNode node) {
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  check(driver().cuGraphNodeGetType(node, &type), "read the type of a graph's node");
  return type;
}

void copy_parameters(CUgraphNode from, CUgraphNode to) {
  if (type_of(from) != type_of(to)) fail("the graph to update was made of another plan");
  if (type_of(from) == CU_GRAPH_NODE_TYPE_KERNEL) {
    CUDA_KERNEL_NODE_PARAMS parameters{};
    check(driver().cuGraphKernelNodeGetParams(from, &parameters), "read a kernel node");
    check(driver().cuGraphKernelNodeSetParams(to, &parameters), "update a kernel node");
  } else if (type_of(from) == CU_GRAPH_NODE_TYPE_MEMSET) {
    CUDA_MEMSET_NODE_PARAMS parameters{};
    check(driver().cuGraphMemsetNodeGetParams(from, &parameters), "read a memset node");
    check(driver().cuGraphMemsetNodeSetParams(to, &parameters), "update a memset node");
  }
}

}  // namespace

void add_nodes(void* graph, const std::function<void(void* stream)>& launch) {
  expect_graph_nodes();
  const ContextScope context;
  capture_to(static_cast<CUgraph>(graph), launch);
}

void update_nodes(void* graph, const std::function<void(void* stream)>& launch) {
  expect_graph_nodes();
  const ContextScope context;
  CUgraph fresh = nullptr;
  check(driver().cuGraphCreate(&fresh, 0), "create a graph");
  const std::shared_ptr<void> owner(fresh,
                                    [](void* made) { driver().cuGraphDestroy(static_cast<CUgraph>(made)); });
  capture_to(fresh, launch);
  const std::vector<CUgraphNode> from = nodes_of(fresh), to = nodes_of(static_cast<CUgraph>(graph));
  if (from.size() != to.size())
    fail("the graph to update has {} nodes; the plan makes {}", to.size(), from.size());
  for (size_t i = 0; i < from.size(); ++i) copy_parameters(from[i], to[i]);
}

}  // namespace fusor::cuda

#endif  // FUSOR_WITH_CUDA
