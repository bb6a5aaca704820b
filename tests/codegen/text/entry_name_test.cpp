// Tests of the names that kernels get when they are loaded: what they are made of, and that a cubin under
// another name is otherwise the same, whatever bytes are given.
#include "codegen/text/entry_name.h"

#include <elf.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "codegen/nvrtc.h"
#include "codegen/text/expr_emitter.h"
#include "tests/codegen/sample_source.h"

namespace fusor {
namespace {

using ::testing::Contains;
using ::testing::EndsWith;
using ::testing::Not;
using ::testing::Pair;

std::string name_of(const std::vector<std::string>& ops, std::string_view entry = "rows", size_t alike = 0) {
  return kernel_name(ops, entry, alike);
}

TEST(KernelName, IsMadeOfTheOpsAndTheEntry) {
  EXPECT_EQ(name_of({"conv1", "bias", "relu"}, "wgmma_contraction"), "conv1_bias_relu__wgmma_contraction");
  EXPECT_EQ(name_of({"add"}), "add__rows");
}

TEST(KernelName, PartsOfACompositeAreNamedOnce) {
  EXPECT_EQ(name_of({"norm1.1", "norm1.2", "norm1.10", "relu"}), "norm1_relu__rows");
  EXPECT_EQ(name_of({"a.1.2", "a.1.3"}), "a__rows");
  EXPECT_EQ(name_of({"layer.mlp", "layer.norm"}), "layer_mlp_layer_norm__rows");
}

TEST(KernelName, IsAnIdentifier) {
  EXPECT_EQ(name_of({"self attention/1", "h\xC3\xA4"}), "self_attention_1_h__rows");
  EXPECT_EQ(name_of({"_Z3foo"}), "Z3foo__rows");
  EXPECT_EQ(name_of({"3x3"}), "op_3x3__rows");
  EXPECT_EQ(name_of({"+", ""}), "op___rows");
  EXPECT_EQ(name_of({}), "op___rows");
}

TEST(KernelName, FusionsThatShareAKernelAreCounted) {
  EXPECT_EQ(name_of({"layer0", "relu0"}, "mma", 11), "layer0_relu0_and_11_alike__mma");
}

TEST(KernelName, OpsThatDoNotFitAreCounted) {
  std::vector<std::string> ops;
  ops.reserve(100);
  for (int i = 0; i < 100; ++i) ops.push_back("multiply" + std::to_string(i));
  const std::string name = name_of(ops, "wgmma_contraction");
  EXPECT_THAT(name, EndsWith("_and_92_more__wgmma_contraction"));
  EXPECT_LE(name.size(), 120U);
  EXPECT_LE(name_of({std::string(1000, 'x')}).size(), 120U);
  EXPECT_LE(name_of({std::string(1000, '7'), "y"}, "attention_backward_queries", 123456).size(), 120U);
}

// A cubin's sections by name, and its functions. Reads what it is given without checks.
struct Contents {
  std::map<std::string, std::string> sections;
  std::vector<std::string> functions;
};

template <class T>
T at(const std::string& bytes, size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

Contents contents_of(const std::string& cubin) {
  Contents found;
  const auto header = at<Elf64_Ehdr>(cubin, 0);
  const auto section = [&](size_t i) {
    return at<Elf64_Shdr>(cubin, header.e_shoff + i * sizeof(Elf64_Shdr));
  };
  for (size_t i = 1; i < header.e_shnum; ++i) {
    const Elf64_Shdr each = section(i);
    const std::string bytes = each.sh_type == SHT_NOBITS ? std::to_string(each.sh_size)
                                                         : cubin.substr(each.sh_offset, each.sh_size);
    found.sections[cubin.c_str() + section(header.e_shstrndx).sh_offset + each.sh_name] = bytes;
    if (each.sh_type != SHT_SYMTAB) continue;
    for (size_t k = 0; k < each.sh_size; k += sizeof(Elf64_Sym)) {
      const auto symbol = at<Elf64_Sym>(cubin, each.sh_offset + k);
      if (ELF64_ST_TYPE(symbol.st_info) == STT_FUNC)
        found.functions.emplace_back(cubin.c_str() + section(each.sh_link).sh_offset + symbol.st_name);
    }
  }
  return found;
}

class EntryName : public testing::Test {
 protected:
  void SetUp() override {
    std::string problem;
    if (!nvrtc::available(&problem)) GTEST_SKIP() << problem;
    cubin_ = compiled("sm_90a");
  }
  static std::string compiled(const std::string& target) {
    const KernelSource source = test::sample_source();
    return nvrtc::compile(source.root, emit_header(source), target).cubin;
  }
  std::string cubin_;
};

constexpr std::string_view kName = "scale_shift__elementwise";

TEST_F(EntryName, OnlyNamesDiffer) {
  const auto renamed = with_entry_named(cubin_, "elementwise", kName);
  ASSERT_TRUE(renamed);
  const Contents before = contents_of(cubin_);
  Contents after = contents_of(*renamed);
  EXPECT_THAT(after.functions, Contains(std::string(kName)));
  EXPECT_THAT(after.functions, Not(Contains("elementwise")));
  EXPECT_EQ(after.functions.size(), before.functions.size());
  EXPECT_THAT(after.sections,
              Contains(Pair(".text." + std::string(kName), before.sections.at(".text.elementwise"))));
  ASSERT_EQ(after.sections.size(), before.sections.size());
  for (const auto& [name, bytes] : before.sections) {
    std::string expected = name;
    if (expected.ends_with(".elementwise")) expected.replace(expected.size() - 11, 11, kName);
    ASSERT_TRUE(after.sections.contains(expected)) << expected;
    const bool holds_names = name == ".strtab" || name == ".shstrtab" || name == ".symtab";
    if (!holds_names) {
      EXPECT_EQ(after.sections[expected], bytes) << name;
    }
  }
  EXPECT_FALSE(with_entry_named(*renamed, "elementwise", "another")) << "nothing is called so any more";
  EXPECT_TRUE(with_entry_named(*renamed, kName, "another"));
}

TEST_F(EntryName, TheOldBytesStay) {
  const auto renamed = with_entry_named(cubin_, "elementwise", kName);
  ASSERT_TRUE(renamed);
  const Contents before = contents_of(cubin_);
  const std::string& code = before.sections.at(".text.elementwise");
  EXPECT_EQ(renamed->find(code), cubin_.find(code)) << "code moves nowhere";
}

TEST_F(EntryName, WhatIsNoCubinOfTheKernelStaysAsItIs) {
  EXPECT_FALSE(with_entry_named("", "elementwise", kName));
  EXPECT_FALSE(with_entry_named("stub scale 24", "scale", kName));
  EXPECT_FALSE(with_entry_named(cubin_, "element", kName));
  EXPECT_FALSE(with_entry_named(cubin_, "", kName));
  EXPECT_FALSE(with_entry_named(cubin_, "elementwise", ""));
  EXPECT_FALSE(with_entry_named(cubin_, "elementwise", std::string_view("a\0b", 3)));
  EXPECT_FALSE(with_entry_named(cubin_, "elementwise", "elementwise"));
  EXPECT_FALSE(with_entry_named(cubin_, "global", kName)) << ".nv.global is no kernel's";
}

TEST_F(EntryName, EveryTruncationIsSafe) {
  for (size_t size = 0; size < cubin_.size(); size += size < 200 ? 1 : 97)
    EXPECT_FALSE(with_entry_named(cubin_.substr(0, size), "elementwise", kName)) << size;
}

// Absurd numbers in headers, sections' headers, segments and symbols, and bytes anywhere.
TEST_F(EntryName, AnyBytesAreSafe) {
  std::mt19937 random(7);
  const auto header = at<Elf64_Ehdr>(cubin_, 0);
  const std::vector<uint64_t> absurd = {0,
                                        1,
                                        0xff,
                                        0xffff,
                                        0x7fffffff,
                                        0xffffffff,
                                        0xfffffff0,
                                        0x80000000,
                                        UINT64_MAX,
                                        UINT64_MAX - 63,
                                        cubin_.size(),
                                        cubin_.size() - 1,
                                        cubin_.size() + 1,
                                        uint64_t{1} << 63};
  const std::vector<size_t> tables = {0, header.e_shoff, header.e_phoff, 0x40};
  int renamed = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string bytes = cubin_;
    for (size_t changes = 1 + random() % 4; changes > 0; --changes) {
      const size_t table = tables[random() % tables.size()];
      const size_t at =
          random() % 8 == 0 ? random() % bytes.size() : (table + random() % 1500) % bytes.size();
      const size_t width = std::min<size_t>(size_t{1} << random() % 4, bytes.size() - at);
      const uint64_t value = random() % 2 == 0 ? absurd[random() % absurd.size()] : random();
      std::memcpy(bytes.data() + at, &value, width);
    }
    const auto result = with_entry_named(bytes, "elementwise", kName);
    if (!result) continue;
    ++renamed;
    ASSERT_GE(result->size(), bytes.size());
    ASSERT_LE(result->size(), 3 * bytes.size() + 4096);
  }
  EXPECT_GT(renamed, 1000) << "mutations that hit nothing of importance";
  EXPECT_LT(renamed, 19000);
}

TEST_F(EntryName, TheSecondFormOfCodeThatNewGenerationsHaveIsLeftAlone) {
  const std::string other = compiled("sm_100a");
  const Contents contents = contents_of(other);
  const bool has_second_form = std::ranges::any_of(contents.sections, [](const auto& each) {
    return each.first.starts_with(".nv.capmerc") || each.first.starts_with(".nv.merc");
  });
  EXPECT_EQ(with_entry_named(other, "elementwise", kName).has_value(), !has_second_form);
}

}  // namespace
}  // namespace fusor
