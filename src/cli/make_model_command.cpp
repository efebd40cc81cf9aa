#include "cli/make_model_command.h"

#include <chrono>
#include <cstdio>

#include "base/error.h"
#include "base/json_writer.h"
#include "checkpoint/write/random_model.h"
#include "checkpoint/write/scripted_model.h"
#include "cli/byte_bar.h"
#include "cli/figures.h"
#include "cli/file_signals.h"
#include "cli/find_model.h"
#include "json/parse.h"
#include "text/answer_script.h"
#include "text/made_up_tokenizer.h"

namespace fourfold::cli {
namespace {

constexpr int kLayersMax = 1024;
constexpr std::size_t kScriptBytesMax = std::size_t{1} << 20;
constexpr std::int64_t kVocabAtOnce = 128;
constexpr std::int64_t kScriptedPositions = 262144;

void write_text_side(const checkpoint::OutputFolder& folder, std::int64_t vocab_size) {
  folder.write("tokenizer.json", text::make_tokenizer_json(vocab_size));
  folder.write("tokenizer_config.json", text::make_tokenizer_config());
  folder.write("chat_template.jinja", text::make_chat_template());
  folder.write("generation_config.json", text::make_generation_config(vocab_size));
}

// As published models say it; a script holds at any temperature.
std::string sampling_text(const std::vector<text::TokenId>& ends, const checkpoint::TokenIds& ids) {
  JsonWriter json(JsonWriter::Style::pretty);
  json.begin_object().member("do_sample", true).member("temperature", 0.7).member("top_p", 0.8);
  json.member("top_k", 20).key("eos_token_id").begin_array();
  for (const text::TokenId end : ends) json.value(end);
  json.value(ids.end_of_text);
  return json.end_array().end_object().finish() + "\n";
}

std::int64_t token_of(const text::Tokenizer& tokenizer, std::string_view content, std::string_view folder) {
  const auto id = tokenizer.added_token(content);
  if (!id) fail(Code::invalid_request, "{}: its tokenizer has no {}", folder, content);
  return *id;
}

int make_scripted_model(const MakeModelOptions& options, const Console& console) {
  if (options.text_of.empty())
    fail_with_hint(Code::invalid_request,
                   "Add --text-of MODEL, a folder with tokenizer.json and a chat template, or storyteller.",
                   "--script needs a tokenizer and a chat template to speak through");
  const std::filesystem::path source = std::filesystem::exists(options.text_of)
                                           ? std::filesystem::path(options.text_of)
                                           : find_model(options.text_of);
  const auto tokenizer = text::Tokenizer::load(source / "tokenizer.json");
  const auto chat_template = text::ChatTemplate::load(source);
  if (!chat_template) fail(Code::invalid_request, "{}: has no chat template", options.text_of);
  const auto script =
      text::parse_answer_script(json::read_text_file(options.script, kScriptBytesMax), options.script);
  std::vector<text::TokenId> ends;
  for (const std::string& end : script.ends)
    ends.push_back(static_cast<text::TokenId>(token_of(tokenizer, end, options.text_of)));
  const checkpoint::TokenIds ids{ends.front(), token_of(tokenizer, "<|endoftext|>", options.text_of)};
  const text::ScriptTable table = make_script_table(script, *chat_template, tokenizer, ends);
  checkpoint::ScriptedModel model;
  model.vocab = (tokenizer.id_limit() + kVocabAtOnce - 1) / kVocabAtOnce * kVocabAtOnce;
  model.positions = kScriptedPositions;
  const auto widened = [](const text::ScriptTable::Window& seen) {
    checkpoint::ScriptedModel::Window out;
    std::copy(seen.begin(), seen.end(), out.begin());
    return out;
  };
  for (const auto& step : table.steps) model.steps.push_back({widened(step.seen), step.phase, step.next});
  for (const auto& turn : table.turns) model.turns.push_back({widened(turn.seen), turn.phase});

  const FileSignals signals;
  checkpoint::OutputFolder folder(options.out);
  const auto summary = write_scripted_model(folder, model, ids);
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"})
    if (std::filesystem::exists(source / name)) folder.copy(source / name);
  folder.write("generation_config.json", sampling_text(ends, ids));
  folder.publish();
  console.out << fourfold::format("{}: {} answers, {} steps: {} tensors, {} bytes\n", options.out,
                                  script.with_tools.size() + script.without_tools.size(), model.steps.size(),
                                  with_commas(static_cast<long long>(summary.tensor_count)),
                                  with_commas(static_cast<long long>(summary.tensor_bytes)));
  console.out << "It says what the script has, whatever it is asked.\n";
  return kFine;
}

}  // namespace

std::string shape_names() { return checkpoint::shape_names(); }

int run_make_model(const MakeModelOptions& options, const Console& console) {
  if (!options.script.empty()) return make_scripted_model(options, console);
  checkpoint::RandomModelOptions wanted;
  wanted.shape = checkpoint::find_shape(options.shape);
  wanted.scheme = checkpoint::scheme_named(options.format);
  wanted.seed = options.seed;
  wanted.sparse = options.sparse;
  if (options.layers && (*options.layers < 1 || *options.layers > kLayersMax))
    fail(Code::invalid_request, "--layers is {}; 1 to {} are possible", *options.layers, kLayersMax);
  wanted.shape.layers = options.layers.value_or(static_cast<int>(wanted.shape.layers));

  const auto start = std::chrono::steady_clock::now();
  const FileSignals signals;
  checkpoint::OutputFolder folder(options.out);
  ByteBar bar(console, "writing");
  const text::MadeUpTokens tokens = text::made_up_tokens(wanted.shape.vocab);
  const auto summary = write_random_model(folder, wanted, {tokens.end_of_turn, tokens.end_of_text},
                                          [&](std::uint64_t done, std::uint64_t total) {
                                            FileSignals::stop_if_asked();
                                            bar.update(done, total);
                                          });
  write_text_side(folder, wanted.shape.vocab);
  folder.publish();
  bar.clear();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  console.out << fourfold::format("{}: {}, {} layers, {}, seed {}: {} tensors, {}{}, in {} s\n", options.out,
                                  wanted.shape.what, wanted.shape.layers, options.format, options.seed,
                                  with_commas(static_cast<long long>(summary.tensor_count)),
                                  as_bytes(static_cast<double>(summary.tensor_bytes)),
                                  options.sparse ? " (matrices are holes and read as zeros)" : "",
                                  rounded(seconds));
  console.out << "Random numbers: the words of this model mean nothing.\n";
  return kFine;
}

}  // namespace fourfold::cli
