// Owns runs as nodes of a CUDA graph.
#include "codegen/cuda_driver.h"
#include "compat/cudnn/src/plan.h"
#include "core/error.h"

namespace fusor::cudnn {

namespace {

using MakeNodes = void (*)(void* graph, const std::function<void(void* stream)>& launch);

void make_nodes(MakeNodes make, cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                cudnnBackendDescriptor_t pack, cudaGraph_t graph) {
  handle_at(handle);
  const auto plan_state = descriptor_at(plan)->state_as<PlanState>();
  const auto pack_state = descriptor_at(pack)->state_as<PackState>();
  if (graph == nullptr) refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "the CUDA graph is null");
  if (plan_state->plan.device.is_cpu())
    refuse(CUDNN_STATUS_NOT_SUPPORTED_CUDA_GRAPH_NATIVE_API, "the CPU device has no CUDA graphs");
  make(graph, [&](void* stream) { run_plan(*plan_state, *pack_state, stream); });
}

// Nodes of another plan, or of the other way that a plan has for values of its scalars, are not updated.
void update_nodes(void* graph, const std::function<void(void* stream)>& launch) {
  try {
    cuda::update_nodes(graph, launch);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::bad_input) throw;
    refuse(CUDNN_STATUS_BAD_PARAM_CUDA_GRAPH_MISMATCH, "{}", error.what());
  }
}

}  // namespace
}  // namespace fusor::cudnn

using namespace fusor::cudnn;  // NOLINT(google-build-using-namespace)

extern "C" {

cudnnStatus_t cudnnBackendPopulateCudaGraph(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                            cudnnBackendDescriptor_t pack, cudaGraph_t graph) {
  return guarded("cudnnBackendPopulateCudaGraph",
                 [&] { make_nodes(fusor::cuda::add_nodes, handle, plan, pack, graph); });
}

cudnnStatus_t cudnnBackendUpdateCudaGraph(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                          cudnnBackendDescriptor_t pack, cudaGraph_t graph) {
  return guarded("cudnnBackendUpdateCudaGraph", [&] { make_nodes(update_nodes, handle, plan, pack, graph); });
}

}  // extern "C"
