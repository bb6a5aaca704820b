// Owns the environment variables: the only place that calls getenv.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace fusor::environment {

/// FUSOR_ENGINE: every fusion that this engine supports is given to it.
std::optional<std::string> engine();
/// FUSOR_CACHE_DIR: the folder of compiled kernels; empty value: no disk cache. Default:
/// $XDG_CACHE_HOME/fusor or
/// ~/.cache/fusor.
std::optional<std::string> cache_dir();
/// FUSOR_CACHE_MB: the size that the folder is kept under (default 512).
int64_t cache_limit_bytes();
/// FUSOR_KERNELS: a folder of kernels that were compiled elsewhere, which is only read.
std::optional<std::string> shipped_kernels();
/// FUSOR_LIBCUDA, FUSOR_LIBNVRTC: the library to open instead of the ladder of names.
std::optional<std::string> libcuda();
std::optional<std::string> libnvrtc();
/// FUSOR_CUDA_ROOT: a toolkit, or a folder of wheels, in which NVRTC is looked for.
std::optional<std::string> cuda_root();
/// FUSOR_DEBUG: what is reported on stderr. 0 (default): nothing. 1: a line for each build, load and run. 2:
/// also the fusions after each pass of a build. 3: also their expressions.
int debug_level();
/// FUSOR_CHECK: 1 looks for NaN and infinity in the tensors of every run and reports them on stderr. 0
/// (default) does not.
bool checks_runs();
/// FUSOR_KERNEL_NAMES: how kernels are named for profilers. 0: after the engine. 1 (default): after the
/// fusion, too; fusions that share a kernel share the name of the first. 2: likewise, and none shares a
/// kernel with a fusion of other ops' names.
int kernel_names();
/// FUSOR_THREADS: threads for compiling and for the CPU device (default: all cores).
int threads();

/// For the library with cuDNN's interface (docs/cudnn.md). CUDNN_LOGLEVEL_DBG: 0 (default) to 3, errors,
/// warnings, calls. CUDNN_LOGDEST_DBG: stdout (default), stderr or a file. FUSOR_CUDNN_VERSION: the version
/// that is reported instead.
int cudnn_log_level();
std::optional<std::string> cudnn_log_destination();
int64_t cudnn_version(int64_t otherwise);

}  // namespace fusor::environment
