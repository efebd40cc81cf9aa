// Many requests at once on one prepared model. One thread of its own runs step after step; whoever asks hands
// over a submission and gets its tokens in deliveries, one call a step for all requests of the step.
//
// Every request gets the tokens it would get alone: whoever shares its batch, its prefix or its drafts.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "backend/backend.h"
#include "engine/request.h"

namespace fourfold::engine {

// Called on the engine's thread; it must not block. The last delivery of a request is the one whose finish is
// not running; there is exactly one such for every submission that was accepted.
using Deliver = std::function<void(std::vector<Delivery>&& deliveries)>;

class Engine {
 public:
  // The prepared model must outlive it.
  Engine(backend::Prepared& prepared, EngineOptions options, Deliver deliver);
  ~Engine();  // as stop with no grace
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Any thread. Throws invalid_request for what the model does not allow, over_capacity when the queue is
  // full, the engine stops or waits for what was lost, device_lost after a fault that no step can follow.
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
