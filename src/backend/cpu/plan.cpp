#include "backend/cpu/plan.h"

#include <algorithm>
#include <limits>

namespace fourfold::backend::cpu {
namespace {

struct Uses {
  std::vector<std::int32_t> reads, writes;
  void operator()(std::string_view, ResultId id) { writes.push_back(id.index); }
  void operator()(std::string_view, ValueId id) { reads.push_back(id.index); }
  void operator()(std::string_view, const auto&) {}
};

Uses uses_of(const Step& step) {
  Uses uses;
  for (const Linear& linear : step.linears) linear.fields(uses);
  if (step.linears.empty()) std::visit([&](const auto& op) { op.fields(uses); }, step.op);
  return uses;
}

// Gives out buffers to values in the order of their lives.
class Placer {
 public:
  Placer(const Program& program, Sharing sharing, ValuePlaces& places)
      : program_(program), sharing_(sharing), places_(places) {}

  void place(const std::vector<Step>& steps, ValueId logits) {
    std::vector<std::size_t> last_read(program_.values.size());
    std::vector<Uses> uses;
    for (std::size_t i = 0; i < steps.size(); ++i) {
      uses.push_back(uses_of(steps[i]));
      for (const std::int32_t id : uses.back().reads) last_read[static_cast<std::size_t>(id)] = i;
    }
    for (std::size_t i = 0; i < steps.size(); ++i) {
      for (const std::int32_t id : uses[i].writes)
        place_of(id) = id == logits.index && sharing_ == Sharing::shared
                           ? ValuePlaces::kCaller
                           : take(program_.values[static_cast<std::size_t>(id)].columns);
      if (sharing_ == Sharing::apart) continue;
      // What was read for the last time, and what is never read, is free for the next step.
      auto ending = uses[i].reads;
      ending.insert(ending.end(), uses[i].writes.begin(), uses[i].writes.end());
      std::sort(ending.begin(), ending.end());
      ending.erase(std::unique(ending.begin(), ending.end()), ending.end());
      for (const std::int32_t id : ending)
        if (last_read[static_cast<std::size_t>(id)] <= i && place_of(id) >= 0) free_.push_back(place_of(id));
    }
    free_.clear();
    for (std::size_t i = 0; i < places_.buffer_columns.size(); ++i)
      if (sharing_ == Sharing::shared) free_.push_back(static_cast<std::int32_t>(i));
  }

 private:
  std::int32_t& place_of(std::int32_t id) { return places_.buffer[static_cast<std::size_t>(id)]; }

  // The free buffer that fits best: the narrowest that is wide enough, else the widest, which grows.
  std::int32_t take(std::int64_t columns) {
    const auto waste = [&](std::int32_t buffer) {
      const std::int64_t width = places_.buffer_columns[static_cast<std::size_t>(buffer)];
      return width >= columns ? width - columns : std::numeric_limits<std::int64_t>::max() - width;
    };
    const auto best = std::min_element(free_.begin(), free_.end(),
                                       [&](std::int32_t a, std::int32_t b) { return waste(a) < waste(b); });
    if (best == free_.end()) {
      places_.buffer_columns.push_back(columns);
      return static_cast<std::int32_t>(places_.buffer_columns.size()) - 1;
    }
    const std::int32_t buffer = *best;
    free_.erase(best);
    auto& width = places_.buffer_columns[static_cast<std::size_t>(buffer)];
    width = std::max(width, columns);
    return buffer;
  }

  const Program& program_;
  Sharing sharing_;
  ValuePlaces& places_;
  std::vector<std::int32_t> free_;
};

}  // namespace

std::vector<Step> plan_steps(const Program& program, Pass pass) {
  const std::vector<Op>& ops = program.ops(pass);
  std::vector<bool> done(ops.size());
  std::vector<Step> steps;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    if (done[i]) continue;
    Step step{ops[i], {}};
    if (const auto* first = std::get_if<Linear>(&ops[i]))
      for (std::size_t k = i; k < ops.size(); ++k) {
        const auto* linear = std::get_if<Linear>(&ops[k]);
        if (linear == nullptr || linear->in != first->in) continue;
        step.linears.push_back(*linear);
        done[k] = true;
      }
    steps.push_back(std::move(step));
  }
  return steps;
}

ValuePlaces place_values(const Program& program, const std::vector<Step>& main,
                         const std::vector<Step>& draft, Sharing sharing) {
  ValuePlaces places;
  places.buffer.assign(program.values.size(), ValuePlaces::kNone);
  Placer placer(program, sharing, places);
  placer.place(main, program.main_logits);
  placer.place(draft, program.draft_logits);
  return places;
}

}  // namespace fourfold::backend::cpu
