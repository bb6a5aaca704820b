// Tests of the ladder of library names.
#include "codegen/shared_library.h"

#include <gmock/gmock.h>

#include <vector>

namespace fusor {
namespace {

using ::testing::HasSubstr;

std::string accept(const SharedLibrary&) { return {}; }

TEST(SharedLibrary, OpensTheFirstThatLoads) {
  const std::vector<std::string> names = {"libfusor-none.so.9", "libm.so.6", "libc.so.6"};
  const auto library = SharedLibrary::open_first("the library", names, accept);
  ASSERT_TRUE(library);
  EXPECT_THAT(library.path(), HasSubstr("/libm"));
  EXPECT_EQ(library.problem(), "");
  double (*cosine)(double) = nullptr;
  ASSERT_TRUE(library.find(cosine, "cos"));
  EXPECT_EQ(cosine(0), 1);
  EXPECT_FALSE(library.find(cosine, "fusor_no_such_function"));
  EXPECT_EQ(cosine, nullptr);
}

TEST(SharedLibrary, GoesOnAfterAnObjection) {
  const std::vector<std::string> names = {"libm.so.6", "libc.so.6"};
  const auto library = SharedLibrary::open_first("the library", names, [](const SharedLibrary& candidate) {
    return candidate.path().find("/libm") != std::string::npos ? "is too old" : "";
  });
  ASSERT_TRUE(library);
  EXPECT_THAT(library.path(), HasSubstr("/libc"));
}

TEST(SharedLibrary, MessageListsEveryAttempt) {
  const std::vector<std::string> names = {"libfusor-none.so.9", "/nowhere/libfusor.so", "libm.so.6"};
  const auto library =
      SharedLibrary::open_first("NVRTC", names, [](const SharedLibrary&) { return "is too old"; });
  EXPECT_FALSE(library);
  EXPECT_THAT(library.problem(), HasSubstr("NVRTC cannot be used"));
  EXPECT_THAT(library.problem(), HasSubstr("libfusor-none.so.9: "));
  EXPECT_THAT(library.problem(), HasSubstr("/nowhere/libfusor.so: "));
  EXPECT_THAT(library.problem(), HasSubstr("libm.so.6: is too old"));
}

}  // namespace
}  // namespace fusor
