// Owns the text of a site's struct: Args, apply<N>, and what reductions need.
#pragma once

#include <string>

#include "codegen/text/expr_emitter.h"

namespace fusor {

/// struct NAME of a site without KernelSite::kept.
std::string emit_site(const KernelSite& site, const SourceNames* names);

}  // namespace fusor
