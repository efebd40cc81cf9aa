// What the server needs of an engine. The engine is the one that answers; tests have others that are slow,
// stuck or lost.
#pragma once

#include "engine/engine.h"

namespace fourfold::server {

class Runner {
 public:
  virtual ~Runner() = default;
  virtual engine::RequestId submit(engine::Submission submission) = 0;
  virtual void cancel(engine::RequestId id) = 0;
  virtual engine::EngineStatus status() const = 0;
  virtual void stop(std::chrono::milliseconds grace) = 0;
};

class EngineRunner final : public Runner {
 public:
  explicit EngineRunner(engine::Engine& engine) : engine_(engine) {}
  engine::RequestId submit(engine::Submission submission) override {
    return engine_.submit(std::move(submission));
  }
  void cancel(engine::RequestId id) override { engine_.cancel(id); }
  engine::EngineStatus status() const override { return engine_.status(); }
  void stop(std::chrono::milliseconds grace) override { engine_.stop(grace); }

 private:
  engine::Engine& engine_;
};

}  // namespace fourfold::server
