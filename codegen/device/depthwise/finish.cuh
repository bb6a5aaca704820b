// Owns the second kernel of depthwise wgrad: adds the parts of each tap in a fixed order.
//
//   partials[part][tap][channel]     256 threads = kElements neighbouring elements x kLanes
//
//   lane 0: parts 0, kLanes, ...   lane 1: parts 1, ...   --> sums[kLanes][kElements], halved --> lane 0: Y
#include "fusor_generated.cuh"

#include "codegen/device/base/launch.cuh"
#include "codegen/device/depthwise/window.cuh"

enum : int { kThreads = 256, kLanes = Config::lanes, kElements = kThreads / kLanes };

FUSOR_DEVICE float sum_of_lane(const Params& p, i64 element, int lane) {
  float sum = 0.0f;
  if (element >= p.elements) return sum;
#pragma unroll 8
  for (i64 part = lane; part < p.parts; part += kLanes) sum += p.partials[part * p.elements + element];
  return sum;
}

extern "C" __global__ void __launch_bounds__(kThreads) depthwise_finish(const __grid_constant__ Params p) {
  __shared__ float sums[kLanes][kElements];
  const int lane = threadIdx.x / kElements, column = threadIdx.x % kElements;
  const i64 element = i64(blockIdx.x) * kElements + column;
  enter_launch();
  sums[lane][column] = sum_of_lane(p, element, lane);
#pragma unroll
  for (int half = kLanes / 2; half > 0; half /= 2) {
    __syncthreads();
    if (lane < half) sums[lane][column] += sums[lane + half][column];
  }
  if (lane > 0 || element >= p.elements) return;
  Index tap = Index(element);
  Index at[5] = {p.channels.split(tap), 0};
  p.window.stored(tap, at);
  Y::apply<1>(p.y, at, 1, Vec<float, 1>{{sums[0][column]}});
}
