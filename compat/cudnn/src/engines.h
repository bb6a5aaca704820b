// Owns what the client calls engines: three policies by which fusor's planner carries out a graph, each with
// the candidates that it gives as settings of one knob.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "backend/build.h"
#include "compat/cudnn/src/descriptor.h"
#include "compat/cudnn/src/translate/translation.h"
#include "core/device_info.h"

namespace fusor::cudnn {

/// A policy. The numbers are stable: clients store them.
struct EnginePolicy {
  int64_t index = 0;
  Precision precision = Precision::exact;
  bool cuda_cores_only = false;
};

inline constexpr int64_t kFastEngine = 0;    ///< whatever the compute types permit: TF32, short sums of fp8
inline constexpr int64_t kExactEngine = 10;  ///< operands are multiplied as they are
inline constexpr int64_t kPlainEngine = 20;  ///< CUDA cores only: no note at all

/// The workspace that any plan may ask for from a client that does not look for the best one.
inline constexpr int64_t kModestBytes = int64_t{320} << 20;
/// The same for a graph, whose tensors may be larger: a framework holds one workspace, and tensors of this
/// size for every layer.
int64_t modest_bytes(const Graph& graph);

using DevicePointer = std::shared_ptr<const DeviceInfo>;

/// An operation graph's translation, and the candidates of each policy, planned when they are first
/// asked for.
class GraphState : public State {
 public:
  GraphState(Translation translation, DevicePointer device, std::vector<DescriptorPointer> ops = {});

  const Translation& translation() const { return translation_; }
  /// The ops that the client set; none where the graph is that of a plan's text.
  const std::vector<DescriptorPointer>& ops() const { return ops_; }
  /// The device of the graph's handle, or that of the calling thread.
  DevicePointer device() const;
  /// In the order of their numbers.
  const std::vector<EnginePolicy>& policies() const { return policies_; }
  const EnginePolicy* policy(int64_t index) const;
  /// Best first; never empty. Throws where nothing can carry out the graph.
  std::shared_ptr<const std::vector<Candidate>> candidates(const EnginePolicy& policy,
                                                           const DeviceInfo& device) const;
  Graph graph_of(const EnginePolicy& policy) const;
  static BuildOptions options_of(const EnginePolicy& policy);

 private:
  Translation translation_;
  DevicePointer device_;
  std::vector<DescriptorPointer> ops_;
  std::vector<EnginePolicy> policies_;
  mutable std::mutex mutex_;
  mutable std::map<std::string, std::shared_ptr<const std::vector<Candidate>>> planned_;
};

/// An engine is a policy for a graph on a device, and which of its candidates notes are about.
struct EngineState : State {
  std::shared_ptr<const GraphState> graph;
  EnginePolicy policy;
  DevicePointer device;
  size_t choice = 0;
  std::shared_ptr<const std::vector<Candidate>> only;  ///< of a plan that came as text: what it chose

  std::shared_ptr<const std::vector<Candidate>> candidates() const {
    return only ? only : graph->candidates(policy, *device);
  }
};

struct PlanState;

/// An engine configuration is an engine whose choice is made.
struct ConfigState : State {
  std::shared_ptr<const EngineState> engine;
  const Candidate& candidate() const { return (*candidates)[engine->choice]; }
  std::shared_ptr<const std::vector<Candidate>> candidates;
};

/// Bytes that a run is given beyond what the plan needs, so that it may begin on a multiple of 256.
int64_t workspace_for_client(int64_t bytes);

/// The configuration of a plan that came as text.
DescriptorPointer config_of(const PlanState& plan);

void finalize_operation_graph(Descriptor& d);
void finalize_engine(Descriptor& d);
void finalize_engine_config(Descriptor& d);
void finalize_heuristics(Descriptor& d);
Value answer_operation_graph(const Descriptor& d, cudnnBackendAttributeName_t attribute);
Value answer_engine(const Descriptor& d, cudnnBackendAttributeName_t attribute);
Value answer_engine_config(const Descriptor& d, cudnnBackendAttributeName_t attribute);
Value answer_heuristics(const Descriptor& d, cudnnBackendAttributeName_t attribute);

}  // namespace fusor::cudnn
