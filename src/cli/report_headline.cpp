#include "cli/report_headline.h"

#include <algorithm>
#include <boost/json/value.hpp>
#include <cmath>
#include <cstdint>
#include <map>

#include "base/format.h"
#include "cli/figures.h"

namespace fourfold::cli {
namespace {

namespace json = boost::json;

double number(const json::object& line, const char* name) { return line.at(name).to_number<double>(); }
std::int64_t whole(double value) { return static_cast<std::int64_t>(std::llround(value)); }

// " (predicted 428 to 617)", or nothing.
std::string predicted(const json::value* range, const auto& in_unit) {
  if (range == nullptr || !range->is_array()) return {};
  const double a = in_unit(range->at(0).to_number<double>()), b = in_unit(range->at(1).to_number<double>());
  return fourfold::format(" (predicted {} to {})", rounded(std::min(a, b)), rounded(std::max(a, b)));
}

void append(std::string& text, const std::string& more) { text += (text.empty() ? "" : ", ") + more; }

std::string model_line(const json::object& line) {
  const bool is_prompt = line.at("what").as_string() == "prompt";
  const double tokens = is_prompt ? number(line, "context") : number(line, "users");
  const auto per_second = [tokens](double ms) { return 1e3 * tokens / ms; };
  const std::string what = is_prompt ? fourfold::format("prompt of {}", counted(whole(tokens), "token"))
                                     : counted(whole(tokens), "user");
  return fourfold::format("{} {} tok/s{}", what, rounded(per_second(number(line, "ms"))),
                          predicted(line.if_contains("predicted_ms"), per_second));
}

}  // namespace

std::string model_headline(const json::array& lines) {
  const json::object *fewest = nullptr, *most = nullptr, *prompt = nullptr;
  for (const json::value& value : lines) {
    const json::object& line = value.as_object();
    const bool is_prompt = line.at("what").as_string() == "prompt";
    if (is_prompt) prompt = &line;
    if (is_prompt || number(line, "context") > 0) continue;
    if (fewest == nullptr || number(line, "users") < number(*fewest, "users")) fewest = &line;
    if (most == nullptr || number(line, "users") > number(*most, "users")) most = &line;
  }
  std::string text;
  for (const json::object* line : {fewest, most == fewest ? nullptr : most, prompt})
    if (line != nullptr) append(text, model_line(*line));
  return text;
}

std::string layer_headline(const json::array& lines) {
  std::map<std::int64_t, const json::object*> by_tokens;
  for (const json::value& value : lines)
    if (const json::object& line = value.as_object(); line.at("routing").as_string() == "uniform")
      by_tokens[whole(number(line, "tokens"))] = &line;
  std::string text;
  for (const auto& [tokens, line] : by_tokens) {
    if (tokens != by_tokens.begin()->first && tokens != 64 && tokens != by_tokens.rbegin()->first) continue;
    append(text,
           fourfold::format("{} {} us{}", counted(tokens, "token"), rounded(number(*line, "microseconds")),
                            predicted(line->if_contains("predicted_us"), [](double us) { return us; })));
  }
  return text;
}

std::string verify_headline(const json::object& summary) {
  std::int64_t passed = 0, proofs = 0;
  std::string others;
  const json::array& rows = summary.at("rows").as_array();
  for (const json::value& value : rows) {
    const json::object& row = value.as_object();
    proofs += row.at("proofs").to_number<std::int64_t>();
    if (row.at("verdict").as_string() == "pass")
      ++passed;
    else
      others +=
          fourfold::format("; {} {}: {}", std::string(row.at("row").as_string()),
                           std::string(row.at("op").as_string()), std::string(row.at("verdict").as_string()));
  }
  const std::int64_t different = summary.at("comparisons").at("different").to_number<std::int64_t>();
  if (different > 0) others += fourfold::format("; unlike the simulator's: {}", counted(different, "byte"));
  return fourfold::format("{} of {} rows and operations passed, {}{}", with_commas(passed),
                          with_commas(static_cast<std::int64_t>(rows.size())), counted(proofs, "proof"),
                          others);
}

}  // namespace fourfold::cli
