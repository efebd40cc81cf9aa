// The server under load: what it is, what it understands, and requests in its words.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "http/url.h"
#include "loadgen/prompts.h"
#include "loadgen/timeline.h"

namespace fourfold::loadgen {

struct TargetOptions {
  http::Url url;
  std::string key = {};
  std::string model = {};    // empty: the first the server lists
  bool completions = false;  // /v1/completions instead of chat
  double temperature = 0;
  double timeout_s = 600;
};

struct Ask {
  std::string prompt;
  std::int64_t output = 128;  // tokens, and no fewer where the server knows ignore_eos
  std::optional<bool> thinking;
  std::uint64_t seed = 0;
};

// What the model's drafts did since the server started, from its /metrics.
struct DraftTotals {
  double steps = 0;
  double accepted = 0;
};

class Target {
 public:
  // Asks what the server is and sends one short request to learn what it understands; what it refuses (named
  // in notes()) is left out afterwards. Throws io when it cannot be reached or refuses every form.
  explicit Target(TargetOptions options);

  const TargetOptions& options() const { return options_; }
  const std::string& model() const { return options_.model; }
  const std::string& version() const { return version_; }                       // empty: it does not say
  std::optional<std::int64_t> context_limit() const { return context_limit_; }  // prompt and answer
  bool knows_ignore_eos() const { return sends_ignore_eos_; }
  bool counts_tokens() const { return tokenize_ != Tokenize::none; }
  const std::vector<std::string>& notes() const { return notes_; }

  // The bytes of a request.
  std::string request(const Ask& ask) const;
  // A prompt whose request has so many prompt tokens, the chat template's among them.
  SizedPrompt prompt(PromptKind kind, std::uint64_t seed, std::uint64_t index, std::int64_t tokens) const;
  std::optional<DraftTotals> draft_totals() const;

 private:
  enum class Tokenize { none, prompt, content };  // the field the text is sent in

  std::optional<std::string> get(const std::string& path) const;
  std::optional<std::int64_t> count(Tokenize form, std::string_view text) const;
  void read_models();
  void read_version();
  void try_out();
  Timeline trial(std::string_view prompt) const;

  TargetOptions options_;
  std::string version_;
  std::optional<std::int64_t> context_limit_;
  Tokenize tokenize_ = Tokenize::none;
  bool sends_ignore_eos_ = true, sends_thinking_ = true, sends_usage_ = true, sends_seed_ = true;
  std::int64_t template_tokens_ = 0;  // around the text of a prompt
  double tokens_per_word_ = 1.3;
  std::vector<std::string> notes_;
};

}  // namespace fourfold::loadgen
