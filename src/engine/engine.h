// Many requests at once on one prepared model. One thread of its own runs step after step; whoever asks hands
// over a submission and gets its tokens in deliveries, one call a step for all requests of the step.
//
// Every request gets the tokens it would get alone: whoever shares its batch, its prefix or its drafts.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "engine/sequence.h"
#include "engine/token_guide.h"

namespace fourfold::engine {

using RequestId = std::uint64_t;

struct EngineOptions {
  std::int64_t max_sequences = 0;        // running at once; 0: as many as the capacity has state slots
  std::int64_t max_queue = 1024;         // waiting; one more is refused
  std::int64_t step_rows = 0;            // rows of one step, prompt and generated together; 0: the capacity's
  int mtp = kMtpAuto;                    // drafts a step for everybody, or kMtpAuto
  std::int64_t prefix_cache_bytes = -1;  // of recurrent anchors; 0: no prefix cache; -1: chosen by the engine

  static constexpr int kMtpAuto = -1;
};

struct Submission {
  // draft_count and cached_count are the engine's business.
  Request request;
  std::unique_ptr<TokenGuide> guide = nullptr;
  // Prefixes are shared between requests of equal salt only.
  std::string cache_salt = {};
  // Any number for whoever asks: those with the fewest requests running come first.
  std::uint64_t client = 0;
  std::optional<std::chrono::milliseconds> time_limit = {};  // from submission to last token
};

struct Usage {
  std::int64_t prompt_count = 0;
  std::int64_t cached_count = 0;  // of the prompt, not run again
  std::int64_t answer_count = 0;
  DraftCounts drafts;
  double queued_seconds = 0;
  double prompt_seconds = 0;  // from admission to the first token
  double answer_seconds = 0;  // for the others
};

// What one step gave one request.
struct Delivery {
  RequestId id = 0;
  std::vector<sample::Sampled> tokens;  // a stop id among them, as the last
  Finish finish = Finish::running;
  std::string error;  // Finish::failed: what happened
  // Of every token of the prompt but its first, with the first delivery, where they were asked for.
  std::vector<sample::Logprobs> prompt_logprobs = {};
  Usage usage;  // so far
};

// Called on the engine's thread; it must not block. The last delivery of a request is the one whose finish is
// not running; there is exactly one such for every submission that was accepted.
using Deliver = std::function<void(std::vector<Delivery>&& deliveries)>;

struct EngineStatus {
  std::int64_t running = 0, waiting = 0;
  std::int64_t sequence_limit = 0, queue_limit = 0;
  std::int64_t pages_used = 0, pages_cached = 0, page_count = 0;
  std::int64_t anchors = 0, anchor_bytes = 0, anchor_byte_limit = 0;
  std::int64_t prompt_tokens = 0, cached_tokens = 0, answer_tokens = 0;  // since the start
  std::int64_t prefix_lookups = 0, prefix_hits = 0;
  std::int64_t finished = 0, cancelled = 0, failed = 0, refused = 0, preempted = 0;
  DraftCounts drafts;
  int mtp = 0;  // drafts a step now
  std::int64_t steps = 0;
  std::string fault;             // why the engine has stopped for good; empty: it has not
  double step_seconds = 0;       // of all steps, in the backend
  double overhead_seconds = 0;   // of all steps, in scheduling and sampling
  double tokens_per_second = 0;  // answers', over the last seconds
};

class Engine {
 public:
  // The prepared model must outlive it.
  Engine(backend::Prepared& prepared, EngineOptions options, Deliver deliver);
  ~Engine();  // as stop with no grace
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Any thread. Throws invalid_request for what the model does not allow, over_capacity when the queue is
  // full or the engine stops, device_lost after a fault that no step can follow.
  RequestId submit(Submission submission);
  // Any thread; unknown and finished ids are ignored. Everything it held is free within one step.
  void cancel(RequestId id);
  EngineStatus status() const;
  // No new requests; those running may finish within the grace time, the others end with Finish::shutdown.
  void stop(std::chrono::milliseconds grace);

 private:
  struct Body;
  std::unique_ptr<Body> body_;
};

}  // namespace fourfold::engine
