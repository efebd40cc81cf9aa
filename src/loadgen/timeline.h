// What one request went through, as times of one clock, in seconds. Everything that is measured is computed
// from these (measures.h), so the definitions can be tested without a server and without waiting.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace fourfold::loadgen {

struct Timeline {
  double sent = 0;                     // the request began: before the connection is made
  std::vector<double> chunks;          // of every streamed chunk with text, thinking or answer
  std::optional<double> first_answer;  // the first chunk whose text is not thinking
  double last = 0;                     // the chunk of the last token: the last with text or a finish reason
  double over = 0;                     // nothing more came: the stream's end, or the failure

  // From the server's usage, where it sends one.
  std::optional<std::int64_t> prompt_tokens, cached_tokens, output_tokens, reasoning_tokens;
  std::optional<std::int64_t> drafted_tokens, accepted_tokens;

  std::string finish_reason;
  std::string failure;  // what went wrong; empty for a request that was answered

  bool failed() const { return !failure.empty(); }
};

}  // namespace fourfold::loadgen
