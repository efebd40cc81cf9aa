// The engine as a server's runner.
#pragma once

#include "server/engine_client.h"

namespace fourfold::server {

class EngineRunner final : public EngineClient {
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
