// Owns the rules of recurrent layers and their expansion into steps.
#include "core/ops/rnn.h"

#include <algorithm>
#include <array>
#include <mutex>
#include <set>
#include <string>
#include <tuple>

#include "core/ops/expansion.h"
#include "core/ops/recurrence.h"
#include "core/ops/rules.h"

namespace fusor {

namespace {

constexpr int64_t kMostLayers = 256, kMostRnnSteps = 1 << 16;

// Names of roles outlive every graph.
std::string_view lasting(const std::string& name) {
  static std::mutex mutex;
  static std::set<std::string, std::less<>> names;
  const std::lock_guard lock(mutex);
  return *names.insert(name).first;
}

std::string suffix(int64_t layer, bool reverse) {
  return fmt::format("_l{}{}", layer, reverse ? "_reverse" : "");
}

// Layers as far as roles name them: rules refuse more.
int64_t named_layers(const RnnAttributes& op) { return std::clamp<int64_t>(op.layers, 0, kMostLayers); }

Role optional(std::string_view name) { return {.name = name, .optional = true}; }

int64_t input_size(const RnnAttributes& op, const Dims& x, int64_t layer) {
  return layer == 0 ? x[2] : op.directions() * op.output_size();
}

Dims dims_of_weight(const RnnAttributes& op, const Dims& x, int64_t layer, int64_t place) {
  const int64_t rows = op.gates() * op.hidden_size;
  if (place == 0) return {rows, input_size(op, x, layer)};
  if (place == 1) return {rows, op.output_size()};
  return op.bias && place < 4 ? Dims{rows} : Dims{op.projection_size, op.hidden_size};
}

void expect_rnn(const Call& call, const RnnAttributes& op) {
  refuse_scalars(call);
  const Tensor& x = *call.operand("x");
  if (x.dims.rank() != 3)
    fail("{}: x {} has rank {}; it takes time, batch and inputs", call.label, to_string(x.dims),
         x.dims.rank());
  if (op.hidden_size < 1 || op.hidden_size > (1 << 24))
    fail("{}: hidden_size {} is outside 1 to 16777216", call.label, op.hidden_size);
  if (op.layers < 1 || op.layers > kMostLayers)
    fail("{}: layers {} is outside 1 to {}", call.label, op.layers, kMostLayers);
  if (x.dims[0] * op.layers * op.directions() > kMostRnnSteps)
    fail("{}: {} time steps in {} layers make more than {} steps", call.label, x.dims[0],
         op.layers * op.directions(), kMostRnnSteps);
  if (op.projection_size != 0 && op.cell != RnnCell::lstm)
    fail("{}: projection_size is {}; only lstm has a projection", call.label, op.projection_size);
  if (op.projection_size < 0 || op.projection_size >= op.hidden_size)
    fail("{}: projection_size {} is not less than hidden_size {}", call.label, op.projection_size,
         op.hidden_size);
  const int64_t stacks = op.layers * op.directions();
  expect_dims(call, "h0", {stacks, x.dims[1], op.output_size()});
  expect_dims(call, "dhn", {stacks, x.dims[1], op.output_size()});
  for (const std::string_view role : {"c0", "dcn"})
    expect_dims(call, role, {stacks, x.dims[1], op.hidden_size});
  expect_dims(call, "lengths", {x.dims[1]});
  expect_integers(call, "lengths");
  const std::vector<std::string_view> names = op.weight_names();
  for (size_t i = 0; i < names.size(); ++i) {
    const auto each = static_cast<int64_t>(i);
    expect_dims(call, names[i],
                dims_of_weight(op, x.dims, each / op.weights() / op.directions(), each % op.weights()));
  }
}

// One layer in one direction.
struct Stack {
  int weight_ih = -1, weight_hh = -1, bias_ih = -1, bias_hh = -1, weight_hr = -1;
  int64_t layer = 0;
  bool reverse = false;
};

// The values that one step computes, for the step back: sums before their activations (two of gru's new
// gate), gates behind them, the states before and after.
struct Step {
  int64_t time = 0;
  std::array<int, 4> sums{}, gates{};
  int recurrent_new = -1;                            // gru: the recurrent share of the new gate
  int h_before = -1, c_before = -1, c = -1, m = -1;  // m: what the projection reads
};

struct Pass {
  std::vector<Step> steps;  // in the order in which they are taken
  int inputs = -1;          // [time * batch, inputs]
  int y = -1;               // [time, batch, outputs]
  int h = -1, c = -1;       // the last states
};

class Unroller {
 public:
  Unroller(Expansion& e, const RnnAttributes& op) : e_(e), op_(op) {
    const Dims x = e.dims(e.input("x"));
    time_ = x[0];
    batch_ = x[1];
    if (!e.has("lengths")) return;
    const int lengths = e.reshape(e.input("lengths"), {batch_, 1});
    for (int64_t t = 0; t < time_; ++t) in_sequence_.push_back(e.cmp_gt(lengths, e.integer(t)));
  }

  Stack stack(int64_t layer, bool reverse) const {
    const std::string end = suffix(layer, reverse);
    const auto weight = [&](const char* name) { return e_.input(std::string_view(name + end)); };
    Stack stack{.weight_ih = weight("weight_ih"),
                .weight_hh = weight("weight_hh"),
                .layer = layer,
                .reverse = reverse};
    if (op_.bias) stack.bias_ih = weight("bias_ih");
    if (op_.bias) stack.bias_hh = weight("bias_hh");
    if (op_.projection_size > 0) stack.weight_hr = weight("weight_hr");
    return stack;
  }

  int64_t place(const Stack& stack) const { return stack.layer * op_.directions() + (stack.reverse ? 1 : 0); }

  // x: [time, batch, inputs].
  Pass run(const Stack& stack, int x) {
    Pass pass;
    pass.inputs = e_.reshape(x, {time_ * batch_, e_.dims(x)[2]});
    const int64_t rows = op_.gates() * op_.hidden_size;
    int given = e_.matmul(pass.inputs, transposed(stack.weight_ih));
    if (stack.bias_ih >= 0) given = e_.add(given, stack.bias_ih);
    given = e_.reshape(given, {time_, batch_, rows});
    const int recurrent = transposed(stack.weight_hh);
    pass.h = first_state("h0", stack, op_.output_size());
    if (op_.cell == RnnCell::lstm) pass.c = first_state("c0", stack, op_.hidden_size);
    std::vector<int> outputs(static_cast<size_t>(time_), -1);
    for (int64_t i = 0; i < time_; ++i) {
      const int64_t t = stack.reverse ? time_ - 1 - i : i;
      int now = e_.matmul(pass.h, recurrent);
      if (stack.bias_hh >= 0) now = e_.add(now, stack.bias_hh);
      const int from_input = e_.reshape(e_.slice(given, 0, t, t + 1), {batch_, rows});
      Step step{.time = t, .h_before = pass.h, .c_before = pass.c};
      int h = op_.cell == RnnCell::lstm  ? lstm(step, e_.add(from_input, now))
              : op_.cell == RnnCell::gru ? gru(step, from_input, now)
                                         : plain(step, e_.add(from_input, now));
      step.m = h;
      if (stack.weight_hr >= 0) h = e_.matmul(h, transposed(stack.weight_hr));
      int output = h;
      if (const int mask = in_sequence(t); mask >= 0) {
        output = e_.binary_select(h, e_.constant(0), mask);
        h = e_.binary_select(h, pass.h, mask);
        if (step.c >= 0) pass.c = e_.binary_select(step.c, pass.c, mask);
      } else {
        pass.c = step.c;
      }
      pass.h = h;
      outputs[static_cast<size_t>(t)] = e_.reshape(output, {1, batch_, op_.output_size()});
      pass.steps.push_back(step);
    }
    pass.y = e_.concatenate(outputs, 0);
    return pass;
  }

  int in_sequence(int64_t t) const {
    return in_sequence_.empty() ? -1 : in_sequence_[static_cast<size_t>(t)];
  }

  // Zeros in place of what lies behind the sequences of a tensor [time, batch, numbers].
  int within_lengths(int x) {
    if (!e_.has("lengths")) return x;
    const int lengths = e_.reshape(e_.input("lengths"), {1, batch_, 1});
    return e_.binary_select(x, e_.constant(0), e_.cmp_gt(lengths, e_.index({time_, batch_, 1}, 0)));
  }

  int transposed(int matrix) { return e_.transpose(matrix, {1, 0}); }

  // One stack's part of a tensor [layers * directions, batch, size], in the type of what is computed.
  int state_of(std::string_view role, const Stack& stack, int64_t size) {
    const int64_t at = place(stack);
    return e_.identity(e_.real(e_.reshape(e_.slice(e_.input(role), 0, at, at + 1), {batch_, size})));
  }

  int zeros(const Dims& dims) { return e_.op(Pointwise{}, {e_.constant(0)}, dims); }

  int stacked(const std::vector<int>& states) {
    std::vector<int> parts;
    for (const int state : states) {
      const Dims dims = e_.dims(state);
      parts.push_back(e_.reshape(state, {1, dims[0], dims[1]}));
    }
    return e_.concatenate(parts, 0);
  }

  int64_t time() const { return time_; }
  int64_t batch() const { return batch_; }

 private:
  int first_state(std::string_view role, const Stack& stack, int64_t size) {
    return e_.has(role) ? state_of(role, stack, size) : zeros({batch_, size});
  }

  int gate(int sums, int64_t which) {
    return op_.gates() == 1 ? sums
                            : e_.slice(sums, 1, which * op_.hidden_size, (which + 1) * op_.hidden_size);
  }

  int lstm(Step& step, int sums) {
    for (int64_t i = 0; i < 4; ++i) {
      const auto at = static_cast<size_t>(i);
      step.sums[at] = gate(sums, i);
      step.gates[at] = i == 2 ? e_.tanh(step.sums[at]) : e_.sigmoid(step.sums[at]);
    }
    const auto [in, forget, fresh, out] = step.gates;
    step.c = e_.add(e_.mul(forget, step.c_before), e_.mul(in, fresh));
    return e_.mul(out, e_.tanh(step.c));
  }

  int gru(Step& step, int from_input, int recurrent) {
    for (int64_t i = 0; i < 2; ++i) {
      const auto at = static_cast<size_t>(i);
      step.sums[at] = e_.add(gate(from_input, i), gate(recurrent, i));
      step.gates[at] = e_.sigmoid(step.sums[at]);
    }
    step.recurrent_new = gate(recurrent, 2);
    step.sums[2] = e_.add(gate(from_input, 2), e_.mul(step.gates[0], step.recurrent_new));
    step.gates[2] = e_.tanh(step.sums[2]);
    // (1 - z) * n + z * h.
    return e_.add(step.gates[2], e_.mul(step.gates[1], e_.sub(step.h_before, step.gates[2])));
  }

  int plain(Step& step, int sum) {
    step.sums[0] = sum;
    return op_.cell == RnnCell::rnn_tanh ? e_.tanh(sum) : e_.relu(sum);
  }

  Expansion& e_;
  const RnnAttributes& op_;
  int64_t time_ = 0, batch_ = 0;
  std::vector<int> in_sequence_;
};

// The gradients of one stack.
struct StackGradients {
  int dx = -1, dh0 = -1, dc0 = -1;
  std::vector<int> weights;  // in the order of their roles
};

class BackwardUnroller {
 public:
  BackwardUnroller(Expansion& e, const RnnAttributes& op, Unroller& forward)
      : e_(e), op_(op), forward_(forward) {}

  // dy: [time, batch, outputs].
  StackGradients run(const Stack& stack, const Pass& pass, int dy) {
    const size_t count = pass.steps.size();
    std::vector<int> dgiven(count), drecurrent(count), states(count), dprojected(count), hidden(count);
    int dh = e_.has("dhn") ? forward_.state_of("dhn", stack, op_.output_size()) : -1;
    int dc = e_.has("dcn") ? forward_.state_of("dcn", stack, op_.hidden_size) : -1;
    for (size_t i = count; i-- > 0;) {
      const Step& step = pass.steps[i];
      const int64_t t = step.time;
      const int mask = forward_.in_sequence(t);
      int now = e_.reshape(e_.slice(dy, 0, t, t + 1), {forward_.batch(), op_.output_size()});
      now = dh < 0 ? e_.identity(now) : e_.add(now, dh);
      // Steps beyond the end of a sequence pass the gradients of the states through.
      const int around_h = dh, around_c = dc;
      if (mask >= 0) {
        now = e_.binary_select(now, e_.constant(0), mask);
        if (dc >= 0) dc = e_.binary_select(dc, e_.constant(0), mask);
      }
      dprojected[i] = now;
      hidden[i] = step.m;
      const int dm = stack.weight_hr >= 0 ? e_.matmul(now, stack.weight_hr) : now;
      int direct = -1;  // of h_before, not by way of the sums
      if (op_.cell == RnnCell::lstm)
        dgiven[i] = drecurrent[i] = lstm(step, dm, dc);
      else if (op_.cell == RnnCell::gru)
        std::tie(dgiven[i], drecurrent[i], direct) = gru(step, dm);
      else
        dgiven[i] = drecurrent[i] =
            op_.cell == RnnCell::rnn_tanh ? e_.tanh_bwd(dm, step.sums[0]) : e_.relu_bwd(dm, step.sums[0]);
      states[i] = step.h_before;
      dh = e_.matmul(drecurrent[i], stack.weight_hh);
      if (direct >= 0) dh = e_.add(dh, direct);
      if (mask >= 0) dh = e_.binary_select(dh, around_h >= 0 ? around_h : e_.constant(0), mask);
      if (mask >= 0 && dc >= 0) dc = e_.binary_select(dc, around_c >= 0 ? around_c : e_.constant(0), mask);
    }
    return collected(stack, pass, dgiven, drecurrent, states, dprojected, hidden, dh, dc);
  }

 private:
  // The gradient of the sums; dc becomes that of c_before.
  int lstm(const Step& step, int dm, int& dc) {
    const auto [in, forget, fresh, out] = step.gates;
    const int dout = e_.mul(dm, e_.tanh(step.c));
    const int through = e_.tanh_bwd(e_.mul(dm, out), step.c);
    const int total = dc >= 0 ? e_.add(dc, through) : through;
    dc = e_.mul(total, forget);
    return e_.concatenate({e_.sigmoid_bwd(e_.mul(total, fresh), step.sums[0]),
                           e_.sigmoid_bwd(e_.mul(total, step.c_before), step.sums[1]),
                           e_.tanh_bwd(e_.mul(total, in), step.sums[2]), e_.sigmoid_bwd(dout, step.sums[3])},
                          1);
  }

  // Gradients of the sums' shares of the inputs and of the state, and of the state itself.
  std::tuple<int, int, int> gru(const Step& step, int dh) {
    const auto [reset, update, fresh, none] = step.gates;
    const int kept = e_.mul(dh, update);
    const int dfresh = e_.tanh_bwd(e_.sub(dh, kept), step.sums[2]);
    const int dupdate = e_.sigmoid_bwd(e_.mul(dh, e_.sub(step.h_before, fresh)), step.sums[1]);
    const int dreset = e_.sigmoid_bwd(e_.mul(dfresh, step.recurrent_new), step.sums[0]);
    return {e_.concatenate({dreset, dupdate, dfresh}, 1),
            e_.concatenate({dreset, dupdate, e_.mul(dfresh, reset)}, 1), kept};
  }

  // Steps one below the other, in the order of time: [time * batch, columns].
  int tall(const Pass& pass, const std::vector<int>& steps) {
    std::vector<int> in_time(steps.size());
    for (size_t i = 0; i < steps.size(); ++i) in_time[static_cast<size_t>(pass.steps[i].time)] = steps[i];
    return e_.concatenate(in_time, 0);
  }

  int total(int rows) {
    const int64_t columns = e_.dims(rows)[1];
    return e_.reshape(e_.reduce_to(ReductionMode::add, rows, {1, columns}), {columns});
  }

  StackGradients collected(const Stack& stack, const Pass& pass, const std::vector<int>& dgiven,
                           const std::vector<int>& drecurrent, const std::vector<int>& states,
                           const std::vector<int>& dprojected, const std::vector<int>& hidden, int dh,
                           int dc) {
    StackGradients all{.dx = -1, .dh0 = dh, .dc0 = dc, .weights = {}};
    const int given = tall(pass, dgiven);
    const int recurrent = op_.cell == RnnCell::gru ? tall(pass, drecurrent) : given;
    const int dx = e_.matmul(given, stack.weight_ih);
    all.dx = e_.reshape(dx, {forward_.time(), forward_.batch(), e_.dims(dx)[1]});
    all.weights = {e_.matmul(forward_.transposed(given), pass.inputs),
                   e_.matmul(forward_.transposed(recurrent), tall(pass, states))};
    if (op_.bias) all.weights.insert(all.weights.end(), {total(given), total(recurrent)});
    if (stack.weight_hr >= 0)
      all.weights.push_back(e_.matmul(forward_.transposed(tall(pass, dprojected)), tall(pass, hidden)));
    return all;
  }

  Expansion& e_;
  const RnnAttributes& op_;
  Unroller& forward_;
};

// All layers forward: passes[layer][direction], and what the last one gives. Gradients multiply zeros with
// what lies behind a sequence: `x` has no NaN there then.
struct Layers {
  std::vector<std::vector<Pass>> passes;
  int y = -1;
};

Layers run_layers(Expansion& e, const RnnAttributes& op, Unroller& unroller, int x) {
  Layers layers;
  layers.y = x;
  for (int64_t layer = 0; layer < op.layers; ++layer) {
    std::vector<Pass> passes;
    std::vector<int> outputs;
    for (int64_t direction = 0; direction < op.directions(); ++direction) {
      passes.push_back(unroller.run(unroller.stack(layer, direction == 1), layers.y));
      outputs.push_back(passes.back().y);
    }
    layers.y = e.concatenate(outputs, 2);
    layers.passes.push_back(std::move(passes));
  }
  return layers;
}

// Layers whose steps an engine carries out whole: the products that need no earlier step are left to others.
class Whole {
 public:
  Whole(Expansion& e, const RnnAttributes& op, Unroller& unroller) : e_(e), op_(op), unroller_(unroller) {}

  // Whether all layers' steps are carried out so, in both directions of time where a backward pass is.
  bool stays(bool backward) const {
    if (op_.projection_size > 0) return false;
    const int x = e_.input("x");
    for (int64_t layer = 0; layer < op_.layers; ++layer)
      for (int64_t direction = 0; direction < op_.directions(); ++direction) {
        const Stack stack = unroller_.stack(layer, direction == 1);
        const Recurrence steps = forward_of(stack, backward);
        // Tensors that are not made yet have the time and the batch of x.
        if (!e_.stays_whole(steps, forward_inputs(steps, stack, x))) return false;
        const Recurrence back = backward_of(stack);
        if (backward && !e_.stays_whole(back, backward_inputs(back, stack, x, x))) return false;
      }
    return true;
  }

  struct Made {
    int inputs = -1;  // [time * batch, inputs]
    int states = -1;
  };
  struct Layers {
    std::vector<std::vector<Made>> made;
    int y = -1;
  };
  Layers forward(bool keeps_sums, int x) {
    Layers layers;
    layers.y = x;
    for (int64_t layer = 0; layer < op_.layers; ++layer) {
      std::vector<Made> made;
      std::vector<int> outputs;
      for (int64_t direction = 0; direction < op_.directions(); ++direction) {
        const Stack stack = unroller_.stack(layer, direction == 1);
        made.push_back(steps_of(stack, layers.y, keeps_sums));
        outputs.push_back(output_of(stack, made.back().states));
      }
      layers.y = e_.concatenate(outputs, 2);
      layers.made.push_back(std::move(made));
    }
    return layers;
  }

  // The last state of a plane: h, or lstm's c.
  int last(const Made& made, bool reverse, int64_t plane) {
    const int64_t row = reverse ? 0 : time();
    return e_.reshape(rows_of(made.states, plane, row, row + 1), {batch(), op_.hidden_size});
  }

  StackGradients backward(const Stack& stack, const Made& made, int dy) {
    const Recurrence steps = backward_of(stack);
    const int all = e_.said(e_.op(steps, backward_inputs(steps, stack, dy, made.states)));
    const int64_t hidden = op_.hidden_size, columns = op_.gates() * hidden;
    const int in_time = e_.slice(all, 0, 0, time()), rest = e_.slice(all, 0, time(), time() + 1);
    const auto part = [&](int from, int64_t first, int64_t count) {
      return e_.dims(from)[2] == count ? from : e_.slice(from, 2, first, first + count);
    };
    const auto tall = [&](int from, int64_t numbers) {
      return e_.reshape(from, {time() * batch(), numbers});
    };
    const int given = tall(part(in_time, 0, columns), columns);
    const bool differ = op_.cell == RnnCell::gru;
    const int recurrent = differ ? tall(part(in_time, columns, columns), columns) : given;
    const int before =
        tall(rows_of(made.states, 0, stack.reverse ? 1 : 0, time() + (stack.reverse ? 1 : 0)), hidden);
    StackGradients found;
    const auto state = [&](int64_t block) {
      return e_.reshape(part(rest, block * hidden, hidden), {batch(), hidden});
    };
    found.dh0 = state(0);
    if (op_.cell == RnnCell::lstm) found.dc0 = state(1);
    const int dx = e_.matmul(given, stack.weight_ih);
    found.dx = e_.reshape(dx, {time(), batch(), e_.dims(dx)[1]});
    found.weights = {e_.matmul(unroller_.transposed(given), made.inputs),
                     e_.matmul(unroller_.transposed(recurrent), before)};
    if (op_.bias) {
      const int of_given = total(given);
      found.weights.insert(found.weights.end(), {of_given, differ ? total(recurrent) : of_given});
    }
    return found;
  }

 private:
  int64_t time() const { return unroller_.time(); }
  int64_t batch() const { return unroller_.batch(); }

  Recurrence forward_of(const Stack& stack, bool keeps_sums) const {
    Recurrence steps;
    steps.cell = op_.cell;
    steps.hidden_size = op_.hidden_size;
    steps.reverse = stack.reverse;
    steps.keeps_sums = keeps_sums;
    steps.has_bias = op_.bias;
    steps.has_h0 = e_.has("h0");
    steps.has_c0 = op_.cell == RnnCell::lstm && e_.has("c0");
    steps.has_lengths = e_.has("lengths");
    return steps;
  }
  Recurrence backward_of(const Stack& stack) const {
    Recurrence steps;
    steps.cell = op_.cell;
    steps.hidden_size = op_.hidden_size;
    steps.reverse = stack.reverse;
    steps.backward = true;
    steps.has_dhn = e_.has("dhn");
    steps.has_dcn = op_.cell == RnnCell::lstm && e_.has("dcn");
    steps.has_lengths = e_.has("lengths");
    return steps;
  }
  int part_of(std::string_view role, const Stack& stack) const {
    const int64_t at = unroller_.place(stack);
    return e_.reshape(e_.slice(e_.input(role), 0, at, at + 1), {batch(), op_.hidden_size});
  }
  std::vector<int> forward_inputs(const Recurrence& steps, const Stack& stack, int given) const {
    std::vector<int> inputs{given, stack.weight_hh};
    if (steps.has_bias) inputs.push_back(stack.bias_hh);
    if (steps.has_h0) inputs.push_back(part_of("h0", stack));
    if (steps.has_c0) inputs.push_back(part_of("c0", stack));
    if (steps.has_lengths) inputs.push_back(e_.input("lengths"));
    return inputs;
  }
  std::vector<int> backward_inputs(const Recurrence& steps, const Stack& stack, int dy, int states) const {
    std::vector<int> inputs{dy, states, stack.weight_hh};
    if (steps.has_dhn) inputs.push_back(part_of("dhn", stack));
    if (steps.has_dcn) inputs.push_back(part_of("dcn", stack));
    if (steps.has_lengths) inputs.push_back(e_.input("lengths"));
    return inputs;
  }

  Made steps_of(const Stack& stack, int x, bool keeps_sums) {
    Made made;
    made.inputs = e_.reshape(x, {time() * batch(), e_.dims(x)[2]});
    int given = e_.matmul(made.inputs, unroller_.transposed(stack.weight_ih));
    if (stack.bias_ih >= 0) given = e_.add(given, stack.bias_ih);
    given = e_.reshape(given, {time(), batch(), op_.gates() * op_.hidden_size});
    const Recurrence steps = forward_of(stack, keeps_sums);
    made.states = e_.said(e_.op(steps, forward_inputs(steps, stack, given)));
    return made;
  }
  // Rows of a plane of states: [rows, batch, hidden].
  int rows_of(int states, int64_t plane, int64_t first, int64_t limit) {
    const int rows = e_.slice(e_.slice(states, 0, plane, plane + 1), 1, first, limit);
    return e_.reshape(rows, {limit - first, batch(), op_.hidden_size});
  }
  int output_of(const Stack& stack, int states) {
    const int64_t first = stack.reverse ? 0 : 1;
    const int y = rows_of(states, 0, first, first + time());
    return unroller_.within_lengths(y);
  }
  int total(int rows) {
    const int64_t columns = e_.dims(rows)[1];
    return e_.reshape(e_.reduce_to(ReductionMode::add, rows, {1, columns}), {columns});
  }

  Expansion& e_;
  const RnnAttributes& op_;
  Unroller& unroller_;
};

}  // namespace

std::string_view to_string(RnnCell cell) {
  constexpr std::array<std::string_view, 4> kNames = {"lstm", "gru", "rnn_relu", "rnn_tanh"};
  return kNames[static_cast<size_t>(cell)];
}

std::vector<std::string_view> RnnAttributes::weight_names() const {
  std::vector<std::string_view> names;
  for (int64_t layer = 0; layer < named_layers(*this); ++layer)
    for (int64_t direction = 0; direction < directions(); ++direction) {
      const std::string end = suffix(layer, direction == 1);
      for (const char* name : {"weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr"}) {
        const bool is_bias = name[0] == 'b', is_projection = name[7] == 'h' && name[8] == 'r';
        if ((!is_bias || bias) && (!is_projection || projection_size > 0))
          names.push_back(lasting(name + end));
      }
    }
  return names;
}

Roles RnnForward::roles() const {
  Roles roles{{{"x"}, optional("h0")}, {optional("y"), optional("hn")}};
  if (cell == RnnCell::lstm) {
    roles.inputs.push_back(optional("c0"));
    roles.outputs.push_back(optional("cn"));
  }
  roles.inputs.push_back(optional("lengths"));
  for (const std::string_view name : weight_names()) roles.inputs.push_back({name});
  return roles;
}

std::vector<Inferred> RnnForward::infer(const Call& call) const {
  expect_rnn(call, *this);
  const Tensor& x = call.input(0);
  const DataType type = real_type(call);
  std::vector<Inferred> results{
      in_row_major(call, {x.dims[0], x.dims[1], directions() * output_size()}, type),
      in_row_major(call, {layers * directions(), x.dims[1], output_size()}, type)};
  if (cell == RnnCell::lstm)
    results.push_back(in_row_major(call, {layers * directions(), x.dims[1], hidden_size}, type));
  return results;
}

void RnnForward::expand(Expansion& e) const {
  Unroller unroller(e, *this);
  std::vector<int> h, c;
  if (Whole whole(e, *this, unroller); whole.stays(false)) {
    const Whole::Layers all = whole.forward(false, e.input("x"));
    e.result("y", all.y);
    for (const std::vector<Whole::Made>& made : all.made)
      for (size_t direction = 0; direction < made.size(); ++direction) {
        if (e.wants("hn")) h.push_back(whole.last(made[direction], direction == 1, 0));
        if (e.wants("cn")) c.push_back(whole.last(made[direction], direction == 1, 1));
      }
    if (e.wants("hn")) e.result("hn", unroller.stacked(h));
    if (e.wants("cn")) e.result("cn", unroller.stacked(c));
    return;
  }
  const Layers all = run_layers(e, *this, unroller, e.input("x"));
  e.result("y", all.y);
  for (const std::vector<Pass>& passes : all.passes)
    for (const Pass& pass : passes) {
      h.push_back(pass.h);
      c.push_back(pass.c);
    }
  if (e.wants("hn")) e.result("hn", unroller.stacked(h));
  if (e.wants("cn")) e.result("cn", unroller.stacked(c));
}

Roles RnnBackward::roles() const {
  const bool has_c = cell == RnnCell::lstm;
  Roles roles{{{"dy"}, {"x"}, optional("h0")}, {optional("dx"), optional("dh0")}};
  if (has_c) roles.inputs.push_back(optional("c0"));
  if (has_c) roles.outputs.push_back(optional("dc0"));
  roles.inputs.insert(roles.inputs.end(), {optional("lengths"), optional("dhn")});
  if (has_c) roles.inputs.push_back(optional("dcn"));
  for (const std::string_view name : weight_names()) {
    roles.inputs.push_back({name});
    roles.outputs.push_back(optional(lasting(fmt::format("d_{}", name))));
  }
  return roles;
}

std::vector<Inferred> RnnBackward::infer(const Call& call) const {
  expect_rnn(call, *this);
  const Tensor& x = *call.operand("x");
  expect_dims(call, "dy", {x.dims[0], x.dims[1], directions() * output_size()});
  const DataType type = real_type(call);
  const int64_t stacks = layers * directions();
  std::vector<Inferred> results{in_row_major(call, x.dims, type),
                                in_row_major(call, {stacks, x.dims[1], output_size()}, type)};
  if (cell == RnnCell::lstm) results.push_back(in_row_major(call, {stacks, x.dims[1], hidden_size}, type));
  for (const std::string_view name : weight_names())
    results.push_back(in_row_major(call, call.operand(name)->dims, type));
  return results;
}

void RnnBackward::expand(Expansion& e) const {
  Unroller unroller(e, *this);
  Whole whole(e, *this, unroller);
  const bool stays = whole.stays(true);
  const int x = unroller.within_lengths(e.input("x"));
  const Layers all = stays ? Layers{} : run_layers(e, *this, unroller, x);
  const Whole::Layers all_whole = stays ? whole.forward(true, x) : Whole::Layers{};
  BackwardUnroller backward(e, *this, unroller);
  const std::vector<std::string_view> names = weight_names();
  const auto stacks = static_cast<size_t>(layers * directions());
  std::vector<int> dh0(stacks), dc0(stacks);
  int dy = e.real(e.input("dy"));
  for (int64_t layer = layers; layer-- > 0;) {
    int dx = -1;
    for (int64_t direction = 0; direction < directions(); ++direction) {
      const Stack stack = unroller.stack(layer, direction == 1);
      const int64_t first = direction * output_size();
      const int part = directions() == 1 ? dy : e.slice(dy, 2, first, first + output_size());
      const auto i = static_cast<size_t>(layer), k = static_cast<size_t>(direction);
      const StackGradients found = stays ? whole.backward(stack, all_whole.made[i][k], part)
                                         : backward.run(stack, all.passes[i][k], part);
      dx = dx < 0 ? found.dx : e.add(dx, found.dx);
      const auto at = static_cast<size_t>(unroller.place(stack));
      dh0[at] = found.dh0;
      dc0[at] = found.dc0;
      for (size_t each = 0; each < found.weights.size(); ++each)
        e.result(lasting(fmt::format("d_{}", names[at * found.weights.size() + each])), found.weights[each]);
    }
    dy = dx;
  }
  e.result("dx", dy);
  if (e.wants("dh0")) e.result("dh0", unroller.stacked(dh0));
  if (e.wants("dc0")) e.result("dc0", unroller.stacked(dc0));
}

}  // namespace fusor
