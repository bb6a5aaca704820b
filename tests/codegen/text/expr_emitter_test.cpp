// Owns the tests of generated text, the argument bytes beside it, and the hash of the structure.
#include "codegen/text/expr_emitter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <set>

namespace fusor {
namespace {

using testing::HasSubstr;
using testing::Not;

Node load(int operand, DataType type, const Strides& strides, bool whole = false) {
  Node node;
  node.kind = Node::Kind::load;
  node.type = type;
  node.access.operand = operand;
  node.access.strides = strides;
  node.access.whole_vectors = whole;
  return node;
}

Node pointwise(PointwiseMode mode, DataType type, std::array<int, 3> args) {
  Node node;
  node.kind = Node::Kind::pointwise;
  node.type = type;
  node.pointwise.mode = mode;
  node.args = args;
  return node;
}

Store store(int operand, int node, DataType type, const Strides& strides, bool whole = false) {
  Store result;
  result.node = node;
  result.type = type;
  result.access.operand = operand;
  result.access.strides = strides;
  result.access.whole_vectors = whole;
  return result;
}

// The total of a node, over the rows.
Node total(int node, ReductionMode mode) {
  Node reduce;
  reduce.kind = Node::Kind::reduce;
  reduce.reduction.mode = mode;
  reduce.over = 0b10;
  reduce.args[0] = node;
  return reduce;
}

// y = relu(x + bias), x and y bf16 [64, 128], bias f32 [1, 128].
KernelSource bias_relu() {
  KernelSource source;
  source.root = "elementwise/elementwise.cuh";
  source.target = "sm_90a";
  source.config = {{"index_bits", 32}, {"vector", 8}};
  Expr expr;
  expr.domain = {64, 128};
  expr.nodes = {load(0, DataType::bf16, {128, 1}, true), load(1, DataType::f32, {0, 1}),
                pointwise(PointwiseMode::add, DataType::f16, {0, 1, -1}),
                pointwise(PointwiseMode::relu, DataType::bf16, {2, -1, -1})};
  expr.stores = {store(2, 3, DataType::bf16, {128, 1}, true)};
  source.sites = {{"Y", expr, 1, true}};
  return source;
}

Expr& expr_of(KernelSource& source) { return source.sites[0].expr; }

// A fusion with `operands` device operands.
Fusion fusion_of(int operands) {
  Fusion fusion;
  for (int i = 0; i < operands; ++i) {
    fusion.operands.push_back({i, DataType::bf16, Memory::device, 16, 64, 0.0});
    fusion.operand_names.push_back("tensor" + std::to_string(i));
  }
  return fusion;
}

TEST(EmitHeader, BiasRelu) {
  EXPECT_EQ(emit_header(bias_relu()), R"(#include "codegen/device/base/elements.cuh"

struct Config {
  enum : int { arch = 900 };
  enum : int { index_bits = 32 };
  enum : int { vector = 8 };
};
#include "codegen/device/base/pointwise.cuh"
#include "codegen/device/base/formulas.cuh"

struct Y {
  enum : int { kRank = 2 };
  using Fn = Short;
  struct Args {
    alignas(8) const bf16* in0;
    alignas(8) Index in0_stride0;
    alignas(8) const float* in1;
    alignas(8) bf16* out0;
    alignas(8) Index out0_stride0;
  };
  template <int N, bool kSpread = false>
  static __device__ __forceinline__ void apply(const Args& args, const Index (&at)[kRank], int count) {
    const Vec<float, N> v0 = widen(load_whole<N>(args.in0 + (at[0] * args.in0_stride0 + at[1]), count));
    const Vec<float, N> v1 = widen(load_strided<N>(args.in1 + at[1], 1, count));
    Vec<float, N> r0;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float v2 = round_to<f16>(v0[i] + v1[i]);
      const float v3 = op_relu<Fn>(v2);
      r0[i] = v3;
    }
    store_whole(args.out0 + (at[0] * args.out0_stride0 + at[1]), narrow<bf16>(r0), count);
  }
};

)");
}

TEST(EmitHeader, ConfigHoldsNumbersTruthsAndTypes) {
  KernelSource source = bias_relu();
  source.config = {{"index_bits", 64}, {"tails", true}, {"Out", DataType::bf16}};
  source.target = "sm_89";
  EXPECT_THAT(emit_header(source), HasSubstr(R"(struct Config {
  enum : int { arch = 890 };
  enum : int { index_bits = 64 };
  enum : bool { tails = true };
  using Out = bf16;
};
)"));
}

TEST(StructureHash, TellsANumberATruthAndATypeApart) {
  std::set<std::string> hashes;
  for (const ConfigValue& value :
       {ConfigValue("x", 1), ConfigValue("x", true), ConfigValue("x", DataType{1})}) {
    KernelSource source = bias_relu();
    source.config.push_back(value);
    hashes.insert(structure_hash(source));
  }
  EXPECT_EQ(hashes.size(), 3u);
}

TEST(EmitHeader, ReductionsGetAnAccumulatorAndAFinish) {
  KernelSource source = bias_relu();
  expr_of(source).nodes.push_back(total(3, ReductionMode::avg));
  expr_of(source).stores = {store(2, 4, DataType::f32, {1, 0})};
  const std::string text = emit_header(source);
  EXPECT_THAT(text, HasSubstr("#include \"codegen/device/base/reduction.cuh\""));
  EXPECT_THAT(text, HasSubstr("    alignas(8) float out0_count;\n"));
  EXPECT_THAT(text, HasSubstr("    reduction_avg<float> r0;\n"));
  EXPECT_THAT(text, HasSubstr("      if (i < count) accumulators[kSpread ? i : 0].r0.add(v3);\n"));
  // What a reduction takes in is rounded first: no store does it later.
  EXPECT_THAT(text, HasSubstr("const float v3 = round_to<bf16>(op_relu<Fn>(v2));"));
  EXPECT_THAT(text, HasSubstr("store(args.out0 + at[0] * args.out0_stride0, "
                              "narrow<float>(total.r0.result(args.out0_count)));"));
}

TEST(EmitHeader, AValueSiteMasksLanesThatDoNotExist) {
  KernelSource source = bias_relu();
  expr_of(source).stores.clear();
  expr_of(source).yields = {3};
  const std::string text = emit_header(source);
  EXPECT_THAT(text, HasSubstr("using Stored = bf16;"));
  EXPECT_THAT(text, HasSubstr("value[i] = i < count ? v3 : Value(0);"));
  expr_of(source).yields = {0};
  EXPECT_THAT(emit_header(source), HasSubstr("value[i] = v0[i];"));
}

TEST(EmitHeader, ASiteMayYieldTwoValues) {
  KernelSource source = bias_relu();
  expr_of(source).stores.clear();
  expr_of(source).yields = {3};
  const std::string one = structure_hash(source);
  EXPECT_THAT(emit_header(source), Not(HasSubstr("Values")));
  expr_of(source).yields = {3, 2};
  source.sites[0].rounds_value = false;
  const std::string text = emit_header(source);
  EXPECT_THAT(text, HasSubstr("  using SecondValue = float;\n  template <int N>\n  struct Values {\n"));
  EXPECT_THAT(text, HasSubstr("__forceinline__ Values<N> apply("));
  // The op behind it sees it rounded; what only leaves is rounded by the kernel.
  EXPECT_THAT(text, HasSubstr("const float v2 = round_to<f16>(v0[i] + v1[i]);"));
  EXPECT_THAT(text, HasSubstr("const float v3 = op_relu<Fn>(v2);"));
  EXPECT_THAT(text, HasSubstr("value[i] = i < count ? v3 : Value(0);"));
  EXPECT_THAT(text, HasSubstr("second[i] = i < count ? v2 : SecondValue(0);"));
  EXPECT_THAT(text, HasSubstr("return {value, second};"));
  EXPECT_NE(structure_hash(source), one);
}

TEST(EmitHeader, AnAddressedSiteSaysWhereAnElementLies) {
  KernelSource source = bias_relu();
  Expr expr;
  expr.domain = {64, 128};
  expr.nodes = {load(0, DataType::bf16, {128, 1}, true)};
  expr.yields = {0};
  source.sites = {{"A", expr, 1, true}};
  EXPECT_THAT(emit_header(source), Not(HasSubstr("address(")));
  const std::string before = structure_hash(source);
  source.sites[0].addressed = true;
  EXPECT_THAT(emit_header(source), HasSubstr("return args.in0 + (at[0] * args.in0_stride0 + at[1]);"));
  EXPECT_NE(structure_hash(source), before);
}

TEST(EmitHeader, ParametersThatAreNotDefaultsAreArguments) {
  KernelSource source = bias_relu();
  expr_of(source).nodes[3].pointwise.lower_clip_slope = 0.25;
  const std::string text = emit_header(source);
  EXPECT_THAT(text, HasSubstr("alignas(8) float v3_lower_clip_slope;"));
  EXPECT_THAT(text, HasSubstr("p3.lower_clip_slope = args.v3_lower_clip_slope;"));
  EXPECT_THAT(text, HasSubstr("op_relu<Fn>(v2, p3)"));
  EXPECT_THAT(text, Not(HasSubstr("0.25")));
}

TEST(EmitHeader, OperandsAreConvertedToTheComputeType) {
  KernelSource source = bias_relu();
  expr_of(source).nodes[0].type = DataType::i8;
  EXPECT_THAT(emit_header(source), HasSubstr("narrow<float>(v0[i]) + v1[i]"));
}

TEST(EmitHeader, ComparisonsNeedNoRounding) {
  KernelSource source = bias_relu();
  expr_of(source).nodes[3] = pointwise(PointwiseMode::cmp_gt, DataType::b8, {2, 1, -1});
  expr_of(source).stores[0].type = DataType::b8;
  EXPECT_THAT(emit_header(source), HasSubstr("const i32 v3 = v2 > v1[i];"));
}

TEST(EmitHeader, AnchorsAreArgumentsOfApply) {
  KernelSource source = bias_relu();
  Node anchor;
  anchor.kind = Node::Kind::input;
  expr_of(source).nodes[0] = anchor;
  EXPECT_THAT(emit_header(source), HasSubstr(" const Vec<Anchor0, N>& anchor0) {\n"));
}

TEST(EmitHeader, WhatAllLanesShareIsLoadedApartFromApply) {
  KernelSource source = bias_relu();
  Node anchor;
  anchor.kind = Node::Kind::input;
  expr_of(source).nodes[0] = anchor;
  expr_of(source).nodes[1] = load(1, DataType::f32, {1, 0});
  EXPECT_THAT(emit_header(source), Not(HasSubstr("Loads")));
  expr_of(source).stores.clear();
  expr_of(source).yields = {3};
  const std::string text = emit_header(source);
  EXPECT_THAT(text, HasSubstr("  struct Loads { float v1; };"));
  EXPECT_THAT(text,
              HasSubstr("    return {widen(load_broadcast(args.in0 + at[0] * args.in0_stride0, count))};\n"));
  EXPECT_THAT(text, HasSubstr(" const Loads& loads,\n"));
  EXPECT_THAT(text, HasSubstr("    const float v1 = loads.v1;\n"));
}

TEST(EmitHeader, NamesAreCommentsOnly) {
  const SourceNames names{[](int operand) { return "tensor" + std::to_string(operand); },
                          [](int op) { return "op" + std::to_string(op); }};
  KernelSource source = bias_relu();
  expr_of(source).nodes[3].op = 7;
  const std::string named = emit_header(source, &names);
  EXPECT_THAT(named, HasSubstr("alignas(8) const bf16* in0;  // tensor0\n"));
  EXPECT_THAT(named, HasSubstr("op_relu<Fn>(v2);  // op7\n"));
  EXPECT_THAT(emit_header(source), Not(HasSubstr("tensor0")));
}

TEST(WriteArguments, BytesFollowTheFieldsOfTheText) {
  KernelSource source = bias_relu();
  expr_of(source).nodes[0].access.offset = 10;
  expr_of(source).nodes[3].pointwise.upper_clip = 6;
  ArgumentBlock block;
  write_arguments(block, source.sites[0], fusion_of(3));
  ASSERT_EQ(block.bytes().size(), 8u * 8);  // in0, its stride, in1, three clips, out0, its stride
  ASSERT_EQ(block.patches().size(), 3u);
  EXPECT_EQ(block.patches()[0].byte_offset, 20);
  EXPECT_EQ(block.patches()[1].at, 16);
  EXPECT_EQ(block.patches()[2].at, 48);
  int64_t stride = 0;
  std::memcpy(&stride, block.bytes().data() + 8, 8);
  EXPECT_EQ(stride, 128);
  float upper = 0;
  std::memcpy(&upper, block.bytes().data() + 32, 4);
  EXPECT_EQ(upper, 6.0f);
}

TEST(WriteArguments, ScalarsAreConstantsOrPatches) {
  KernelSource source = bias_relu();
  Node scalar;
  scalar.kind = Node::Kind::scalar;
  scalar.type = DataType::f16;
  scalar.access.operand = 1;
  expr_of(source).nodes[1] = scalar;
  Fusion fusion = fusion_of(3);
  fusion.operands[1].memory = Memory::constant;
  fusion.operands[1].value = 1.5;
  ArgumentBlock constant;
  write_arguments(constant, source.sites[0], fusion);
  float value = 0;
  std::memcpy(&value, constant.bytes().data() + 16, 4);
  EXPECT_EQ(value, 1.5f);

  fusion.operands[1].memory = Memory::host;
  ArgumentBlock patched;
  write_arguments(patched, source.sites[0], fusion);
  ASSERT_EQ(patched.patches().size(), 3u);
  EXPECT_EQ(patched.patches()[1].kind, Patch::Kind::scalar);
  EXPECT_EQ(patched.patches()[1].type, DataType::f32);
}

TEST(AccumulatorBytes, FieldsLieAsTheDeviceLaysThemOut) {
  KernelSource source = bias_relu();
  Expr& expr = expr_of(source);
  expr.stores.resize(3, expr.stores[0]);
  for (int i = 0; i < 3; ++i) {
    expr.nodes.push_back(total(3, ReductionMode::add));
    expr.stores[static_cast<size_t>(i)].node = 4 + i;
  }
  EXPECT_EQ(accumulator_bytes(source.sites[0]), 12);
  expr.nodes[5].reduction.compute = DataType::f64;
  EXPECT_EQ(accumulator_bytes(source.sites[0]), 24);
}

// Turns one screw of bias_relu().
using Change = std::function<void(KernelSource&)>;

void expect_same_hash(const Change& change) {
  KernelSource changed = bias_relu();
  change(changed);
  EXPECT_EQ(structure_hash(changed), structure_hash(bias_relu()));
  EXPECT_EQ(emit_header(changed), emit_header(bias_relu()));
}

void expect_other_hash(const Change& change) {
  KernelSource changed = bias_relu();
  change(changed);
  EXPECT_NE(structure_hash(changed), structure_hash(bias_relu()));
}

TEST(StructureHash, ExtentsStridesOffsetsOperandsAndOpsDoNotCount) {
  expect_same_hash([](KernelSource& s) { expr_of(s).domain = {3, 40000}; });
  expect_same_hash([](KernelSource& s) { expr_of(s).nodes[0].access.strides = {4096, 1}; });
  expect_same_hash([](KernelSource& s) { expr_of(s).nodes[1].access.offset = 64; });
  expect_same_hash([](KernelSource& s) { expr_of(s).nodes[0].access.operand = 9; });
  expect_same_hash([](KernelSource& s) { expr_of(s).nodes[3].op = 12; });
}

TEST(StructureHash, TypesModesAndParametersCount) {
  expect_other_hash([](KernelSource& s) { expr_of(s).nodes[0].type = DataType::f16; });
  expect_other_hash([](KernelSource& s) { expr_of(s).nodes[2].type = DataType::f32; });
  expect_other_hash([](KernelSource& s) { expr_of(s).stores[0].type = DataType::f32; });
  expect_other_hash([](KernelSource& s) { expr_of(s).nodes[3].pointwise.mode = PointwiseMode::abs; });
  expect_other_hash([](KernelSource& s) { expr_of(s).nodes[2].pointwise.compute = DataType::f64; });
  expect_other_hash([](KernelSource& s) { expr_of(s).nodes[3].pointwise.upper_clip = 6; });
  expect_other_hash([](KernelSource& s) { expr_of(s).nodes[2].args = {1, 0, -1}; });
}

TEST(StructureHash, ValuesOfChangedParametersDoNotCount) {
  KernelSource six = bias_relu(), seven = bias_relu();
  expr_of(six).nodes[3].pointwise.upper_clip = 6;
  expr_of(seven).nodes[3].pointwise.upper_clip = 7;
  EXPECT_EQ(structure_hash(six), structure_hash(seven));
}

TEST(StructureHash, BroadcastAndVectorClassesCount) {
  expect_other_hash([](KernelSource& s) { expr_of(s).nodes[0].access.strides = {0, 1}; });
  expect_other_hash([](KernelSource& s) { expr_of(s).nodes[0].access.strides = {128, 2}; });
  expect_other_hash([](KernelSource& s) { expr_of(s).nodes[1].access.whole_vectors = true; });
  expect_other_hash([](KernelSource& s) { expr_of(s).stores[0].stays_in_l2 = true; });
  expect_other_hash([](KernelSource& s) { s.sites[0].vector_axis = 0; });
}

TEST(StructureHash, ConfigTargetRootAndReductionsCount) {
  expect_other_hash([](KernelSource& s) { s.config[1].value = 4; });
  expect_other_hash([](KernelSource& s) { s.target = "sm_80"; });
  expect_other_hash([](KernelSource& s) { s.root = "elementwise/transpose.cuh"; });
  expect_other_hash([](KernelSource& s) { s.sites[0].short_forms = false; });
  expect_other_hash([](KernelSource& s) {
    expr_of(s).nodes.push_back(total(3, ReductionMode::add));
    expr_of(s).stores[0].node = 4;
  });
}

}  // namespace
}  // namespace fusor
