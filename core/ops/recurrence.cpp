// Owns the rules of recurrences and their expansion into steps.
#include "core/ops/recurrence.h"

#include <algorithm>

#include "core/ops/expansion.h"
#include "core/ops/rules.h"

namespace fusor {

namespace {

void expect_recurrence(const Call& call, const Recurrence& op) {
  refuse_scalars(call);
  const Tensor& first = *call.operand(op.backward ? "dy" : "given");
  if (first.dims.rank() != 3)
    fail("{}: {} has rank {}; it takes time, batch and numbers", call.label, to_string(first.dims),
         first.dims.rank());
  if (op.hidden_size < 1 || op.hidden_size > (1 << 24))
    fail("{}: hidden_size {} is outside 1 to 16777216", call.label, op.hidden_size);
  const int64_t time = first.dims[0], batch = first.dims[1], hidden = op.hidden_size,
                rows = op.gates() * hidden;
  expect_dims(call, "given", {time, batch, rows});
  expect_dims(call, "dy", {time, batch, hidden});
  expect_dims(call, "states", {op.planes(), time + 1, batch, hidden});
  expect_dims(call, "weights", {rows, hidden});
  expect_dims(call, "bias", {rows});
  for (const std::string_view role : {"h0", "c0", "dhn", "dcn"}) expect_dims(call, role, {batch, hidden});
  expect_dims(call, "lengths", {batch});
  expect_integers(call, "lengths");
  if ((op.has_c0 || op.has_dcn) && op.cell != RnnCell::lstm)
    fail("{}: has_c0 or has_dcn is set; only lstm has such a state", call.label);
}

// The steps, as they follow from each other.
class Steps {
 public:
  Steps(Expansion& e, const Recurrence& op)
      : e_(e),
        op_(op),
        type_(e.type(e.input("weights"))),
        time_(e.dims(e.input(size_t{0}))[0]),
        batch_(e.dims(e.input(size_t{0}))[1]) {}

  int forward() {
    const int weights = e_.transpose(e_.input("weights"), {1, 0});
    int h = rounded(op_.has_h0 ? e_.real(e_.input("h0")) : zeros());
    int c = op_.cell != RnnCell::lstm ? -1 : op_.has_c0 ? e_.identity(e_.real(e_.input("c0"))) : zeros();
    keep(first_row(), h, c, {});
    for (int64_t i = 0; i < time_; ++i) {
      const int64_t t = op_.reverse ? time_ - 1 - i : i;
      int recurrent = e_.matmul(h, weights);
      if (op_.has_bias) recurrent = e_.add(recurrent, e_.input("bias"));
      const int given = step_of(e_.real(e_.input("given")), t);
      std::vector<int> sums;
      const int before_h = h, before_c = c;
      h = rounded(stepped(given, recurrent, h, c, sums));
      if (const int mask = in_sequence(t); mask >= 0) {
        h = rounded(e_.binary_select(h, before_h, mask));
        if (c >= 0) c = e_.binary_select(c, before_c, mask);
      }
      keep(row_after(t), h, c, sums);
    }
    return planes();
  }

  int backward() {
    const int weights = e_.input("weights");
    int direct = op_.has_dhn ? e_.identity(e_.real(e_.input("dhn"))) : -1;
    int dc = op_.cell != RnnCell::lstm ? -1 : op_.has_dcn ? e_.identity(e_.real(e_.input("dcn"))) : zeros();
    rows_.assign(static_cast<size_t>(time_) + 1, -1);
    int recurrent = -1;
    for (int64_t i = 0; i <= time_; ++i) {
      int behind = recurrent >= 0 ? e_.matmul(recurrent, weights) : direct >= 0 ? direct : zeros();
      if (recurrent >= 0 && direct >= 0) behind = e_.add(behind, direct);
      if (i == time_) {
        std::vector<int> last{rounded(behind)};
        if (op_.blocks() > 1) last.push_back(rounded(dc >= 0 ? dc : zeros()));
        while (std::ssize(last) < op_.blocks()) last.push_back(rounded(zeros()));
        rows_.back() = row(last);
        break;
      }
      const int64_t t = op_.reverse ? i : time_ - 1 - i;
      const int dh = e_.add(step_of(e_.real(e_.input("dy")), t), behind);
      Back back = stepped_back(t, dh, dc);
      const int mask = in_sequence(t);
      const int zero = e_.constant(0);
      std::vector<int> given, recurrents;
      for (const int each : back.given)
        given.push_back(rounded(mask >= 0 ? e_.binary_select(each, zero, mask) : each));
      for (const int each : back.recurrent)
        recurrents.push_back(rounded(mask >= 0 ? e_.binary_select(each, zero, mask) : each));
      direct = back.direct;
      if (mask >= 0) direct = e_.binary_select(direct >= 0 ? direct : zero, behind, mask);
      if (mask >= 0 && dc >= 0)
        dc = e_.binary_select(back.dc, dc, mask);
      else
        dc = back.dc;
      recurrent = e_.concatenate(op_.cell == RnnCell::gru ? recurrents : given, 1);
      std::vector<int> all = given;
      if (op_.cell == RnnCell::gru) all.insert(all.end(), recurrents.begin(), recurrents.end());
      rows_[static_cast<size_t>(t)] = row(all);
    }
    return e_.concatenate(rows_, 0);
  }

 private:
  struct Back {
    std::vector<int> given, recurrent;
    int dc = -1, direct = -1;
  };

  int64_t first_row() const { return op_.reverse ? time_ : 0; }
  int64_t row_after(int64_t t) const { return op_.reverse ? t : t + 1; }
  int64_t row_before(int64_t t) const { return op_.reverse ? t + 1 : t; }
  int zeros() { return e_.op(Pointwise{}, {e_.constant(0)}, {batch_, op_.hidden_size}); }
  int rounded(int value) { return e_.cast(value, type_); }
  // One step of a tensor [time, batch, ...].
  int step_of(int x, int64_t t) {
    const int64_t numbers = e_.dims(x)[2];
    return e_.reshape(e_.slice(x, 0, t, t + 1), {batch_, numbers});
  }
  int gate(int sums, int64_t which) {
    return op_.gates() == 1 ? sums
                            : e_.slice(sums, 1, which * op_.hidden_size, (which + 1) * op_.hidden_size);
  }
  int in_sequence(int64_t t) {
    if (!op_.has_lengths) return -1;
    return e_.cmp_gt(e_.reshape(e_.input("lengths"), {batch_, 1}), e_.integer(t));
  }
  int row(const std::vector<int>& blocks) {
    return e_.reshape(e_.concatenate(blocks, 1), {1, batch_, op_.blocks() * op_.hidden_size});
  }

  void keep(int64_t row, int h, int c, std::vector<int> sums) {
    std::vector<int> all{h};
    if (c >= 0) all.push_back(c);
    if (op_.keeps_sums) {
      while (std::ssize(sums) < op_.kept_sums()) sums.push_back(zeros());
      all.insert(all.end(), sums.begin(), sums.end());
    }
    planes_.resize(all.size());
    for (size_t i = 0; i < all.size(); ++i) {
      planes_[i].resize(static_cast<size_t>(time_) + 1, -1);
      planes_[i][static_cast<size_t>(row)] = e_.reshape(rounded(all[i]), {1, 1, batch_, op_.hidden_size});
    }
  }

  int planes() {
    std::vector<int> all;
    for (const std::vector<int>& rows : planes_) all.push_back(e_.concatenate(rows, 1));
    return e_.concatenate(all, 0);
  }

  // h after the step; c becomes the one after it.
  int stepped(int given, int recurrent, int h, int& c, std::vector<int>& sums) {
    if (op_.cell == RnnCell::lstm) {
      const int all = e_.add(given, recurrent);
      for (int64_t i = 0; i < 4; ++i) sums.push_back(gate(all, i));
      const int in = e_.sigmoid(sums[0]), forget = e_.sigmoid(sums[1]);
      c = e_.add(e_.mul(forget, c), e_.mul(in, e_.tanh(sums[2])));
      return e_.mul(e_.sigmoid(sums[3]), e_.tanh(c));
    }
    if (op_.cell == RnnCell::gru) {
      for (int64_t i = 0; i < 2; ++i) sums.push_back(e_.add(gate(given, i), gate(recurrent, i)));
      const int share = gate(recurrent, 2);
      sums.push_back(e_.add(gate(given, 2), e_.mul(e_.sigmoid(sums[0]), share)));
      sums.push_back(share);
      const int fresh = e_.tanh(sums[2]);
      return e_.add(fresh, e_.mul(e_.sigmoid(sums[1]), e_.sub(h, fresh)));
    }
    const int sum = e_.add(given, recurrent);
    if (op_.cell == RnnCell::rnn_relu) return e_.relu(sum);
    sums.push_back(sum);
    return e_.tanh(sum);
  }

  // A plane of the states in one row.
  int state(int64_t plane, int64_t row) {
    const int x = e_.slice(e_.slice(e_.input("states"), 0, plane, plane + 1), 1, row, row + 1);
    return e_.real(e_.reshape(x, {batch_, op_.hidden_size}));
  }
  Back stepped_back(int64_t t, int dh, int dc) {
    const int64_t after = row_after(t), before = row_before(t);
    Back back;
    if (op_.cell == RnnCell::lstm) {
      const int in = state(2, after), forget = state(3, after), fresh = state(4, after),
                out = state(5, after);
      const int cell = state(1, after);
      const int total = e_.add(dc, e_.tanh_bwd(e_.mul(dh, e_.sigmoid(out)), cell));
      back.given = {e_.sigmoid_bwd(e_.mul(total, e_.tanh(fresh)), in),
                    e_.sigmoid_bwd(e_.mul(total, state(1, before)), forget),
                    e_.tanh_bwd(e_.mul(total, e_.sigmoid(in)), fresh),
                    e_.sigmoid_bwd(e_.mul(dh, e_.tanh(cell)), out)};
      back.dc = e_.mul(total, e_.sigmoid(forget));
    } else if (op_.cell == RnnCell::gru) {
      const int reset = state(1, after), update = state(2, after), fresh = state(3, after);
      back.direct = e_.mul(dh, e_.sigmoid(update));
      const int dfresh = e_.tanh_bwd(e_.sub(dh, back.direct), fresh);
      const int dreset = e_.sigmoid_bwd(e_.mul(dfresh, state(4, after)), reset);
      const int dupdate = e_.sigmoid_bwd(e_.mul(dh, e_.sub(state(0, before), e_.tanh(fresh))), update);
      back.given = {dreset, dupdate, dfresh};
      back.recurrent = {dreset, dupdate, e_.mul(dfresh, e_.sigmoid(reset))};
    } else if (op_.cell == RnnCell::rnn_tanh) {
      back.given = {e_.tanh_bwd(dh, state(1, after))};
    } else {
      back.given = {e_.relu_bwd(dh, state(0, after))};
    }
    return back;
  }

  Expansion& e_;
  const Recurrence& op_;
  DataType type_;
  int64_t time_, batch_;
  std::vector<std::vector<int>> planes_;
  std::vector<int> rows_;
};

}  // namespace

Roles Recurrence::roles() const {
  Roles roles;
  if (backward) {
    roles.inputs = {{"dy"}, {"states"}, {"weights"}};
    if (has_dhn) roles.inputs.push_back({"dhn"});
    if (has_dcn) roles.inputs.push_back({"dcn"});
  } else {
    roles.inputs = {{"given"}, {"weights"}};
    if (has_bias) roles.inputs.push_back({"bias"});
    if (has_h0) roles.inputs.push_back({"h0"});
    if (has_c0) roles.inputs.push_back({"c0"});
  }
  if (has_lengths) roles.inputs.push_back({"lengths"});
  roles.outputs = {{backward ? "gradients" : "states"}};
  return roles;
}

std::vector<Inferred> Recurrence::infer(const Call& call) const {
  expect_recurrence(call, *this);
  const Dims& first = call.input(0).dims;
  const DataType type = call.operand("weights")->type;
  if (backward) return {in_row_major(call, {first[0] + 1, first[1], blocks() * hidden_size}, type)};
  return {in_row_major(call, {planes(), first[0] + 1, first[1], hidden_size}, type)};
}

void Recurrence::expand(Expansion& e) const {
  Steps steps(e, *this);
  e.result(0, backward ? steps.backward() : steps.forward());
}

}  // namespace fusor
