// Owns the asking of every engine about every fusion that was chosen.
#include "backend/engines_for.h"

#include "backend/choose.h"
#include "backend/engines/list.h"

namespace fusor {

namespace {

EngineOffer offer_of(EngineAnswer answer, const Choice& choice) {
  EngineOffer offer{std::move(answer), {}, {}};
  if (!offer.answer.support) return offer;
  offer.knobs = choice.prepared->by(*find_engine(engines(), offer.answer.engine)).knobs();
  for (const EngineOption& option : choice.options)
    if (option.engine->name() == offer.answer.engine)
      offer.settings.push_back({option.config, option.seconds, option.measured});
  return offer;
}

}  // namespace

std::vector<FusionEngines> engines_for(const Graph& graph, const DeviceInfo& device,
                                       const BuildOptions& options) {
  const Choices choices = choose(graph, device, {options});
  std::vector<FusionEngines> found;
  for (const Choice& chosen : choices.fusions) {
    Decision decision;
    const Choice choice = choose_one(choices, chosen.fusion().ops, device, {options}, &decision);
    FusionEngines& fusion = found.emplace_back();
    fusion.ops = chosen.fusion().op_names;
    for (EngineAnswer& answer : decision.answers)
      fusion.engines.push_back(offer_of(std::move(answer), choice));
  }
  return found;
}

}  // namespace fusor
