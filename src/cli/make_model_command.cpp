#include "cli/make_model_command.h"

#include <chrono>
#include <cstdio>

#include "base/error.h"
#include "checkpoint/write/random_model.h"
#include "cli/byte_bar.h"
#include "cli/file_signals.h"
#include "text/made_up_tokenizer.h"

namespace fourfold::cli {
namespace {

constexpr int kLayersMax = 1024;

void write_text_side(const checkpoint::OutputFolder& folder, std::int64_t vocab_size) {
  folder.write("tokenizer.json", text::make_tokenizer_json(vocab_size));
  folder.write("tokenizer_config.json", text::make_tokenizer_config());
  folder.write("chat_template.jinja", text::make_chat_template());
  folder.write("generation_config.json", text::make_generation_config(vocab_size));
}

}  // namespace

int run_make_model(const MakeModelOptions& options, const Console& console) {
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
  console.out << fourfold::format("{}: {}, {} layers, {}, seed {}: {} tensors, {} bytes{}, {} s\n",
                                  options.out, wanted.shape.what, wanted.shape.layers, options.format,
                                  options.seed, with_commas(static_cast<long long>(summary.tensor_count)),
                                  with_commas(static_cast<long long>(summary.tensor_bytes)),
                                  options.sparse ? " (matrices are holes and read as zeros)" : "", seconds);
  console.out << "Random numbers: the words of this model mean nothing.\n";
  return kFine;
}

}  // namespace fourfold::cli
