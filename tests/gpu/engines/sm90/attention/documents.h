// Owns the runs of attention that a mask of documents hides, on a GPU: every engine setting against the
// oracle, documents one behind the other and mixed.
#pragma once

#include <functional>
#include <span>
#include <string>

#include "backend/engines/list.h"
#include "tests/gpu/engines/every_config.h"
#include "tests/support/attention_graph.h"

namespace fusor::test {

/// The graph's inputs "of_queries" and "of_keys" (keep_documents()) become numbers of documents.
inline void expect_right_of_documents(const Graph& graph, const AttentionCase& c,
                                      std::span<const Engine* const> engines, const std::string& what) {
  const std::function<int64_t(int64_t)> in_order = [](int64_t at) { return at * at / 90000; },
                                        mixed = [](int64_t at) { return at / 40 * 7 % 5; };
  bool first = true;
  for (const Candidate& candidate :
       candidates(graph, DeviceInfo::current(), PlannerOptions{.engine_list = engines})) {
    const std::string config = to_string(candidate.fusions.back().config);
    const bool is_taken = first || is_sampled(what + config, 3);
    first = false;
    if (!is_taken) continue;
    for (const auto& document : {in_order, mixed}) {
      DeviceRun run(graph,
                    build(graph, DeviceInfo::current(), candidate, PlannerOptions{.engine_list = engines}));
      const auto fill = [&](const char* name, int64_t rows) {
        run.edit(name, [&](std::byte* bytes) {
          auto* const numbers = reinterpret_cast<int32_t*>(bytes);
          for (int64_t i = 0; i < c.batch * rows; ++i)
            numbers[i] = static_cast<int32_t>(document(i % rows + i / rows * 100));
        });
      };
      fill("of_queries", c.queries);
      fill("of_keys", c.keys);
      run.run();
      const VerifyReport report = run.check();
      EXPECT_TRUE(report.passed()) << what << " " << config << "\n" << to_string(report);
      EXPECT_TRUE(run.gaps_are_untouched()) << what << " " << config;
    }
  }
}

}  // namespace fusor::test
