// Owns the loading and the running of plans.
#include "backend/executable.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <set>

#include "backend/aliasing.h"
#include "backend/engines/list.h"
#include "backend/planner/limits.h"
#include "backend/planning.h"
#include "backend/reference/reference.h"
#include "backend/replan.h"
#include "backend/report/profile_times.h"
#include "backend/report/trace.h"
#include "backend/run_blocks.h"
#include "backend/run_check.h"
#include "backend/schedule.h"
#include "backend/side_by_side.h"
#include "codegen/cuda_driver.h"
#include "codegen/kernel_cache.h"
#include "codegen/nvtx.h"
#include "codegen/text/entry_name.h"
#include "core/convert.h"
#include "core/environment.h"
#include "core/fail.h"
#include "heuristics/time_model.h"

namespace fusor {

namespace {

// What the driver passes by value to one kernel at most.
constexpr size_t kMaxArgumentBytes = kMostArgumentBytes;

// A tensor that the caller binds.
struct Slot {
  int64_t uid = 0;
  int tensor = 0;
  int64_t alignment = 1;  // that some step relies on
};

// Where an address comes from: a slot, or a place in the workspace.
struct Source {
  int slot = -1;
  int64_t byte_offset = 0;
};

struct PointerPatch {
  uint32_t at = 0;
  Source source;
};

struct ScalarPatch {
  uint32_t at = 0;
  int slot = 0;
  DataType stored = DataType::f32, carried = DataType::f32;
  double least = -std::numeric_limits<double>::infinity(), factor = 1;
};

struct MapPatch {
  uint32_t at = 0;
  Source source;
};

struct LaunchStep {
  cuda::Kernel kernel;
  cuda::LaunchShape shape;
  std::vector<std::byte> block;
  std::vector<PointerPatch> pointers;
  std::vector<ScalarPatch> scalars;
  std::vector<MapPatch> maps;  // encoded in the block
  int turn_at = -1;            // where the block has its turn; -1: nowhere
  LaunchTurn turn = LaunchTurn::waits;
};

struct FillStep {
  Source target;
  int64_t bytes = 0;
  uint8_t value = 0;
};

struct EvaluateStep {
  Fusion fusion;
  std::vector<Source> operands;
};

using ReadyStep = std::variant<LaunchStep, FillStep, EvaluateStep>;

// A by-value scalar in the 8 bytes that its argument takes.
std::array<std::byte, 8> carried_bytes(const ScalarPatch& patch, const void* host) {
  std::array<std::byte, 8> bytes{};
  const auto put = [&](auto value) { std::memcpy(bytes.data(), &value, sizeof value); };
  const bool real = is_real(patch.stored);
  switch (patch.carried) {
    case DataType::f64:
      put(real ? load_real(patch.stored, host, 0) : static_cast<double>(load_int(patch.stored, host, 0)));
      break;
    case DataType::f32:
      // A NaN stays one: std::max gives its first argument then.
      put(static_cast<float>(patch.factor *
                             std::max(real ? load_real(patch.stored, host, 0)
                                           : static_cast<double>(load_int(patch.stored, host, 0)),
                                      patch.least)));
      break;
    case DataType::i64:
      put(load_int(patch.stored, host, 0));
      break;
    default:
      put(static_cast<int32_t>(load_int(patch.stored, host, 0)));
      break;
  }
  return bytes;
}

// Seconds of work on a stream between two events, or of calls on the CPU device.
class Stopwatch {
 public:
  explicit Stopwatch(bool on_gpu) {
    if (on_gpu) events_ = std::make_unique<cuda::Timer>();
  }
  template <class Work>
  void time(Stream stream, Work work) {
    if (events_) events_->start(stream);
    const auto start = std::chrono::steady_clock::now();
    work();
    call_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (events_) events_->stop(stream);
  }
  /// Waits for the work.
  double seconds() const { return events_ ? events_->seconds() : call_; }

 private:
  std::unique_ptr<cuda::Timer> events_;
  double call_ = 0;
};

// Where a run finds its tensors. Launches run beside each other as far as no two tensors share memory, which
// those do that are computed in place.
struct RunMemory {
  std::span<void* const> by_slot;
  std::byte* workspace = nullptr;
  bool works_in_place = false;

  void* at(const Source& source) const {
    auto* base = source.slot < 0 ? workspace : static_cast<std::byte*>(by_slot[source.slot]);
    return base + source.byte_offset;
  }
};

}  // namespace

struct Executable::Impl {
  Plan plan;
  int64_t workspace_bytes = 0;
  std::vector<Slot> slots;  // by uid
  std::vector<ReadyStep> steps;
  std::vector<StepLabel> labels;    // parallel to steps
  std::vector<std::string> ranges;  // per fusion: what profilers show
  std::optional<AliasRules> aliases;
  std::shared_ptr<void> context;  // that the kernels were loaded into, where the thread had none
  mutable std::optional<RunBlocks> blocks;
  bool traces = false;  // FUSOR_DEBUG at load
  bool checks = false;  // FUSOR_CHECK at load

  // Whether an output lies in the place of an input.
  bool check(std::span<void* const> by_slot, const Workspace& workspace, int* order) const {
    if (by_slot.size() != slots.size())
      fail("run: got {} pointers, the plan of '{}' has {} slots", by_slot.size(), plan.graph.name,
           slots.size());
    for (size_t i = 0; i < slots.size(); ++i) {
      const auto address = reinterpret_cast<uintptr_t>(by_slot[i]);
      if (address == 0)
        fail("run: tensor '{}' (uid {}) has no pointer", plan.graph.tensors[slots[i].tensor].name,
             slots[i].uid);
      if (address % static_cast<uintptr_t>(slots[i].alignment) != 0) refuse_alignment(slots[i], by_slot[i]);
    }
    if (workspace_bytes > 0 && workspace.pointer == nullptr)
      fail("run: the plan of '{}' needs {} bytes of workspace, got a null pointer", plan.graph.name,
           workspace_bytes);
    if (workspace.bytes < workspace_bytes)
      fail("run: the plan of '{}' needs {} bytes of workspace, got {}", plan.graph.name, workspace_bytes,
           workspace.bytes);
    if (reinterpret_cast<uintptr_t>(workspace.pointer) % 256 != 0)
      fail("run: the workspace {} is not a multiple of 256", workspace.pointer);
    return aliases->check(plan.graph, by_slot, workspace.pointer, workspace_bytes, order);
  }

  void run_all(std::span<void* const> by_slot, const Workspace& workspace, Stream stream, int* order) const {
    const bool works_in_place = check(by_slot, workspace, order);
    const RunMemory memory{by_slot, static_cast<std::byte*>(workspace.pointer), works_in_place};
    if (traces) trace_run(plan, steps.size());
    for (size_t i = 0; i < steps.size(); ++i) run_step(i, memory, stream);
    if (checks) look_for_not_finite(by_slot, stream);
  }

  void look_for_not_finite(std::span<void* const> by_slot, Stream stream) const {
    std::vector<void*> pointers(plan.graph.tensors.size(), nullptr);
    for (size_t i = 0; i < slots.size(); ++i) pointers[static_cast<size_t>(slots[i].tensor)] = by_slot[i];
    check_run(plan, pointers, stream);
  }

  void run_step(size_t i, const RunMemory& memory, Stream stream) const {
    const nvtx::Range range(ranges[static_cast<size_t>(labels[i].fusion)].c_str());
    std::visit([&](const auto& ready) { run(ready, memory, stream); }, steps[i]);
  }

  // Whole runs and runs step by step take turns, so that what drifts drifts for both.
  ProfileTimes times(std::span<void* const> by_slot, const Workspace& workspace, Stream stream, int* order,
                     const ProfileOptions& options) const {
    for (int i = 0; i < options.warm_ups; ++i) run_all(by_slot, workspace, stream, order);
    const bool on_gpu = !plan.device.is_cpu();
    const RunMemory memory{by_slot, static_cast<std::byte*>(workspace.pointer),
                           check(by_slot, workspace, order)};
    Stopwatch whole(on_gpu);
    std::vector<Stopwatch> watches;
    for (size_t i = 0; i < steps.size(); ++i) watches.emplace_back(on_gpu);
    ProfileTimes times;
    for (int i = 0; i < options.runs; ++i) {
      if (options.before_run) options.before_run();
      whole.time(stream, [&] { run_all(by_slot, workspace, stream, order); });
      times.runs.push_back(whole.seconds());
      if (options.before_run) options.before_run();
      for (size_t step = 0; step < steps.size(); ++step)
        watches[step].time(stream, [&] { run_step(step, memory, stream); });
      std::vector<double>& seconds = times.steps.emplace_back();
      for (const Stopwatch& watch : watches) seconds.push_back(watch.seconds());
    }
    return times;
  }

  [[noreturn]] void refuse_alignment(const Slot& slot, const void* pointer) const {
    fail("run: tensor '{}' is at {}, which is not a multiple of the {} bytes that the plan relies on",
         plan.graph.tensors[slot.tensor].name, pointer, slot.alignment);
  }

  void run(const LaunchStep& step, const RunMemory& memory, Stream stream) const {
    alignas(kTensorMapAlignment) std::array<std::byte, kMaxArgumentBytes> block;
    std::memcpy(block.data(), step.block.data(), step.block.size());
    for (const PointerPatch& patch : step.pointers) {
      const void* pointer = memory.at(patch.source);
      std::memcpy(block.data() + patch.at, &pointer, sizeof pointer);
    }
    for (const ScalarPatch& patch : step.scalars) {
      const auto bytes = carried_bytes(patch, memory.by_slot[patch.slot]);
      std::memcpy(block.data() + patch.at, bytes.data(), bytes.size());
    }
    for (const MapPatch& patch : step.maps) cuda::repoint(block.data() + patch.at, memory.at(patch.source));
    if (step.turn_at >= 0) {
      const bool waits =
          memory.works_in_place && (step.turn == LaunchTurn::beside || step.turn == LaunchTurn::ahead);
      const LaunchTurn turn = waits ? LaunchTurn::waits : step.turn;
      std::memcpy(block.data() + step.turn_at, &turn, sizeof turn);
    }
    cuda::launch(step.kernel.handle(), step.shape, block.data(), step.block.size(), stream);
  }

  void run(const FillStep& step, const RunMemory& memory, Stream stream) const {
    cuda::fill(memory.at(step.target), step.value, step.bytes, stream);
  }

  void run(const EvaluateStep& step, const RunMemory& memory, Stream) const {
    std::vector<void*> operands;
    operands.reserve(step.operands.size());
    for (size_t i = 0; i < step.operands.size(); ++i)
      operands.push_back(step.fusion.operands[i].memory == Memory::constant ? nullptr
                                                                            : memory.at(step.operands[i]));
    evaluate(step.fusion, operands, Reading::device);
  }
};

namespace {

// Turns a schedule into steps that need no look-up.
class Loader {
 public:
  Loader(const Plan& plan, const Schedule& schedule)
      : plan_(plan), schedule_(schedule), written_(plan.graph.tensors.size(), false) {
    for (const Op& op : plan.graph.ops)
      for (const int tensor : op.outputs)
        if (tensor >= 0) written_[static_cast<size_t>(tensor)] = true;
  }

  std::vector<Slot> slots() {
    slot_of_.assign(plan_.graph.tensors.size(), -1);
    std::vector<Slot> slots;
    for (size_t i = 0; i < plan_.graph.tensors.size(); ++i) {
      const Tensor& tensor = plan_.graph.tensors[i];
      if (tensor.memory == Memory::device || tensor.memory == Memory::host)
        slots.push_back({tensor.uid, static_cast<int>(i), byte_size(tensor.type)});
    }
    std::ranges::sort(slots, {}, &Slot::uid);
    for (size_t i = 0; i < slots.size(); ++i) slot_of_[slots[i].tensor] = static_cast<int>(i);
    for (const ScheduledFusion& scheduled : schedule_.fusions)
      for (const Guard& guard : scheduled.lowered.guards)
        if (const int slot = slot_of_[scheduled.fusion.operands[guard.operand].tensor]; slot >= 0)
          slots[slot].alignment = std::max(slots[slot].alignment, guard.alignment);
    return slots;
  }

  /// Per tensor of the graph, once slots() was asked.
  std::span<const int> slot_of() const { return slot_of_; }

  std::vector<ReadyStep> steps(Trace& trace) {
    std::vector<std::shared_ptr<const KernelSource>> sources;
    for_each_step([&](int, const ScheduledFusion&, const Step& step) {
      if (const auto* launch = std::get_if<Launch>(&step)) sources.push_back(launch->source);
    });
    const auto compiled = compiled_kernels(sources);
    trace.compiled(compiled);
    count_users(compiled);
    const std::vector<bool> beside = steps_beside(plan_.graph, schedule_, plan_.device);
    std::vector<ReadyStep> ready;
    size_t next = 0;
    for_each_step([&](int fusion, const ScheduledFusion& scheduled, const Step& step) {
      if (const auto* launch = std::get_if<Launch>(&step)) {
        LaunchStep own = ready_launch(fusion, scheduled, *launch, *compiled[next++]);
        const bool overlaps = overlaps_others(*launch, plan_.device);
        own.shape.programmatic =
            overlaps && !ready.empty() && std::holds_alternative<LaunchStep>(ready.back());
        own.turn_at = launch->turn_at;
        own.turn = !overlaps                                   ? LaunchTurn::alone
                   : !own.shape.programmatic                   ? LaunchTurn::in_order
                   : beside[ready.size()]                      ? LaunchTurn::beside
                   : may_read_ahead(scheduled.fusion, *launch) ? LaunchTurn::ahead
                                                               : LaunchTurn::waits;
        ready.emplace_back(std::move(own));
      } else if (const auto* fill = std::get_if<Fill>(&step))
        ready.emplace_back(
            FillStep{{-1, scheduled.scratch_offsets[fill->scratch]}, fill->bytes, fill->value});
      else
        ready.emplace_back(ready_evaluate(scheduled));
    });
    return ready;
  }

  /// Parallel to steps().
  std::vector<StepLabel> labels() {
    std::vector<StepLabel> labels;
    for_each_step([&](int fusion, const ScheduledFusion&, const Step& step) {
      const auto* launch = std::get_if<Launch>(&step);
      labels.push_back({fusion, launch != nullptr                    ? launch->entry
                                : std::holds_alternative<Fill>(step) ? "fill"
                                                                     : "evaluate"});
    });
    return labels;
  }

 private:
  template <class Body>
  void for_each_step(Body body) {
    for (size_t i = 0; i < schedule_.fusions.size(); ++i)
      for (const Step& step : schedule_.fusions[i].lowered.steps)
        body(static_cast<int>(i), schedule_.fusions[i], step);
  }

  // Whether nothing of the plan writes what the launch can read before it waits.
  bool may_read_ahead(const Fusion& fusion, const Launch& launch) const {
    return !launch.ahead.empty() && std::ranges::none_of(launch.ahead, [&](int operand) {
      return written_[static_cast<size_t>(fusion.operands[operand].tensor)];
    });
  }

  Source source_of(const Operand& operand) const {
    if (operand.memory == Memory::workspace) return {-1, schedule_.tensor_offsets[operand.tensor]};
    return {slot_of_[operand.tensor], 0};
  }

  static bool has_large_clusters(const Launch& launch) {
    return launch.cluster[0] * launch.cluster[1] * launch.cluster[2] > cuda::kPortableCluster;
  }

  // Which fusions run each kernel.
  void count_users(std::span<const std::shared_ptr<const CompiledKernel>> compiled) {
    size_t next = 0;
    for_each_step([&](int fusion, const ScheduledFusion&, const Step& step) {
      if (std::holds_alternative<Launch>(step)) users_[compiled[next++]->key].insert(fusion);
    });
  }

  cuda::Kernel kernel_of(int fusion, const Launch& launch, const CompiledKernel& compiled) const {
    const auto name = [&] {
      const size_t alike = naming_ > 1 ? 0 : users_.at(compiled.key).size() - 1;
      return kernel_name(op_names(plan_.graph, plan_.fusions[static_cast<size_t>(fusion)]), launch.entry,
                         alike);
    };
    const auto load = [&](const std::string& key, const std::function<std::string()>& wish) {
      return cuda::Kernel::load(compiled.cubin, launch.entry, launch.shared_bytes, key,
                                has_large_clusters(launch), wish);
    };
    if (naming_ == 0) return load(compiled.key, {});
    return load(naming_ > 1 ? compiled.key + name() : compiled.key, name);
  }

  LaunchStep ready_launch(int fusion, const ScheduledFusion& scheduled, const Launch& launch,
                          const CompiledKernel& compiled) const {
    LaunchStep step;
    step.kernel = kernel_of(fusion, launch, compiled);
    step.shape = {launch.grid,
                  launch.block,
                  launch.cluster,
                  static_cast<uint32_t>(launch.shared_bytes),
                  static_cast<uint32_t>(launch.arguments.maps().empty() ? 8 : kTensorMapAlignment),
                  launch.cooperative};
    step.block = launch.arguments.bytes();
    if (step.block.size() > kMaxArgumentBytes)
      fail(ErrorKind::internal, "kernel '{}' has {} bytes of arguments, the limit is {}", launch.entry,
           step.block.size(), kMaxArgumentBytes);
    encode_maps(launch.arguments, step.block);
    for (const Patch& patch : launch.arguments.patches()) {
      const auto at = static_cast<uint32_t>(patch.at);
      if (patch.kind == Patch::Kind::scalar) {
        const Operand& operand = scheduled.fusion.operands[patch.index];
        step.scalars.push_back(
            {at, source_of(operand).slot, operand.type, patch.type, patch.least, patch.factor});
        continue;
      }
      const Source source = source_of(scheduled, patch);
      if (patch.is_map())
        step.maps.push_back({at, source});
      else
        step.pointers.push_back({at, source});
    }
    return step;
  }

  Source source_of(const ScheduledFusion& scheduled, const Patch& patch) const {
    const bool in_scratch = patch.kind == Patch::Kind::scratch || patch.kind == Patch::Kind::scratch_map;
    Source source = in_scratch ? Source{-1, scheduled.scratch_offsets[patch.index]}
                               : source_of(scheduled.fusion.operands[patch.index]);
    source.byte_offset += patch.byte_offset;
    return source;
  }

  // Maps are encoded once, here; a run only points them at its tensors.
  static void encode_maps(const ArgumentBlock& arguments, std::vector<std::byte>& block) {
    size_t next = 0;
    for (const Patch& patch : arguments.patches()) {
      if (!patch.is_map()) continue;
      alignas(kTensorMapAlignment) std::array<std::byte, kTensorMapBytes> encoded{};
      cuda::encode(arguments.maps()[next++], encoded.data());
      std::memcpy(block.data() + patch.at, encoded.data(), encoded.size());
    }
  }

  EvaluateStep ready_evaluate(const ScheduledFusion& scheduled) const {
    EvaluateStep step{scheduled.fusion, {}};
    for (const Operand& operand : scheduled.fusion.operands) step.operands.push_back(source_of(operand));
    return step;
  }

  const Plan& plan_;
  const Schedule& schedule_;
  std::vector<int> slot_of_;                    // per tensor
  std::vector<bool> written_;                   // per tensor: by an op
  std::map<std::string, std::set<int>> users_;  // fusions by kernel's key
  int naming_ = environment::kernel_names();
};

}  // namespace

Executable::Executable(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
Executable::Executable(Executable&&) noexcept = default;
Executable& Executable::operator=(Executable&&) noexcept = default;
Executable::~Executable() = default;

const Plan& Executable::plan() const { return impl_->plan; }
int64_t Executable::workspace_bytes() const { return impl_->workspace_bytes; }
int Executable::slot_count() const { return static_cast<int>(impl_->slots.size()); }

bool Executable::may_replace(int64_t output, int64_t input) const {
  return impl_->aliases->may_replace(impl_->plan.graph.find_uid(output), impl_->plan.graph.find_uid(input));
}

int Executable::slot(std::string_view tensor_name) const {
  for (size_t i = 0; i < impl_->slots.size(); ++i)
    if (impl_->plan.graph.tensors[impl_->slots[i].tensor].name == tensor_name) return static_cast<int>(i);
  fail("the plan of '{}' binds no tensor '{}'", impl_->plan.graph.name, tensor_name);
}

namespace {

// Pointers by slot; null where no binding has one.
std::span<void* const> place(std::span<const Binding> bindings, const std::vector<Slot>& slots,
                             void** by_slot) {
  std::fill_n(by_slot, slots.size(), nullptr);
  for (const Binding& binding : bindings) {
    const auto slot = std::ranges::lower_bound(slots, binding.uid, {}, &Slot::uid);
    if (slot != slots.end() && slot->uid == binding.uid)
      by_slot[slot - slots.begin()] = const_cast<void*>(binding.pointer);
  }
  return {by_slot, slots.size()};
}

}  // namespace

void Executable::run(std::span<const Binding> bindings, Workspace workspace, Stream stream) const {
  const RunBlocks::Taken block(*impl_->blocks);
  impl_->run_all(place(bindings, impl_->slots, block.get().pointers), workspace, stream, block.get().order);
}

void Executable::run(std::span<void* const> by_slot, Workspace workspace, Stream stream) const {
  const RunBlocks::Taken block(*impl_->blocks);
  impl_->run_all(by_slot, workspace, stream, block.get().order);
}

Profile Executable::profile(std::span<const Binding> bindings, Workspace workspace, Stream stream,
                            const ProfileOptions& options) const {
  std::vector<void*> by_slot(impl_->slots.size());
  place(bindings, impl_->slots, by_slot.data());
  return profile(by_slot, workspace, stream, options);
}

Profile Executable::profile(std::span<void* const> by_slot, Workspace workspace, Stream stream,
                            const ProfileOptions& options) const {
  if (options.runs < 1 || options.warm_ups < 0)
    fail("profile: {} runs after {} warm-ups; expected at least 1 after 0 or more", options.runs,
         options.warm_ups);
  std::optional<cuda::ContextScope> context;
  if (!impl_->plan.device.is_cpu()) context.emplace();
  const RunBlocks::Taken block(*impl_->blocks);
  return profile_of(impl_->plan, impl_->labels,
                    impl_->times(by_slot, workspace, stream, block.get().order, options));
}

// What load() is, over given engines.
struct ExecutableMaker {
  static Executable load(const Plan& plan, std::span<const Engine* const> list);
};

Executable ExecutableMaker::load(const Plan& plan, std::span<const Engine* const> list) {
  Trace trace;
  auto impl = std::make_unique<Executable::Impl>();
  LoweredPlan lowered = replan(plan, list);
  impl->plan = std::move(lowered.plan);
  const Schedule schedule =
      make_schedule(impl->plan.graph, std::move(lowered.fusions), launches_overlap(impl->plan.device));
  impl->workspace_bytes = schedule.workspace_bytes;
  std::optional<cuda::ContextScope> context;
  if (!impl->plan.device.is_cpu()) impl->context = context.emplace().holder();
  Loader loader(impl->plan, schedule);
  impl->slots = loader.slots();
  impl->blocks.emplace(impl->slots.size());
  impl->aliases.emplace(impl->plan.graph, schedule, loader.slot_of());
  impl->steps = loader.steps(trace);
  impl->labels = loader.labels();
  for (const PlannedFusion& fusion : impl->plan.fusions)
    impl->ranges.push_back(fmt::format("{}", fmt::join(op_names(impl->plan.graph, fusion), " + ")));
  nvtx::start();
  impl->traces = trace.is_on();
  impl->checks = environment::checks_runs();
  trace.loaded(impl->plan);
  return Executable(std::move(impl));
}

Executable load(const Plan& plan) { return ExecutableMaker::load(plan, engines()); }

Executable load(const Plan& plan, std::span<const Engine* const> engine_list) {
  return ExecutableMaker::load(plan, engine_list);
}

}  // namespace fusor
