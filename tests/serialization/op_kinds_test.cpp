// Tests of what front-ends in other languages read: the kinds of ops, and the attributes of one op.
#include <gmock/gmock.h>

#include "core/error.h"
#include "serialization/serialization.h"

namespace fusor {
namespace {

using testing::HasSubstr;

TEST(OpKinds, NameOperandsAndDefaults) {
  const std::string kinds = op_kinds_json();
  EXPECT_THAT(kinds, HasSubstr(R"("op": "matmul", "inputs": [{"name": "a"}, {"name": "b"}])"));
  EXPECT_THAT(kinds, HasSubstr(R"("mode": "swish", "compute": "fp32", "swish_beta": 1.0)"));
}

TEST(OpKinds, AttributesAreReadAsInGraphFiles) {
  const Attributes read = attributes_from_json(R"({"op": "pointwise", "mode": "relu", "upper_clip": 6})", 2);
  EXPECT_EQ(std::get<Pointwise>(read).upper_clip, 6);
}

TEST(OpKinds, AnAttributeOfAnotherKindIsRefused) {
  EXPECT_THROW(attributes_from_json(R"({"op": "matmul", "axis": 1})", 2), Error);
}

}  // namespace
}  // namespace fusor
