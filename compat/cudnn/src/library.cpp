// Owns the calls about the library itself: versions, words, callbacks.
#include <dlfcn.h>

#include <algorithm>
#include <cstring>

#include "compat/cudnn/include/cudnn.h"
#include "compat/cudnn/src/handle.h"
#include "compat/cudnn/src/log.h"
#include "compat/cudnn/src/status.h"
#include "core/environment.h"

using namespace fusor::cudnn;  // NOLINT(google-build-using-namespace)

namespace {

// The CUDA runtime that the process has loaded, or the version that the library was built beside.
size_t cudart_version() {
  using Function = int (*)(int*);
  int version = 0;
  if (const auto ask = reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, "cudaRuntimeGetVersion")))
    if (ask(&version) == 0 && version > 0) return static_cast<size_t>(version);
  return FUSOR_CUDART_VERSION;
}

template <class Value>
Value& place(Value* pointer, const char* what) {
  if (pointer == nullptr) refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "the place of the {} is null", what);
  return *pointer;
}

}  // namespace

extern "C" {

size_t cudnnGetVersion(void) {
  static const auto version = static_cast<size_t>(fusor::environment::cudnn_version(CUDNN_VERSION));
  return version;
}

size_t cudnnGetMaxDeviceVersion(void) { return CUDNN_MAX_DEVICE_VERSION; }

size_t cudnnGetCudartVersion(void) { return cudart_version(); }

const char* cudnnGetErrorString(cudnnStatus_t status) { return name_of(status); }

void cudnnGetLastErrorString(char* message, size_t max_size) {
  if (message == nullptr || max_size == 0) return;
  const std::string text = take_last_message();
  const size_t bytes = std::min(text.size(), max_size - 1);
  std::memcpy(message, text.data(), bytes);
  message[bytes] = '\0';
}

// Kernels report nothing of their own: what they could is refused before they are launched.
cudnnStatus_t cudnnQueryRuntimeError(cudnnHandle_t handle, cudnnStatus_t* rstatus, cudnnErrQueryMode_t mode,
                                     cudnnRuntimeTag_t*) {
  return guarded("cudnnQueryRuntimeError", [&] {
    handle_at(handle);
    if (mode < CUDNN_ERRQUERY_RAWCODE || mode > CUDNN_ERRQUERY_BLOCKING)
      refuse(CUDNN_STATUS_BAD_PARAM, "mode {} is none of the three", static_cast<int>(mode));
    place(rstatus, "status") = CUDNN_STATUS_SUCCESS;
  });
}

cudnnStatus_t cudnnGetProperty(libraryPropertyType type, int* value) {
  return guarded("cudnnGetProperty", [&] {
    const auto version = static_cast<int>(cudnnGetVersion());
    int& result = place(value, "value");
    switch (static_cast<int>(type)) {
      case 0:
        result = version / 10000;
        break;
      case 1:
        result = version / 100 % 100;
        break;
      case 2:
        result = version % 100;
        break;
      default:
        refuse(CUDNN_STATUS_INVALID_VALUE, "property {} is none of the three", static_cast<int>(type));
    }
  });
}

cudnnStatus_t cudnnSetCallback(unsigned mask, void* udata, cudnnCallback_t fptr) {
  return guarded("cudnnSetCallback", [&] { set_log_callback({mask, udata, fptr}); });
}

cudnnStatus_t cudnnGetCallback(unsigned* mask, void** udata, cudnnCallback_t* fptr) {
  return guarded("cudnnGetCallback", [&] {
    const LogCallback callback = log_callback();
    if (mask != nullptr) *mask = callback.mask;
    if (udata != nullptr) *udata = callback.data;
    if (fptr != nullptr) *fptr = callback.function;
  });
}

cudnnStatus_t cudnnGraphVersionCheck(void) { return CUDNN_STATUS_SUCCESS; }
cudnnStatus_t cudnnOpsVersionCheck(void) { return CUDNN_STATUS_SUCCESS; }
cudnnStatus_t cudnnCnnVersionCheck(void) { return CUDNN_STATUS_SUCCESS; }
cudnnStatus_t cudnnAdvVersionCheck(void) { return CUDNN_STATUS_SUCCESS; }

}  // extern "C"
