// The umbrella header: all that a user of fusor needs.
#pragma once

#include "backend/build.h"
#include "backend/device_memory.h"
#include "backend/engines_for.h"
#include "backend/executable.h"
#include "backend/report/explain.h"
#include "backend/verify.h"
#include "codegen/cache_stats.h"
#include "core/device_info.h"
#include "core/error.h"
#include "core/plan.h"
#include "frontend/graph_builder.h"
#include "serialization/serialization.h"
