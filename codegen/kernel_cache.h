// Owns compiled kernels: memory first, then disk, then those that were shipped, then NVRTC.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/cache_stats.h"
#include "core/lowered.h"

namespace fusor {

enum class KernelOrigin { memory, disk, compiled };

/// A cubin and where it came from.
struct CompiledKernel {
  std::string key;    ///< kernel_key
  std::string cubin;  ///< bytes
  std::string log;    ///< what NVRTC and ptxas said (registers, spills, warnings); empty from the cache
  KernelOrigin origin = KernelOrigin::compiled;
  double compile_ms = 0;  ///< of the compilation that made it, also when it came from a cache
};

/// What a kernel is known by in memory and on disk, as 32 hex digits: everything that its text and its
/// compilation depend on. These are the device files, the emitter, the structure and config of the source,
/// its target, NVRTC's options and identity. Throws Error{missing} without NVRTC.
std::string kernel_key(const KernelSource& source);
/// The same for another revision of the emitter.
std::string kernel_key(const KernelSource& source, std::string_view emitter_revision);

/// The same without NVRTC's identity: what a kernel is known by in a folder of shipped kernels, which other
/// machines read.
std::string portable_key(const KernelSource& source);
/// Compiles the kernel, where it is not yet, into such a folder.
void ship_kernel(const KernelSource& source, const std::filesystem::path& folder);
/// The folder of shipped kernels where the environment (FUSOR_KERNELS) names none; empty: there is none.
void set_shipped_kernels(std::filesystem::path folder);

/// Whether compiled_kernel() would not have to compile: memory, the disk or the shipped kernels have it.
bool is_compiled(const KernelSource& source);
/// The kernel for a source; thread-safe. Throws Error{missing} without NVRTC, Error{internal} with NVRTC's
/// log where the text does not compile.
std::shared_ptr<const CompiledKernel> compiled_kernel(const KernelSource& source);
/// All of them, compiled in parallel; the result is parallel to `sources`.
std::vector<std::shared_ptr<const CompiledKernel>> compiled_kernels(
    std::span<const std::shared_ptr<const KernelSource>> sources);

/// Forgets what memory holds (tests; the disk stays).
void clear_memory_cache();

}  // namespace fusor
