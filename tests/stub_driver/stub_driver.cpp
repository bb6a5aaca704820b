// Owns the stub driver: one device of a made-up machine. It keeps the driver's rules as far as fusor could
// break them (images, names, parameter sizes, launch limits, contexts, captures); memory is the host's, and
// kernels do nothing.
#include "tests/stub_driver/stub_driver.h"

#include <cuda.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tests/stub_driver/stub_image.h"

// The driver's opaque handles, as far as the stub needs something behind them.
struct CUctx_st {};

struct CUkern_st {
  std::string entry;
  size_t parameter_bytes = 0;
  unsigned shared_limit = 48 << 10;
  bool large_clusters = false;
};

struct CUlib_st {
  fusor::stub::Image image;
  std::deque<CUkern_st> kernels;
};

struct CUgraphNode_st {
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_KERNEL;
  CUfunction function = nullptr;
  std::function<void()> work;
};

struct CUgraph_st {
  std::deque<CUgraphNode_st> nodes;
};

struct CUgraphExec_st {
  std::vector<std::function<void()>> work;
};

struct CUstream_st {
  CUgraph capture = nullptr;
  bool is_global = false;  // the capture's mode
};

struct CUevent_st {
  std::chrono::steady_clock::time_point at;
};

namespace {

constexpr CUdevice kDevice = 0;
constexpr unsigned kSharedLimit = 227 << 10;
constexpr size_t kRemembered = 64;

struct State {
  std::mutex mutex;
  std::atomic<bool> keeping_launches{true};
  CUctx_st primary;
  std::deque<FusorStubLaunch> launches;  // newest first
  int64_t launch_count = 0;
  std::chrono::nanoseconds clock{0};  // moved by launches
  int64_t libraries = 0;
  int64_t library_loads = 0;
  int64_t context_holds = 0;
  int64_t context_retains = 0;
  std::unordered_map<CUdeviceptr, size_t> memory;
  std::atomic<int64_t> captures{0};  // open, of mode "global"
};

State& state() {
  static State the;
  return the;
}

thread_local std::vector<CUcontext> contexts;
thread_local CUstreamCaptureMode capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

// Whether an open capture forbids the thread what is no work of a stream.
bool is_forbidden() { return capture_mode != CU_STREAM_CAPTURE_MODE_RELAXED && state().captures > 0; }

bool has_context(CUstream stream) {
  return stream != nullptr || (!contexts.empty() && contexts.back() != nullptr);
}

// Does the work now, or when the graph that is being captured is launched.
CUresult submit(CUstream stream, CUgraphNodeType type, CUfunction function, std::function<void()> work) {
  if (stream != nullptr && stream->capture != nullptr) {
    stream->capture->nodes.push_back({type, function, std::move(work)});
  } else {
    work();
  }
  return CUDA_SUCCESS;
}

// Device memory is the host's.
void* host(CUdeviceptr pointer) { return std::bit_cast<void*>(pointer); }

uint64_t product(const uint32_t (&extents)[3]) { return uint64_t{extents[0]} * extents[1] * extents[2]; }

// What a launch breaks, if anything.
CUresult judge(const CUkern_st& kernel, const FusorStubLaunch& launch) {
  const bool sizes = product(launch.grid) > 0 && launch.grid[1] <= 65535 && launch.grid[2] <= 65535 &&
                     launch.grid[0] <= 0x7fffffff && product(launch.block) > 0 &&
                     product(launch.block) <= 1024 && launch.block[2] <= 64;
  bool clusters = product(launch.cluster) <= (kernel.large_clusters ? 16 : 8);
  for (int i = 0; i < 3; ++i)
    clusters = clusters && launch.cluster[i] > 0 && launch.grid[i] % launch.cluster[i] == 0;
  const bool shared = launch.shared_bytes <= kernel.shared_limit;
  const bool arguments = launch.argument_bytes == kernel.parameter_bytes && launch.argument_bytes <= 4096;
  return sizes && clusters && shared && arguments ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// Some entry's name begins so: tests name kernels that this driver is not to load or not to find.
bool has_entry(const fusor::stub::Image& image, std::string_view begin) {
  return std::ranges::any_of(image, [&](const auto& each) { return each.first.starts_with(begin); });
}

// The time of launches, where FUSOR_STUB_LAUNCH_NS says it: two numbers of nanoseconds, of a launch of up to
// 2^20 threads and of a larger one. Events then read a clock that only launches move.
struct LaunchTimes {
  bool are_said = false;
  std::chrono::nanoseconds small{0}, large{0};

  LaunchTimes() {
    long long of_small = 0, of_large = 0;
    const char* const text = std::getenv("FUSOR_STUB_LAUNCH_NS");
    are_said = text != nullptr && std::sscanf(text, "%lld,%lld", &of_small, &of_large) == 2;
    small = std::chrono::nanoseconds(of_small);
    large = std::chrono::nanoseconds(of_large);
  }
  std::chrono::nanoseconds of(const FusorStubLaunch& launch) const {
    return product(launch.grid) * product(launch.block) > uint64_t{1} << 20 ? large : small;
  }
};

const LaunchTimes& launch_times() {
  static const LaunchTimes the;
  return the;
}

void record(const FusorStubLaunch& launch) {
  const std::scoped_lock lock(state().mutex);
  ++state().launch_count;
  state().clock += launch_times().of(launch);
  state().launches.push_front(launch);
  if (state().launches.size() > kRemembered) state().launches.pop_back();
}

int attribute_value(CUdevice_attribute attribute) {
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      return 9;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
      return 0;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      return 132;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
      return kSharedLimit;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR:
      return 228 << 10;
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR:
      return 65536;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR:
      return 2048;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
      return 60 << 20;
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE:
      return 1980000;
    default:
      return 0;
  }
}

}  // namespace

// The header renames this one to a version that older drivers do not have; the library asks for the first.
#undef cuEventElapsedTime

extern "C" {

int64_t fusor_stub_launch_count() {
  const std::scoped_lock lock(state().mutex);
  return state().launch_count;
}

bool fusor_stub_last_launch(int back, FusorStubLaunch* launch) {
  const std::scoped_lock lock(state().mutex);
  if (static_cast<size_t>(back) >= state().launches.size()) return false;
  *launch = state().launches[static_cast<size_t>(back)];
  return true;
}

int64_t fusor_stub_libraries() {
  const std::scoped_lock lock(state().mutex);
  return state().libraries;
}

int64_t fusor_stub_library_loads() {
  const std::scoped_lock lock(state().mutex);
  return state().library_loads;
}

int64_t fusor_stub_context_retains() {
  const std::scoped_lock lock(state().mutex);
  return state().context_retains;
}

int64_t fusor_stub_context_holds() {
  const std::scoped_lock lock(state().mutex);
  return state().context_holds;
}

int64_t fusor_stub_device_bytes() {
  const std::scoped_lock lock(state().mutex);
  int64_t bytes = 0;
  for (const auto& [pointer, size] : state().memory) bytes += static_cast<int64_t>(size);
  return bytes;
}

void fusor_stub_reset() {
  const std::scoped_lock lock(state().mutex);
  state().launches.clear();
  state().launch_count = 0;
}

void fusor_stub_keep_launches(bool keep) { state().keeping_launches = keep; }

CUresult cuInit(unsigned) { return CUDA_SUCCESS; }

CUresult cuDriverGetVersion(int* version) {
  *version = 13000;
  return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult error, const char** name) {
  switch (error) {
    case CUDA_ERROR_INVALID_VALUE:
      *name = "CUDA_ERROR_INVALID_VALUE";
      break;
    case CUDA_ERROR_INVALID_IMAGE:
      *name = "CUDA_ERROR_INVALID_IMAGE";
      break;
    case CUDA_ERROR_INVALID_CONTEXT:
      *name = "CUDA_ERROR_INVALID_CONTEXT";
      break;
    case CUDA_ERROR_NOT_FOUND:
      *name = "CUDA_ERROR_NOT_FOUND";
      break;
    case CUDA_ERROR_OUT_OF_MEMORY:
      *name = "CUDA_ERROR_OUT_OF_MEMORY";
      break;
    default:
      *name = "CUDA_ERROR_UNKNOWN";
      break;
  }
  return CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult, const char** text) {
  *text = "said by the stub driver";
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int* count) {
  *count = 1;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  *device = kDevice;
  return ordinal == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceGetName(char* name, int size, CUdevice) {
  std::strncpy(name, "NVIDIA H200 (stub)", static_cast<size_t>(size));
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice) {
  *value = attribute_value(attribute);
  return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem(size_t* bytes, CUdevice) {
  *bytes = size_t{141} << 30;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice) {
  const std::scoped_lock lock(state().mutex);
  ++state().context_holds;
  ++state().context_retains;
  *context = &state().primary;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice) {
  const std::scoped_lock lock(state().mutex);
  --state().context_holds;
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context) {
  contexts = {context};
  return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext* context) {
  *context = contexts.empty() ? nullptr : contexts.back();
  return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice* device) {
  *device = kDevice;
  return has_context(nullptr) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuCtxPushCurrent(CUcontext context) {
  contexts.push_back(context);
  return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent(CUcontext* context) {
  if (contexts.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  *context = contexts.back();
  contexts.pop_back();
  return CUDA_SUCCESS;
}

CUresult cuLibraryLoadData(CUlibrary* library, const void* code, CUjit_option*, void**, unsigned,
                           CUlibraryOption*, void**, unsigned) {
  if (is_forbidden()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  auto loaded = std::make_unique<CUlib_st>();
  if (!fusor::stub::read_image(code, loaded->image)) return CUDA_ERROR_INVALID_IMAGE;
  if (has_entry(loaded->image, "refused_image")) return CUDA_ERROR_INVALID_IMAGE;
  const std::scoped_lock lock(state().mutex);
  ++state().libraries;
  ++state().library_loads;
  *library = loaded.release();
  return CUDA_SUCCESS;
}

CUresult cuLibraryUnload(CUlibrary library) {
  if (is_forbidden()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  const std::scoped_lock lock(state().mutex);
  --state().libraries;
  delete library;
  return CUDA_SUCCESS;
}

CUresult cuLibraryGetKernel(CUkernel* kernel, CUlibrary library, const char* name) {
  const auto found = library->image.find(name);
  if (found == library->image.end() || found->first.starts_with("refused_kernel"))
    return CUDA_ERROR_NOT_FOUND;
  library->kernels.push_back({found->first, found->second});
  *kernel = &library->kernels.back();
  return CUDA_SUCCESS;
}

CUresult cuKernelGetFunction(CUfunction* function, CUkernel kernel) {
  *function = reinterpret_cast<CUfunction>(kernel);
  return has_context(nullptr) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuTensorMapEncodeTiled(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                                const cuuint64_t*, const cuuint32_t*, const cuuint32_t*,
                                CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion,
                                CUtensorMapFloatOOBfill) {
  return has_context(nullptr) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}
CUresult cuTensorMapEncodeIm2col(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                                 const cuuint64_t*, const int*, const int*, cuuint32_t, cuuint32_t,
                                 const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle,
                                 CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
  return has_context(nullptr) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}
CUresult cuTensorMapReplaceAddress(CUtensorMap* map, void* address) {
  std::memcpy(map, &address, sizeof address);
  return CUDA_SUCCESS;
}

CUresult cuFuncLoad(CUfunction) { return CUDA_SUCCESS; }

CUresult cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel kernel, CUdevice) {
  if (attribute == CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED) {
    kernel->large_clusters = value != 0;
    return CUDA_SUCCESS;
  }
  if (value < 0 || value > static_cast<int>(kSharedLimit)) return CUDA_ERROR_INVALID_VALUE;
  kernel->shared_limit = static_cast<unsigned>(value);
  return CUDA_SUCCESS;
}

CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** parameters,
                          void** extra) {
  if (!has_context(config->hStream)) return CUDA_ERROR_INVALID_CONTEXT;
  if (!state().keeping_launches.load(std::memory_order_relaxed)) return CUDA_SUCCESS;
  const auto& kernel = *reinterpret_cast<const CUkern_st*>(function);
  FusorStubLaunch launch{};
  std::strncpy(launch.entry, kernel.entry.c_str(), sizeof launch.entry - 1);
  launch.shared_bytes = config->sharedMemBytes;
  launch.stream = config->hStream;
  const std::array grid = {config->gridDimX, config->gridDimY, config->gridDimZ};
  const std::array block = {config->blockDimX, config->blockDimY, config->blockDimZ};
  std::ranges::copy(grid, launch.grid);
  std::ranges::copy(block, launch.block);
  std::ranges::fill(launch.cluster, 1);
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    const CUlaunchAttribute& attribute = config->attrs[i];
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE)
      launch.cooperative = attribute.value.cooperative != 0;
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION)
      launch.programmatic = attribute.value.programmaticStreamSerializationAllowed != 0;
    if (attribute.id != CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) continue;
    const auto& cluster = attribute.value.clusterDim;
    std::ranges::copy(std::array{cluster.x, cluster.y, cluster.z}, launch.cluster);
  }
  const void* arguments = nullptr;
  if (extra == nullptr) {
    // One by-value parameter that the driver places itself: its size stands in the image.
    arguments = parameters[0];
    launch.argument_bytes = kernel.parameter_bytes;
  }
  for (; extra != nullptr && *extra != CU_LAUNCH_PARAM_END; extra += 2) {
    if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER) arguments = extra[1];
    if (*extra == CU_LAUNCH_PARAM_BUFFER_SIZE) launch.argument_bytes = *static_cast<const size_t*>(extra[1]);
  }
  if (const CUresult result = judge(kernel, launch); result != CUDA_SUCCESS) return result;
  if (launch.argument_bytes > 0) std::memcpy(launch.arguments, arguments, launch.argument_bytes);
  return submit(config->hStream, CU_GRAPH_NODE_TYPE_KERNEL, function, [launch] { record(launch); });
}

CUresult cuMemAlloc(CUdeviceptr* pointer, size_t bytes) {
  if (is_forbidden()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (!has_context(nullptr)) return CUDA_ERROR_INVALID_CONTEXT;
  if (bytes > size_t{1} << 40) return CUDA_ERROR_OUT_OF_MEMORY;
  void* memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  if (memory == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  *pointer = std::bit_cast<CUdeviceptr>(memory);
  const std::scoped_lock lock(state().mutex);
  state().memory[*pointer] = bytes;
  return CUDA_SUCCESS;
}

CUresult cuMemFree(CUdeviceptr pointer) {
  if (is_forbidden()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  const std::scoped_lock lock(state().mutex);
  if (state().memory.erase(pointer) == 0) return CUDA_ERROR_INVALID_VALUE;
  std::free(host(pointer));
  return CUDA_SUCCESS;
}

CUresult cuMemcpyHtoD(CUdeviceptr to, const void* from, size_t bytes) {
  std::memcpy(host(to), from, bytes);
  return CUDA_SUCCESS;
}

CUresult cuMemcpyDtoH(void* to, CUdeviceptr from, size_t bytes) {
  std::memcpy(to, host(from), bytes);
  return CUDA_SUCCESS;
}

CUresult cuMemsetD8Async(CUdeviceptr pointer, unsigned char value, size_t bytes, CUstream stream) {
  if (!has_context(nullptr)) return CUDA_ERROR_INVALID_CONTEXT;
  return submit(stream, CU_GRAPH_NODE_TYPE_MEMSET, nullptr,
                [=] { std::memset(host(pointer), value, bytes); });
}

CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  if (!has_context(nullptr)) return CUDA_ERROR_INVALID_CONTEXT;
  return submit(stream, CU_GRAPH_NODE_TYPE_MEMCPY, nullptr,
                [=] { std::memcpy(host(to), host(from), bytes); });
}

CUresult cuStreamCreate(CUstream* stream, unsigned) {
  if (!has_context(nullptr)) return CUDA_ERROR_INVALID_CONTEXT;
  *stream = new CUstream_st;
  return CUDA_SUCCESS;
}

CUresult cuStreamDestroy(CUstream stream) {
  delete stream;
  return CUDA_SUCCESS;
}

CUresult cuStreamSynchronize(CUstream stream) {
  const bool capturing = stream != nullptr && stream->capture != nullptr;
  return capturing ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
  const bool capturing = stream != nullptr && stream->capture != nullptr;
  *status = capturing ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}

CUresult cuStreamGetCtx(CUstream, CUcontext* context) {
  *context = &state().primary;
  return CUDA_SUCCESS;
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  std::swap(*mode, capture_mode);
  return CUDA_SUCCESS;
}

CUresult cuStreamBeginCapture(CUstream stream, CUstreamCaptureMode mode) {
  stream->capture = new CUgraph_st;
  stream->is_global = mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
  if (stream->is_global) ++state().captures;
  return CUDA_SUCCESS;
}

CUresult cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph, const CUgraphNode*,
                                     const CUgraphEdgeData*, size_t, CUstreamCaptureMode) {
  stream->capture = graph;
  return CUDA_SUCCESS;
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph* graph) {
  if (stream->capture == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  *graph = std::exchange(stream->capture, nullptr);
  if (std::exchange(stream->is_global, false)) --state().captures;
  return CUDA_SUCCESS;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec* executable, CUgraph graph, unsigned long long) {
  *executable = new CUgraphExec_st;
  for (const CUgraphNode_st& node : graph->nodes) (*executable)->work.push_back(node.work);
  return CUDA_SUCCESS;
}

CUresult cuGraphCreate(CUgraph* graph, unsigned) {
  *graph = new CUgraph_st;
  return CUDA_SUCCESS;
}

CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode* nodes, size_t* count) {
  for (size_t i = 0; nodes != nullptr && i < *count; ++i) nodes[i] = &graph->nodes[i];
  *count = graph->nodes.size();
  return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType* type) {
  *type = node->type;
  return CUDA_SUCCESS;
}

// The parameters of a node are what it does: only another node's are ever set.
CUresult cuGraphKernelNodeGetParams(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS* parameters) {
  parameters->func = node->function;
  parameters->extra = reinterpret_cast<void**>(node);
  return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeSetParams(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS* parameters) {
  node->function = parameters->func;
  node->work = reinterpret_cast<CUgraphNode>(parameters->extra)->work;
  return CUDA_SUCCESS;
}

CUresult cuGraphMemsetNodeGetParams(CUgraphNode node, CUDA_MEMSET_NODE_PARAMS* parameters) {
  parameters->dst = std::bit_cast<CUdeviceptr>(node);
  return CUDA_SUCCESS;
}

CUresult cuGraphMemsetNodeSetParams(CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS* parameters) {
  node->work = std::bit_cast<CUgraphNode>(parameters->dst)->work;
  return CUDA_SUCCESS;
}

CUresult cuGraphMemcpyNodeGetParams(CUgraphNode node, CUDA_MEMCPY3D* parameters) {
  parameters->dstHost = node;
  return CUDA_SUCCESS;
}

CUresult cuGraphMemcpyNodeSetParams(CUgraphNode node, const CUDA_MEMCPY3D* parameters) {
  node->work = static_cast<CUgraphNode>(parameters->dstHost)->work;
  return CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph graph) {
  delete graph;
  return CUDA_SUCCESS;
}

CUresult cuGraphExecDestroy(CUgraphExec executable) {
  delete executable;
  return CUDA_SUCCESS;
}

CUresult cuGraphLaunch(CUgraphExec executable, CUstream) {
  for (const auto& work : executable->work) work();
  return CUDA_SUCCESS;
}

CUresult cuEventCreate(CUevent* event, unsigned) {
  *event = new CUevent_st;
  return CUDA_SUCCESS;
}

CUresult cuEventDestroy(CUevent event) {
  delete event;
  return CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent event, CUstream) {
  const std::scoped_lock lock(state().mutex);
  event->at = launch_times().are_said ? std::chrono::steady_clock::time_point(state().clock)
                                      : std::chrono::steady_clock::now();
  return CUDA_SUCCESS;
}

CUresult cuEventSynchronize(CUevent) { return CUDA_SUCCESS; }

CUresult cuEventElapsedTime(float* milliseconds, CUevent begin, CUevent end) {
  *milliseconds = std::chrono::duration<float, std::milli>(end->at - begin->at).count();
  return CUDA_SUCCESS;
}

}  // extern "C"
