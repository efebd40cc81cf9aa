#include "loadgen/grid.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace fourfold::loadgen {
namespace {

constexpr std::int64_t kLeastTokens = 16;
constexpr std::int64_t kLongOutput = 8192;  // from here on one round says enough
// What a chat template and a prompt take at most, where the prompt's length is not set.
constexpr std::int64_t kNaturalPromptTokens = 256, kBriefPromptTokens = 64;

std::string plural(std::int64_t count, const char* noun) {
  return fourfold::format("{} {}{}", with_commas(count), noun, count == 1 ? "" : "s");
}

}  // namespace

std::string cell_name(const Cell& cell) {
  std::string name = plural(cell.users, "user");
  if (cell.rate) name = fourfold::format("{} requests/s, at most {}", *cell.rate, with_commas(cell.users));
  if (cell.context > 0) name += fourfold::format(", context {}", with_commas(cell.context));
  name += fourfold::format(", output {}", with_commas(cell.output));
  if (cell.thinking) name += *cell.thinking ? ", thinking on" : ", thinking off";
  return name + fourfold::format(", {} prompts", prompt_kind_name(cell.prompts));
}

std::vector<Cell> plain_grid(const GridOptions& options) {
  std::vector<Cell> cells;
  for (const std::int64_t context : options.contexts)
    for (const std::int64_t output : options.outputs) {
      const Cell cell{"grid", 1, context, output, options.thinking, options.prompts};
      if (options.rates.empty()) {
        for (const std::int64_t users : options.users) {
          cells.push_back(cell);
          cells.back().users = users;
          cells.back().requests = users * options.rounds;
        }
      }
      for (const double rate : options.rates) {
        cells.push_back(cell);
        cells.back().users = options.rate_users > 0 ? options.rate_users : options.requests;
        cells.back().requests = options.requests;
        cells.back().rate = rate;
      }
    }
  return cells;
}

std::vector<Cell> field_grid(double scale) {
  if (!(scale > 0) || scale > 16)
    fail(Code::invalid_request, "--scale is {}; more than 0 and up to 16", scale);
  const auto scaled = [&](std::int64_t tokens) {
    return std::max(kLeastTokens,
                    static_cast<std::int64_t>(std::llround(static_cast<double>(tokens) * scale)));
  };
  std::vector<Cell> cells;
  const auto add = [&](Cell cell) {
    // Small scales make neighbours equal.
    if (std::find(cells.begin(), cells.end(), cell) == cells.end()) cells.push_back(std::move(cell));
  };
  for (const std::int64_t users : {1, 2, 4, 8, 16})
    add({"users", users, 0, scaled(512), false, PromptKind::natural, 2 * users});
  for (const std::int64_t output : {1024, 2048, 4096, 8192, 16384, 32768})
    for (const std::int64_t users : {1, 2, 4})
      add({"output", users, 0, scaled(output), false, PromptKind::natural,
           (output < kLongOutput ? 2 : 1) * users});
  for (const std::int64_t context : {128, 1024, 4096, 16384, 32768})
    add({"context", 1, scaled(context), scaled(128), false, PromptKind::random, 3});
  for (const PromptKind kind : {PromptKind::brief, PromptKind::natural})
    for (const bool thinking : {false, true}) add({"thinking", 1, 0, scaled(512), thinking, kind, 4});
  return cells;
}

std::string why_skipped(const Cell& cell, const Bounds& bounds) {
  const auto over = [](std::int64_t value, const std::optional<std::int64_t>& most, const char* what) {
    return most && value > *most ? fourfold::format("{} {} is over the limit of {}", what, with_commas(value),
                                                    with_commas(*most))
                                 : std::string();
  };
  if (const std::string why = over(cell.users, bounds.users, "users"); !why.empty()) return why;
  if (const std::string why = over(cell.context, bounds.context, "context"); !why.empty()) return why;
  if (const std::string why = over(cell.output, bounds.output, "output"); !why.empty()) return why;
  const std::int64_t prompt = cell.context > 0                    ? cell.context
                              : cell.prompts == PromptKind::brief ? kBriefPromptTokens
                                                                  : kNaturalPromptTokens;
  return over(prompt + cell.output, bounds.positions, "prompt and output of");
}

}  // namespace fourfold::loadgen
