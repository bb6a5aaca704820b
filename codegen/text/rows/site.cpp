// Owns the order of a rows site's text: what is loaded, added phase by phase, settled once a row and stored.
#include "codegen/text/rows/site.h"

#include "codegen/text/rows/elements.h"
#include "codegen/text/rows/formulas.h"
#include "codegen/text/rows/loads.h"
#include "codegen/text/rows/nodes.h"
#include "codegen/text/rows/numbers.h"
#include "codegen/text/rows/part.h"
#include "codegen/text/rows/sizes.h"
#include "codegen/text/rows/stores.h"
#include "codegen/text/rows/streams.h"
#include "codegen/text/rows/totals.h"
#include "codegen/text/rows/values.h"

namespace fusor {

namespace {

/// Writes the struct of one rows site, part by part.
class RowSiteWriter : private RowPart {
 public:
  RowSiteWriter(const RowNodes& nodes, std::string& text)
      : RowPart(nodes, text),
        numbers_(nodes, text),
        loads_(nodes, text, numbers_),
        streams_(nodes, text, loads_),
        formulas_(nodes, text, numbers_),
        values_(nodes, text, numbers_, loads_, formulas_),
        elements_(nodes, text, numbers_, formulas_),
        totals_(nodes, text, values_, elements_, formulas_),
        stores_(nodes, text, elements_, formulas_) {}

  void write() {
    line(0, "struct {} {{", site_.name);
    line(1, "enum : int {{ kRank = {} }};", expr_.domain.rank());
    line(1, "enum : int {{ kKept = {} }};  // axes of the rows; those of a row follow", site_.kept);
    line(1, "enum : int {{ kPhases = {} }};", nodes_.facts().phase_count);
    line(1, "enum : int {{ kTotalsBytes = {} }};", totals_bytes(site_));
    line(1, "using Fn = {};", site_.short_forms ? "Short" : "Exact");
    write_args();
    loads_.write_loads("Held", "load", false);
    loads_.write_loads("Fixed", "fixed", true);
    if (nodes_.takes_through_indices()) loads_.write_outside();
    if (nodes_.takes_runs()) loads_.write_run();
    if (streamed_bytes(site_) > 0) streams_.write_streams();
    if (copied_bytes(site_, 1) > 0) streams_.write_copy();
    values_.write_row();
    for (int phase = 0; phase < nodes_.facts().phase_count; ++phase) totals_.write_phase(phase);
    stores_.write_finish();
    stores_.write_finish_row();
    totals_.write_columns();
    stores_.write_finish_column();
    line(0, "}};\n");
  }

 private:
  void write_args() {
    line(1, "struct Args {{");
    for (const SiteField& field : site_fields(site_)) {
      const bool is_named = field.kind == SiteField::Kind::pointer || field.kind == SiteField::Kind::scalar;
      const size_t at = static_cast<size_t>(field.at);
      const std::string comment = !is_named ? std::string()
                                            : nodes_.operand_comment(field.of_store ? expr_.stores[at].access
                                                                                    : expr_.nodes[at].access);
      line(2, "alignas(8) {} {};{}", field.type, field.name, comment);
    }
    line(1, "}};");
  }

  RowNumbers numbers_;
  RowLoads loads_;
  RowStreams streams_;
  RowFormulas formulas_;
  RowValues values_;
  RowElements elements_;
  RowTotals totals_;
  RowStores stores_;
};

}  // namespace

std::string emit_row_site(const KernelSite& site, const SourceNames* names) {
  const RowNodes nodes(site, names);
  std::string text;
  RowSiteWriter(nodes, text).write();
  return text;
}

}  // namespace fusor
