// What the protocols have in common: prompts become submissions, deliveries become choices. Each protocol
// says how that looks.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "server/api/choice.h"
#include "server/api/conversation.h"
#include "server/api/generation.h"
#include "server/exchange.h"

namespace fourfold::server::api {

using MakeGuide = std::function<std::unique_ptr<engine::TokenGuide>(const Prompt& prompt)>;

struct Plan {
  Generation generation;
  std::vector<Prompt> prompts;  // each is answered generation.answer_count times
  bool split_thinking = false;
  bool logprobs_with_text = false;  // ChoiceOptions
  Tools tools;
  std::string_view call_prefix = "call_";
  MakeGuide make_guide;  // none: free text
};

// Tokens of all choices together; a prompt counts once however often it is answered.
struct TokenCounts {
  std::int64_t prompt = 0, cached = 0, answer = 0, thinking = 0;
  std::int64_t drafts_verified = 0, drafts_accepted = 0;
};

class AnswerExchange : public Exchange {
 public:
  // The model must outlive it. Refuses a prompt that does not fit the context; notes an answer that gets
  // fewer tokens than asked for.
  AnswerExchange(const ServedModel& model, Plan plan, Notes& noted);

  std::vector<engine::Submission> submissions() final;
  bool streams() const final { return plan_.generation.stream; }
  std::string begin() final;
  std::string take(std::size_t choice, const engine::Delivery& delivery) final;
  bool satisfied(std::size_t choice) const final { return choices_[choice].satisfied(); }
  bool done() const final;
  int status() const final;
  std::string body() final;
  std::size_t long_bytes() const final { return long_bytes_; }

 protected:
  void add_long_bytes(std::size_t bytes) { long_bytes_ += bytes; }
  const ServedModel& model() const { return *model_; }
  const Plan& plan() const { return plan_; }
  const std::vector<Choice>& choices() const { return choices_; }
  Choice& choice(std::size_t index) { return choices_[index]; }
  const Prompt& prompt_of(std::size_t choice) const;
  // Log-probabilities of the choice's prompt, of every token but the first.
  const std::vector<sample::Logprobs>& prompt_logprobs(std::size_t choice) const {
    return choices_[measured_choice(choice)].prompt_logprobs();
  }
  TokenCounts counts() const;
  const std::string& model_name() const { return model_->names.front(); }

  // ---- of a stream, in this order
  virtual std::string begin_stream() { return {}; }
  virtual std::string begin_choice(std::size_t) { return {}; }
  virtual std::string show(std::size_t choice, const std::vector<AnswerEvent>& events) = 0;
  virtual std::string end_choice(std::size_t choice) = 0;
  virtual std::string end_stream() = 0;
  // Instead of the rest, when a choice could not be finished.
  virtual std::string break_stream(const HttpError& error) = 0;
  // ---- of a whole answer
  virtual std::string whole() = 0;
  // The protocol's error body.
  virtual std::string error_body(const std::string& message, int status, std::string_view code) const = 0;

 private:
  HttpError failure_of(const Choice& choice) const;
  std::size_t measured_choice(std::size_t choice) const;

  const ServedModel* model_;
  Plan plan_;
  text::ToolSchemas schemas_;
  std::vector<Choice> choices_;
  std::vector<bool> begun_;
  bool stream_begun_ = false;
  HttpError failure_{0, {}};  // status 0: none
  std::size_t long_bytes_ = 0;
};

// One server-sent event; OpenAI's have no name.
std::string sse(std::string_view data);
std::string sse(std::string_view name, std::string_view data);

}  // namespace fourfold::server::api
