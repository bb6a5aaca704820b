// Owns an explanation as a JSON document: for `fusor explain --json` and the page that shows it.
#pragma once

#include "backend/report/explain.h"
#include "serialization/report.h"

namespace fusor {

/// Every fusion in short, then every decision with every engine's answer.
Report fusions_report(const Explanation& explanation);
Report decisions_report(const Explanation& explanation);
/// Ops and tensors of the graph as it was planned, with the fusion of each op (-1: folded into accesses).
Report graph_report(const Explanation& explanation);

}  // namespace fusor
