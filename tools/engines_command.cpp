// Owns `fusor engines`: every engine, what it is for, and what its results may differ in; and `fusor ops`.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "backend/engines/list.h"
#include "serialization/serialization.h"
#include "tools/commands.h"
#include "tools/print.h"

namespace fusor::command {

namespace {

enum class Place { hopper, tensor_cores, cuda_cores, cpu };

std::string_view words_of(Place place) {
  switch (place) {
    case Place::hopper:
      return "tensor cores of sm_90";
    case Place::tensor_cores:
      return "tensor cores from sm_80 on";
    case Place::cuda_cores:
      return "CUDA cores";
    case Place::cpu:
      return "the CPU";
  }
  return "";
}

bool is_of(Place place, const DeviceInfo& device) {
  if (device.is_cpu() || place == Place::cpu) return device.is_cpu() && place == Place::cpu;
  return place == Place::hopper ? device.compute_capability == 90
                                : place == Place::cuda_cores || device.compute_capability >= 80;
}

struct About {
  std::string_view engine, supports;
  Place place = Place::cpu;
};

constexpr auto kAbout = std::to_array<About>({
    {"attention", "a softmax between two matmuls, with any scores and masks", Place::hopper},
    {"attention_backward", "its gradients: of queries, keys and values, without atomics", Place::hopper},
    {"attention_decode", "the same for a few queries and long caches: keys split over blocks",
     Place::tensor_cores},
    {"attention_latent", "the same for a latent cache, whose rows are keys and values in one", Place::hopper},
    {"attention_mma", "the same for any layout, and with ops in front of q, k and v", Place::tensor_cores},
    {"recurrent", "the steps of recurrent layers: one launch for a layer and direction", Place::hopper},
    {"wgmma", "matmul and convolution of fp16, bf16, int8, and TF32 and fp8 where allowed; operands by TMA",
     Place::hopper},
    {"wgmma_repacked", "what wgmma would support in another layout, between copies", Place::hopper},
    {"wgmma_narrow", "convolutions of few input channels: first layers", Place::hopper},
    {"wgmma_parts", "matmuls and convolutions of fp32 without rounding: three bf16 a number", Place::hopper},
    {"wgmma_taps", "filter gradients of small windows in NCHW as TF32", Place::hopper},
    {"mma_stream", "matmul and convolution of few channels: weights stay, rows stream past them",
     Place::tensor_cores},
    {"mma_weights", "matmul of few rows by weights of 8 or 4 bits, dequantised in registers",
     Place::tensor_cores},
    {"mma", "matmul and convolution of any layout, with prologues", Place::tensor_cores},
    {"grouped", "convolution in groups of few channels in NHWC, and its data gradient", Place::tensor_cores},
    {"depthwise", "depthwise convolution in NHWC and NCHW", Place::cuda_cores},
    {"depthwise_repacked", "depthwise convolution in NCHW, between copies", Place::cuda_cores},
    {"window", "pooling, forward with its index and backward without atomics", Place::cuda_cores},
    {"rows", "softmax, norms and whatever else needs totals of rows again", Place::cuda_cores},
    {"elementwise", "everything without a matmul or a convolution", Place::cuda_cores},
    {"packed", "pointwise ops with one result of 4 bits or of 1 an element", Place::cuda_cores},
    {"direct", "any matmul or convolution", Place::cuda_cores},
    {"cpu", "everything", Place::cpu},
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
  std::optional<DeviceInfo> device;
  if (!options.device.empty()) device = DeviceInfo::named(options.device);
  for (const Engine* engine : fusor::engines()) {
    const About& words = about(engine->name());
    if (device && !is_of(words.place, *device)) continue;
    list.add(Report::object()
                 .set("engine", engine->name())
                 .set("revision", engine->revision())
                 .set("supports", words.supports)
                 .set("runs_on", words_of(words.place))
                 .set("notes", Report::object().set_fields(engine->notes())));
    text += fmt::format("{:<18} {}\n{:<18} {}; {}\n", engine->name(), words.supports, "",
                        words_of(words.place), notes_text(engine->notes()));
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
