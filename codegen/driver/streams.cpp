// Owns streams: waiting, times, captures.
#include "codegen/cuda_driver.h"

#ifdef FUSOR_WITH_CUDA

#include "codegen/driver/table.h"

namespace fusor::cuda {

void synchronize(void* stream) {
  check(driver().cuStreamSynchronize(static_cast<CUstream>(stream)), "finish the stream's work");
}

bool is_capturing(void* stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  check(driver().cuStreamIsCapturing(static_cast<CUstream>(stream), &status),
        "ask whether a stream is captured");
  return status != CU_STREAM_CAPTURE_STATUS_NONE;
}

Timer::Timer() {
  CUevent begin = nullptr;
  CUevent end = nullptr;
  check(driver().cuEventCreate(&begin, CU_EVENT_DEFAULT), "create an event");
  begin_ = begin;
  check(driver().cuEventCreate(&end, CU_EVENT_DEFAULT), "create an event");
  end_ = end;
}

Timer::~Timer() {
  driver().cuEventDestroy_v2(static_cast<CUevent>(begin_));
  driver().cuEventDestroy_v2(static_cast<CUevent>(end_));
}

void Timer::start(void* stream) {
  check(driver().cuEventRecord(static_cast<CUevent>(begin_), static_cast<CUstream>(stream)),
        "record an event");
}

void Timer::stop(void* stream) {
  check(driver().cuEventRecord(static_cast<CUevent>(end_), static_cast<CUstream>(stream)), "record an event");
}

double Timer::seconds() {
  check(driver().cuEventSynchronize(static_cast<CUevent>(end_)), "wait for an event");
  float milliseconds = 0;
  check(driver().cuEventElapsedTime(&milliseconds, static_cast<CUevent>(begin_), static_cast<CUevent>(end_)),
        "read the time between two events");
  return 1e-3 * milliseconds;
}

OwnStream::OwnStream() {
  CUstream stream = nullptr;
  check(driver().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "create a stream");
  stream_ = stream;
}

OwnStream::~OwnStream() {
  if (graph_ != nullptr) driver().cuGraphExecDestroy(static_cast<CUgraphExec>(graph_));
  driver().cuStreamDestroy_v2(static_cast<CUstream>(stream_));
}

void OwnStream::begin_capture() {
  check(driver().cuStreamBeginCapture_v2(static_cast<CUstream>(stream_), CU_STREAM_CAPTURE_MODE_GLOBAL),
        "capture a stream");
}

void* OwnStream::end_capture() {
  CUgraph captured = nullptr;
  check(driver().cuStreamEndCapture(static_cast<CUstream>(stream_), &captured),
        "end the capture of a stream");
  CUgraphExec executable = nullptr;
  const CUresult result = driver().cuGraphInstantiateWithFlags(&executable, captured, 0);
  driver().cuGraphDestroy(captured);
  check(result, "make a captured graph executable");
  if (graph_ != nullptr) driver().cuGraphExecDestroy(static_cast<CUgraphExec>(graph_));
  graph_ = executable;
  return graph_;
}

void OwnStream::launch_graph(void* graph) {
  check(driver().cuGraphLaunch(static_cast<CUgraphExec>(graph), static_cast<CUstream>(stream_)),
        "launch a graph");
}

}  // namespace fusor::cuda

#endif  // FUSOR_WITH_CUDA
