// Tests the command as a user meets it: the binary, its exit codes, and what it prints.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <regex>

#include "codegen/cuda_driver.h"
#include "codegen/nvrtc.h"
#include "core/convert.h"
#include "core/plan.h"
#include "serialization/serialization.h"
#include "tests/tools/command_fixture.h"

namespace fusor {
namespace {

using testing::HasSubstr;
using testing::MatchesRegex;
using testing::Not;

class Command : public CommandTest {};

TEST_F(Command, RunVerifiesOnTheCpu) {
  for (const char* name : {"scale_relu", "matmul"}) {
    const Outcome outcome = fusor("run " + graph(name) + " --device cpu --verify --repeat 3");
    EXPECT_EQ(outcome.code, 0) << outcome.err << outcome.out;
    EXPECT_THAT(outcome.out, HasSubstr("median of 2"));
    EXPECT_THAT(outcome.out, HasSubstr("max abs"));
    EXPECT_EQ(outcome.err, "");
  }
}

TEST_F(Command, RunReportsAsJson) {
  const Outcome outcome = fusor("--json run " + graph("matmul") + " --device cpu --verify");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("\"passed\": true"));
  EXPECT_THAT(outcome.out, HasSubstr("\"tensor\": \"sums\""));
  EXPECT_THAT(outcome.out, HasSubstr("\"sampled\": false"));
}

TEST_F(Command, ReadsAndWritesFilesOfNumPy) {
  const std::string line = "run " + graph("scale_relu") + " --device cpu --verify ";
  const Outcome first = fusor(line + "--output y=" + path("y.npy"));
  EXPECT_EQ(first.code, 0) << first.err;
  const std::string file = text_of(path("y.npy"));
  EXPECT_THAT(file, HasSubstr("{'descr': '<f2', 'fortran_order': False, 'shape': (64, 48, ), }"));
  EXPECT_EQ(file.size(), 128 + 64 * 48 * 2U);

  std::string bias = "\x93NUMPY";
  const std::string header = "{'descr': '<f4', 'fortran_order': True, 'shape': (1, 48), }";
  bias += std::string("\1\0", 2) + static_cast<char>(header.size()) + '\0' + header;
  const float lowest = -1000;
  for (int i = 0; i < 48; ++i) bias.append(reinterpret_cast<const char*>(&lowest), 4);
  std::ofstream(path("bias.npy"), std::ios::binary) << bias;
  const Outcome second = fusor(line + "--input bias=" + path("bias.npy") + " --output y=" + path("z.npy"));
  EXPECT_EQ(second.code, 0) << second.err;
  EXPECT_EQ(text_of(path("z.npy")).substr(128), std::string(64 * 48 * 2, '\0'));
}

// Elements that share bytes in memory have one each in a file.
TEST_F(Command, PackedElementsHaveBytesInFilesOfNumPy) {
  std::ofstream(path("g.json")) << R"({"format": 1, "kind": "graph", "name": "packed", "tensors": [
      {"name": "x", "type": "int4", "dims": [3, 5], "strides": [1, 3]},
      {"name": "i", "type": "int4", "dims": [3, 5]}, {"name": "f", "type": "fp4_e2m1", "dims": [3, 5]},
      {"name": "b", "type": "bool1", "dims": [3, 5]}], "ops": [
      {"name": "n", "op": "pointwise", "mode": "neg", "inputs": ["x"], "outputs": ["i"]},
      {"name": "c", "op": "pointwise", "mode": "identity", "inputs": ["x"], "outputs": ["f"]},
      {"name": "p", "op": "pointwise", "mode": "cmp_gt", "inputs": ["x", "i"], "outputs": ["b"]}]})";
  const auto file = [](const char* type, const std::string& elements) {
    const std::string header =
        fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': (3, 5, ), }}", type);
    return "\x93NUMPY\1" + std::string(1, '\0') + static_cast<char>(header.size()) + '\0' + header + elements;
  };
  std::string xs;
  for (int i = 0; i < 15; ++i) xs += static_cast<char>(i - 8 < 8 ? i - 8 : 0);
  std::ofstream(path("x.npy"), std::ios::binary) << file("|i1", xs);
  const std::string line = "run " + path("g.json") + " --device cpu --input x=" + path("x.npy");
  const Outcome run = fusor(line + " --verify --output i=" + path("i.npy") + " --output f=" + path("f.npy") +
                            " --output b=" + path("b.npy"));
  ASSERT_EQ(run.code, 0) << run.err;
  const std::string is = text_of(path("i.npy")), fs = text_of(path("f.npy")), bs = text_of(path("b.npy"));
  EXPECT_THAT(is, HasSubstr("'|i1'"));
  EXPECT_THAT(fs, HasSubstr("'|u1'"));
  EXPECT_THAT(bs, HasSubstr("'|b1'"));
  for (size_t i = 0; i < 15; ++i) {
    const int byte = static_cast<unsigned char>(xs[i]), x = byte < 128 ? byte : byte - 256;
    EXPECT_EQ(is[128 + i], std::min(-x, 7));
    EXPECT_EQ(bs[128 + i], x > 0);
    uint8_t bits = 0;
    store_int(DataType::f4_e2m1, &bits, 0, x);
    EXPECT_EQ(fs[128 + i], bits & 15) << x;
  }
  std::ofstream(path("x.npy"), std::ios::binary) << file("|i1", std::string(15, '\x09'));
  const Outcome refused = fusor(line);
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("element 0 is 9, int4 goes from -8 to 7"));
}

TEST_F(Command, FilesOfAnotherShapeOrForNoTensorAreRefused) {
  const std::string line = "run " + graph("scale_relu") + " --device cpu ";
  ASSERT_EQ(fusor(line + "--output y=" + path("y.npy")).code, 0);
  const Outcome other = fusor(line + "--input x=" + path("y.npy"));
  EXPECT_EQ(other.code, 2);
  EXPECT_THAT(other.err, HasSubstr("has [64, 48] of type <f2; tensor 'x' is fp32 [64, 48], which is <f4"));
  const Outcome unknown = fusor(line + "--input z=" + path("y.npy"));
  EXPECT_EQ(unknown.code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("expected NAME=FILE with the name of an input: x, bias"));
  EXPECT_EQ(fusor(line + "--input " + path("y.npy")).code, 2) << "there are two inputs";
  const Outcome damaged = fusor(line + "--input x=" + graph("scale_relu"));
  EXPECT_EQ(damaged.code, 2);
  EXPECT_THAT(damaged.err, HasSubstr("is no .npy file"));
}

TEST_F(Command, TheOnlyOutputNeedsNoName) {
  const std::string line = "run " + graph("scale_relu") + " --device cpu ";
  ASSERT_EQ(fusor(line + "--output y=" + path("named.npy")).code, 0);
  ASSERT_EQ(fusor(line + "--output " + path("alone.npy")).code, 0);
  EXPECT_EQ(text_of(path("alone.npy")), text_of(path("named.npy")));
}

TEST_F(Command, PlansAreSavedAndRun) {
  const Outcome planned = fusor("plan " + graph("matmul") + " --device cpu -o " + path("p.json"));
  EXPECT_EQ(planned.code, 0) << planned.err;
  EXPECT_THAT(planned.out, HasSubstr("saved as " + path("p.json")));
  EXPECT_TRUE(read_plan(path("p.json")).device.is_cpu());
  const Outcome run = fusor("run " + path("p.json") + " --verify");
  EXPECT_EQ(run.code, 0) << run.err;
}

TEST_F(Command, ProfileTellsEachFusionsTimeAndLimit) {
  const std::string line = "profile " FUSOR_TEST_DIR
                           "/../../samples/graphs/resnet50_bottleneck_n1.json --device cpu "
                           "--runs 2 --flush ";
  const Outcome text = fusor(line + "1");
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("medians of 2 runs"));
  EXPECT_THAT(text.out, HasSubstr("of the limit by"));
  EXPECT_THAT(text.out, HasSubstr("caches were emptied before each run by reading 1.0 MiB"));
  const Outcome json = fusor(line + "0 --json");
  EXPECT_THAT(json.out, HasSubstr("\"fraction_of_limit\": "));
  EXPECT_THAT(json.out, HasSubstr("\"name\": \"evaluate\""));
}

TEST_F(Command, SeedsChooseTheInputs) {
  const std::string line = "run " + graph("matmul") + " --device cpu --verify --json --seed ";
  const auto figures = [](const Outcome& outcome) {
    return outcome.out.substr(outcome.out.find("\"verify\""));
  };
  EXPECT_EQ(figures(fusor(line + "5")), figures(fusor(line + "5")));
  EXPECT_NE(figures(fusor(line + "5")), figures(fusor(line + "6")));
}

TEST_F(Command, CandidatesAndExplainTellTheChoice) {
  const Outcome candidates = fusor("candidates " + graph("matmul") + " --device H200");
  EXPECT_EQ(candidates.code, 0) << candidates.err;
  EXPECT_THAT(candidates.out, HasSubstr("candidate 0: estimated"));
  const Outcome explain = fusor("explain " + graph("matmul") + " --device H200");
  EXPECT_EQ(explain.code, 0) << explain.err;
  EXPECT_THAT(explain.out, HasSubstr("of the limit by"));
  EXPECT_EQ(explain.out.find("accepts"), std::string::npos);
  const Outcome all = fusor("explain " + graph("matmul") + " --device H200 --all");
  EXPECT_THAT(all.out, HasSubstr("accepts"));
  EXPECT_THAT(all.out, HasSubstr("refuses"));
  const Outcome json = fusor("explain " + graph("matmul") + " --device H200 --json");
  EXPECT_THAT(json.out, HasSubstr("\"rule\": "));
  EXPECT_THAT(json.out, HasSubstr("\"choice\": "));
}

// A plan's limits are not saved: what it was made of is told beside what would be chosen now.
TEST_F(Command, ExplainTellsWhatASavedPlanIs) {
  const std::string saved = path("plan.json");
  const Outcome planned = fusor("plan " + graph("matmul") + " --device H200 --no-compile -o " + saved);
  ASSERT_EQ(planned.code, 0) << planned.err;
  const Outcome text = fusor("explain " + saved);
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("as saved: 2 fusions, workspace "));
  EXPECT_THAT(text.out, HasSubstr("planned anew, under this call's limits: graph '"));
  const Outcome json = fusor("explain " + saved + " --json");
  EXPECT_THAT(json.out, HasSubstr("\"plan\": {"));
  EXPECT_EQ(fusor("explain " + graph("matmul") + " --device H200").out.find("as saved"), std::string::npos);
}

TEST_F(Command, ExplainIsShort) {
  const Outcome explain =
      fusor("explain " FUSOR_TEST_DIR "/../../samples/graphs/resnet50_bottleneck_n32.json --device H200");
  EXPECT_EQ(explain.code, 0) << explain.err;
  std::istringstream text(explain.out);
  int lines = 0;
  for (std::string line; std::getline(text, line); ++lines) EXPECT_LT(line.size(), 120U) << line;
  EXPECT_LT(lines, 20) << explain.out;
  EXPECT_THAT(explain.out, HasSubstr("apart from 1: each has a matmul or a convolution of its own"));
}

TEST_F(Command, ACandidateCanBePicked) {
  const std::string line =
      "plan " + graph("matmul") + " --device H200 --no-compile -o " + path("p.json") + " --candidate ";
  EXPECT_EQ(fusor(line + "0").code, 0);
  const Outcome outcome = fusor(line + "1000");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("fusor: --candidate 1000: there are"));
}

TEST_F(Command, WorkspaceLimitsAreKept) {
  const Outcome outcome =
      fusor("plan " + graph("matmul") + " --device H200 --no-compile --max-workspace 100000000");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(fusor("plan " + graph("matmul") + " --max-workspace -4").code, 2);
}

TEST_F(Command, SourceShowsTheUsersNames) {
  const Outcome outcome = fusor("source " + graph("scale_relu") + " --device H200");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("bias"));
  EXPECT_THAT(outcome.out, HasSubstr("extern \"C\" __global__"));
  EXPECT_EQ(fusor("source " + graph("scale_relu") + " --device cpu").code, 2);
}

TEST_F(Command, PlansForAnotherGpuAreCompiledWithoutOne) {
  if (!nvrtc::available()) GTEST_SKIP() << "no NVRTC";
  const std::string line = "plan " + graph("scale_relu") + " --device A100 -o " + path("p.json");
  const Outcome first = fusor(line);
  EXPECT_EQ(first.code, 0) << first.err;
  EXPECT_THAT(first.out, HasSubstr("compiled now"));
  EXPECT_THAT(fusor(line).out, HasSubstr("from the disk cache"));
}

TEST_F(Command, APlanForAGpuThatIsNotThereLacksAMachine) {
  if (cuda::available()) GTEST_SKIP() << "there is a GPU";
  const Outcome outcome = fusor("run " + graph("scale_relu") + " --device H200");
  EXPECT_EQ(outcome.code, 3);
  EXPECT_THAT(outcome.err, MatchesRegex("fusor: [^\n]+\n"));
}

#ifdef FUSOR_STUB_DRIVER
TEST_F(Command, AGpuThatComputesNothingIsFoundOut) {
  if (!nvrtc::available()) GTEST_SKIP() << "no NVRTC";
  const std::string stub = "FUSOR_LIBCUDA='" FUSOR_STUB_DRIVER "'";
  EXPECT_EQ(fusor("run " + graph("matmul") + " --repeat 2", stub).code, 0);
  const Outcome verified = fusor("run " + graph("matmul") + " --verify --json", stub);
  EXPECT_EQ(verified.code, 1) << verified.err;
  EXPECT_THAT(verified.out, HasSubstr("\"passed\": false"));
  // The outputs are as they were poisoned: NaN everywhere.
  EXPECT_THAT(verified.out, HasSubstr("\"nans\": 561"));
  EXPECT_THAT(fusor("doctor --json", stub).out, HasSubstr("\"gpu\": true"));
}

// Times that were measured move cuts, and a part may be no fusion of its own: its result leaves through a
// view.
TEST_F(Command, TuneGoesOnBehindFusionsThatDoNotStandAlone) {
  if (!nvrtc::available()) GTEST_SKIP() << "no NVRTC";
  const std::string stub = "FUSOR_LIBCUDA='" FUSOR_STUB_DRIVER "'";
  const std::string asks = "tune " + graph("group_norm_statistics") + " --runs 1 --flush 1 --candidates 1";
  ASSERT_EQ(fusor(asks, stub).code, 0);
  const std::string table = text_of(path("cache/tuning.json"));
  ASSERT_THAT(table, HasSubstr("\"seconds\""));
  const std::regex time("\"(seconds|low|high)\": [0-9.e+-]+");
  std::ofstream(path("cache/tuning.json")) << std::regex_replace(table, time, "\"$1\": 0.01");
  const Outcome again = fusor(asks, stub);
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_THAT(again.out + again.err, HasSubstr("does not stand alone"));
}
#endif

TEST_F(Command, MistakesAreOneLineOnStandardError) {
  const auto expect = [this](const std::string& arguments, const std::string& message) {
    const Outcome outcome = fusor(arguments);
    EXPECT_EQ(outcome.code, 2) << arguments;
    EXPECT_EQ(outcome.out, "") << arguments;
    EXPECT_THAT(outcome.err, MatchesRegex("fusor: [^\n]+\n")) << arguments;
    EXPECT_THAT(outcome.err, HasSubstr(message)) << arguments;
  };
  expect("", "say what to do: plan, run, profile");
  expect("", "fuzz, engines, ops, doctor or devices (see --help)");
  expect("dance", "there is no part 'dance' (fusor --help)");
  expect("runn " + graph("matmul"), "there is no part 'runn'; did you mean run? (fusor --help)");
  expect("run " + graph("matmul") + " --devic cpu",
         "run has no option '--devic'; did you mean --device? (fusor run --help)");
  expect("run " + graph("matmul") + " " + graph("matmul"), "run takes no further argument");
  expect("doctor --device H200", "--device: doctor looks at no device");
  expect("run", "FILE is required");
  expect("plan --bogus", "plan has no option '--bogus' (fusor plan --help)");
  expect("tune --budgt 3", "tune has no option '--budgt'; did you mean --budget? (fusor tune --help)");
  expect("run " + graph("matmul") + " --repeat 0",
         "--repeat: expected an integer from 1 to 2147483647, got '0'");
  expect("run " + graph("matmul") + " --seed 99999999999999999999", "got '99999999999999999999'");
  expect("plan " + graph("matmul") + " --max-workspace 99999999999999999999",
         "--max-workspace: expected an integer");
  expect("plan " + graph("matmul") + " --device cpu -o ''", "--output: it is empty");
  expect("plan " + graph("matmul") + " --device ''", "--device: it is empty");
  expect("tune " + graph("matmul") + " --device cpu --budget nan", "--budget: expected a number of seconds");
  expect("bench --device cpu --list --cubins", "excludes");
  expect("bench --device cpu --list --folder " + path(""), "there is no file of cases");
  expect("run " + graph("matmul") + " --no-such-thing", "--no-such-thing");
  expect("run " + path("none.json"), path("none.json") + ": cannot be read: No such file or directory");
  expect("run " + graph("wrong_shape"), "wrong_shape.json: ");
  expect("run " + graph("wrong_shape"), "'mm'");
  expect("run " + graph("matmul") + " --device H300", "unknown device 'H300'");
  expect("plan " + graph("matmul") + " --device cpu --forbid cpu", "cpu refuses");
  expect("plan " + graph("matmul") + " --device cpu -o " + path("no/folder.json"), "cannot be written");
}

TEST_F(Command, AFileMayFollowAForbiddenEngine) {
  const Outcome outcome =
      fusor("plan --forbid wgmma --forbid mma " + graph("matmul") + " --device H200 --no-compile");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
}

TEST_F(Command, TensorsThatDoNotFitTheMachineAreRefusedBeforeTheRun) {
  std::string text = text_of(graph("scale_relu"));
  for (size_t at = 0; (at = text.find("[64, 48]", at)) != std::string::npos;)
    text.replace(at, 8, "[4611686018, 48]");
  std::ofstream(path("huge.json")) << text;
  const Outcome outcome = fusor("run " + path("huge.json") + " --device cpu");
  EXPECT_EQ(outcome.code, 3);
  EXPECT_THAT(outcome.err, HasSubstr("this machine has"));
}

TEST_F(Command, AFullDiskIsReported) {
  const int status = std::system("'" FUSOR_COMMAND "' devices >/dev/full 2>/dev/null");
  EXPECT_EQ(WEXITSTATUS(status), 3);
}

TEST_F(Command, AHealthyMachineWithoutAGpuNeedsNoFixing) {
  if (cuda::available() || !nvrtc::available()) GTEST_SKIP() << "this machine has a GPU, or no NVRTC";
  const Outcome outcome = fusor("doctor");
  EXPECT_EQ(outcome.code, 0) << outcome.out;
  EXPECT_THAT(outcome.out, HasSubstr("nothing needs fixing"));
  EXPECT_THAT(fusor("doctor --json").out, HasSubstr("\"problems\": []"));
  EXPECT_EQ(fusor("doctor", "FUSOR_LIBCUDA=/nowhere/libcuda.so").code, 3);
}

TEST_F(Command, EveryEngineIsListedWithWhatItSupports) {
  const Outcome outcome = fusor("engines --json");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  for (const char* name : {"attention", "wgmma", "rows", "elementwise", "cpu"})
    EXPECT_THAT(outcome.out, HasSubstr(fmt::format("\"engine\": \"{}\"", name)));
  EXPECT_THAT(outcome.out, HasSubstr("\"tensor_cores\": true"));
  EXPECT_EQ(outcome.out.find("\"supports\": \"\""), std::string::npos) << "an engine has no words";
  EXPECT_THAT(fusor("engines").out, HasSubstr("tensor cores of sm_90"));
}

TEST_F(Command, EnginesOfADeviceAreThoseThatRunThere) {
  const auto lists = [this](const char* device, const char* engine) {
    return fusor(fmt::format("engines --json --device {}", device))
               .out.find(fmt::format("\"engine\": \"{}\"", engine)) != std::string::npos;
  };
  EXPECT_TRUE(lists("H200", "wgmma"));
  EXPECT_FALSE(lists("A100", "wgmma"));
  EXPECT_FALSE(lists("B200", "wgmma"));
  EXPECT_TRUE(lists("A100", "mma"));
  EXPECT_FALSE(lists("T4", "mma"));
  EXPECT_TRUE(lists("T4", "direct"));
  EXPECT_FALSE(lists("T4", "cpu"));
  EXPECT_TRUE(lists("cpu", "cpu"));
  EXPECT_FALSE(lists("cpu", "direct"));
}

TEST_F(Command, AMinusIsStandardInput) {
  const Outcome outcome = fusor("run - --device cpu --verify <" + graph("matmul"));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(fusor("bench - --device cpu --runs 2 --flush 1 <" + graph("scale_relu")).code, 0);
}

TEST_F(Command, EveryHelpNamesDeviceAndJson) {
  for (const char* part : {"plan", "run", "profile", "explain", "source", "candidates", "bench", "tune",
                           "calibrate", "fuzz", "engines"}) {
    const Outcome outcome = fusor(std::string(part) + " --help");
    EXPECT_THAT(outcome.out, HasSubstr("--device")) << part;
    EXPECT_THAT(outcome.out, HasSubstr("--json")) << part;
  }
  EXPECT_THAT(fusor("bench --help").out, HasSubstr("--flush MIB=512"));
  EXPECT_THAT(fusor("tune --help").out, HasSubstr("--budget SECONDS=60"));
}

TEST_F(Command, ErrorsAreDocumentsWhereDocumentsWereAskedFor) {
  const Outcome shape = fusor("run --json " + graph("wrong_shape"));
  EXPECT_EQ(shape.code, 2);
  EXPECT_THAT(shape.out, HasSubstr("\"kind\": \"bad_input\""));
  EXPECT_THAT(shape.out, HasSubstr("\"exit_code\": 2"));
  EXPECT_THAT(shape.out, HasSubstr("'mm'"));
  EXPECT_THAT(fusor("--json run").out, HasSubstr("FILE is required"));
}

TEST_F(Command, KernelsAreWrittenToFilesThatCompileAlone) {
  std::string problem;
  if (!nvrtc::available(&problem)) GTEST_SKIP() << problem;
  const std::string line =
      "source " FUSOR_TEST_DIR "/../../samples/graphs/resnet50_bottleneck_n32.json --device H200 ";
  const Outcome outcome = fusor(line + "--fusion 2 -o " + path("kernels"));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  std::istringstream lines(outcome.out);
  std::string file, command;
  ASSERT_TRUE(std::getline(lines, file) && std::getline(lines, command)) << outcome.out;
  EXPECT_THAT(command, HasSubstr(file));
  std::vector<std::string> options;
  std::istringstream words(command.substr(command.find("-cubin") + 6));
  for (std::string word; words >> word;)
    if (word != file) options.push_back(word);
  EXPECT_FALSE(nvrtc::compile_alone(text_of(file), options).cubin.empty());
  const Outcome generated = fusor(line + "--fusion 2 --generated");
  EXPECT_THAT(generated.out, HasSubstr("struct Params"));
  EXPECT_LT(generated.out.size(), text_of(file).size() / 2);
  EXPECT_THAT(generated.out, Not(HasSubstr("compile alone")));
  EXPECT_THAT(fusor(line + "--fusion 2 -o \"" + path("reader's") + "\"").out, HasSubstr("/reader'\\''s/2_"));
  EXPECT_EQ(fusor(line + "--fusion 9").code, 2);
}

TEST_F(Command, GeneratedPartsCompileWithTheDeviceFilesBesideThem) {
  const Outcome outcome = fusor("source " FUSOR_TEST_DIR
                                "/../../samples/graphs/resnet50_bottleneck_n32.json --device H200 "
                                "--fusion 2 --generated -o '" +
                                path("it is generated") + "'");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  std::istringstream lines(outcome.out);
  std::string file, command;
  ASSERT_TRUE(std::getline(lines, file) && std::getline(lines, command)) << outcome.out;
  EXPECT_THAT(text_of(file), HasSubstr("struct Params"));
  EXPECT_THAT(command, HasSubstr("-I '" + path("it is generated") + "'"));
  if (std::system("nvcc --version > /dev/null 2>&1") != 0) GTEST_SKIP() << "there is no nvcc";
  EXPECT_EQ(std::system((command + " > " + path("log") + " 2>&1").c_str()), 0) << text_of(path("log"));
  EXPECT_TRUE(std::filesystem::exists(file.substr(0, file.rfind('/')) + "/kernel.cubin"));
}

TEST_F(Command, DoctorSaysWhatIsMissingAndWhatThatMeans) {
  const Outcome outcome = fusor("doctor", "FUSOR_LIBNVRTC=/nowhere/libnvrtc.so FUSOR_CUDA_ROOT=/nowhere");
  EXPECT_EQ(outcome.code, 3);
  EXPECT_THAT(outcome.out, HasSubstr("missing: no NVRTC"));
  EXPECT_THAT(outcome.out, HasSubstr("this means: no new kernel can be compiled"));
  const Outcome json = fusor("doctor --json");
  EXPECT_THAT(json.out, HasSubstr(cuda::available() ? "\"gpu\": true" : "\"gpu\": false"));
  EXPECT_THAT(json.out, HasSubstr(path("cache")));
}

TEST_F(Command, DevicesListsProfilesAndThisMachine) {
  const Outcome outcome = fusor("devices");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("RTX_5090"));
  EXPECT_THAT(outcome.out, HasSubstr("this machine"));
  EXPECT_THAT(fusor("devices --json").out, HasSubstr("\"current\": {"));
}

TEST_F(Command, HelpAndVersionAreNoErrors) {
  EXPECT_EQ(fusor("--help").code, 0);
  EXPECT_THAT(fusor("--help").out, HasSubstr("Exit codes"));
  EXPECT_EQ(fusor("run --help").code, 0);
  EXPECT_EQ(fusor("--version").out, "0.1.0\n");
}

}  // namespace
}  // namespace fusor
