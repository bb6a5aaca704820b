// Owns the table of the CUDA driver's functions, for the files of this folder alone: codegen/cuda_driver.h is
// the interface.
#pragma once

#ifdef FUSOR_WITH_CUDA

#include <cuda.h>

#include <bit>
#include <memory>
#include <string>
#include <utility>

#include "codegen/shared_library.h"
#include "core/fail.h"

namespace fusor::cuda {

// The functions of the driver by the names that it exports; all are there since 12.0.
#define FUSOR_DRIVER_FUNCTIONS(F)      \
  F(cuInit)                            \
  F(cuDriverGetVersion)                \
  F(cuGetErrorName)                    \
  F(cuGetErrorString)                  \
  F(cuDeviceGet)                       \
  F(cuDeviceGetCount)                  \
  F(cuDeviceGetName)                   \
  F(cuDeviceGetAttribute)              \
  F(cuDeviceTotalMem_v2)               \
  F(cuDevicePrimaryCtxRetain)          \
  F(cuDevicePrimaryCtxRelease_v2)      \
  F(cuCtxSetCurrent)                   \
  F(cuCtxGetCurrent)                   \
  F(cuCtxGetDevice)                    \
  F(cuCtxPushCurrent_v2)               \
  F(cuCtxPopCurrent_v2)                \
  F(cuLibraryLoadData)                 \
  F(cuLibraryUnload)                   \
  F(cuLibraryGetKernel)                \
  F(cuKernelGetFunction)               \
  F(cuKernelSetAttribute)              \
  F(cuLaunchKernelEx)                  \
  F(cuMemsetD8Async)                   \
  F(cuMemAlloc_v2)                     \
  F(cuMemFree_v2)                      \
  F(cuMemcpyHtoD_v2)                   \
  F(cuMemcpyDtoH_v2)                   \
  F(cuMemcpyDtoDAsync_v2)              \
  F(cuStreamCreate)                    \
  F(cuStreamDestroy_v2)                \
  F(cuStreamSynchronize)               \
  F(cuStreamIsCapturing)               \
  F(cuThreadExchangeStreamCaptureMode) \
  F(cuStreamGetCtx)                    \
  F(cuStreamBeginCapture_v2)           \
  F(cuStreamEndCapture)                \
  F(cuGraphInstantiateWithFlags)       \
  F(cuGraphDestroy)                    \
  F(cuGraphExecDestroy)                \
  F(cuGraphLaunch)                     \
  F(cuEventCreate)                     \
  F(cuEventDestroy_v2)                 \
  F(cuEventRecord)                     \
  F(cuEventSynchronize)                \
  F(cuEventElapsedTime)                \
  F(cuTensorMapEncodeTiled)            \
  F(cuTensorMapEncodeIm2col)           \
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
  decltype(::cuGraphMemcpyNodeGetParams)* cuGraphMemcpyNodeGetParams = nullptr;
  decltype(::cuGraphMemcpyNodeSetParams)* cuGraphMemcpyNodeSetParams = nullptr;

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
                        from.find(cuGraphMemsetNodeSetParams, "cuGraphMemsetNodeSetParams") &&
                        from.find(cuGraphMemcpyNodeGetParams, "cuGraphMemcpyNodeGetParams") &&
                        from.find(cuGraphMemcpyNodeSetParams, "cuGraphMemcpyNodeSetParams");
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

/// The opened driver, or one whose `problem` says why there is none.
const Driver& driver_or_none();
/// Error (missing) where nothing can be run.
const Driver& driver();

/// Error (device) "CUDA cannot ...: the driver's words" where a call failed.
template <class... Args>
void check(CUresult result, fmt::format_string<Args...> what, Args&&... args) {
  if (result != CUDA_SUCCESS) [[unlikely]]
    fail(ErrorKind::device, "CUDA cannot {}: {}", fmt::format(what, std::forward<Args>(args)...),
         driver().words(result));
}

inline CUdeviceptr address(const void* pointer) { return std::bit_cast<CUdeviceptr>(pointer); }

int attribute(CUdevice device, CUdevice_attribute which);
/// A device's primary context, retained once for all who hold it. Making one anew takes long: whoever works
/// with it holds it meanwhile.
std::shared_ptr<void> primary_context(CUdevice device);
/// Where the calling thread has no context, makes that of device 0 its own, as the CUDA runtime does at a
/// thread's first call. Whether it did.
bool adopt_context();

/// Lets the calling thread load, unload, allocate and free while it lives, whoever captures a stream: a
/// capture of mode "global", as PyTorch's are, forbids all that to every thread, and is spoilt by it.
class BesideCaptures {
 public:
  BesideCaptures();
  ~BesideCaptures();
  BesideCaptures(const BesideCaptures&) = delete;
  BesideCaptures& operator=(const BesideCaptures&) = delete;

 private:
  CUstreamCaptureMode before_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

}  // namespace fusor::cuda

#endif  // FUSOR_WITH_CUDA
