// Owns the steps of a recurrent layer in one direction: one cooperative launch for all of them
// (recurrent/exchange.cuh shows how blocks work together).
//
//   planes of the states, [time + 1, batch, hidden] each: h, lstm's c; for a backward pass also the sums:
//   lstm i, f, g, o; gru r, z, n and the recurrent share of n; tanh its one. One row holds the first states,
//   and no sums.
#include "fusor_generated.cuh"

#include "codegen/device/base/launch.cuh"
#include "codegen/device/recurrent/exchange.cuh"

enum : int {
  kSumPlanes = !Config::keeps_sums || kCell == kRelu ? 0
               : kCell == kTanh                      ? 1
                                                     : 4,
  kFirstSum = kCell == kLstm ? 2 : 1,
};

struct State {
  float h = 0, c = 0;
};

FUSOR_DEVICE void keep(const Params& p, int plane, i64 row, const Place& at, float value) {
  store(p.states + plane * p.state_plane + row * p.state_time + at.batch * p.state_row + at.hidden,
        narrow<Element>(value));
}

// The state after a step, of the inputs' and the recurrent shares; `sums` are what a backward pass reads.
FUSOR_DEVICE State stepped(const State& before, const float (&given)[kGates],
                           const float (&recurrent)[kGates], float (&sums)[4]) {
  State after;
  if constexpr (kCell == kLstm) {
#pragma unroll
    for (int gate = 0; gate < 4; ++gate) sums[gate] = given[gate] + recurrent[gate];
    const float in = Exact::sigmoid(sums[0]), forget = Exact::sigmoid(sums[1]);
    const float fresh = Exact::tanh(sums[2]), out = Exact::sigmoid(sums[3]);
    after.c = forget * before.c + in * fresh;
    after.h = out * Exact::tanh(after.c);
  } else if constexpr (kCell == kGru) {
    sums[0] = given[0] + recurrent[0];
    sums[1] = given[1] + recurrent[1];
    sums[3] = recurrent[2];
    const float reset = Exact::sigmoid(sums[0]), update = Exact::sigmoid(sums[1]);
    sums[2] = given[2] + reset * recurrent[2];
    const float fresh = Exact::tanh(sums[2]);
    after.h = fresh + update * (before.h - fresh);
  } else {
    sums[0] = given[0] + recurrent[0];
    after.h = kCell == kTanh ? Exact::tanh(sums[0]) : sums[0] < 0.0f ? 0.0f : sums[0];
  }
  after.h = round_to<Element>(after.h);
  return after;
}

extern "C" __global__ void __launch_bounds__(kThreads, 1)
    recurrent_forward(const __grid_constant__ Params p) {
  extern __shared__ float sums[];
  enter_launch();
  const Step step{p, sums};
  Weights weights;
  weights.load([&](int k, int column) -> u32 {
    const i64 unit = i64(step.slice()) * kUnits + column % kUnits;
    if (unit >= p.hidden || k >= p.hidden) return 0;
    return load(p.weights + (column / kUnits * p.hidden + unit) * p.weight_row + k * p.weight_column).bits;
  });
  State states[kTiles];
  float bias[kGates] = {};
  i32 lengths[kTiles];
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    const Place at = place_of(p, tile);
    if (at.inside) {
      if constexpr (Config::has_h0)
        states[tile].h = element_at(p.h0, at.batch * p.h0_row + at.hidden * p.h0_column);
      if constexpr (Config::has_c0)
        states[tile].c = element_at(p.c0, at.batch * p.c0_row + at.hidden * p.c0_column);
      if constexpr (Config::has_bias) {
#pragma unroll
        for (int gate = 0; gate < kGates; ++gate)
          bias[gate] = element_at(p.bias, (gate * p.hidden + at.hidden) * p.bias_step);
      }
      if constexpr (Config::has_lengths) lengths[tile] = load(p.lengths + at.batch * p.lengths_step);
      const i64 first = kReverse ? p.time : 0;
      keep(p, 0, first, at, states[tile].h);
      if constexpr (kCell == kLstm) keep(p, 1, first, at, states[tile].c);
#pragma unroll
      for (int sum = 0; sum < kSumPlanes; ++sum) keep(p, kFirstSum + sum, first, at, 0);
    }
    store(step.exchange(0) + at.row * step.row_of_exchange() + step.slice() * kUnits + at.unit,
          narrow<Element>(states[tile].h));
  }
  raise_flag(step.flag_of(step.slice()), 1);

#pragma unroll 1
  for (int i = 0; i < p.time; ++i) {
    const i64 time = kReverse ? p.time - 1 - i : i;
    float given[kTiles][kGates] = {};
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      const Place at = place_of(p, tile);
      if (!at.inside) continue;
#pragma unroll
      for (int gate = 0; gate < kGates; ++gate)
        given[tile][gate] = element_at(p.given, time * p.given_time + at.batch * p.given_row +
                                                    (gate * p.hidden + at.hidden) * p.given_column);
    }
    step.multiply(weights, i, i + 1);
    float kept[kTiles][4] = {};
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      const Place at = place_of(p, tile);
      float recurrent[kGates];
#pragma unroll
      for (int gate = 0; gate < kGates; ++gate)
        recurrent[gate] = step.total(at.row, gate * kUnits + at.unit) + bias[gate];
      State after = stepped(states[tile], given[tile], recurrent, kept[tile]);
      if constexpr (Config::has_lengths)
        if (time >= lengths[tile]) after = states[tile];
      states[tile] = after;
      if (!at.inside) after.h = 0;
      store(step.exchange(i + 1) + at.row * step.row_of_exchange() + step.slice() * kUnits + at.unit,
            narrow<Element>(after.h));
    }
    raise_flag(step.flag_of(step.slice()), i + 2);
    // Nobody waits for these.
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      const Place at = place_of(p, tile);
      if (!at.inside) continue;
      keep(p, 0, row_after(time), at, states[tile].h);
      if constexpr (kCell == kLstm) keep(p, 1, row_after(time), at, states[tile].c);
#pragma unroll
      for (int sum = 0; sum < kSumPlanes; ++sum)
        keep(p, kFirstSum + sum, row_after(time), at, kept[tile][sum]);
    }
  }
}
