// Owns how the rows of a site are copied ahead and found again.
#include "codegen/text/rows/streams.h"

#include "codegen/text/device_types.h"
#include "codegen/text/rows/sizes.h"

namespace fusor {

RowStreams::RowStreams(const RowNodes& nodes, std::string& text, const RowLoads& loads)
    : RowPart(nodes, text), loads_(loads) {
  for (int i = 0; i < node_count(); ++i)
    if (nodes_.is_element_load(i, false)) streams_.push_back(i);
}

void RowStreams::write_streams() {
  line(1, "enum : int {{ kStreams = {} }};", streams_.size());
  line(1, "enum : int {{ kStreamedBytes = {} }};  // of an element, all streams", streamed_bytes(site_));
  begin_function("", "const void*", "stream", {"const Args& args", "const Index (&at)[kRank]", "int number"});
  for (size_t k = 0; k + 1 < streams_.size(); ++k)
    line(2, "if (number == {}) return {};", k, row_address(streams_[k]));
  line(2, "return {};", row_address(streams_.back()));
  line(1, "}}");
  begin_function("", "constexpr int", "stream_bytes", {"int number"});
  for (size_t k = 0; k + 1 < streams_.size(); ++k)
    line(2, "if (number == {}) return {};", k, byte_size(expr_.node(streams_[k]).type));
  line(2, "return {};", byte_size(expr_.node(streams_.back()).type));
  line(1, "}}");
  begin_function("int N", "Held<N>", "held_in", {"const char* streams", "int elements", "int vector"});
  line(2, "Held<N> loaded;");
  int64_t before = 0;
  for (const int at : streams_) {
    const DataType type = expr_.node(at).type;
    line(2, "loaded.{} = *reinterpret_cast<const Vec<{}, N>*>(streams + elements * {} + vector * (N * {}));",
         load_name(expr_, at), device_type(type), before, byte_size(type));
    before += byte_size(type);
  }
  line(2, "return loaded;");
  line(1, "}}");
}

void RowStreams::write_copy() {
  line(1, "enum : int {{ kCopiedBytes = {} }};  // of an element", copied_bytes(site_, 1));
  begin_function("int N", "void", "copy",
                 {"const Args& args", "const Index (&at)[kRank]", "char* to", "int apart"});
  write_pieces([&](int at, const std::string& piece) {
    line(2, "copy_ahead<N>(to + {} * apart, apart, {});", piece,
         address(load_name(expr_, at), expr_.node(at).access));
  });
  line(1, "}}");
  begin_function(
      "int N", "Held<N>", "copied",
      {"const Args& args", "const Index (&at)[kRank]", "int count", "const char* from", "int apart"});
  line(2, "Held<N> loaded;");
  for (const int at : streams_)
    if (is_shared_lane(at))
      line(2, "loaded.{} = {};", load_name(expr_, at), loads_.raw_load(at, "N", "count"));
  write_pieces([&](int at, const std::string& piece) {
    line(2, "copied_ahead(from + {} * apart, apart, loaded.{});", piece, load_name(expr_, at));
  });
  line(2, "return loaded;");
  line(1, "}}");
}

// Visits the loads that are copied, each with where its pieces of all vectors begin.
template <class Visit>
void RowStreams::write_pieces(Visit&& visit) const {
  int64_t bytes = 0;
  for (const int at : streams_) {
    if (is_shared_lane(at)) continue;
    visit(at, fmt::format("(N * {} / 16)", bytes));
    bytes += byte_size(expr_.node(at).type);
  }
}

std::string RowStreams::row_address(int load) const {
  Access of_row = expr_.node(load).access;
  of_row.strides[site_.vector_axis] = 0;
  return address(load_name(expr_, load), of_row);
}

}  // namespace fusor
