// Owns runs as nodes of a CUDA graph.
#include "compat/cudnn/src/plan.h"

using namespace fusor::cudnn;  // NOLINT(google-build-using-namespace)

extern "C" {

cudnnStatus_t cudnnBackendPopulateCudaGraph(cudnnHandle_t handle, cudnnBackendDescriptor_t,
                                            cudnnBackendDescriptor_t, cudaGraph_t) {
  return guarded("cudnnBackendPopulateCudaGraph", [&] {
    handle_at(handle);
    refuse(CUDNN_STATUS_NOT_SUPPORTED_CUDA_GRAPH_NATIVE_API,
           "nodes of CUDA graphs are not made; capture a stream");
  });
}

cudnnStatus_t cudnnBackendUpdateCudaGraph(cudnnHandle_t handle, cudnnBackendDescriptor_t,
                                          cudnnBackendDescriptor_t, cudaGraph_t) {
  return guarded("cudnnBackendUpdateCudaGraph", [&] {
    handle_at(handle);
    refuse(CUDNN_STATUS_NOT_SUPPORTED_CUDA_GRAPH_NATIVE_API,
           "nodes of CUDA graphs are not made; capture a stream");
  });
}

}  // extern "C"
