// Owns how places of neighbouring windows meet along an axis.
#pragma once

#include "backend/engines/window/problem.h"

namespace fusor {

/// An axis of windows with the meetings of its tiles of any extent. The problem's site and axes are known.
WindowLine line_along(const WindowProblem& problem, int axis);

}  // namespace fusor
