// Owns the rules and expansions of normalizations.
#include "core/ops/norm.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "core/ops/expansion.h"
#include "core/ops/rules.h"

namespace fusor {

namespace {

bool has_axes(NormMode norm) {
  return norm == NormMode::layer_norm || norm == NormMode::rms_norm || norm == NormMode::adaptive_layer_norm;
}

// The tensor that is normalized: x as it is, or with its channels split into groups.
struct Normalized {
  Dims dims;        // of x, perhaps with split channels
  Dims statistics;  // 1 along the axes that the statistics are taken over
  Dims shown;       // the statistics in x's rank, as operands and results have them
  int64_t count = 1;
};

Normalized normalized(NormMode norm, const Dims& axes, int64_t groups, const Dims& x) {
  Normalized n{x, x, x, 1};
  if (norm == NormMode::group_norm) {
    n.dims[1] = groups;
    n.dims.insert(2, x[1] / groups);
  }
  n.statistics = n.dims;
  for (int i = 0; i < n.dims.rank(); ++i) {
    const bool over = has_axes(norm)                 ? std::ranges::find(axes, i) != axes.end()
                      : norm == NormMode::batch_norm ? i != 1
                                                     : i >= 2;
    if (!over) continue;
    n.count *= n.dims[i];
    n.statistics[i] = 1;
  }
  n.shown = n.statistics;
  if (norm == NormMode::group_norm) n.shown.erase(2);
  return n;
}

template <class Op>
Normalized expect_norm(const Call& call, const Op& op) {
  refuse_scalars_but(call, {"epsilon", "momentum"});
  const Tensor& x = *call.operand("x");
  const int rank = x.dims.rank();
  if (has_axes(op.norm)) {
    if (op.axes.empty())
      fail("{}: says no axes to normalize '{}' {} over", call.label, x.name, to_string(x.dims));
    for (const int64_t axis : op.axes) {
      expect_axis(call, axis, x);
      if (std::ranges::count(op.axes, axis) > 1)
        fail("{}: axes {} name one twice", call.label, to_string(op.axes));
    }
  } else {
    if (!op.axes.empty())
      fail("{}: {} has no axes of its own; got {}", call.label, to_string(op.norm), to_string(op.axes));
    const int least = op.norm == NormMode::batch_norm ? 2 : 3;
    if (rank < least)
      fail("{}: x {} has rank {}; {} takes N, C{}", call.label, to_string(x.dims), rank, to_string(op.norm),
           least == 2 ? " and any spatial dims" : " and spatial dims");
  }
  const bool grouped = op.norm == NormMode::group_norm;
  if (!grouped && op.groups != 1)
    fail("{}: {} has no groups; got {}", call.label, to_string(op.norm), op.groups);
  if (op.groups < 1 || (grouped && x.dims[1] % op.groups != 0))
    fail("{}: groups {} do not divide the C={} of x {}", call.label, op.groups, grouped ? x.dims[1] : 1,
         to_string(x.dims));
  if (grouped && rank == kMaxRank)
    fail("{}: x {} has rank {}; group_norm takes at most {}", call.label, to_string(x.dims), rank,
         kMaxRank - 1);
  if (!(op.epsilon >= 0 && std::isfinite(op.epsilon)))
    fail("{}: epsilon {} is not 0 or more", call.label, op.epsilon);
  const Normalized n = normalized(op.norm, op.axes, op.groups, x.dims);
  expect_broadcast(call, "scale", x.dims);
  expect_dims(call, "mean", n.shown);
  expect_dims(call, "inv_std", n.shown);
  for (const std::string_view scalar : {"epsilon", "momentum"}) expect_broadcast(call, scalar, {1});
  return n;
}

// Operands with x's rank and, where its channels are split, theirs too.
class Site {
 public:
  Site(Expansion& e, const Normalized& n, const Dims& x) : e_(e), n_(n), x_(x), splits_(n.dims != x) {}

  int whole(int value) { return splits_ ? e_.reshape(value, n_.dims) : value; }
  int statistic(int value) { return splits_ ? e_.reshape(value, n_.statistics) : value; }
  // One that repeats along axes of x: scale and bias.
  int affine(int value) {
    if (!splits_) return value;
    Dims dims = e_.dims(value);
    while (dims.rank() < x_.rank()) dims.insert(0, 1);
    const bool repeats = dims[1] == 1;
    dims.insert(2, repeats ? 1 : n_.dims[2]);
    if (!repeats) dims[1] = n_.dims[1];
    return e_.reshape(value, dims);
  }
  /// Whether it repeats along all axes of a row.
  bool is_of_rows(int value) {
    const Dims dims = e_.dims(value);
    const int lead = n_.statistics.rank() - dims.rank();
    for (int axis = 0; axis < dims.rank(); ++axis)
      if (dims[axis] != 1 && n_.statistics[axis + lead] == 1) return false;
    return true;
  }
  bool is_whole() const { return !splits_; }
  /// Whether one pass over rows leaves the sums over what it repeats along: those of each row, or of all
  /// rows, whose elements lie together.
  bool sums_in_one_pass(int value) {
    const Dims dims = e_.dims(value), &rows = n_.statistics;
    const int lead = rows.rank() - dims.rank();
    bool of_each = true, of_all = true, is_within_row = false;
    for (int axis = 0; axis < rows.rank(); ++axis) {
      const int64_t extent = axis < lead ? 1 : dims[axis - lead];
      of_each = of_each && extent == rows[axis];
      of_all = of_all && (rows[axis] == 1 || (extent == 1 && !is_within_row));
      is_within_row = is_within_row || rows[axis] != n_.dims[axis];
    }
    return of_each || of_all;
  }
  int average(int value) { return e_.reduce_to(ReductionMode::avg, value, n_.statistics); }

 private:
  Expansion& e_;
  const Normalized& n_;
  const Dims x_;
  bool splits_;
};

int epsilon_of(Expansion& e, double epsilon) {
  return e.has("epsilon") ? e.input("epsilon") : e.constant(epsilon);
}
int momentum_of(Expansion& e, double momentum) {
  return e.has("momentum") ? e.input("momentum") : e.constant(momentum);
}

int inverse_root(Expansion& e, int variance, double epsilon) {
  return e.rsqrt(e.add(variance, epsilon_of(e, epsilon)));
}

// (1 - momentum) * running + momentum * statistic, as one step toward the statistic.
int next_running(Expansion& e, int running, int statistic, double momentum) {
  return e.add(running, e.mul(e.sub(statistic, running), momentum_of(e, momentum)));
}

// Averaged over what the running statistic has no axis for (instance norm: the samples).
int as_running(Expansion& e, int statistic, int running) {
  const Dims dims = e.dims(running);
  return e.dims(statistic) == dims ? statistic : e.reduce_to(ReductionMode::avg, statistic, dims);
}

double unbiased(double count) { return count > 1 ? count / (count - 1) : 1; }

Roles without(Roles roles, std::initializer_list<std::string_view> names) {
  for (std::vector<Role>* list : {&roles.inputs, &roles.outputs})
    std::erase_if(*list,
                  [&](const Role& role) { return std::ranges::find(names, role.name) != names.end(); });
  return roles;
}

Dims last_axis(int rank) { return rank > 0 ? Dims{rank - 1} : Dims{}; }

}  // namespace

std::string_view to_string(NormMode mode) {
  constexpr std::array<std::string_view, 6> kNames = {"layer_norm",    "rms_norm",   "batch_norm",
                                                      "instance_norm", "group_norm", "adaptive_layer_norm"};
  return kNames[static_cast<size_t>(mode)];
}

std::string_view to_string(NormPhase phase) {
  return phase == NormPhase::training ? "training" : "inference";
}

// --- forward -----------------------------------------------------------------------------------------------

Roles NormForward::roles() const {
  const auto optional = [](std::string_view name) { return Role{.name = name, .optional = true}; };
  const auto statistic = [](std::string_view name) {
    return Role{.name = name, .optional = true, .own_type = true};
  };
  Roles all{{{"x"},
             optional("scale"),
             optional("bias"),
             optional("mean"),
             optional("inv_std"),
             optional("prev_running_mean"),
             optional("prev_running_var"),
             optional("epsilon"),
             optional("momentum")},
            {optional("y"), statistic("mean"), statistic("inv_std"), statistic("next_running_mean"),
             statistic("next_running_var")}};
  if (norm == NormMode::rms_norm)
    return without(
        all, {"mean", "prev_running_mean", "prev_running_var", "next_running_mean", "next_running_var"});
  return all;
}

void NormForward::fill_omitted(int rank) {
  if (has_axes(norm) && axes.empty()) axes = last_axis(rank);
}

std::vector<Inferred> NormForward::infer(const Call& call) const {
  const Normalized n = expect_norm(call, *this);
  const Tensor& x = call.input(0);
  expect_broadcast(call, "bias", x.dims);
  if (!(momentum >= 0 && momentum <= 1)) fail("{}: momentum {} is outside 0 to 1", call.label, momentum);
  const auto has = [&](std::string_view role) { return call.operand(role) != nullptr; };
  for (const auto& [one, other] :
       {std::pair<std::string_view, std::string_view>{"prev_running_mean", "prev_running_var"},
        std::pair<std::string_view, std::string_view>{"mean", "inv_std"}})
    if (norm != NormMode::rms_norm && has(one) != has(other))
      fail("{}: takes {} and {} together; only {} is there", call.label, one, other, has(one) ? one : other);
  if (phase == NormPhase::training && has("inv_std"))
    fail("{}: computes mean and inv_std in training; they are operands in inference only", call.label);
  if (phase == NormPhase::inference && has("inv_std") && has("prev_running_mean"))
    fail("{}: takes mean and inv_std, or prev_running_mean and prev_running_var, not both", call.label);
  expect_broadcast(call, "prev_running_mean", n.shown);
  expect_broadcast(call, "prev_running_var", n.shown);
  if (has("prev_running_mean") && (norm != NormMode::batch_norm && norm != NormMode::instance_norm))
    fail("{}: {} has no running statistics", call.label, to_string(norm));
  const DataType type = real_type(call);
  const Inferred statistic = in_order_of(call, n.shown, type, x);
  std::vector<Inferred> results{in_order_of(call, x.dims, type, x)};
  if (norm == NormMode::rms_norm) return {results[0], statistic};
  results.insert(results.end(), {statistic, statistic});
  for (const std::string_view role : {"prev_running_mean", "prev_running_var"}) {
    const Tensor* running = call.operand(role);
    if (running != nullptr && running->dims.rank() != n.shown.rank())
      fail("{}: {} is {}; it needs as many axes as x {}", call.label, role, to_string(running->dims),
           to_string(x.dims));
    results.push_back(running == nullptr ? statistic : in_row_major(call, running->dims, type));
    if (!call.given(results.size() - 1).empty() && (running == nullptr || phase == NormPhase::inference))
      fail("{}: {} is asked for, but {}", call.label, call.roles.outputs[results.size() - 1].name,
           running == nullptr ? "the running statistics are left out" : "inference leaves them as they are");
  }
  return results;
}

void NormForward::expand(Expansion& e) const {
  const int input = e.input("x");
  const Normalized n = normalized(norm, axes, groups, e.dims(input));
  Site site(e, n, e.dims(input));
  const int x = site.whole(input);
  const bool centers = norm != NormMode::rms_norm;
  const bool uses_running = phase == NormPhase::inference && e.has("prev_running_mean");
  const bool is_given = e.has("inv_std");

  int mean = -1, variance = -1, centered = x;
  if (centers) {
    mean = is_given       ? site.statistic(e.input("mean"))
           : uses_running ? e.input("prev_running_mean")
                          : site.average(x);
    centered = e.sub(x, mean);
  }
  if (!is_given) {
    const int values = e.real(centered);
    variance = uses_running ? e.input("prev_running_var") : site.average(e.mul(values, values));
  }
  const int inv_std = is_given ? site.statistic(e.input("inv_std")) : inverse_root(e, variance, epsilon);
  int y = e.mul(centered, inv_std);
  if (e.has("scale")) y = e.mul(y, site.affine(e.input("scale")));
  if (e.has("bias")) y = e.add(y, site.affine(e.input("bias")));
  e.reshaped_result("y", y);

  const auto spread = [&](int statistic) {  // running statistics may have fewer axes
    return e.dims(statistic) == n.statistics ? statistic : e.op(Pointwise{}, {statistic}, n.statistics);
  };
  if (centers && e.wants("mean")) e.reshaped_result("mean", spread(mean));
  if (e.wants("inv_std")) e.reshaped_result("inv_std", spread(inv_std));
  if (e.wants("next_running_mean")) {
    const int running = e.input("prev_running_mean");
    e.result("next_running_mean", next_running(e, running, as_running(e, mean, running), momentum));
  }
  if (e.wants("next_running_var")) {
    const int running = e.input("prev_running_var");
    const int batch =
        e.mul(as_running(e, variance, running), e.constant(unbiased(static_cast<double>(n.count))));
    e.result("next_running_var", next_running(e, running, batch, momentum));
  }
}

// --- backward ----------------------------------------------------------------------------------------------

Roles NormBackward::roles() const {
  const auto optional = [](std::string_view name) { return Role{.name = name, .optional = true}; };
  const auto total = [](std::string_view name) {
    return Role{.name = name, .optional = true, .own_type = true};
  };
  const Roles all{
      {{"dy"}, {"x"}, optional("scale"), optional("mean"), optional("inv_std"), optional("epsilon")},
      {optional("dx"), total("dscale"), total("dbias")}};
  return norm == NormMode::rms_norm ? without(all, {"mean"}) : all;
}

void NormBackward::fill_omitted(int rank) {
  if (has_axes(norm) && axes.empty()) axes = last_axis(rank);
}

std::vector<Inferred> NormBackward::infer(const Call& call) const {
  expect_norm(call, *this);
  const Tensor& x = *call.operand("x");
  expect_dims(call, "dy", x.dims);
  const bool has_mean = call.operand("mean") != nullptr, has_inv_std = call.operand("inv_std") != nullptr;
  if (norm != NormMode::rms_norm && has_mean != has_inv_std)
    fail("{}: takes mean and inv_std together; only {} is there", call.label, has_mean ? "mean" : "inv_std");
  if (phase == NormPhase::inference && !has_inv_std)
    fail("{}: takes the statistics that inference used", call.label);
  const Tensor* scale = call.operand("scale");
  for (size_t i = 1; i < 3; ++i)
    if (!call.given(i).empty() && scale == nullptr)
      fail("{}: {} is asked for, but the operand scale is left out", call.label, call.roles.outputs[i].name);
  const DataType type = real_type(call);
  const Inferred weights = in_row_major(call, scale != nullptr ? scale->dims : x.dims, type);
  return {in_order_of(call, x.dims, type, x), weights, weights};
}

void NormBackward::expand(Expansion& e) const {
  const Dims dims = e.dims(e.input("x"));
  const Normalized n = normalized(norm, axes, groups, dims);
  Site site(e, n, dims);
  const int x = site.whole(e.input("x")), dy = site.whole(e.real(e.input("dy")));
  const bool centers = norm != NormMode::rms_norm, is_given = e.has("inv_std");
  const int mean = !centers ? -1 : is_given ? site.statistic(e.input("mean")) : site.average(x);
  const auto centered = [&] { return centers ? e.sub(x, mean) : x; };
  const int distance = centered(), values = is_given ? distance : e.real(distance);
  const int inv_std = is_given ? site.statistic(e.input("inv_std"))
                               : inverse_root(e, site.average(e.mul(values, values)), epsilon);
  const int unit = e.mul(distance, inv_std);  // of variance 1

  // A scale that is one for all elements of an average stands behind it: the sums are then those of dscale
  // and dbias.
  const int scale = e.has("scale") ? site.affine(e.input("scale")) : -1;
  const bool is_late = scale >= 0 && site.is_of_rows(scale);
  const int g = scale >= 0 && !is_late ? e.mul(dy, scale) : dy;
  const bool sums_along = e.has("scale") && e.wants("dscale"), averages = phase == NormPhase::training;
  const int along = sums_along || (averages && g == dy) ? e.mul(dy, unit) : -1;
  int average = -1, average_along = -1;
  if (averages && centers) average = site.average(g);
  if (averages) average_along = site.average(g == dy ? along : e.mul(g, unit));
  int dx = g;
  if (centers && averages) dx = e.sub(dx, average);
  if (averages) dx = e.sub(dx, e.mul(unit, average_along));
  e.reshaped_result("dx", e.mul(dx, is_late ? e.mul(inv_std, scale) : inv_std));
  if (scale < 0) return;

  // Averages of rows are sums for dscale and dbias, too. Totals that no pass over rows leaves get a pass of
  // their own, in which nothing is read that dx would have to store for it.
  const auto total = [&](std::string_view role, int row_average, const auto& each) {
    if (!site.is_whole())
      e.reshaped_result(
          role, e.rounded_total(e.reduce_to(ReductionMode::add, each(), e.dims(scale)), e.result_type(role)));
    else if (is_late && row_average >= 0)
      e.reduced_result(role, ReductionMode::add,
                       e.mul(row_average, e.constant(static_cast<double>(n.count))));
    else
      e.reduced_result(role, ReductionMode::add, each());
  };
  if (sums_along)
    total("dscale", average_along,
          [&] { return site.sums_in_one_pass(scale) ? along : e.mul(dy, e.mul(centered(), inv_std)); });
  if (e.wants("dbias")) total("dbias", average, [&] { return dy; });
}

// --- batch norm in pieces ----------------------------------------------------------------------------------

namespace {

Dims channels_of(const Call& call, const Tensor& x) {
  if (x.dims.rank() < 2)
    fail("{}: '{}' {} has rank {}; it takes N, C and any spatial dims", call.label, x.name, to_string(x.dims),
         x.dims.rank());
  Dims dims = Dims::filled(x.dims.rank(), 1);
  dims[1] = x.dims[1];
  return dims;
}

Dims channels_of(Dims dims) {
  for (int i = 0; i < dims.rank(); ++i)
    if (i != 1) dims[i] = 1;
  return dims;
}

std::vector<Role> statistics(std::initializer_list<std::string_view> names) {
  std::vector<Role> roles;
  for (const std::string_view name : names)
    roles.push_back({.name = name, .optional = true, .own_type = true});
  return roles;
}

}  // namespace

Roles GenStats::roles() const { return {{{"x"}}, statistics({"sum", "sq_sum"})}; }

std::vector<Inferred> GenStats::infer(const Call& call) const {
  refuse_scalars(call);
  const Inferred each = in_row_major(call, channels_of(call, call.input(0)), real_type(call));
  return {each, each};
}

void GenStats::expand(Expansion& e) const {
  const int x = e.real(e.input("x"));
  e.reduced_result("sum", ReductionMode::add, x);
  e.reduced_result("sq_sum", ReductionMode::add, e.mul(x, x));
}

Roles BnFinalize::roles() const {
  const auto optional = [](std::string_view name) { return Role{.name = name, .optional = true}; };
  Roles roles{{{"sum"},
               {"sq_sum"},
               {"scale"},
               {"bias"},
               optional("prev_running_mean"),
               optional("prev_running_var"),
               optional("epsilon"),
               optional("momentum")},
              statistics({"eq_scale", "eq_bias"})};
  for (Role& role : statistics({"mean", "inv_std", "next_running_mean", "next_running_var"}))
    roles.outputs.push_back(role);
  return roles;
}

std::vector<Inferred> BnFinalize::infer(const Call& call) const {
  refuse_scalars_but(call, {"epsilon", "momentum"});
  const Dims channels = call.input(0).dims;
  for (const std::string_view role : {"sq_sum", "scale", "bias", "prev_running_mean", "prev_running_var"})
    expect_dims(call, role, channels);
  for (const std::string_view scalar : {"epsilon", "momentum"}) expect_broadcast(call, scalar, {1});
  if (accumulation_count < 1)
    fail("{}: accumulation_count {} is not the number of elements that were summed", call.label,
         accumulation_count);
  if (!(epsilon >= 0 && std::isfinite(epsilon))) fail("{}: epsilon {} is not 0 or more", call.label, epsilon);
  if (!(momentum >= 0 && momentum <= 1)) fail("{}: momentum {} is outside 0 to 1", call.label, momentum);
  for (size_t i = 4; i < 6; ++i)
    if (!call.given(i).empty() && !call.has(i))
      fail("{}: {} is asked for, but the operand {} is left out", call.label, call.roles.outputs[i].name,
           call.roles.inputs[i].name);
  return std::vector<Inferred>(6, in_row_major(call, channels, real_type(call)));
}

void BnFinalize::expand(Expansion& e) const {
  const double count = static_cast<double>(accumulation_count);
  const int share = e.constant(1 / count);
  const int mean = e.mul(e.input("sum"), share);
  // Rounding may take the difference of the two below zero.
  const int variance = e.max(e.sub(e.mul(e.input("sq_sum"), share), e.mul(mean, mean)), e.constant(0));
  const int inv_std = inverse_root(e, variance, epsilon);
  const int factor = e.mul(e.input("scale"), inv_std);
  e.result("eq_scale", factor);
  e.result("eq_bias", e.sub(e.input("bias"), e.mul(mean, factor)));
  e.result("mean", mean);
  e.result("inv_std", inv_std);
  if (e.wants("next_running_mean"))
    e.result("next_running_mean", next_running(e, e.input("prev_running_mean"), mean, momentum));
  if (e.wants("next_running_var"))
    e.result("next_running_var", next_running(e, e.input("prev_running_var"),
                                              e.mul(variance, e.constant(unbiased(count))), momentum));
}

Roles BnBackwardWeights::roles() const {
  return {{{"dy"}, {"x"}, {"mean"}, {"inv_std"}, {"scale"}},
          statistics({"dscale", "dbias", "eq_dy_scale", "eq_x_scale", "eq_bias"})};
}

std::vector<Inferred> BnBackwardWeights::infer(const Call& call) const {
  refuse_scalars(call);
  const Tensor& x = call.input(1);
  const Dims channels = channels_of(call, x);
  expect_dims(call, "dy", x.dims);
  for (const std::string_view role : {"mean", "inv_std", "scale"}) expect_dims(call, role, channels);
  return std::vector<Inferred>(5, in_row_major(call, channels, real_type(call)));
}

void BnBackwardWeights::expand(Expansion& e) const {
  const int x = e.input("x"), dy = e.real(e.input("dy"));
  const int mean = e.input("mean"), inv_std = e.input("inv_std");
  const Dims channels = channels_of(e.dims(x));
  const double count =
      static_cast<double>(element_count(e.dims(x))) / static_cast<double>(element_count(channels));
  const int unit = e.mul(e.sub(x, mean), inv_std);
  const int dscale = e.reduce_to(ReductionMode::add, e.mul(dy, unit), channels);
  const int dbias = e.reduce_to(ReductionMode::add, dy, channels);
  // dx = factor * (dy - dbias / count - unit * dscale / count), sorted by what it multiplies.
  const int factor = e.mul(e.input("scale"), inv_std);
  const int slope = e.mul(e.mul(factor, inv_std), e.mul(dscale, e.constant(-1 / count)));
  e.result("dscale", dscale);
  e.result("dbias", dbias);
  e.result("eq_dy_scale", factor);
  e.result("eq_x_scale", slope);
  e.result("eq_bias", e.sub(e.mul(factor, e.mul(dbias, e.constant(-1 / count))), e.mul(mean, slope)));
}

}  // namespace fusor
