// Tests that an op family needs nothing but its struct: one of 40 lines, which no table of the library lists,
// builds, is checked, is written to and read from files, plans and runs. docs/add-an-op.md is its recipe.
#include <gmock/gmock.h>

#include <memory>

#include "backend/build.h"
#include "backend/executable.h"
#include "core/ops/expansion.h"
#include "core/ops/rules.h"
#include "serialization/serialization.h"
#include "tests/backend/reference/host_buffers.h"

namespace fusor {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

/// y = x / sqrt(mean of x^2 along the last axis + epsilon), times scale; and the factor itself.
struct RmsNorm {
  double epsilon = 1e-5;

  static constexpr Nature nature = Nature::composite;
  template <class Self, class Visitor>
  static void visit(Self& self, Visitor&& field) {
    field("epsilon", self.epsilon);
  }
  friend bool operator==(const RmsNorm&, const RmsNorm&) = default;
  std::string_view kind() const { return "rms_norm"; }
  Roles roles() const {
    return {{{"x"}, {.name = "scale", .optional = true}}, {{"y"}, {.name = "inv_rms", .optional = true}}};
  }

  std::vector<Inferred> infer(const Call& call) const {
    refuse_scalars(call);
    if (!(epsilon >= 0)) fail("{}: epsilon {} is below 0", call.label, epsilon);
    const Tensor& x = call.input(0);
    if (call.has(1) && call.input(1).dims != Dims{x.dims.back()})
      fail("{}: scale {} is not one value for each of the {} columns of x", call.label,
           to_string(call.input(1).dims), x.dims.back());
    Dims rows = x.dims;
    rows[rows.rank() - 1] = 1;
    return {in_order_of(call, x.dims, DataType::f32, x), in_order_of(call, rows, DataType::f32, x)};
  }

  void expand(Expansion& e) const {
    const int x = e.input(0);
    const int mean =
        e.reduce(ReductionMode::avg, e.pointwise(PointwiseMode::mul, {x, x}), e.dims(x).rank() - 1);
    const int factor =
        e.pointwise(PointwiseMode::rsqrt, {e.pointwise(PointwiseMode::add, {mean, e.constant(epsilon)})});
    const int normal = e.pointwise(PointwiseMode::mul, {x, factor});
    e.result(0, e.has(1) ? e.pointwise(PointwiseMode::mul, {normal, e.input(1)}) : normal);
    if (e.wants(1)) e.result(1, factor);
  }
};

class OpFamilyOfATest : public testing::Test {
 protected:
  static void SetUpTestSuite() { register_family(RmsNorm{}); }

  Graph graph(bool with_scale, bool with_factor) {
    GraphBuilder g("norm");
    x = g.input("x", {5, 24}, DataType::f32);
    scale = with_scale ? g.input("scale", {24}, DataType::f32) : Tensor{};
    const auto results = g.op(RmsNorm{.epsilon = 0.25}, {x, scale}, {.name = "norm"});
    y = g.output(results[0]);
    if (with_factor) factor = g.output(results[1]);
    return g.finish();
  }
  Tensor x, scale, y, factor;
};

TEST_F(OpFamilyOfATest, PlansAndRunsOnTheCpu) {
  for (const bool with_scale : {false, true})
    for (const bool with_factor : {false, true}) {
      const Graph norm = graph(with_scale, with_factor);
      HostTensors tensors(norm);
      const Executable run = load(build(norm, DeviceInfo::cpu()));
      std::vector<Binding> bindings;
      for (size_t i = 0; i < norm.tensors.size(); ++i)
        bindings.push_back({norm.tensors[i].uid, tensors.pointers()[i]});
      std::vector<std::byte> memory(static_cast<size_t>(run.workspace_bytes()) + 256);
      void* workspace = memory.data();
      size_t space = memory.size();
      run.run(bindings, std::align(256, space - 256, workspace, space));
      EXPECT_TRUE(verify(norm, tensors.pointers()).passed());
      double sum = 0;
      for (size_t i = 0; i < 24; ++i) sum += tensors.get(x)[i] * tensors.get(x)[i];
      const double want = 1 / std::sqrt(sum / 24 + 0.25);
      if (with_factor) {
        EXPECT_NEAR(tensors.get(factor)[0], want, 1e-6);
      }
      const double scaled = with_scale ? want * tensors.get(scale)[1] : want;
      EXPECT_NEAR(tensors.get(y)[1], tensors.get(x)[1] * scaled, 1e-6);
    }
}

TEST_F(OpFamilyOfATest, PlansForAGpuAsOneOfTheLibrarysOwn) {
  const Plan plan = build(graph(true, true), DeviceInfo::named("h200"), {.compile = false});
  for (const PlannedFusion& fusion : plan.fusions) EXPECT_EQ(fusion.config.engine, "rows");
  for (const Op& op : plan.graph.ops) EXPECT_NE(nature(op.attributes), Nature::composite);
}

TEST_F(OpFamilyOfATest, SurvivesAFile) {
  for (const bool with_factor : {false, true}) {
    const Graph norm = graph(true, with_factor);
    const std::string text = to_json(norm);
    EXPECT_THAT(text, HasSubstr(R"("op": "rms_norm")"));
    EXPECT_THAT(text, HasSubstr(R"("epsilon": 0.25)"));
    EXPECT_EQ(graph_from_json(text), norm);
  }
  EXPECT_EQ(graph_from_json(to_json(graph(false, false))), graph(false, false));
}

TEST_F(OpFamilyOfATest, SaysWhatIsWrong) {
  GraphBuilder g;
  const Tensor a = g.input("a", {5, 24}, DataType::f32);
  const auto message = [&](auto&& make) {
    try {
      make();
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("nothing");
  };
  EXPECT_EQ(message([&] { g.op(RmsNorm{}, {Tensor{}}); }), "rms_norm 'rms_norm1': the operand x is missing");
  EXPECT_EQ(message([&] {
              g.op(RmsNorm{}, {a, a, a});
            }),
            "rms_norm 'rms_norm1': takes 1 to 2 operands, got 3");
  EXPECT_EQ(message([&] {
              g.op(RmsNorm{}, {a, a});
            }),
            "rms_norm 'rms_norm1': scale [5, 24] is not one value for each of the 24 columns of x");
  EXPECT_EQ(message([&] { register_family(RmsNorm{}); }),
            "an op family with the name 'rms_norm' exists already");
}

TEST_F(OpFamilyOfATest, FeedsTheTensorCoresWithoutTypes) {
  GraphBuilder g;
  const Tensor half = g.input("half", {4096, 4096}, DataType::f16);
  const Tensor h = g.op(RmsNorm{}, {half}).front();
  const Graph linear = g.finish({g.matmul(h, g.input("w", {4096, 4096}, DataType::f16))});
  const Plan plan = build(linear, DeviceInfo::named("h200"), {.compile = false});
  EXPECT_THAT(plan.fusions.back().config.engine, StartsWith("wgmma"));
}

/// A family that is written in itself.
struct Endless : RmsNorm {
  friend bool operator==(const Endless&, const Endless&) = default;
  std::string_view kind() const { return "endless"; }
  void expand(Expansion& e) const { e.result(0, e.op(Composite(Endless{}), {e.input(0)})); }
};

TEST(OpFamilyWithoutAnEnd, IsRefused) {
  GraphBuilder g;
  const Graph graph = g.finish({g.op(Endless{}, {g.input("x", {5, 24}, DataType::f32)}).front()});
  EXPECT_THROW(expand_composites(graph), Error);
}

}  // namespace
}  // namespace fusor
