#include "cli/predict_report.h"

#include <cstdio>
#include <string>

#include "base/format.h"

namespace fourfold::cli {
namespace {

template <class... Args>
std::string line_of(const char* pattern, const Args&... args) {
  char text[256];
  std::snprintf(text, sizeof text, pattern, args...);
  return text;
}

std::string range_text(const plan::Range& us) { return line_of("%8.1f - %8.1f", us.low, us.high); }

// What nobody counted has no floor.
const char* floor_by(const library::PredictedRow& row) {
  return row.floor_us == 0 ? "" : row.memory_us >= row.tensor_us ? "memory" : "tensor cores";
}
std::string floor_text(const library::PredictedRow& row) {
  return row.floor_us == 0 ? "" : line_of(" %9.1f ", row.floor_us) + floor_by(row);
}

plan::Range prompt_speed(const library::Prediction& prediction, int prompt) {
  return {1e6 * prompt / prediction.prompt_us.high, 1e6 * prompt / prediction.prompt_us.low};
}

void write_range(const char* name, const plan::Range& value, JsonWriter& json) {
  json.key(name).begin_array().value(value.low).value(value.high).end_array();
}

void write_parts(const char* name, const std::vector<plan::Estimate>& lines, JsonWriter& json) {
  json.key(name).begin_array();
  for (const plan::Estimate& line : lines) {
    json.begin_object().member("what", line.what);
    write_range("us", line.us, json);
    json.member("evidence", evidence_name(line.evidence)).member("because", line.because).end_object();
  }
  json.end_array();
}

// Both ends of what is believed of the chip: plan/chip_rates.cpp says why.
void write_rates(const char* name, const plan::ChipRates& rates, JsonWriter& json) {
  json.key(name).begin_object().member("sms", rates.sms).member("ghz", rates.ghz);
  json.member("gb_per_s", rates.gb_per_s).member("latency", rates.latency);
  json.member("tensor_flops", rates.tensor_flops).member("fp4_flops", rates.fp4_flops);
  json.member("tile_stall", rates.tile_stall).end_object();
}

}  // namespace

void print_prediction(const library::StepQuestion& question, const library::Prediction& prediction,
                      const Console& console) {
  const plan::ChipRange chip = *plan::chip_range(question.product);
  console.out << fourfold::format("PREDICTED for {} x {}: {} ({})\n", question.ranks, question.product.name,
                                  chip.because, evidence_name(chip.evidence));
  std::string what;
  for (const library::PredictedRow& row : prediction.rows) {
    if (row.what != what)
      console.out << line_of("%-46s launches       GB  microseconds           floor by\n", row.what.c_str());
    what = row.what;
    const std::string name = row.kernel + (row.part.empty() ? "" : " " + row.part);
    console.out << line_of("  %-44s %8d %8.3f ", name.c_str(), row.count, row.weight_bytes / 1e9)
                << range_text(row.us) << floor_text(row) << "\n";
  }
  for (const plan::Estimate& line : prediction.lines)
    if (line.what != "kernels" && line.what != "drafts")
      console.out << line_of("%-64s", line.what.c_str()) << range_text(line.us) << "\n";
  const plan::Range speed = prediction.tokens_per_s(question.users);
  console.out << fourfold::format("a step of {} user{} with {} tokens each: ", question.users,
                                  question.users == 1 ? "" : "s",
                                  with_commas(static_cast<long long>(question.context)))
              << line_of("%.2f to %.2f ms, %.0f to %.0f tokens/s", prediction.step_us.low / 1e3,
                         prediction.step_us.high / 1e3, speed.low, speed.high);
  if (question.drafts > 0)
    console.out << line_of(" (%.2f tokens a step where a draft stands with %.2f)", prediction.tokens,
                           question.acceptance);
  console.out << "\n";
  if (question.prompt == 0) return;
  for (const plan::Estimate& line : prediction.prompt_sums)
    console.out << line_of(
                       "%-64s",
                       fourfold::format("prompt: {} ({})", line.what, evidence_name(line.evidence)).c_str())
                << range_text(line.us) << "\n";
  const plan::Range prompts = prompt_speed(prediction, question.prompt);
  console.out << fourfold::format("a prompt of {}: ", with_commas(question.prompt))
              << line_of("%.1f to %.1f ms, %.0f to %.0f tokens/s\n", prediction.prompt_us.low / 1e3,
                         prediction.prompt_us.high / 1e3, prompts.low, prompts.high);
}

void write_prediction(const library::StepQuestion& question, const library::Prediction& prediction,
                      JsonWriter& json) {
  const plan::ChipRange chip = *plan::chip_range(question.product);
  json.begin_object().member("gpu", question.product.name).member("ranks", question.ranks);
  json.member("users", question.users).member("context", question.context);
  json.member("drafts", question.drafts)
      .member("tokens", prediction.tokens)
      .member("prompt", question.prompt);
  json.member("evidence", evidence_name(chip.evidence)).member("because", chip.because);
  json.member("model_error", plan::kModelError);
  write_rates("fast", chip.fast, json);
  write_rates("slow", chip.slow, json);
  json.key("rows").begin_array();
  for (const library::PredictedRow& row : prediction.rows) {
    json.begin_object().member("what", row.what).member("row", row.kernel).member("launches", row.count);
    if (!row.part.empty()) json.member("part", row.part);
    if (row.floor_us > 0) json.member("floor_us", row.floor_us).member("floor_by", floor_by(row));
    json.member("weight_bytes", row.weight_bytes);
    write_range("us", row.us, json);
    json.end_object();
  }
  json.end_array();
  write_range("us", prediction.step_us, json);
  write_parts("parts", prediction.lines, json);
  write_range("tokens_per_s", prediction.tokens_per_s(question.users), json);
  if (question.prompt > 0) {
    write_range("prompt_us", prediction.prompt_us, json);
    write_parts("prompt_parts", prediction.prompt_sums, json);
    write_range("prompt_tokens_per_s", prompt_speed(prediction, question.prompt), json);
  }
  json.key("constants").begin_array();
  for (const plan::Constant& constant : plan::kernel_constants())
    json.begin_object()
        .member("name", constant.name)
        .member("value", constant.value)
        .member("unit", constant.unit)
        .member("evidence", evidence_name(constant.evidence))
        .member("meaning", constant.meaning)
        .end_object();
  json.end_array().end_object();
}

}  // namespace fourfold::cli
