// Owns the log: CUDNN_LOGLEVEL_DBG (0 to 3), CUDNN_LOGDEST_DBG (stdout, stderr or a file), and the client's
// callback.
#pragma once

#include <string_view>

#include "compat/cudnn/include/cudnn_graph.h"

namespace fusor::cudnn {

/// Whether anybody wants messages of that severity.
bool log_listens(cudnnSeverity_t severity) noexcept;
void write_log(cudnnSeverity_t severity, cudnnStatus_t status, std::string_view text);

struct LogCallback {
  unsigned mask = 0;
  void* data = nullptr;
  cudnnCallback_t function = nullptr;
};
void set_log_callback(const LogCallback& callback);
LogCallback log_callback();

}  // namespace fusor::cudnn
