// Tells subscribers what becomes of cached blocks, over ZeroMQ's wire and in vLLM's words: a PUB socket with
// numbered batches [topic, number, batch], and a ROUTER socket that repeats them for whoever has missed some.
//
// It has a thread of its own, and never holds up whoever publishes. What cannot be kept is dropped, counted,
// and its number is skipped: a subscriber sees the gap.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "events/kv_batch.h"
#include "schedule/block_event.h"

namespace fourfold::events {

struct PublisherOptions {
  std::string endpoint;
  std::string replay_endpoint = {};             // empty: nothing is repeated
  std::string topic = {};                       // the first frame of each message
  std::int64_t buffer_steps = 10'000;           // batches kept for repeating
  std::size_t queue_max = 10'000;               // batches on their way to the thread
  std::size_t subscriber_max = 100'000;         // messages on their way to a subscriber
  std::size_t subscriber_bytes_max = 64 << 20;  // and their bytes
  EventForm form = EventForm::map;
};

struct PublisherCounts {
  std::int64_t batches = 0;             // published
  std::int64_t dropped = 0;             // not, since too many were waiting for the thread
  std::int64_t subscribers = 0;         // connected now
  std::int64_t subscriber_dropped = 0;  // messages some subscriber did not get, being too slow
  std::int64_t replays = 0;             // asked for
};

class Publisher {
 public:
  static constexpr std::size_t kBufferBytesMax = 64 << 20;  // of batches kept for repeating
  static constexpr std::size_t kPeersMax = 256;             // connections of each socket

  // Listens, or begins to connect. Throws invalid_request, and io for an address that cannot be had.
  explicit Publisher(const PublisherOptions& options);
  ~Publisher();
  Publisher(const Publisher&) = delete;
  Publisher& operator=(const Publisher&) = delete;

  // Any thread; never waits. Blocks have so many tokens. False: dropped.
  bool publish(std::vector<schedule::BlockEvent>&& events, std::int64_t block_tokens);
  PublisherCounts counts() const;
  // With the ports that were found for port 0; empty without one.
  std::string endpoint() const;
  std::string replay_endpoint() const;

 private:
  struct Body;
  std::unique_ptr<Body> body_;
};

}  // namespace fourfold::events
