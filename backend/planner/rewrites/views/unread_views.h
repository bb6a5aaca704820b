// Owns the removal of views that nobody reads any more.
#pragma once

#include <set>

#include "core/graph.h"

namespace fusor {

/// Takes views out whose results are virtual and have no reader, and those that led to them alone. Their
/// tensors stay, as constants without a meaning. `others`: results of other ops that go likewise.
void drop_unread_views(Graph& graph, const std::set<int>& others = {});

}  // namespace fusor
