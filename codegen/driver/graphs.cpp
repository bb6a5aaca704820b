// Owns the nodes that a launch becomes in a CUDA graph of somebody else's.
#include "codegen/cuda_driver.h"

#ifdef FUSOR_WITH_CUDA

#include <functional>
#include <vector>

#include "codegen/driver/table.h"

namespace fusor::cuda {

namespace {

void expect_graph_nodes() {
  if (!driver().makes_graph_nodes)
    fail(ErrorKind::missing, "the driver makes no nodes of a given graph: CUDA 12.3 or newer is needed");
}

// The work that a launch puts on a stream, as nodes of a graph.
void capture_to(CUgraph graph, const std::function<void(void* stream)>& launch) {
  const OwnStream own;
  auto* const stream = static_cast<CUstream>(own.get());
  check(driver().cuStreamBeginCaptureToGraph(stream, graph, nullptr, nullptr, 0,
                                             CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
        "capture a stream to a graph");
  CUgraph captured = nullptr;
  try {
    launch(stream);
  } catch (...) {
    driver().cuStreamEndCapture(stream, &captured);
    throw;
  }
  check(driver().cuStreamEndCapture(stream, &captured), "end the capture of a stream to a graph");
}

std::vector<CUgraphNode> nodes_of(CUgraph graph) {
  size_t count = 0;
  check(driver().cuGraphGetNodes(graph, nullptr, &count), "count the nodes of a graph");
  std::vector<CUgraphNode> nodes(count);
  if (count > 0) check(driver().cuGraphGetNodes(graph, nodes.data(), &count), "read the nodes of a graph");
  return nodes;
}

CUgraphNodeType type_of(CUgraphNode node) {
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  check(driver().cuGraphNodeGetType(node, &type), "read the type of a graph's node");
  return type;
}

CUDA_KERNEL_NODE_PARAMS kernel_parameters(CUgraphNode node) {
  CUDA_KERNEL_NODE_PARAMS parameters{};
  check(driver().cuGraphKernelNodeGetParams(node, &parameters), "read a kernel node");
  return parameters;
}

// Whether nodes differ by their arguments only.
bool are_alike(CUgraphNode a, CUgraphNode b) {
  if (type_of(a) != type_of(b)) return false;
  if (type_of(a) != CU_GRAPH_NODE_TYPE_KERNEL) return true;
  const CUDA_KERNEL_NODE_PARAMS of_a = kernel_parameters(a), of_b = kernel_parameters(b);
  return of_a.func == of_b.func && of_a.kern == of_b.kern;
}

void copy_parameters(CUgraphNode from, CUgraphNode to) {
  if (type_of(from) == CU_GRAPH_NODE_TYPE_KERNEL) {
    const CUDA_KERNEL_NODE_PARAMS parameters = kernel_parameters(from);
    check(driver().cuGraphKernelNodeSetParams(to, &parameters), "update a kernel node");
  } else if (type_of(from) == CU_GRAPH_NODE_TYPE_MEMSET) {
    CUDA_MEMSET_NODE_PARAMS parameters{};
    check(driver().cuGraphMemsetNodeGetParams(from, &parameters), "read a memset node");
    check(driver().cuGraphMemsetNodeSetParams(to, &parameters), "update a memset node");
  } else if (type_of(from) == CU_GRAPH_NODE_TYPE_MEMCPY) {
    CUDA_MEMCPY3D parameters{};
    check(driver().cuGraphMemcpyNodeGetParams(from, &parameters), "read a copy's node");
    check(driver().cuGraphMemcpyNodeSetParams(to, &parameters), "update a copy's node");
  }
}

}  // namespace

void add_nodes(void* graph, const std::function<void(void* stream)>& launch) {
  expect_graph_nodes();
  const ContextScope context;
  capture_to(static_cast<CUgraph>(graph), launch);
}

void update_nodes(void* graph, const std::function<void(void* stream)>& launch) {
  expect_graph_nodes();
  const ContextScope context;
  CUgraph fresh = nullptr;
  check(driver().cuGraphCreate(&fresh, 0), "create a graph");
  const std::shared_ptr<void> owner(fresh,
                                    [](void* made) { driver().cuGraphDestroy(static_cast<CUgraph>(made)); });
  capture_to(fresh, launch);
  const std::vector<CUgraphNode> from = nodes_of(fresh), to = nodes_of(static_cast<CUgraph>(graph));
  if (from.size() != to.size())
    fail("the graph to update has {} nodes; the plan makes {}", to.size(), from.size());
  for (size_t i = 0; i < from.size(); ++i)
    if (!are_alike(from[i], to[i])) fail("the graph to update has other kernels than the plan");
  for (size_t i = 0; i < from.size(); ++i) copy_parameters(from[i], to[i]);
}

}  // namespace fusor::cuda

#endif  // FUSOR_WITH_CUDA
