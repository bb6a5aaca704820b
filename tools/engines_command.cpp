// Owns `fusor engines`: every engine, what it is for, and what its results may differ in; and `fusor ops`.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "backend/engines/list.h"
#include "serialization/serialization.h"
#include "tools/commands.h"
#include "tools/print.h"

namespace fusor::command {

namespace {

struct About {
  std::string_view engine, supports, runs_on;
};

constexpr auto kAbout = std::to_array<About>({
    {"attention", "a softmax between two matmuls, with any scores and masks", "tensor cores of sm_90"},
    {"attention_backward", "its gradients: of queries, keys and values, without atomics",
     "tensor cores of sm_90"},
    {"attention_decode", "the same for a few queries and long caches: keys split over blocks",
     "tensor cores from sm_80 on"},
    {"attention_mma", "the same for any layout, and with ops in front of q, k and v",
     "tensor cores from sm_80 on"},
    {"wgmma", "matmul and convolution of fp16, bf16, int8, and TF32 and fp8 where allowed; operands by TMA",
     "tensor cores of sm_90"},
    {"wgmma_repacked", "what wgmma would support in another layout, between copies", "tensor cores of sm_90"},
    {"wgmma_narrow", "convolutions of few input channels: first layers", "tensor cores of sm_90"},
    {"wgmma_taps", "filter gradients of small windows in NCHW as TF32", "tensor cores of sm_90"},
    {"mma", "matmul and convolution of any layout, with prologues", "tensor cores from sm_80 on"},
    {"depthwise", "depthwise convolution in NHWC", "CUDA cores"},
    {"depthwise_repacked", "depthwise convolution in NCHW, between copies", "CUDA cores"},
    {"window", "pooling, forward with its index and backward without atomics", "CUDA cores"},
    {"rows", "softmax, norms and whatever else needs totals of rows again", "CUDA cores"},
    {"elementwise", "everything without a matmul or a convolution", "CUDA cores"},
    {"direct", "any matmul or convolution", "CUDA cores"},
    {"cpu", "everything", "the CPU"},
});

const About& about(std::string_view engine) {
  static constexpr About kNothing{};
  const auto found = std::ranges::find(kAbout, engine, &About::engine);
  return found == kAbout.end() ? kNothing : *found;
}

}  // namespace

int engines(const Options& options) {
  Report list = Report::list();
  std::string text;
  for (const Engine* engine : fusor::engines()) {
    const About& words = about(engine->name());
    list.add(Report::object()
                 .set("engine", engine->name())
                 .set("revision", engine->revision())
                 .set("supports", words.supports)
                 .set("runs_on", words.runs_on)
                 .set("notes", Report::object().set_fields(engine->notes())));
    text += fmt::format("{:<18} {}\n{:<18} {}; {}\n", engine->name(), words.supports, "", words.runs_on,
                        notes_text(engine->notes()));
  }
  if (options.json)
    print(Report::object().set("engines", std::move(list)));
  else
    print(text +
          "asked in this order; the cheapest that supports a fusion runs it (fusor explain FILE --all)\n");
  return 0;
}

int ops(const Options&) {
  print(op_kinds_json() + "\n");
  return 0;
}

}  // namespace fusor::command
