// One API request from its body to its answer, in the words of one protocol. No sockets, no threads: the
// transport hands in what the engine delivers and sends what comes out.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "engine/engine.h"
#include "server/api/notes.h"
#include "server/served_model.h"

namespace fourfold::server {

// What a request brings along beside its body.
struct RequestContext {
  // Whose key it came with (HttpRequest::tenant); what is kept for one tenant is not shown to another.
  std::uint64_t tenant = 0;
  std::string client = {};  // whose share it takes of what all clients have (HttpRequest::client)
  // The answer is no longer wanted: the client has left, or the server ends. Any thread may ask, and long
  // work does now and then (base/cancel.h for what knows nothing of requests). Empty: it is always wanted.
  std::function<bool()> cancelled = {};
};

// How a request ends that cannot be served; the body is the protocol's own error shape.
struct HttpError {
  int status = 400;
  std::string body;
};

class Exchange {
 public:
  virtual ~Exchange() = default;

  // What to run, one a choice; called once.
  virtual std::vector<engine::Submission> submissions() = 0;
  // Whether the answer is sent as it comes (server-sent events) or whole.
  virtual bool streams() const = 0;
  // Of a stream: what is sent before the first token, once; and now and then while nothing else is.
  virtual std::string begin() { return {}; }
  virtual std::string keep_alive() { return ": waiting\n\n"; }
  // What one step gave a choice. Gives the bytes to send now, which may be none; always none unless
  // streams().
  virtual std::string take(std::size_t choice, const engine::Delivery& delivery) = 0;
  // A choice that needs no more tokens (a stop string was found): the transport cancels it.
  virtual bool satisfied(std::size_t choice) const = 0;
  virtual bool done() const = 0;  // every choice has ended
  // Answers that are not streamed, once done: status and body.
  virtual int status() const = 0;
  virtual std::string body() = 0;
  // About how many bytes the answer has beside its text; most have none. Long ones have a share of what all
  // answers on their way may hold, and body() is called on a worker.
  virtual std::size_t long_bytes() const { return 0; }

  // What the request asked and does not get; known before its first token.
  api::Notes notes;
};

// The routes that run the model: "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages";
// and "/v1/messages/count_tokens" and "/v1/responses/input_tokens", whose exchanges have no submissions and
// are done at once. Throws fourfold::Error for what the request may not ask; error_body makes an answer of
// it.
std::unique_ptr<Exchange> make_exchange(std::string_view route, std::string_view body,
                                        const ServedModel& model, const RequestContext& context = {});

// An error in the shape clients of this route expect (OpenAI's, or Anthropic's for /v1/messages).
HttpError error_answer(std::string_view route, const Error& error);

}  // namespace fourfold::server
