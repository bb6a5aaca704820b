// Owns plan <-> JSON.
#include <unordered_map>

#include "serialization/documents.h"
#include "serialization/json_fields.h"
#include "serialization/serialization.h"

namespace fusor {

namespace {

constexpr int kInNone = -1;

// ---- writing ----

Json fusion_json(const Graph& graph, const PlannedFusion& fusion) {
  Json ops = Json::array();
  for (std::string& op : op_names(graph, fusion)) ops.push_back(std::move(op));
  Json object = {{"ops", std::move(ops)}};
  write_config(object, fusion.config);
  return object;
}

Json expected_json(const Plan& plan) {
  Json notes = Json::object();
  write_fields(notes, plan.notes);
  return {{"workspace_bytes", plan.workspace_bytes},
          {"seconds", json_of(plan.seconds)},
          {"notes", std::move(notes)}};
}

// ---- reading ----

std::vector<int> parse_ops(const JsonReader& list, const std::unordered_map<std::string, int>& names) {
  if (list.size() == 0) list.refuse("a fusion has at least one op");
  std::vector<int> ops;
  for (size_t i = 0; i < list.size(); ++i) {
    const auto found = names.find(list.at(i).text());
    if (found == names.end()) list.at(i).refuse("the graph has no op named {}", in_quotes(list.at(i).text()));
    if (!ops.empty() && found->second <= ops.back())
      list.at(i).refuse("op {} is not in the order of the graph's ops", in_quotes(list.at(i).text()));
    ops.push_back(found->second);
  }
  return ops;
}

/// Refuses partitions that would compute an op twice, too late or not at all. Views and concatenations may be
/// in no fusion: they are folded into the accesses of their neighbours.
class PartitionCheck {
 public:
  PartitionCheck(const JsonReader& list, const Graph& graph, const std::vector<PlannedFusion>& fusions)
      : list_(list), graph_(graph), fusion_of_(graph.ops.size(), kInNone) {
    for (size_t f = 0; f < fusions.size(); ++f)
      for (const int op : fusions[f].ops) {
        int& fusion = fusion_of_[static_cast<size_t>(op)];
        if (fusion != kInNone)
          list.at(f).refuse("op '{}' is in fusion {} already", graph.ops[static_cast<size_t>(op)].name,
                            fusion);
        fusion = static_cast<int>(f);
      }
  }

  void run() const {
    // Per tensor: the last fusion that must have run before it is whole; -1 for what the user binds.
    std::vector<int> whole_after(graph_.tensors.size(), kInNone);
    for (size_t i = 0; i < graph_.ops.size(); ++i) {
      const Op& op = graph_.ops[i];
      int after = fusion_of_[i];
      for (const int input : op.inputs) {
        if (input < 0) continue;  // left out
        const int ready = whole_after[static_cast<size_t>(input)];
        if (fusion_of_[i] == kInNone)
          after = std::max(after, ready);
        else if (ready > fusion_of_[i])
          list_.refuse("op '{}' in fusion {} reads '{}', which is whole only after fusion {}", op.name,
                       fusion_of_[i], graph_.tensors[static_cast<size_t>(input)].name, ready);
      }
      if (fusion_of_[i] == kInNone && !may_be_folded(op)) list_.refuse("op '{}' is in no fusion", op.name);
      for (const int output : op.outputs)
        if (output >= 0) whole_after[static_cast<size_t>(output)] = after;
    }
  }

 private:
  static bool may_be_folded(const Op& op) {
    return is_view(op.attributes) || std::holds_alternative<Concatenate>(op.attributes);
  }

  const JsonReader& list_;
  const Graph& graph_;
  std::vector<int> fusion_of_;
};

std::vector<PlannedFusion> parse_fusions(const JsonReader& list, const Graph& graph) {
  std::unordered_map<std::string, int> names;
  for (size_t i = 0; i < graph.ops.size(); ++i) names.emplace(graph.ops[i].name, static_cast<int>(i));
  std::vector<PlannedFusion> fusions;
  for (size_t i = 0; i < list.size(); ++i) {
    const JsonReader object = list.at(i);
    object.expect_keys({"ops", "engine", "revision", "knobs"});
    fusions.push_back({parse_ops(object.at("ops"), names), parse_config(object)});
  }
  PartitionCheck(list, graph, fusions).run();
  return fusions;
}

void parse_expected(const JsonReader& object, Plan& plan) {
  object.expect_keys({"workspace_bytes", "seconds", "notes"});
  plan.workspace_bytes = object.at("workspace_bytes").integer();
  if (plan.workspace_bytes < 0)
    object.at("workspace_bytes").refuse("expected 0 or more, got {}", plan.workspace_bytes);
  plan.seconds = object.at("seconds").real();
  std::vector<std::string_view> notes;
  append_field_names<Notes>(notes);
  object.at("notes").expect_keys(notes);
  // For information: files know the notes of their time.
  Notes::visit(plan.notes, [&](std::string_view key, bool& note) {
    if (object.at("notes").has(key)) read_field(object.at("notes").at(key), note);
  });
}

Plan parse_plan(const JsonReader& reader) {
  reader.expect_keys({"format", "kind", "library", "graph", "device", "fusions", "expected", "remarks"});
  reader.at("library").name();
  Plan plan;
  plan.graph = parse_graph(reader.at("graph"));
  plan.device = parse_device(reader.at("device"));
  plan.fusions = parse_fusions(reader.at("fusions"), plan.graph);
  if (reader.has("expected")) parse_expected(reader.at("expected"), plan);
  if (reader.has("remarks")) {
    const JsonReader remarks = reader.at("remarks");
    for (size_t i = 0; i < remarks.size(); ++i) plan.remarks.push_back(remarks.at(i).text());
  }
  return plan;
}

}  // namespace

void write_config(Json& object, const EngineConfig& config) {
  Json knobs = Json::object();
  for (const KnobSetting& knob : config.knobs) knobs[knob.name] = knob.value;
  object["engine"] = config.engine;
  object["revision"] = config.revision;
  object["knobs"] = std::move(knobs);
}

EngineConfig parse_config(const JsonReader& object) {
  EngineConfig config;
  config.engine = object.at("engine").name();
  config.revision = object.at("revision").small_integer(0);
  const JsonReader knobs = object.at("knobs");
  for (const std::string& knob : knobs.keys()) config.knobs.push_back({knob, knobs.at(knob).integer()});
  return config;
}

std::string to_json(const Plan& plan) {
  Json document = {{"format", kFormatNumber}, {"kind", "plan"}, {"library", kLibraryVersion}};
  document["graph"] = Json::object();
  write_graph(document["graph"], plan.graph);
  document["device"] = Json::object();
  write_device(document["device"], plan.device);
  document["fusions"] = Json::array();
  for (const PlannedFusion& fusion : plan.fusions)
    document["fusions"].push_back(fusion_json(plan.graph, fusion));
  document["expected"] = expected_json(plan);
  document["remarks"] = Json(plan.remarks);
  return print_json(document);
}

Plan plan_from_json(std::string_view text) {
  const Json document = parse_json(text);
  const JsonReader reader(document);
  expect_header(reader, "plan");
  return parse_plan(reader);
}

std::variant<Graph, Plan> graph_or_plan_from_json(std::string_view text) {
  const Json document = parse_json(text);
  const JsonReader reader(document);
  constexpr std::array<std::string_view, 2> kKinds = {"graph", "plan"};
  expect_header(reader, "");
  if (reader.at("kind").one_of(kKinds) == 0) return parse_graph(reader, {"format", "kind"});
  return parse_plan(reader);
}

}  // namespace fusor
