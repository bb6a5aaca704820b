// Owns Executable: a loaded plan. run() patches pointers and launches, and does nothing else.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "backend/report/profile.h"
#include "core/api.h"
#include "core/plan.h"

namespace fusor {

/// A pointer for a tensor: device memory (the CPU device: host memory), or host memory for a by-value scalar.
struct Binding {
  int64_t uid = 0;
  const void* pointer = nullptr;
  Binding(int64_t uid_, const void* pointer_) : uid(uid_), pointer(pointer_) {}
  Binding(const Tensor& tensor, const void* pointer_) : uid(tensor.uid), pointer(pointer_) {}
};

/// Scratch memory of one run: Executable::workspace_bytes() bytes, 256-byte aligned. Null where bytes are
/// needed, another alignment, or a size that is given and too small is Error{bad_input}.
struct Workspace {
  void* pointer = nullptr;
  int64_t bytes = kUnknown;

  static constexpr int64_t kUnknown = INT64_MAX;
  Workspace(void* pointer_ = nullptr) : pointer(pointer_) {}  // NOLINT(google-explicit-constructor)
  Workspace(void* pointer_, int64_t bytes_) : pointer(pointer_), bytes(bytes_) {}
};

/// A CUstream; null is the default stream. The CPU device ignores it.
using Stream = void*;

/// A plan whose kernels are loaded. Immutable: any number of threads may run it at once, each with its own
/// workspace.
class FUSOR_API Executable {
 public:
  Executable(Executable&&) noexcept;
  Executable& operator=(Executable&&) noexcept;
  ~Executable();

  const Plan& plan() const;
  /// Bytes of device memory (CPU device: host memory) that each run needs, 256-byte aligned; its contents do
  /// not matter.
  int64_t workspace_bytes() const;

  /// Launches the plan on the stream. Unknown uids are ignored. Throws Error that names the tensor where one
  /// has no pointer, or a pointer breaks the alignment that its kernels rely on. Allocates nothing; safe
  /// under stream capture.
  ///
  /// Memory that tensors share: inputs may overlap each other as they like. An output overlaps nothing (no
  /// two elements share a byte; rows of two tensors may take turns), but it may take the place of an input,
  /// both at one address, where the plan is done with each element of the input before it is overwritten:
  /// where all readers of the input run before the output is written, or where the input is read by the
  /// output's own pointwise ops in its layout (relu in place, a residual that becomes the sum; on a GPU by a
  /// softmax or a norm, too). The workspace overlaps nothing. All else is refused with an Error naming both.
  void run(std::span<const Binding> bindings, Workspace workspace = {}, Stream stream = nullptr) const;
  void run(std::initializer_list<Binding> bindings, Workspace workspace = {}, Stream stream = nullptr) const {
    run(std::span<const Binding>(bindings.begin(), bindings.size()), workspace, stream);
  }

  /// Whether run() takes an output in the place of an input, both at one address. Tensors by uid; no where
  /// one of them is not bound, or the one is no output.
  bool may_replace(int64_t output, int64_t input) const;

  /// The position of a tensor in run(by_slot); throws Error for a name that is not bound.
  int slot(std::string_view tensor_name) const;
  int slot_count() const;
  /// As run(bindings), with a pointer for each slot; another number of pointers is Error{bad_input}.
  void run(std::span<void* const> by_slot, Workspace workspace = {}, Stream stream = nullptr) const;

  /// Runs some times and says where the time goes (backend/report/profile.h). Times are between events on the
  /// stream: each kernel's includes what the driver needs between two launches, about a microsecond, and
  /// launches that would overlap do not. Waits for the stream; not for captures.
  Profile profile(std::span<const Binding> bindings, Workspace workspace = {}, Stream stream = nullptr,
                  const ProfileOptions& options = {}) const;
  Profile profile(std::span<void* const> by_slot, Workspace workspace = {}, Stream stream = nullptr,
                  const ProfileOptions& options = {}) const;

 private:
  friend struct ExecutableMaker;
  struct Impl;
  explicit Executable(std::unique_ptr<const Impl> impl);
  std::unique_ptr<const Impl> impl_;
};

/// Lowers the plan again and loads its kernels, from the cache or compiled now. A choice that no longer
/// exists (engine, revision, knob, another architecture) is made anew for that fusion and said in
/// plan().remarks. Throws Error{missing} where the device or its driver is not there.
FUSOR_API Executable load(const Plan& plan);

}  // namespace fusor
