// Tests of core/attributes: names, look-ups and the fields that visit() lists.
#include "core/attributes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

namespace fusor {
namespace {

template <class Attribute>
std::vector<std::string> fields_of(const Attribute& attribute) {
  std::vector<std::string> names;
  Attribute::visit(attribute, [&](std::string_view name, const auto&) { names.emplace_back(name); });
  return names;
}

TEST(PointwiseTable, NamesAreUniqueAndAritiesSmall) {
  std::set<std::string_view> names;
  for (int i = 0; i < pointwise_mode_count(); ++i) {
    const auto mode = static_cast<PointwiseMode>(i);
    EXPECT_TRUE(names.insert(to_string(mode)).second) << to_string(mode);
    EXPECT_GE(info(mode).inputs, 1);
    EXPECT_LE(info(mode).inputs, 3);
  }
  EXPECT_TRUE(names.contains("gelu_tanh_bwd"));
}

TEST(PointwiseTable, EveryBackwardModeHasAForwardModeAndOneMoreOperand) {
  std::set<std::string> names;
  for (int i = 0; i < pointwise_mode_count(); ++i) names.emplace(to_string(static_cast<PointwiseMode>(i)));
  int backward = 0;
  for (int i = 0; i < pointwise_mode_count(); ++i) {
    const std::string name(to_string(static_cast<PointwiseMode>(i)));
    if (!name.ends_with("_bwd")) continue;
    ++backward;
    EXPECT_TRUE(names.contains(name.substr(0, name.size() - 4))) << name;
    EXPECT_EQ(info(static_cast<PointwiseMode>(i)).inputs, 2) << name;
  }
  EXPECT_EQ(backward, 8);
}

TEST(PointwiseTable, DomainsAreTheRows) {
  EXPECT_EQ(info(PointwiseMode::add).domain, PointwiseDomain::any);
  EXPECT_EQ(info(PointwiseMode::exp).domain, PointwiseDomain::real);
  EXPECT_EQ(info(PointwiseMode::cmp_le).domain, PointwiseDomain::compare);
  EXPECT_EQ(info(PointwiseMode::logical_not).domain, PointwiseDomain::logical);
  EXPECT_EQ(info(PointwiseMode::gen_index).domain, PointwiseDomain::index);
  EXPECT_EQ(info(PointwiseMode::binary_select).inputs, 3);
}

TEST(ReductionNames, AreInTheOrderOfTheEnum) {
  EXPECT_EQ(reduction_mode_count(), 9);
  EXPECT_EQ(to_string(ReductionMode::add), "add");
  EXPECT_EQ(to_string(ReductionMode::amax), "amax");
  EXPECT_EQ(to_string(ReductionMode::norm2), "norm2");
  EXPECT_EQ(to_string(ReductionMode::mul_no_zeros), "mul_no_zeros");
}

TEST(OpNames, TellTheKindAndTheMode) {
  Conv wgrad;
  wgrad.pass = ConvPass::wgrad;
  EXPECT_EQ(kind_name(Pointwise{.mode = PointwiseMode::relu}), "pointwise");
  EXPECT_EQ(short_name(Pointwise{.mode = PointwiseMode::relu}), "relu");
  EXPECT_EQ(kind_name(Reduction{.mode = ReductionMode::avg}), "reduction");
  EXPECT_EQ(short_name(Reduction{.mode = ReductionMode::avg}), "avg");
  EXPECT_EQ(kind_name(wgrad), "conv_wgrad");
  EXPECT_EQ(short_name(Concatenate{}), "concatenate");
  EXPECT_EQ(to_string(ConvMode::convolution), "convolution");
}

TEST(ComputeType, IsThereWhereSomethingIsComputed) {
  const Attributes matmul = Matmul{.compute = DataType::f64};
  ASSERT_NE(compute_type(matmul), nullptr);
  EXPECT_EQ(*compute_type(matmul), DataType::f64);
  EXPECT_EQ(compute_type(Slice{}), nullptr);
  EXPECT_EQ(compute_type(Concatenate{}), nullptr);
}

TEST(OpClasses, ViewsAndContractions) {
  EXPECT_TRUE(is_view(Reshape{}));
  EXPECT_TRUE(is_view(Transpose{}));
  EXPECT_TRUE(is_view(Slice{}));
  EXPECT_FALSE(is_view(Concatenate{}));
  EXPECT_TRUE(is_contraction(Matmul{}));
  EXPECT_TRUE(is_contraction(Conv{}));
  EXPECT_FALSE(is_contraction(Reduction{}));
}

TEST(Families, HaveAnAttributeOnlyWhereTheirKindReadsIt) {
  EXPECT_TRUE(Pointwise{.mode = PointwiseMode::relu_bwd}.has("lower_clip_slope"));
  EXPECT_FALSE(Pointwise{.mode = PointwiseMode::gelu}.has("lower_clip_slope"));
  EXPECT_FALSE(Pointwise{.mode = PointwiseMode::relu}.has("elu_alpha"));
  EXPECT_TRUE(Pointwise{.mode = PointwiseMode::gen_index}.has("axis"));
  EXPECT_TRUE(Pointwise{.mode = PointwiseMode::add}.has("compute"));
}

TEST(Families, HaveOneKindForEachNameInFiles) {
  std::vector<std::string_view> names;
  for (const Attributes& kind : all_kinds()) names.push_back(kind_name(kind));
  for (const std::string_view expected :
       {"pointwise", "reduction", "matmul", "conv_fprop", "conv_dgrad", "conv_wgrad", "reshape", "transpose",
        "slice", "concatenate", "gather", "softmax", "norm_fwd", "resample_bwd", "rnn_fwd"})
    EXPECT_EQ(std::ranges::count(names, expected), 1) << expected;
}

TEST(Families, NameTheRolesOfOperandsAndResults) {
  for (const Attributes& kind : all_kinds()) {
    EXPECT_FALSE(roles(kind).inputs.empty()) << kind_name(kind);
    ASSERT_FALSE(roles(kind).outputs.empty()) << kind_name(kind);
    EXPECT_TRUE(nature(kind) == Nature::composite || roles(kind).outputs.size() == 1) << kind_name(kind);
  }
  EXPECT_EQ(roles(Conv::kinds()[1]).outputs[0].name, "dx");
  EXPECT_EQ(roles(Pointwise{.mode = PointwiseMode::tanh_bwd}).inputs[0].name, "dy");
}

TEST(Families, OfRecurrentLayersNameEveryWeight) {
  RnnForward rnn;
  rnn.cell = RnnCell::gru;
  rnn.layers = 2;
  rnn.bidirectional = true;
  const std::vector<Role> inputs = rnn.roles().inputs;
  ASSERT_EQ(inputs.size(), 3U + 16U);
  EXPECT_EQ(inputs[3].name, "weight_ih_l0");
  EXPECT_EQ(inputs[8].name, "weight_hh_l0_reverse");
  EXPECT_EQ(inputs[18].name, "bias_hh_l1_reverse");
}

TEST(Visit, NamesEveryField) {
  EXPECT_EQ(fields_of(Pointwise{}),
            (std::vector<std::string>{"mode", "compute", "lower_clip", "upper_clip", "lower_clip_slope",
                                      "elu_alpha", "softplus_beta", "swish_beta", "axis"}));
  EXPECT_EQ(fields_of(Conv{}), (std::vector<std::string>{"pre_padding", "post_padding", "stride", "dilation",
                                                         "mode", "groups", "compute"}));
  EXPECT_EQ(fields_of(Slice{}), (std::vector<std::string>{"start", "limit", "step"}));
  EXPECT_TRUE(fields_of(Reshape{}).empty());
}

TEST(Visit, CanWrite) {
  Transpose transpose;
  Transpose::visit(transpose, [](std::string_view, Dims& permutation) { permutation = {1, 0}; });
  EXPECT_EQ(transpose.permutation, (Dims{1, 0}));
}

}  // namespace
}  // namespace fusor
