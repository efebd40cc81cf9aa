#include "cli/perplexity_command.h"

#include <cmath>
#include <cstdio>
#include <numeric>

#include "base/error.h"
#include "base/json_writer.h"
#include "cli/answer.h"
#include "cli/load_model.h"
#include "cli/terminal_text.h"
#include "evaluate/perplexity.h"
#include "json/parse.h"
#include "library/activations.h"

namespace fourfold::cli {
namespace {

constexpr std::size_t kTextBytesMax = std::size_t{1} << 30;

std::vector<std::int32_t> tokens_of(const PerplexityOptions& options, const text::Tokenizer& tokenizer) {
  const std::string text = json::read_text_file(options.file, kTextBytesMax);
  require_utf8(text, options.file);
  std::vector<std::int32_t> tokens = tokenizer.encode(text, {.add_special_tokens = false});
  const auto wanted = static_cast<std::size_t>(options.tokens_max) + 1;  // one to start from
  if (options.tokens_max > 0 && tokens.size() > wanted) tokens.resize(wanted);
  if (tokens.size() < 2)
    fail(Code::invalid_request, "{}: {} tokens; a perplexity needs at least two", options.file,
         tokens.size());
  return tokens;
}

std::size_t bytes_of(const text::Tokenizer& tokenizer, std::span<const std::int32_t> tokens) {
  return tokenizer.decode(tokens).size();
}

void require_sound(const PerplexityOptions& options, const OpenModel& model) {
  if (options.window < 2 || options.window > model.config.position_limit)
    fail(Code::invalid_request, "--window {}: the model has room for 2 to {} tokens", options.window,
         model.config.position_limit);
  if (options.tokens_max < 0)
    fail(Code::invalid_request, "--tokens {}: give a positive number, or leave it out", options.tokens_max);
}

double share(double part, std::int64_t whole) { return part / static_cast<double>(whole); }

std::string printed(const evaluate::TextScore& score, double bits_per_byte) {
  char line[320];
  std::snprintf(
      line, sizeof line,
      "perplexity %.4f over %lld tokens; %.4f bits a byte; the best token is right %.1f %% of the time\n",
      score.perplexity(), static_cast<long long>(score.token_count), bits_per_byte,
      100 * share(static_cast<double>(score.best_count), score.token_count));
  std::string text = line;
  if (score.draft_count == 0) return text + "MTP: the model has none\n";
  std::snprintf(line, sizeof line,
                "MTP, one draft: accepted %.1f %% greedily, %.1f %% when tokens are drawn\n",
                100 * share(static_cast<double>(score.accepted_count), score.draft_count),
                100 * share(score.accepted_probability, score.draft_count));
  return text + line;
}

std::string to_json(const PerplexityOptions& options, const library::ChosenActivations& used,
                    const evaluate::TextScore& score, double bits_per_byte) {
  JsonWriter json(JsonWriter::Style::pretty);
  json.begin_object().member("model", options.model).member("file", options.file);
  json.member("backend", options.backend.backend).member("activations", options.backend.activations);
  json.member("activations_used", library::activations_name(used.activations));
  json.member("emulated", used.emulated);
  json.member("window", options.window).member("tokens", score.token_count);
  json.member("perplexity", score.perplexity()).member("mean_surprise", score.mean_surprise());
  json.member("bits_per_byte", bits_per_byte);
  json.member("best_is_right", share(static_cast<double>(score.best_count), score.token_count));
  if (score.draft_count > 0) {
    json.member("drafts", score.draft_count);
    json.member("accepted_greedily", share(static_cast<double>(score.accepted_count), score.draft_count));
    json.member("accepted_drawn", share(score.accepted_probability, score.draft_count));
  }
  return json.end_object().finish() + "\n";
}

}  // namespace

int run_perplexity(const PerplexityOptions& options, const Console& console) {
  const auto model = open_model(options.model, console, options.backend.strict);
  require_sound(options, *model);
  const text::Tokenizer tokenizer = load_tokenizer(model->folder);
  const std::vector<std::int32_t> tokens = tokens_of(options, tokenizer);
  BackendOptions backend = options.backend;
  backend.allow_emulated = true;
  const PreparedModel prepared =
      prepare_model(*model, backend, evaluate::score_capacity(options.window), console);
  const evaluate::TextScore score =
      evaluate::score_text(*prepared, tokens, options.window, [&](std::int64_t done) {
        if (console.err_rewrites())
          console.err << fourfold::format("\r\033[K{} of {} tokens", done, tokens.size() - 1) << std::flush;
      });
  if (console.err_rewrites()) console.err << "\r\033[K" << std::flush;
  // Every token but the first was predicted.
  const auto bytes = static_cast<double>(bytes_of(tokenizer, std::span(tokens).subspan(1)));
  const double bits_per_byte = score.surprise / std::log(2.0) / bytes;
  if (options.json)
    console.out << to_json(options, prepared.activations, score, bits_per_byte);
  else
    show(console, printed(score, bits_per_byte));
  return kFine;
}

}  // namespace fourfold::cli
