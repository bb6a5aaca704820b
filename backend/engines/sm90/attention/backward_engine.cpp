// Owns the backward engine of attention: the gradients of queries, keys and values on Hopper's tensor cores,
// without atomics, and without a score in memory but where the workspace may hold gradients of scores. Its
// knobs; the kernels are codegen/device/sm90/attention/backward_*.cuh.
#include <algorithm>
#include <memory>
#include <span>
#include <utility>

#include "backend/engines/attention/form.h"
#include "backend/engines/knobs.h"
#include "backend/engines/list.h"
#include "backend/engines/rules.h"
#include "backend/engines/sm90/attention/backward.h"

namespace fusor {

using namespace attention::backward;

namespace {

constexpr Notes kNotes{.tensor_cores = true};

const std::vector<int64_t> kConsumerCounts{2, 3};
const std::vector<int64_t> kSteps{16, 32, 48, 64, 80, 96, 112, 128};
const std::vector<int64_t> kSpills{0, 1, 2, 4, 8, 16, 32};
const std::vector<int64_t> kBufferCounts{2, 3};
constexpr int64_t kMostQueries = 128;

class PreparedBackward final : public Prepared {
 public:
  explicit PreparedBackward(Problem problem) : problem_(std::move(problem)) {}

  std::vector<Knob> knobs() const override {
    return {{"consumers", kConsumerCounts}, {"step_q", kSteps}, {"step_k", kSteps},        {"split", {0, 1}},
            {"persistent", {0, 1}},         {"spill", kSpills}, {"buffers", kBufferCounts}};
  }

  // Blocks as large as registers and shared memory hold, and the next smaller ones, each kernel's on its own.
  std::vector<EngineCandidate> candidates() const override {
    std::vector<EngineCandidate> list;
    for (const int64_t consumers : kConsumerCounts)
      for (const int64_t split : {0, 1}) {
        if (split != 0 && !problem_.dk) continue;
        if (split == 0) add_spills(consumers, list);
        const std::vector<int64_t> steps_q = fitting(consumers, split, &Knobs::step_q),
                                   steps_k = fitting(consumers, split, &Knobs::step_k);
        if (steps_q.empty() || steps_k.empty()) continue;
        for (const int64_t step : steps_q) add(consumers, step, steps_k.front(), split, list);
        for (size_t i = 1; i < steps_k.size(); ++i) add(consumers, steps_q.front(), steps_k[i], split, list);
      }
    return list;
  }

  Notes notes() const override {
    Notes notes = kNotes;
    notes.late_scale = problem_.gradient.slopes_late;
    return notes;
  }

  // Knobs do not go together in every way: what cannot be had is the first setting that can.
  Lowered lower(const EngineConfig& config) const override {
    const Schedule schedule(problem_, knobs_of<Knobs>(config));
    if (schedule.fits()) return attention::backward::lower(schedule);
    return attention::backward::lower(Schedule(problem_, knobs_of<Knobs>(candidates().front().config)));
  }

 private:
  // The four largest steps that fit beside the smallest of the other kernel, the largest first.
  std::vector<int64_t> fitting(int64_t consumers, int64_t split, int64_t Knobs::*step) const {
    std::vector<int64_t> found;
    for (auto size = kSteps.rbegin(); size != kSteps.rend() && found.size() < 4; ++size) {
      Knobs knobs{.consumers = consumers, .step_q = kSteps.front(), .step_k = kSteps.front(), .split = split};
      knobs.*step = *size;
      if (knobs.step_q > kMostQueries) continue;
      if (Schedule(problem_, knobs).fits()) found.push_back(*size);
    }
    return found;
  }

  void add(int64_t consumers, int64_t step_q, int64_t step_k, int64_t split,
           std::vector<EngineCandidate>& list) const {
    for (const int64_t persistent : {1, 0}) add({consumers, step_q, step_k, split, persistent}, list);
  }
  void add(const Knobs& knobs, std::vector<EngineCandidate>& list) const {
    const Schedule schedule(problem_, knobs);
    if (schedule.fits()) list.push_back({config_of(attention_backward_engine(), knobs), cost(schedule)});
  }

  // Gradients of scores in the workspace, in chunks whose launches overlap: as many as take a few GiB at
  // most, and fewer, for those who allow less. One chunk of all is no faster than two.
  void add_spills(int64_t consumers, std::vector<EngineCandidate>& list) const {
    constexpr int64_t kMostBytes = int64_t{9} << 29, kFewBytes = int64_t{64} << 20;
    const bool is_one = problem_.entries() == problem_.heads();
    for (const int64_t chunks : std::span(kSpills).subspan(is_one ? 1 : 2))
      for (const int64_t buffers : {3, 2}) {
        const Knobs knobs{.consumers = consumers, .spill = chunks, .buffers = buffers};
        const Schedule schedule(problem_, knobs);
        if (!schedule.fits()) return;
        if (schedule.spilled_bytes() > kMostBytes || buffers > std::max<int64_t>(2, chunks)) continue;
        add(knobs, list);
        if (schedule.spilled_bytes() <= kFewBytes) return;
      }
  }

  const Problem problem_;
};

class AttentionBackwardEngine final : public Engine {
 public:
  std::string_view name() const override { return "attention_backward"; }
  int number() const override { return 36; }
  Notes notes() const override { return kNotes; }

  PreparedOr prepare(const Fusion& fusion, const DeviceInfo& device) const override {
    if (auto refusal = refuse_other_than_hopper(device)) return std::move(*refusal);
    auto problem = problem_of(fusion, device);
    if (auto* refusal = std::get_if<Refusal>(&problem)) return std::move(*refusal);
    auto prepared = std::make_unique<const PreparedBackward>(std::move(std::get<Problem>(problem)));
    if (!prepared->candidates().empty()) return prepared;
    return attention::refuse_attention(fusion, "shared-tiles", "", "tiles that shared memory holds",
                                       "larger heads");
  }
};

}  // namespace

const Engine& attention_backward_engine() {
  static const AttentionBackwardEngine engine;
  return engine;
}

}  // namespace fusor
