// Owns the steps of a recurrent layer back through time: the gradients of the sums of every step, as one
// cooperative launch (recurrent/exchange.cuh shows how blocks work together).
//
//   a block's product is the gradient of its 16 units: what all blocks hand over of the step behind, times
//   the columns of the recurrent weights. One product more than there are steps gives the first state's.
//   gradients [time + 1, batch, kBlocks * hidden]: of lstm i, f, g, o; of gru r, z, n of the inputs' sums,
//   and r, z, n of the recurrent ones; the last row: of h0, of lstm's c0, zeros.
#include "fusor_generated.cuh"

#include "codegen/device/base/launch.cuh"
#include "codegen/device/recurrent/exchange.cuh"

enum : int { kBlocks = kCell == kGru ? 6 : kGates };

FUSOR_DEVICE float state_at(const Params& p, int plane, i64 row, const Place& at) {
  return element_at(p.states, plane * p.state_plane + row * p.state_time + at.batch * p.state_row +
                                  at.hidden * p.state_column);
}

FUSOR_DEVICE float tanh_slope(float x) { return 4.0f * Exact::logistic_slope(x + x); }

// Operands of a step's gradients beside those of its states: dy, and factors of the states alone, which are
// ready before the step behind is.
struct Factors {
  enum : int { kCount = kCell == kLstm ? 6 : kCell == kGru ? 5 : 1 };
  float dy = 0;
  float of[kCount] = {};

  // Computed here, not where they are used.
  FUSOR_METHOD void settle() {
#pragma unroll
    for (float& factor : of) asm volatile("" : "+f"(factor));
  }
};

FUSOR_DEVICE Factors factors_of(const Params& p, i64 time, const Place& at) {
  Factors factors;
  factors.dy = element_at(p.dy, time * p.dy_time + at.batch * p.dy_row + at.hidden * p.dy_column);
  const i64 after = row_after(time), before = row_before(time);
  if constexpr (kCell == kLstm) {
    const float in = state_at(p, 2, after, at), forget = state_at(p, 3, after, at);
    const float fresh = state_at(p, 4, after, at), out = state_at(p, 5, after, at);
    const float cell = state_at(p, 1, after, at), cell_before = state_at(p, 1, before, at);
    factors.of[0] = Exact::tanh(fresh) * Exact::logistic_slope(in);
    factors.of[1] = cell_before * Exact::logistic_slope(forget);
    factors.of[2] = Exact::sigmoid(in) * tanh_slope(fresh);
    factors.of[3] = Exact::tanh(cell) * Exact::logistic_slope(out);
    factors.of[4] = Exact::sigmoid(out) * tanh_slope(cell);
    factors.of[5] = Exact::sigmoid(forget);
  } else if constexpr (kCell == kGru) {
    const float reset = state_at(p, 1, after, at), update = state_at(p, 2, after, at);
    const float fresh = state_at(p, 3, after, at), share = state_at(p, 4, after, at);
    const float h_before = state_at(p, 0, before, at);
    factors.of[0] = share * Exact::logistic_slope(reset);
    factors.of[1] = (h_before - Exact::tanh(fresh)) * Exact::logistic_slope(update);
    factors.of[2] = tanh_slope(fresh);
    factors.of[3] = Exact::sigmoid(reset);
    factors.of[4] = Exact::sigmoid(update);
  } else if constexpr (kCell == kTanh) {
    factors.of[0] = tanh_slope(state_at(p, 1, after, at));
  } else {
    factors.of[0] = state_at(p, 0, after, at);
  }
  return factors;
}

struct Gradients {
  float of_given[kGates] = {}, of_recurrent[kGates] = {};
  float dc = 0, direct = 0;  // of the states before, but for the products
};

FUSOR_DEVICE Gradients gradients_of(const Factors& factors, float dh, float dc) {
  Gradients found;
  const auto& of = factors.of;
  if constexpr (kCell == kLstm) {
    const float total = dc + dh * of[4];
    found.of_given[0] = total * of[0];
    found.of_given[1] = total * of[1];
    found.of_given[2] = total * of[2];
    found.of_given[3] = dh * of[3];
    found.dc = total * of[5];
  } else if constexpr (kCell == kGru) {
    found.direct = dh * of[4];
    const float dfresh = (dh - found.direct) * of[2];
    found.of_given[0] = dfresh * of[0];
    found.of_given[1] = dh * of[1];
    found.of_given[2] = dfresh;
    found.of_recurrent[2] = dfresh * of[3];
  } else {
    found.of_given[0] = kCell == kTanh ? dh * of[0] : of[0] > 0.0f ? dh : 0.0f;
  }
#pragma unroll
  for (int gate = 0; gate < kGates; ++gate)
    if (kCell != kGru || gate < 2) found.of_recurrent[gate] = found.of_given[gate];
  return found;
}

FUSOR_DEVICE void give(const Params& p, int block, i64 time, const Place& at, float value) {
  store(p.gradients + time * p.gradient_time + at.batch * p.gradient_row + block * p.hidden + at.hidden,
        narrow<Element>(value));
}

extern "C" __global__ void __launch_bounds__(kThreads, 1)
    recurrent_backward(const __grid_constant__ Params p) {
  extern __shared__ float sums[];
  enter_launch();
  const Step step{p, sums};
  Weights weights;
  weights.load([&](int k, int column) -> u32 {
    const i64 from = i64(k / kGiven) * kUnits + k % kUnits, to = i64(step.slice()) * kUnits + column;
    if (from >= p.hidden || to >= p.hidden) return 0;
    const int gate = k % kGiven / kUnits;
    return load(p.weights + (gate * p.hidden + from) * p.weight_row + to * p.weight_column).bits;
  });
  float direct[kTiles] = {}, dc[kTiles] = {};
  i32 lengths[kTiles];
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    const Place at = place_of(p, tile);
    if (!at.inside) continue;
    if constexpr (Config::has_dhn)
      direct[tile] = element_at(p.dhn, at.batch * p.dhn_row + at.hidden * p.dhn_column);
    if constexpr (Config::has_dcn)
      dc[tile] = element_at(p.dcn, at.batch * p.dcn_row + at.hidden * p.dcn_column);
    if constexpr (Config::has_lengths) lengths[tile] = load(p.lengths + at.batch * p.lengths_step);
  }

#pragma unroll 1
  for (int i = 0; i < p.time; ++i) {
    const i64 time = kReverse ? i : p.time - 1 - i;
    Factors factors[kTiles];
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      const Place at = place_of(p, tile);
      if (at.inside) factors[tile] = factors_of(p, time, at);
      factors[tile].settle();
    }
    if (i > 0) step.multiply(weights, i - 1, i);
    Gradients found[kTiles];
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      const Place at = place_of(p, tile);
      const float behind = i > 0 ? direct[tile] + step.total(at.row, at.unit) : direct[tile];
      found[tile] = gradients_of(factors[tile], factors[tile].dy + behind, dc[tile]);
      if constexpr (Config::has_lengths)
        if (time >= lengths[tile]) {
          found[tile] = {};
          found[tile].dc = dc[tile];
          found[tile].direct = behind;
        }
      if (!at.inside) found[tile] = {};
      dc[tile] = found[tile].dc;
      direct[tile] = found[tile].direct;
#pragma unroll
      for (int gate = 0; gate < kGates; ++gate)
        store(step.exchange(i) + at.row * step.row_of_exchange() + step.slice() * kGiven + gate * kUnits +
                  at.unit,
              narrow<Element>(found[tile].of_recurrent[gate]));
    }
    raise_flag(step.flag_of(step.slice()), i + 1);
    // Nobody waits for these.
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      const Place at = place_of(p, tile);
      if (!at.inside) continue;
#pragma unroll
      for (int gate = 0; gate < kGates; ++gate) {
        give(p, gate, time, at, found[tile].of_given[gate]);
        if constexpr (kCell == kGru) give(p, kGates + gate, time, at, found[tile].of_recurrent[gate]);
      }
    }
  }
  step.multiply(weights, p.time - 1, p.time);
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    const Place at = place_of(p, tile);
    if (!at.inside) continue;
    give(p, 0, p.time, at, direct[tile] + step.total(at.row, at.unit));
    if constexpr (kBlocks > 1) give(p, 1, p.time, at, dc[tile]);
#pragma unroll
    for (int block = 2; block < kBlocks; ++block) give(p, block, p.time, at, 0);
  }
}
