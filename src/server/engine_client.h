// What the server needs of an engine. The engine is the one that answers; tests have others that are slow,
// stuck or lost.
#pragma once

#include "engine/engine.h"

namespace fourfold::server {

class EngineClient {
 public:
  virtual ~EngineClient() = default;
  virtual engine::RequestId submit(engine::Submission submission) = 0;
  virtual void cancel(engine::RequestId id) = 0;
  virtual engine::EngineStatus status() const = 0;
  virtual void stop(std::chrono::milliseconds grace) = 0;
};

}  // namespace fourfold::server
