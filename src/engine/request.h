// What is asked of the engine, what it gives back, and what it says of itself: the words that Engine, Batcher
// and whoever asks have in common.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "engine/token_guide.h"
#include "sample/sampler.h"
#include "schedule/block_event.h"

namespace fourfold::engine {

using sample::TokenId;

using RequestId = std::uint64_t;

inline constexpr int kDraftCountMax = 5;

struct Request {
  std::vector<TokenId> prompt;
  sample::Params params;
  std::int64_t max_tokens = 0;  // 0 where the prompt's log-probabilities are all that is wanted
  std::vector<TokenId> stop_ids;
  // Before it no stop id is chosen, unless a guide leaves nothing else.
  std::int64_t min_tokens = 0;
  // Log-probabilities of the prompt's tokens, each with so many alternatives.
  std::optional<int> prompt_logprobs = {};
  int draft_count = 0;           // drafts verified a step, 0 to kDraftCountMax
  bool draw_drafts = false;      // draw drafts from the draft layer's distribution instead of taking its best
  std::int64_t token_limit = 0;  // only ids below it are chosen; 0: the whole vocabulary
  // Tokens of the prompt that are in the caches of the sequence's home already; see reusable_count.
  std::int64_t cached_count = 0;
};

enum class Finish { running, stop_id, max_tokens, cancelled, time_limit, shutdown, failed };

// What stands behind a request that was not taken or failed, for programs; its text is for people.
enum class Trouble {
  none,        // the request itself
  queue_full,  //
  stopping,    // the engine was asked to end
  away,        // what it computes on is lost, and may come back
  fault,       // and does not
  stalled,     // a step has not ended for too long
};

// Why a request was not taken.
class NotTaken : public Error {
 public:
  NotTaken(Trouble trouble, Code code, const std::string& message, const std::string& hint)
      : Error(code, message, hint), trouble_(trouble) {}
  Trouble trouble() const { return trouble_; }

 private:
  Trouble trouble_;
};

// How well drafting went.
struct DraftCounts {
  std::int64_t verified = 0;
  std::int64_t accepted = 0;
};

struct EngineOptions {
  std::int64_t max_sequences = 0;        // running at once; 0: as many as the capacity has state slots
  std::int64_t max_queue = 1024;         // waiting; one more is refused
  std::int64_t step_rows = 0;            // rows of one step, prompt and generated together; 0: the capacity's
  int mtp = kMtpAuto;                    // drafts a step for all requests, or kMtpAuto
  std::int64_t prefix_cache_bytes = -1;  // of recurrent anchors; 0: no prefix cache; -1: chosen by the engine
  schedule::BlockSink on_blocks = {};    // what becomes of cached blocks, step after step; none: nobody asks

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
  Trouble trouble = Trouble::none;
  // Of every token of the prompt but its first, with the first delivery, where they were asked for.
  std::vector<sample::Logprobs> prompt_logprobs = {};
  Usage usage;  // so far
};

struct EngineStatus {
  std::int64_t running = 0, waiting = 0;
  std::int64_t sequence_limit = 0, queue_limit = 0;
  std::int64_t pages_used = 0, page_count = 0, page_tokens = 0;
  std::int64_t pages_cached = 0;  // of the used ones: held by the prefix cache alone
  // Of layers that see a window: reserved for all sequences that may run, and the bytes of these in a rank.
  std::int64_t window_pages = 0, window_bytes = 0;
  bool shares_prefixes = false;  // there is a prefix cache
  std::int64_t anchors = 0, anchor_bytes = 0, anchor_byte_limit = 0;
  std::int64_t prompt_tokens = 0, cached_tokens = 0, answer_tokens = 0;  // since the start
  std::int64_t prefix_lookups = 0, prefix_hits = 0;
  std::int64_t finished = 0, cancelled = 0, failed = 0, refused = 0, preempted = 0;
  DraftCounts drafts;
  int mtp = 0;  // drafts a step now
  std::int64_t steps = 0;
  std::string fault;             // why the engine has stopped for good; empty: it has not
  std::string away;              // why it can run nothing now, and waits; empty: it can
  double step_seconds = 0;       // of all steps, in the backend
  double overhead_seconds = 0;   // of all steps, in scheduling and sampling
  double tokens_per_second = 0;  // answers', over the last seconds
};

}  // namespace fourfold::engine
