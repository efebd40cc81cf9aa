// Callers that wait for what the engine's thread delivers.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <map>
#include <mutex>
#include <vector>

#include "engine/engine.h"

namespace fourfold::library {

// One caller's deliveries, from the engine's thread to the caller's.
class Inbox {
 public:
  void put(engine::Delivery delivery);
  engine::Delivery take();

 private:
  std::mutex mutex_;
  std::condition_variable news_;
  std::deque<engine::Delivery> deliveries_;
};

// Which inbox waits for which request.
class Inboxes {
 public:
  void deliver(std::vector<engine::Delivery>&& deliveries);

 private:
  friend class Call;
  std::mutex mutex_;
  std::map<engine::RequestId, Inbox*> waiting_;
};

// What one caller has submitted. However it ends: nothing is delivered to an inbox that is gone, and nothing
// runs for nobody.
class Call {
 public:
  // Throws what submit throws, and then nothing of it runs.
  Call(engine::Engine& engine, Inboxes& inboxes, std::vector<engine::Submission> submissions);
  ~Call() { end(); }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  struct Taken {
    std::size_t index = 0;  // of the submission
    engine::Delivery delivery = {};
  };
  // Waits for the next; every submission has a last one.
  Taken take();
  void cancel(std::size_t index) { engine_.cancel(ids_[index]); }

 private:
  void end();

  engine::Engine& engine_;
  Inboxes& inboxes_;
  Inbox inbox_;
  std::vector<engine::RequestId> ids_;
};

}  // namespace fourfold::library
