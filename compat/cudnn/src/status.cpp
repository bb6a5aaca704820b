// Owns the mapping from exceptions to statuses, and the names of statuses.
#include "compat/cudnn/src/status.h"

#include <new>

#include "compat/cudnn/src/log.h"
#include "core/error.h"

namespace fusor::cudnn {

namespace {

std::string& last_message() {
  static thread_local std::string message;
  return message;
}

cudnnStatus_t note(const char* function, cudnnStatus_t status, const char* text) {
  last_message() = fmt::format("{}: {}: {}", function, name_of(status), text);
  write_log(CUDNN_SEV_ERROR, status, last_message());
  return status;
}

cudnnStatus_t status_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::bad_input:
      return CUDNN_STATUS_NOT_SUPPORTED;
    case ErrorKind::missing:
      return CUDNN_STATUS_NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING;
    case ErrorKind::device:
      return CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER;
    case ErrorKind::internal:
      break;
  }
  return CUDNN_STATUS_INTERNAL_ERROR;
}

}  // namespace

cudnnStatus_t status_in_flight(const char* function) noexcept {
  try {
    try {
      throw;
    } catch (const Refusal& refusal) {
      return note(function, refusal.status(), refusal.what());
    } catch (const Error& error) {
      return note(function, status_of(error.kind()), error.what());
    } catch (const std::bad_alloc&) {
      return note(function, CUDNN_STATUS_ALLOC_FAILED, "out of host memory");
    } catch (const std::exception& error) {
      return note(function, CUDNN_STATUS_INTERNAL_ERROR, error.what());
    }
  } catch (...) {
    return CUDNN_STATUS_INTERNAL_ERROR;
  }
}

void note_call(const char* function) noexcept {
  if (!log_listens(CUDNN_SEV_INFO)) return;
  try {
    write_log(CUDNN_SEV_INFO, CUDNN_STATUS_SUCCESS, function);
  } catch (...) {  // a log that cannot be written stops no call
    return;
  }
}

std::string take_last_message() { return std::exchange(last_message(), {}); }

const char* name_of(cudnnStatus_t status) {
  switch (static_cast<int>(status)) {
#define FUSOR_STATUS(name)  \
  case CUDNN_STATUS_##name: \
    return "CUDNN_STATUS_" #name;
#include "compat/cudnn/src/status.def"
#undef FUSOR_STATUS
    default:
      return "CUDNN_STATUS_UNKNOWN";
  }
}

}  // namespace fusor::cudnn
