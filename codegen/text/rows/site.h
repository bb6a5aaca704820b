// Owns the text of a site whose reductions feed back: an Expr over rows, computed in phases.
#pragma once

#include <string>

#include "codegen/text/expr_emitter.h"

namespace fusor {

/// struct NAME of a site with KernelSite::kept set.
std::string emit_row_site(const KernelSite& site, const SourceNames* names);

}  // namespace fusor
